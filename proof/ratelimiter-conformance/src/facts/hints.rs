//! `HINT-01` to `HINT-04`: retry hints.
//!
//! A backoff has up to 25 ms of jitter for a concurrency limit, and up to 50 ms for a rolling one.

use std::time::Duration;

use crate::context::TestContext;

scripts! {
    /// HINT-01
    fn hint_01_the_hint_is_the_largest_over_the_keys_without_room: "
        limit long rolling 30s 1; limit longest rolling 50s 1; limit free rolling 90s 2
        reserve A long=1 longest=1 free=1; complete A
        reserve B long=1 longest=1 free=1 -> denied long longest, retry 50s
    ";

    /// HINT-01
    fn hint_01_a_backoff_and_an_exact_time_compare: "
        limit rate rolling 30s 1; limit slots concurrency 60s 1
        reserve A rate=1; complete A; reserve B slots=1
        reserve C slots=1 rate=1 -> denied, retry 30s
        pass 29999ms
        reserve D slots=1 rate=1 -> denied, retry 100ms..125ms
    ";

    /// HINT-02
    fn hint_02_without_open_leases_the_hint_is_exact: "
        limit rate rolling 60s 1
        reserve A rate=1; complete A; pass 1250ms
        reserve B rate=1 -> denied, retry 58750ms
        pass 58749ms
        reserve C rate=1 -> denied, retry 1ms
        pass 1ms; reserve D rate=1
    ";

    /// HINT-02
    fn hint_02_the_hint_waits_for_as_many_as_are_needed: "
        limit rate rolling 10s 6
        reserve A rate=1; complete A; pass 1s; reserve B rate=2; complete B; pass 1s
        reserve C rate=3; complete C; pass 1s
        reserve D rate=1 -> denied, retry 7s
        reserve E rate=2 -> denied, retry 8s
        reserve F rate=3 -> denied, retry 8s
        reserve G rate=4 -> denied, retry 9s
        reserve H rate=6 -> denied, retry 9s
    ";

    /// HINT-02, HINT-03
    fn hint_02_with_an_open_lease_the_hint_is_at_most_the_backoff: "
        limit rate rolling 30s 2
        reserve closed rate=1; complete closed; reserve open rate=1
        reserve A rate=1 -> denied, retry 3000ms..3050ms
    ";

    /// HINT-02
    fn hint_02_a_near_expiry_is_sooner_than_the_backoff: "
        limit rate rolling 30s 1
        reserve open rate=1; pass 28s
        reserve A rate=1 -> denied, retry 2s
    ";

    /// HINT-03
    fn hint_03_a_concurrency_hint_doubles_until_an_allow: "
        limit slots concurrency 60s 1
        reserve A slots=1
        reserve B slots=1 -> denied, retry 50ms..75ms
        reserve C slots=1 -> denied, retry 100ms..125ms
        reserve D slots=1 -> denied, retry 200ms..225ms
        reserve E slots=1 -> denied, retry 400ms..425ms
        complete A; reserve F slots=1
        reserve G slots=1 -> denied, retry 50ms..75ms
    ";

    /// HINT-03
    fn hint_03_a_concurrency_hint_ends_at_two_seconds: "
        limit slots concurrency 60s 1
        reserve A slots=1
        reserve 1 slots=1 -> denied
        reserve 2 slots=1 -> denied
        reserve 3 slots=1 -> denied
        reserve 4 slots=1 -> denied
        reserve 5 slots=1 -> denied
        reserve 6 slots=1 -> denied
        reserve B slots=1 -> denied, retry 2000ms..2025ms
        reserve C slots=1 -> denied, retry 2000ms..2025ms
    ";

    /// HINT-03
    fn hint_03_a_rolling_hint_grows_by_half_until_an_allow: "
        limit rate rolling 20s 1
        reserve A rate=1
        reserve B rate=1 -> denied, retry 2000ms..2050ms
        reserve C rate=1 -> denied, retry 3000ms..3050ms
        reserve D rate=1 -> denied, retry 4500ms..4550ms
        reserve E rate=1 -> denied, retry 5000ms..5050ms
        complete A rate=0; reserve F rate=1
        reserve G rate=1 -> denied, retry 2000ms..2050ms
    ";

    /// HINT-03
    fn hint_03_each_key_counts_its_own_denials: "
        limit one concurrency 60s 1; limit other concurrency 60s 1
        reserve A one=1 other=1
        reserve B one=1 -> denied one
        reserve C one=1 -> denied one
        reserve D one=1 -> denied one
        reserve E other=1 -> denied, retry 50ms..75ms
        reserve F one=1 -> denied, retry 400ms..425ms
    ";

    /// HINT-04
    fn hint_04_a_decrease_hints_at_ten_seconds_each_time: "
        limit slots concurrency 60s 2
        reserve A slots=2
        limit slots concurrency 60s 1 -> decreasing to 1
        reserve B slots=1 -> decreasing slots, retry 10s
        reserve C slots=1 -> decreasing slots, retry 10s
        reserve D slots=1 -> decreasing slots, retry 10s
    ";

    /// HINT-04
    fn hint_04_permanent_refusals_are_no_denials: "
        limit small rolling 60s 1
        reserve A unknown=1 -> unknown unknown
        reserve B small=2 -> exceeds small
        reserve A small=1
    ";
}

/// HINT-03
pub(crate) async fn hint_03_a_concurrency_hint_is_never_beyond_the_timeout(on: &mut TestContext) {
    on.run("limit slots concurrency 1s 1\nreserve A slots=1").await;
    for n in 1..=10 {
        let answer = on.reserve(&format!("{n}"), vec![(on.key("slots"), 1)]).await;
        let decision = answer.expect("a decision");
        let Some(denial) = decision.denial() else {
            // On a real clock the hold may have timed out by now; then there is nothing to check.
            return;
        };
        assert_eq!(denial.keys(), [on.key("slots")]);
        assert!(denial.retry_after_ms() >= 1 && denial.retry_after <= Duration::from_secs(1));
    }
}
