//! `SHD-01` and `SHD-02`: limits that count and never deny.

scripts! {
    /// SHD-01
    fn shd_01_a_shadow_limit_counts_and_never_denies: "
        limit try rolling 60s 3 shadow
        reserve A try=2
        reserve B try=2 -> shadow denied try
        used try=4; available try=0
        reserve C try=100 -> shadow denied try
        used try=104
        complete B try=0; complete C try=0
        used try=2; available try=1
        reserve D try=1
    ";

    /// SHD-01
    fn shd_01_all_kinds_of_limits_can_be_in_shadow_mode: "
        limit slots concurrency 60s 1 shadow; limit budget calendar month,1@00:00/UTC 1 shadow
        reserve A slots=1 budget=1
        reserve B slots=1 budget=1 -> shadow denied slots budget
        used slots=2 budget=2
        complete A; complete B
        used slots=0 budget=2
        reserve C slots=1 budget=1 -> shadow denied budget
    ";

    /// SHD-01
    fn shd_01_only_an_enforced_limit_denies: "
        limit try rolling 60s 3 shadow; limit real concurrency 60s 1
        reserve A try=5 real=1 -> shadow denied try
        reserve B try=1 real=1 -> denied real
        used try=5 real=1
        complete A
        reserve C try=1 real=1 -> shadow denied try
    ";

    /// SHD-01, PAUSE-01
    fn shd_01_a_pause_in_shadow_mode_denies_nothing: "
        limit try rolling 60s 0 shadow -> paused
        reserve A try=1 -> shadow denied try
        used try=1
    ";

    /// SHD-01, DEF-07
    fn shd_01_a_lower_capacity_applies_at_once: "
        limit try rolling 60s 10 shadow
        reserve A try=8
        limit try rolling 60s 5 shadow
        status try -> active; capacity try=5; used try=8
        reserve B try=1 -> shadow denied try
    ";

    /// SHD-01, RES-04
    fn shd_01_a_repeated_reserve_is_named_once: "
        limit try rolling 60s 1 shadow
        reserve A try=2 -> shadow denied try
        reserve A try=2 -> allowed as before
        used try=2
        reserve A try=1 -> conflict
    ";

    /// SHD-01, COM-03
    fn shd_01_an_excess_is_counted_and_never_owed: "
        limit try rolling 60s 5 shadow
        reserve A try=2; complete A try=50
        used try=50; debt try=0
    ";

    /// SHD-01
    fn shd_01_each_request_of_a_batch_counts: "
        limit try rolling 60s 2 shadow
        batch
            reserve A try=1
            reserve B try=1
            reserve C try=1 -> shadow denied try
            reserve D try=1 -> shadow denied try
        end
        used try=4
    ";

    /// SHD-01, RES-07
    fn shd_01_a_shadow_limit_counts_up_to_the_largest_capacity: "
        limit try rolling 60s 3 shadow
        reserve A try=18446744073709551615 -> exceeds try
        reserve B try=MOST -> shadow denied try
        reserve C try=1 -> denied try
        used try=MOST
    ";

    /// SHD-02
    fn shd_02_enforcing_a_limit_with_room_holds_at_once: "
        limit try rolling 60s 3 shadow
        reserve A try=2
        limit try rolling 60s 3
        status try -> active; capacity try=3
        reserve B try=2 -> denied try
        reserve C try=1
    ";

    /// SHD-02, DEF-07
    fn shd_02_enforcing_a_limit_over_its_capacity_is_a_decrease: "
        limit try concurrency 60s 3 shadow
        reserve A try=2; reserve B try=2 -> shadow denied try
        limit try concurrency 60s 3 -> decreasing to 3
        limit try concurrency 60s 3 -> decreasing to 3
        reserve C try=1 -> decreasing try
        complete B; wait try
        status try -> active; capacity try=3; used try=2
        reserve D try=2 -> denied try
        reserve E try=1
    ";

    /// SHD-02, DEF-06
    fn shd_02_a_decrease_ends_in_shadow_mode: "
        limit try concurrency 60s 9
        reserve A try=8
        limit try concurrency 60s 3 -> decreasing to 3
        limit try concurrency 60s 3 shadow
        reserve B try=1 -> shadow denied try
        used try=9
    ";

    /// SHD-02
    fn shd_02_shadow_mode_opens_a_full_limit: "
        limit try rolling 60s 3
        reserve A try=3
        reserve B try=1 -> denied try
        limit try rolling 60s 3 shadow
        reserve C try=1 -> shadow denied try
        used try=4
    ";

    /// SHD-02, DEF-08
    fn def_08_the_mode_of_a_limit_survives_a_restart: "
        limit try rolling 60s 3 shadow
        restart
        defined try rolling 60s 3 shadow
        reserve A try=5 -> shadow denied try
    ";

    /// SHD-02, COM-07
    fn shd_02_enforcing_after_a_restart_counts_what_was_admitted: "
        limit try concurrency 60s 3 shadow
        reserve A try=2; reserve B try=2 -> shadow denied try
        restart
        limit try concurrency 60s 3 -> decreasing to 3
        reserve C try=1 -> decreasing try
        complete A; wait try
        status try -> active; used try=2
        reserve D try=1
    ";
}
