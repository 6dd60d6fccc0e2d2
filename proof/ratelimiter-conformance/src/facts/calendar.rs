//! `CAL-01` to `CAL-04`: limits that reset at the end of an hour, day, week or month.
//!
//! The virtual clock begins on Sunday, 12 January 2025, at 05:33:20 UTC.

scripts! {
    /// CAL-01
    fn cal_01_all_units_return_at_the_reset: "
        limit budget calendar hour@00:34 10
        resets budget -> in 40s
        reserve A budget=6; complete A budget=6
        pass 30s
        reserve B budget=4
        reserve C budget=1 -> denied budget
        pass 9s
        reserve D budget=1 -> denied budget
        used budget=10
        outlast 1s
        used budget=0
        reserve E budget=10
    ";

    /// CAL-01
    fn cal_01_a_period_is_an_hour_a_day_a_week_or_a_month: "
        limit hour calendar hour@23:34 1
        limit day calendar day@07:35/Europe/Sofia 1
        limit week calendar week,sunday@05:36/UTC 1
        limit month calendar month,12@00:37/America/New_York 1
        resets hour -> in 40s; resets day -> in 100s; resets week -> in 160s; resets month -> in 220s
        reserve A hour=1 day=1 week=1 month=1
        outlast 40s
        reserve B hour=1; reserve C day=1 -> denied day
        outlast 60s
        reserve D day=1; reserve E week=1 -> denied week
        outlast 60s
        reserve F week=1; reserve G month=1 -> denied month
        outlast 60s
        reserve H month=1; reserve I hour=1 -> denied hour
    ";

    /// CAL-01
    fn cal_01_the_next_reset_may_be_far: "
        limit day calendar day@06:00/Europe/Sofia 1
        limit week calendar week,monday@00:00/UTC 1
        limit month calendar month,1@00:00/America/New_York 1
        resets day -> in 80800s; resets week -> in 66400s; resets month -> in 1726000s
    ";

    /// CAL-01
    fn cal_01_periods_follow_each_other: "
        limit budget calendar hour@00:34 3
        reserve A budget=3; outlast 40s
        reserve B budget=3; outlast 3600s
        reserve C budget=3
        reserve D budget=1 -> denied budget
        outlast 7200s
        reserve E budget=3
    ";

    /// CAL-01
    fn cal_01_a_new_schedule_applies_from_the_next_reset: "
        limit budget calendar hour@00:34 5
        reserve A budget=5
        limit budget calendar hour@00:40 5
        resets budget -> in 40s
        reserve B budget=1 -> denied budget
        pass 40s
        resets budget -> in 360s
        reserve C budget=5
        outlast 350s
        reserve D budget=1 -> denied budget
        outlast 10s
        reserve E budget=5
    ";

    /// CAL-01
    fn cal_01_an_unused_limit_keeps_its_schedule_until_the_next_reset: "
        limit budget calendar hour@00:34 5
        limit budget calendar day@00:00/UTC 5
        resets budget -> in 40s
        pass 40s
        resets budget -> in 66360s
    ";

    /// CAL-01, COM-02, COM-03
    fn cal_01_use_is_reconciled_within_the_period: "
        limit budget calendar month,1@00:00/UTC 100
        reserve A budget=60; complete A budget=20; used budget=20
        reserve B budget=10; complete B budget=70; used budget=90
        reserve C budget=10; complete C budget=15
        used budget=100; debt budget=5
        reserve D budget=1 -> denied budget
    ";

    /// CAL-01, DEF-04
    fn cal_01_a_calendar_limit_stays_one: "
        limit budget calendar month,28@06:30/Europe/Sofia 9 deny
        defined budget calendar month,28@06:30/Europe/Sofia 9 deny
        limit budget rolling 60s 9 -> budget is calendar
        limit rate rolling 60s 9
        limit rate calendar month,28@06:30/UTC 9 -> rate is rolling
    ";

    /// CAL-01, DEF-07
    fn cal_01_a_decrease_waits_for_the_reset: "
        limit budget calendar hour@00:34 10
        reserve A budget=8; complete A budget=8
        limit budget calendar hour@00:34 5 -> decreasing to 5
        reserve B budget=1 -> decreasing budget
        outlast 40s; wait budget
        status budget -> active; capacity budget=5
        reserve C budget=5
    ";

    /// CAL-01, DEF-06, DEF-07
    fn cal_01_a_capacity_changes_within_the_period: "
        limit budget calendar month,1@00:00/UTC 10
        reserve A budget=8
        limit budget calendar month,1@00:00/UTC 20
        reserve B budget=12
        limit budget calendar month,1@00:00/UTC 15 -> decreasing to 15
        complete A budget=2; wait budget
        status budget -> active; used budget=14
        reserve C budget=1
    ";

    /// CAL-01, RES-09
    fn cal_01_a_lease_has_ended_with_its_period: "
        limit budget calendar hour@00:34 10; limit slots concurrency 300s 2
        reserve A budget=1 slots=1
        reserve A budget=1 slots=1 -> allowed as before
        outlast 40s
        reserve A budget=1 slots=1 -> ended
        used slots=1
        complete A
        used slots=0
    ";

    /// CAL-03
    fn cal_03_the_hint_is_the_time_to_the_reset: "
        limit budget calendar hour@00:34 10
        reserve A budget=9; complete A
        reserve B budget=2 -> denied budget, retry 40s
        reserve C budget=1
        reserve D budget=1 -> denied budget, retry 5s..5050ms
    ";

    /// CAL-03
    fn cal_03_a_hint_is_never_beyond_the_reset: "
        limit budget calendar hour@00:34 10
        pass 38s
        reserve A budget=10
        reserve B budget=1 -> denied budget, retry 1ms..2s
        complete A
        reserve C budget=1 -> denied budget, retry 1ms..2s
    ";

    /// CAL-04
    fn cal_04_a_complete_after_the_period_changes_nothing: "
        limit budget calendar hour@00:34 10; limit slots concurrency 300s 2
        reserve A budget=6 slots=1; reserve B budget=4 slots=1
        outlast 40s
        reserve C budget=10
        complete A budget=2; complete B
        used budget=10 slots=0; debt budget=0
        reserve D budget=1 -> denied budget
    ";

    /// CAL-04
    fn cal_04_an_excess_after_the_period_is_debt_while_the_lease_is_open: "
        limit budget calendar hour@00:34 10; limit slots concurrency 300s 5
        reserve A budget=6 slots=1; reserve B budget=3
        outlast 40s
        complete A budget=9; complete B budget=9
        debt budget=3; used budget=0 slots=0
        complete A budget=20
        debt budget=3
    ";

    /// CAL-04
    fn cal_04_an_excess_after_the_period_only_counts_if_the_overage_is_deny: "
        limit budget calendar hour@00:34 10 deny; limit slots concurrency 300s 5
        reserve A budget=6 slots=1
        outlast 40s
        complete A budget=9
        debt budget=0; uncovered budget=3; used budget=0
    ";

    /// CAL-04
    fn cal_04_an_excess_after_the_period_is_not_the_debt_of_another_limit: "
        limit budget calendar hour@00:34 10; limit slots concurrency 300s 5
        reserve A budget=6 slots=1
        delete budget; limit budget rolling 60s 10
        outlast 40s
        complete A budget=9
        debt budget=0; used budget=0 slots=0
    ";

    /// CAL-01, DEF-08
    fn def_08_a_calendar_limit_survives_a_restart: "
        limit budget calendar month,28@06:30/Europe/Sofia 9 deny
        limit weekly calendar week,friday@23:59/Asia/Kathmandu 9 shadow
        restart
        defined budget calendar month,28@06:30/Europe/Sofia 9 deny
        defined weekly calendar week,friday@23:59/Asia/Kathmandu 9 shadow
        reserve A budget=9
    ";

    /// CAL-01, COM-07
    fn cal_01_a_period_survives_a_restart: "
        limit budget calendar month,1@00:00/UTC 10; limit slots concurrency 300s 2
        reserve A budget=6 slots=1
        restart
        reserve B budget=5 -> denied budget
        used budget=6
        complete A budget=2
        used budget=2 slots=0
        reserve C budget=8
    ";

    /// CAL-01, COM-07
    fn cal_01_servers_share_a_period: "
        limit budget calendar month,1@00:00/UTC 10
        reserve A budget=6
        move
        limit budget calendar month,1@00:00/UTC 10
        reserve B budget=5 -> denied budget
        complete A budget=3
        reserve C budget=7
        used budget=10
    ";
}
