//! `REN-01` to `REN-03`: leases that live.

scripts! {
    /// REN-01
    fn ren_01_shrinking_returns_units_at_once: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5; limit budget calendar month,1@00:00/UTC 10
        reserve A rate=8 slots=4 budget=8
        renew A 1 rate=3 slots=1
        used rate=3 slots=1 budget=8
        renew A 2 budget=1
        used rate=3 slots=1 budget=1
        reserve B rate=7 slots=4 budget=9
    ";

    /// REN-01
    fn ren_01_growing_takes_units: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5; limit budget calendar month,1@00:00/UTC 10
        reserve A rate=1 slots=1 budget=1
        renew A 1 rate=10 slots=5 budget=10
        used rate=10 slots=5 budget=10
        reserve B rate=1 -> denied rate
        renew A 2 rate=9
        reserve C rate=1
    ";

    /// REN-01
    fn ren_01_growing_without_room_is_denied_and_changes_nothing: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=6 slots=1; reserve B rate=4 slots=4
        renew A 1 rate=7 -> denied rate
        renew A 2 rate=1 slots=2 -> denied slots
        used rate=10 slots=5
        complete B rate=0
        renew A 3 rate=1 slots=2
        used rate=1 slots=2
    ";

    /// REN-01
    fn ren_01_an_amount_of_zero_gives_all_back: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=10 slots=5
        renew A 1 rate=0 slots=0
        used rate=0 slots=0
        reserve B rate=10 slots=5
        renew A 2 rate=1 -> denied rate
        complete B rate=9
        renew A 3 rate=1 slots=5
        used rate=10 slots=5
        complete A rate=0
        used rate=9 slots=0
    ";

    /// REN-01
    fn ren_01_a_key_that_the_lease_does_not_hold_is_refused: "
        limit rate rolling 60s 10; limit other rolling 60s 10
        reserve A rate=1; reserve B other=1
        renew A 1 rate=2 other=2 -> invalid other
        renew A 1 unknown=0 -> invalid unknown
        used rate=1 other=1
        renew A 1 rate=2
        used rate=2 other=1
    ";

    /// REN-01, RES-07
    fn ren_01_more_than_the_capacity_is_refused: "
        limit rate rolling 60s 10; limit most rolling 60s MOST
        reserve A rate=1 most=1
        renew A 1 rate=11 -> exceeds rate
        renew A 1 rate=2^63 -> exceeds rate
        renew A 1 most=MOST+1 -> exceeds most
        renew A 1 rate=2^64-1 most=2^64-1 -> exceeds rate
        used rate=1 most=1
        renew A 1 most=MOST
        used rate=1 most=MOST
    ";

    /// REN-01, PAUSE-01, HINT-04
    fn ren_01_a_paused_limit_denies_growing_only: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=5 slots=1
        limit rate rolling 60s 0 -> paused
        renew A 1 rate=6 slots=2 -> paused rate, retry 10s
        renew A 2 rate=5 slots=2
        renew A 3 rate=4
        used rate=4 slots=2
        renew A 4 rate=0
        renew A 5 rate=11 -> paused rate
    ";

    /// REN-01, DEF-07, HINT-04
    fn ren_01_a_decreasing_limit_denies_growing_only: "
        limit slots concurrency 60s 9
        reserve A slots=6; reserve B slots=2
        limit slots concurrency 60s 5 -> decreasing to 5
        renew A 1 slots=7 -> decreasing slots, retry 10s
        renew A 2 slots=6
        used slots=8
        renew A 3 slots=3
        wait slots
        status slots -> active; capacity slots=5; used slots=5
    ";

    /// REN-01, SHD-01
    fn ren_01_a_shadow_limit_never_denies: "
        limit try rolling 60s 3 shadow
        reserve A try=1
        renew A 1 try=3
        renew A 2 try=4 -> shadow denied try
        renew A 2 try=4 -> renewed as before
        used try=4
        renew A 3 try=2
        used try=2
    ";

    /// REN-01, DEF-09
    fn ren_01_a_limit_of_a_deleted_key_is_not_taken: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=5 slots=1
        delete rate
        renew A 1 rate=3
        renew A 2 rate=4 slots=2 -> unknown rate
        used slots=1
        renew A 2 slots=2
        used slots=2
    ";

    /// REN-01, COM-02, COM-03
    fn ren_01_a_complete_reconciles_what_is_held_now: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1; reserve B rate=1
        renew A 1 rate=6 slots=3
        complete A rate=5
        used rate=6 slots=0
        renew B 1 rate=3
        complete B rate=5
        used rate=10
        debt rate=0
    ";

    /// REN-01, COM-02
    fn ren_01_what_has_lapsed_covers_use_so_that_it_counts_once: "
        limit rate rolling 30s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1; reserve B rate=4 slots=1
        outlast 30s
        renew A 1 rate=5; renew B 1 rate=5
        complete A rate=6
        used rate=7
        complete B rate=3
        used rate=2
        debt rate=0
    ";

    /// REN-01, COM-03
    fn ren_01_use_beyond_all_that_was_reserved_is_an_excess: "
        limit rate rolling 30s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1; reserve B rate=4 slots=1
        outlast 30s
        renew A 1 rate=5; renew B 1 rate=3
        complete A rate=11
        used rate=10
        complete B rate=8
        used rate=10
        debt rate=1
    ";

    /// REN-01, REN-02
    fn ren_01_an_excess_after_all_has_lapsed_is_debt_while_the_lease_is_open: "
        limit rate rolling 30s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1
        renew A 1 rate=5
        outlast 30s
        renew A 2
        complete A rate=7
        used rate=0 slots=0
        debt rate=2
    ";

    /// REN-01, COM-04
    fn ren_01_a_lease_keeps_what_it_holds_now_without_an_actual: "
        limit rate rolling 60s 10
        reserve A rate=4; reserve B rate=1
        renew A 1 rate=6; renew B 1 rate=0
        complete A; complete B
        used rate=6
    ";

    /// REN-01, OPS-01
    fn ren_01_a_renewed_lease_is_listed_with_what_it_holds: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1
        renew A 1 rate=6 slots=3
        leases rate -> A rate=6 slots=3
        release A
        used rate=6 slots=0
    ";

    /// REN-01, TPL-02
    fn ren_01_the_limit_of_a_template_is_renewed: "
        limit tenant:*:slots concurrency 60s 5
        reserve A tenant:a:slots=1
        renew A 1 tenant:a:slots=5
        used tenant:a:slots=5
        renew A 2 tenant:a:slots=0
        used tenant:a:slots=0
        renew A 3 tenant:a:slots=6 -> exceeds tenant:a:slots
        renew A 3 tenant:a:slots=2
        used tenant:a:slots=2
    ";

    /// REN-01
    fn ren_01_what_would_lapse_first_is_given_back_first: "
        limit rate rolling 60s 10
        reserve A rate=4
        pass 30s
        renew A 1 rate=7
        renew A 2 rate=5
        pass 29s
        used rate=5
        outlast reconciled 1s
        used rate=3
        outlast 30s
        used rate=0
    ";

    /// REN-01
    fn ren_01_what_is_added_counts_for_a_full_window: "
        limit rate rolling 60s 10
        reserve A rate=4
        pass 59s
        renew A 1 rate=7
        outlast 1s
        used rate=3
        pass 58s
        used rate=3
        outlast 1s
        used rate=0
    ";

    /// REN-02
    fn ren_02_every_renew_begins_the_timeouts_of_holds_again: "
        limit slots concurrency 60s 5; limit more concurrency 30s 5
        reserve A slots=1 more=2
        pass 29s
        renew A 1
        pass 29s
        used slots=1 more=2
        renew A 2 slots=2
        pass 29s
        used slots=2 more=2
        outlast 1s
        used slots=2 more=0
        outlast 30s
        used slots=0
    ";

    /// REN-02
    fn ren_02_rolling_reservations_keep_their_expiry: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1
        pass 50s
        renew A 1 rate=4; renew A 2
        outlast 10s
        used rate=0 slots=1
    ";

    /// REN-02
    fn ren_02_a_lease_can_be_renewed_until_its_last_hold_has_lapsed: "
        limit slots concurrency 30s 5; limit rate rolling 60s 10
        reserve A rate=4 slots=1
        outlast 30s
        renew A 1 rate=1 -> ended
        used rate=4
        complete A rate=1
        used rate=1
    ";

    /// REN-02
    fn ren_02_without_holds_a_lease_can_be_renewed_until_its_last_reservation_has_lapsed: "
        limit rate rolling 30s 10; limit tokens rolling 60s 10
        reserve A rate=4 tokens=4
        outlast 30s
        renew A 1 tokens=2
        used rate=0 tokens=2
        outlast 30s
        renew A 2 tokens=1 -> ended
    ";

    /// REN-02
    fn ren_02_what_has_lapsed_counts_zero: "
        limit rate rolling 30s 10; limit slots concurrency 60s 5
        reserve A rate=10 slots=1
        outlast 30s
        reserve B rate=7
        renew A 1 rate=4 -> denied rate
        renew A 2 rate=3
        used rate=10
        pass 20s
        renew A 3
        used rate=10
        outlast 10s
        used rate=0
    ";

    /// REN-03
    fn ren_03_a_repeated_number_answers_as_before: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=1 slots=1
        renew A 1 rate=5 slots=2
        renew A 1 rate=5 slots=2 -> renewed as before
        renew A 1 rate=9 -> renewed as before
        used rate=5 slots=2
        renew A 2 rate=6
        renew A 2 rate=6 -> renewed as before
        used rate=6 slots=2
    ";

    /// REN-03, REN-02
    fn ren_03_a_repetition_begins_no_timeout_again: "
        limit slots concurrency 60s 5
        reserve A slots=1
        renew A 1
        pass 30s
        renew A 1 -> renewed as before
        outlast 30s
        used slots=0
    ";

    /// REN-03
    fn ren_03_a_lower_number_is_superseded: "
        limit rate rolling 60s 10
        reserve A rate=1
        renew A 5 rate=5
        renew A 4 rate=1 -> superseded
        renew A 1 unknown=1 -> superseded
        used rate=5
        renew A 6 rate=2
        used rate=2
    ";

    /// REN-03
    fn ren_03_a_denied_number_stays_denied: "
        limit rate rolling 60s 10
        reserve A rate=1; reserve B rate=9
        renew A 1 rate=2 -> denied rate
        complete B rate=0
        renew A 1 rate=2 -> denied rate
        used rate=1
        renew A 2 rate=2
        used rate=2
    ";

    /// REN-03
    fn ren_03_a_lease_that_is_not_open_cannot_be_renewed: "
        limit rate rolling 60s 10
        reserve A rate=10
        reserve B rate=1 -> denied rate
        renew B 1 rate=0 -> ended
        renew C 1 -> ended
        renew A 1 rate=5
        complete A rate=5
        renew A 1 rate=5 -> ended
        renew A 2 rate=1 -> ended
        used rate=5
    ";

    /// REN-03, OPS-01
    fn ren_03_a_released_lease_cannot_be_renewed: "
        limit slots concurrency 60s 5
        reserve A slots=1
        release A
        renew A 1 slots=2 -> ended
        used slots=0
    ";

    /// REN-03, RES-04
    fn ren_03_a_repeated_reserve_is_compared_with_the_first_requirements: "
        limit rate rolling 60s 10; limit slots concurrency 60s 5
        reserve A rate=4 slots=1
        renew A 1 rate=6 slots=2
        reserve A rate=4 slots=1 -> allowed as before
        reserve A rate=6 slots=2 -> conflict
        renew A 2 rate=0 slots=0
        reserve A slots=1 rate=4 -> allowed as before
        used rate=0 slots=0
    ";
}
