//! `RES-04`, `RES-05` and `RES-09`: repeated lease IDs.

use crate::context::TestContext;

/// RES-04
pub(crate) async fn res_04_a_repeated_reserve_counts_once(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    let first = on.reserve("A", [("rate", 3), ("slots", 2)]).await;
    let reserved_at = first.is_allowed();
    on.pass_seconds(1).await;
    for needs in [[("rate", 3), ("slots", 2)], [("slots", 2), ("rate", 3)]] {
        let again = on.reserve("A", needs).await;
        assert_eq!(again.is_allowed(), reserved_at);
        assert_eq!(on.used("rate").await, 3);
        assert_eq!(on.used("slots").await, 2);
    }
    on.reserve("B", [("rate", 7), ("slots", 8)]).await.is_allowed();
    on.complete("A", []).await.is_ok();
    on.complete("B", []).await.is_ok();
    assert_eq!(on.used("slots").await, 0, "held once, released once");
}

/// RES-04
pub(crate) async fn res_04_a_repeated_reserve_does_not_last_longer(on: &TestContext) {
    on.rolling("rate", 2, 1).await;
    let window = on.lifetime_of_seconds(2);
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.pass_seconds(1).await;
    let again = on.reserve("A", [("rate", 1)]).await;
    if on.is_within(window) {
        again.is_allowed();
    }
    on.outlast_seconds(1).await;
    on.reserve("B", [("rate", 1)]).await.is_allowed();
}

/// RES-04
pub(crate) async fn res_04_a_lease_cannot_come_back_with_other_requirements(on: &TestContext) {
    for name in ["a", "b", "c"] {
        on.rolling(name, 60, 10).await;
    }
    on.reserve("A", [("a", 2), ("b", 2)]).await.is_allowed();
    on.reserve("A", [("a", 2), ("b", 3)]).await.is_a_conflict();
    on.reserve("A", [("a", 1), ("b", 2)]).await.is_a_conflict();
    on.reserve("A", [("a", 2)]).await.is_a_conflict();
    on.reserve("A", [("b", 2)]).await.is_a_conflict();
    on.reserve("A", [("a", 2), ("c", 2)]).await.is_a_conflict();
    let more = [("a", 2), ("b", 2), ("c", 2)];
    on.reserve("A", more).await.is_a_conflict();
    assert_eq!(on.used("a").await, 2);
    assert_eq!(on.used("b").await, 2);
    assert_eq!(on.used("c").await, 0);
    on.reserve("A", [("a", 2), ("b", 2)]).await.is_allowed();
}

/// RES-04
pub(crate) async fn res_04_a_lease_cannot_come_back_with_other_keys_altogether(on: &TestContext) {
    on.rolling("one", 60, 10).await;
    on.rolling("other", 60, 10).await;
    on.reserve("A", [("one", 1)]).await.is_allowed();
    on.reserve("A", [("other", 1)]).await.is_a_conflict();
    assert_eq!(on.used("other").await, 0);
}

/// RES-04, RES-06
pub(crate) async fn res_04_a_repeated_reserve_is_allowed_after_its_limit_changed(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("rate", 6), ("slots", 10)]).await.is_allowed();
    on.reserve("B", [("rate", 4)]).await.is_allowed();
    on.reserve("A", [("rate", 6), ("slots", 10)]).await.is_allowed();
    on.decrease(on.rolling_limit("rate", 60, 5)).await;
    on.reserve("A", [("rate", 6), ("slots", 10)]).await.is_allowed();
    on.reserve("A", [("rate", 11), ("slots", 10)]).await.is_a_conflict();
}

/// RES-06
pub(crate) async fn res_06_an_unknown_key_comes_before_a_known_lease(on: &TestContext) {
    on.rolling("gone", 60, 10).await;
    on.rolling("stays", 60, 10).await;
    on.reserve("A", [("gone", 1), ("stays", 1)]).await.is_allowed();
    assert_eq!(on.delete("gone").await, Ok(()));
    let again = on.reserve("A", [("gone", 1), ("stays", 1)]).await;
    again.is_refused_for_unknown("gone");
    assert_eq!(on.used("stays").await, 1);
}

/// RES-05
pub(crate) async fn res_05_a_denied_lease_stays_denied(on: &TestContext) {
    on.rolling("free", 60, 10).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("slots", 1)]).await.is_allowed();
    let needs = [("free", 1), ("slots", 1)];
    on.reserve("B", needs).await.is_denied_for(["slots"]);
    on.complete("A", []).await.is_ok();
    on.reserve("B", needs).await.is_denied();
    on.pass_seconds(1).await;
    on.reserve("B", [("slots", 1), ("free", 1)]).await.is_denied();
    assert_eq!(on.used("free").await, 0);
    assert_eq!(on.used("slots").await, 0);
    on.reserve("C", needs).await.is_allowed();
}

/// RES-05
pub(crate) async fn res_05_a_denied_lease_stays_denied_whatever_it_asks_for(on: &TestContext) {
    on.rolling("free", 60, 10).await;
    on.rolling("full", 60, 1).await;
    on.reserve("A", [("full", 1)]).await.is_allowed();
    on.reserve("B", [("full", 1)]).await.is_denied_for(["full"]);
    on.reserve("B", [("free", 1)]).await.is_denied();
    on.reserve("B", [("free", 11)]).await.is_denied();
    assert_eq!(on.used("free").await, 0);
}

/// RES-05
pub(crate) async fn res_05_completing_a_denied_lease_changes_nothing(on: &TestContext) {
    on.rolling("rate", 60, 1).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.reserve("B", [("rate", 1)]).await.is_denied_for(["rate"]);
    on.complete("B", []).await.is_ok();
    assert_eq!(on.used("rate").await, 1);
    assert_eq!(on.debt("rate").await, 0);
    on.complete("A", [("rate", 0)]).await.is_ok();
    on.reserve("C", [("rate", 1)]).await.is_allowed();
}

/// RES-09
pub(crate) async fn res_09_a_completed_lease_is_never_allowed_again(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    let needs = [("rate", 2), ("slots", 1)];
    on.reserve("A", needs).await.is_allowed();
    on.complete("A", [("rate", 1)]).await.is_ok();
    on.reserve("A", needs).await.is_of_an_ended_lease();
    on.pass_seconds(1).await;
    on.reserve("A", needs).await.is_of_an_ended_lease();
    assert_eq!(on.used("rate").await, 1);
    assert_eq!(on.used("slots").await, 0);
}

/// RES-09
pub(crate) async fn res_09_an_expired_lease_is_never_allowed_again(on: &TestContext) {
    on.rolling("rate", 1, 10).await;
    on.concurrency("slots", 1, 10).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.reserve("B", [("slots", 1)]).await.is_allowed();
    on.outlast_seconds(1).await;
    on.reserve("A", [("rate", 1)]).await.is_of_an_ended_lease();
    on.reserve("B", [("slots", 1)]).await.is_of_an_ended_lease();
    assert_eq!(on.used("rate").await, 0);
    assert_eq!(on.used("slots").await, 0);
}

/// RES-09
pub(crate) async fn res_09_one_expired_reservation_ends_the_lease(on: &TestContext) {
    on.rolling("short", 1, 10).await;
    on.rolling("long", 60, 10).await;
    let needs = [("short", 1), ("long", 4)];
    on.reserve("A", needs).await.is_allowed();
    on.outlast_seconds(1).await;
    on.reserve("A", needs).await.is_of_an_ended_lease();
    assert_eq!(on.used("short").await, 0);
    assert_eq!(on.used("long").await, 4);
}

/// RES-09
pub(crate) async fn res_09_complete_reconciles_what_is_live_of_an_ended_lease(on: &TestContext) {
    on.rolling("short", 1, 10).await;
    on.rolling("long", 60, 10).await;
    on.concurrency("slots", 60, 10).await;
    let needs = [("short", 5), ("long", 5), ("slots", 5)];
    on.reserve("A", needs).await.is_allowed();
    on.outlast_seconds(1).await;
    on.reserve("A", needs).await.is_of_an_ended_lease();
    on.complete("A", [("short", 2), ("long", 2)]).await.is_ok();
    assert_eq!(on.used("short").await, 0);
    assert_eq!(on.used("long").await, 2);
    assert_eq!(on.used("slots").await, 0);
}

/// RES-09
pub(crate) async fn res_09_an_ended_lease_stays_ended_whatever_it_asks_for(on: &TestContext) {
    on.rolling("one", 60, 10).await;
    on.rolling("other", 60, 10).await;
    on.reserve("A", [("one", 1)]).await.is_allowed();
    on.complete("A", [("one", 0)]).await.is_ok();
    on.reserve("A", [("other", 1)]).await.is_of_an_ended_lease();
    on.reserve("A", [("other", 11)]).await.is_of_an_ended_lease();
    assert_eq!(on.used("other").await, 0);
}

/// RES-09
pub(crate) async fn res_09_a_forgotten_lease_is_new_and_counts_in_full(on: &TestContext) {
    let forgets_after = on.capabilities().forgets_after.expect("the fact needs it");
    on.concurrency("slots", 1, 1).await;
    on.reserve("completed", [("slots", 1)]).await.is_allowed();
    on.reserve("denied", [("slots", 1)]).await.is_denied();
    on.complete("completed", []).await.is_ok();
    on.reserve("expired", [("slots", 1)]).await.is_allowed();
    on.outlast_seconds(1).await;
    on.reserve("completed", [("slots", 1)]).await.is_of_an_ended_lease();
    on.reserve("expired", [("slots", 1)]).await.is_of_an_ended_lease();
    on.reserve("denied", [("slots", 1)]).await.is_denied();
    on.pass(forgets_after).await;
    on.outlast_seconds(1).await;
    for lease in ["completed", "expired", "denied"] {
        on.reserve(lease, [("slots", 1)]).await.is_allowed();
        assert_eq!(on.used("slots").await, 1, "{lease}");
        on.complete(lease, []).await.is_ok();
    }
}

/// RES-09
pub(crate) async fn res_09_the_oldest_ended_leases_are_forgotten_first(on: &TestContext) {
    let remembered_max = on.capabilities().remembers_at_most.expect("the fact needs it");
    on.concurrency("slots", 60, 1).await;
    for n in 0..=remembered_max {
        let lease = format!("{n}");
        on.reserve(&lease, [("slots", 1)]).await.is_allowed();
        on.complete(&lease, []).await.is_ok();
    }
    // A limiter may forget several of the oldest at a time, so long as the newer half stays.
    for n in remembered_max / 2..=remembered_max {
        let answer = on.reserve(&format!("{n}"), [("slots", 1)]).await;
        answer.is_of_an_ended_lease();
    }
    on.reserve("0", [("slots", 1)]).await.is_allowed();
    assert_eq!(on.used("slots").await, 1);
}
