//! `HINT-01` to `HINT-04`: retry hints.

use std::time::Duration;

use crate::context::TestContext;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Whether a hint lies within a backoff that starts at `ms` and has up to `jitter_ms` added.
#[track_caller]
fn assert_backoff(hint: Duration, ms: u64, jitter_ms: u64) {
    let range = Duration::from_millis(ms)..=Duration::from_millis(ms + jitter_ms);
    assert!(range.contains(&hint), "{hint:?} is not within {range:?}");
}

#[track_caller]
fn assert_slots_backoff(hint: Duration, ms: u64) {
    assert_backoff(hint, ms, 25);
}

#[track_caller]
fn assert_rate_backoff(hint: Duration, ms: u64) {
    assert_backoff(hint, ms, 50);
}

/// HINT-01
pub(crate) async fn hint_01_the_hint_is_the_largest_over_the_keys_without_room(on: &TestContext) {
    on.rolling("long", 30, 1).await;
    on.rolling("longest", 50, 1).await;
    on.rolling("free", 90, 2).await;
    let needs = [("long", 1), ("longest", 1), ("free", 1)];
    on.reserve("A", needs).await.is_allowed();
    on.complete("A", []).await.is_ok();
    let answer = on.reserve("B", needs).await;
    let denial = answer.is_denied_for(["long", "longest"]);
    assert_eq!(denial.retry_after, Duration::from_secs(50));
}

/// HINT-01
pub(crate) async fn hint_01_a_backoff_and_an_exact_time_compare(on: &TestContext) {
    on.rolling("rate", 30, 1).await;
    on.concurrency("slots", 60, 1).await;
    let needs = [("slots", 1), ("rate", 1)];
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.complete("A", []).await.is_ok();
    on.reserve("B", [("slots", 1)]).await.is_allowed();
    let answer = on.reserve("C", needs).await;
    assert_eq!(answer.is_denied().retry_after, Duration::from_secs(30));
    on.pass(Duration::from_secs(30) - MILLISECOND).await;
    let answer = on.reserve("D", needs).await;
    assert_slots_backoff(answer.is_denied().retry_after, 100);
}

/// HINT-02
pub(crate) async fn hint_02_without_open_leases_the_hint_is_exact(on: &TestContext) {
    on.rolling("rate", 60, 1).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.complete("A", []).await.is_ok();
    on.pass(Duration::from_millis(1_250)).await;
    let answer = on.reserve("B", [("rate", 1)]).await;
    let hint = answer.is_denied().retry_after;
    assert_eq!(hint, Duration::from_millis(58_750));
    on.pass(hint - MILLISECOND).await;
    let answer = on.reserve("C", [("rate", 1)]).await;
    assert_eq!(answer.is_denied().retry_after, MILLISECOND);
    on.pass(MILLISECOND).await;
    on.reserve("D", [("rate", 1)]).await.is_allowed();
}

/// HINT-02
pub(crate) async fn hint_02_the_hint_waits_for_as_many_as_are_needed(on: &TestContext) {
    on.rolling("rate", 10, 6).await;
    for (lease, amount) in [("A", 1), ("B", 2), ("C", 3)] {
        on.reserve(lease, [("rate", amount)]).await.is_allowed();
        on.complete(lease, []).await.is_ok();
        on.pass_seconds(1).await;
    }
    for (lease, amount, seconds) in
        [("D", 1, 7), ("E", 2, 8), ("F", 3, 8), ("G", 4, 9), ("H", 6, 9)]
    {
        let answer = on.reserve(lease, [("rate", amount)]).await;
        let hint = answer.is_denied().retry_after;
        assert_eq!(hint, Duration::from_secs(seconds), "{amount}");
    }
}

/// HINT-02, HINT-03
pub(crate) async fn hint_02_with_an_open_lease_the_hint_is_at_most_the_backoff(on: &TestContext) {
    on.rolling("rate", 30, 2).await;
    on.reserve("closed", [("rate", 1)]).await.is_allowed();
    on.complete("closed", []).await.is_ok();
    on.reserve("open", [("rate", 1)]).await.is_allowed();
    let answer = on.reserve("A", [("rate", 1)]).await;
    assert_rate_backoff(answer.is_denied().retry_after, 3_000);
}

/// HINT-02
pub(crate) async fn hint_02_a_near_expiry_is_sooner_than_the_backoff(on: &TestContext) {
    on.rolling("rate", 30, 1).await;
    on.reserve("open", [("rate", 1)]).await.is_allowed();
    on.pass_seconds(28).await;
    let answer = on.reserve("A", [("rate", 1)]).await;
    assert_eq!(answer.is_denied().retry_after, Duration::from_secs(2));
}

/// HINT-03
pub(crate) async fn hint_03_a_concurrency_hint_doubles_until_an_allow(on: &TestContext) {
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    for (lease, ms) in [("B", 50), ("C", 100), ("D", 200), ("E", 400)] {
        let answer = on.reserve(lease, [("slots", 1)]).await;
        assert_slots_backoff(answer.is_denied().retry_after, ms);
    }
    on.complete("A", []).await.is_ok();
    on.reserve("F", [("slots", 1)]).await.is_allowed();
    let answer = on.reserve("G", [("slots", 1)]).await;
    assert_slots_backoff(answer.is_denied().retry_after, 50);
}

/// HINT-03
pub(crate) async fn hint_03_a_concurrency_hint_ends_at_two_seconds(on: &TestContext) {
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    for n in 1..=6 {
        let answer = on.reserve(&format!("{n}"), [("slots", 1)]).await;
        answer.is_denied();
    }
    for lease in ["B", "C"] {
        let answer = on.reserve(lease, [("slots", 1)]).await;
        assert_slots_backoff(answer.is_denied().retry_after, 2_000);
    }
}

/// HINT-03
pub(crate) async fn hint_03_a_concurrency_hint_is_never_beyond_the_timeout(on: &TestContext) {
    on.concurrency("slots", 1, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    for n in 1..=10 {
        let answer = on.reserve(&format!("{n}"), [("slots", 1)]).await;
        if answer.was_allowed() {
            // On a real clock the hold may have timed out by now; then there is nothing to check.
            return;
        }
        let hint = answer.is_denied().retry_after;
        assert!(hint <= Duration::from_secs(1), "{hint:?}");
    }
}

/// HINT-03
pub(crate) async fn hint_03_a_rolling_hint_grows_by_half_until_an_allow(on: &TestContext) {
    on.rolling("rate", 20, 1).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    for (lease, ms) in [("B", 2_000), ("C", 3_000), ("D", 4_500), ("E", 5_000)] {
        let answer = on.reserve(lease, [("rate", 1)]).await;
        assert_rate_backoff(answer.is_denied().retry_after, ms);
    }
    on.complete("A", [("rate", 0)]).await.is_ok();
    on.reserve("F", [("rate", 1)]).await.is_allowed();
    let answer = on.reserve("G", [("rate", 1)]).await;
    assert_rate_backoff(answer.is_denied().retry_after, 2_000);
}

/// HINT-03
pub(crate) async fn hint_03_each_key_counts_its_own_denials(on: &TestContext) {
    on.concurrency("one", 60, 1).await;
    on.concurrency("other", 60, 1).await;
    on.reserve("A", [("one", 1), ("other", 1)]).await.is_allowed();
    for lease in ["B", "C", "D"] {
        on.reserve(lease, [("one", 1)]).await.is_denied_for(["one"]);
    }
    let answer = on.reserve("E", [("other", 1)]).await;
    assert_slots_backoff(answer.is_denied().retry_after, 50);
    let answer = on.reserve("F", [("one", 1)]).await;
    assert_slots_backoff(answer.is_denied().retry_after, 400);
}

/// HINT-04
pub(crate) async fn hint_04_a_decrease_hints_at_ten_seconds_each_time(on: &TestContext) {
    on.concurrency("slots", 60, 2).await;
    on.reserve("A", [("slots", 2)]).await.is_allowed();
    on.decrease(on.concurrency_limit("slots", 60, 1)).await;
    for lease in ["B", "C", "D"] {
        let answer = on.reserve(lease, [("slots", 1)]).await;
        let denial = answer.is_denied_by_decrease_of("slots");
        assert_eq!(denial.retry_after, Duration::from_secs(10));
    }
}

/// HINT-04
pub(crate) async fn hint_04_permanent_refusals_are_no_denials(on: &TestContext) {
    on.rolling("small", 60, 1).await;
    let unknown = on.reserve("A", [("unknown", 1)]).await;
    unknown.is_refused_for_unknown("unknown");
    let over = on.reserve("B", [("small", 2)]).await;
    over.is_refused_for_more_than_capacity_of("small");
    on.reserve("A", [("small", 1)]).await.is_allowed();
}
