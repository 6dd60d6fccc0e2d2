//! `PAUSE-01`: a capacity of 0 is a pause.
//!
//! Reserves are denied and may be retried; none fails permanently.

scripts! {
    /// PAUSE-01, HINT-04
    fn pause_01_a_capacity_of_zero_denies_with_a_fixed_hint: "
        limit off rolling 60s 0 -> paused
        limit free rolling 60s 5
        reserve A free=1 off=1 -> paused off, retry 10s
        reserve B free=1 off=18446744073709551615 -> paused off, retry 10s
        status off -> paused; available off=0; used free=0
    ";

    /// PAUSE-01
    fn pause_01_a_lease_that_met_a_pause_goes_on_when_the_capacity_returns: "
        limit slots concurrency 60s 2
        limit slots concurrency 60s 0 -> paused
        reserve A slots=2 -> paused slots
        reserve A slots=2 -> paused slots
        limit slots concurrency 60s 2
        reserve A slots=2
        used slots=2
    ";

    /// PAUSE-01
    fn pause_01_a_limit_in_use_is_paused_from_the_put_on: "
        limit slots concurrency 60s 10
        reserve A slots=6
        limit slots concurrency 60s 0 -> paused
        status slots -> paused; used slots=6
        reserve B slots=1 -> paused slots, retry 10s
        reserve C slots=11 -> paused slots, retry 10s
        limit slots concurrency 60s 0 -> paused
        status slots -> paused; used slots=6
        reserve B slots=1 -> paused slots, retry 10s
        reserve C slots=11 -> paused slots, retry 10s
        complete A; wait slots
        status slots -> paused; capacity slots=0
        reserve B slots=1 -> paused slots
    ";

    /// PAUSE-01, DEF-06, DEF-07
    fn pause_01_a_pause_of_a_limit_in_use_ends_with_a_higher_capacity: "
        limit slots concurrency 60s 10
        reserve A slots=6
        limit slots concurrency 60s 0 -> paused
        limit slots concurrency 60s 5 -> decreasing to 5
        reserve B slots=1 -> decreasing slots
        limit slots concurrency 60s 0 -> paused
        limit slots concurrency 60s 10
        reserve C slots=4
        used slots=10
    ";

    /// PAUSE-01, COM-01, COM-03: a paused limit has no room for an excess.
    fn pause_01_leases_of_a_paused_limit_complete: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 2
        reserve A tokens=60 slots=2; reserve B tokens=10
        limit tokens rolling 60s 0 -> paused
        limit slots concurrency 60s 0 -> paused
        complete A tokens=20; complete B tokens=15
        used slots=0 tokens=30; debt tokens=5
    ";

    /// PAUSE-01
    fn pause_01_only_the_requests_of_a_batch_that_name_a_paused_limit_are_denied: "
        limit off concurrency 60s 2
        limit off concurrency 60s 0 -> paused
        limit free rolling 60s 5
        batch
            reserve A free=1 off=1 -> paused off
            reserve B free=1
            reserve C off=9 -> paused off
        end
        used free=1
    ";

    /// RES-06
    fn res_06_a_pause_comes_before_an_amount_over_capacity_and_a_decrease: "
        limit paused concurrency 60s 2
        limit paused concurrency 60s 0 -> paused
        limit small rolling 60s 1; limit lowered rolling 60s 10
        reserve holder lowered=6
        limit lowered rolling 60s 5 -> decreasing to 5
        reserve A small=2 lowered=1 paused=1 -> paused paused
        reserve A paused=1 unknown=1 -> unknown unknown
    ";

    /// RES-06, RES-04, RES-05, RES-09
    fn res_06_a_known_lease_comes_before_a_pause: "
        limit slots concurrency 60s 2
        reserve ended slots=2; complete ended; reserve open slots=2
        reserve denied slots=2 -> denied slots
        limit slots concurrency 60s 0 -> paused
        reserve open slots=2 -> allowed as before
        reserve open slots=1 -> conflict
        reserve denied slots=2 -> denied slots
        reserve ended slots=2 -> ended
        reserve new slots=2 -> paused slots
    ";

    /// RES-06, RES-05
    fn res_06_a_denied_lease_stays_denied_when_the_capacity_has_dropped: "
        limit rate rolling 60s 10
        reserve A rate=8
        reserve B rate=5 -> denied rate
        complete A rate=0
        limit rate rolling 60s 3
        reserve B rate=5 -> denied rate
        reserve C rate=5 -> exceeds rate
        limit rate rolling 60s 10
        reserve B rate=5 -> denied rate
        reserve C rate=5
    ";

    /// DEF-08, PAUSE-01
    fn def_08_a_pause_survives_a_restart: "
        limit idle concurrency 60s 10; limit used concurrency 60s 10
        reserve A used=6
        limit idle concurrency 60s 0 -> paused
        limit used concurrency 60s 0 -> paused
        restart
        status idle -> paused
        reserve B idle=1 -> paused idle
        status used -> paused
        reserve C used=1 -> paused used
    ";
}
