//! `COM-01`, `COM-02`, `COM-04` to `COM-06`: the end of a call.

use crate::context::TestContext;

/// COM-01
pub(crate) async fn com_01_complete_releases_every_hold_at_once(on: &TestContext) {
    on.concurrency("model", 60, 2).await;
    on.concurrency("tenant", 60, 3).await;
    on.rolling("rate", 60, 10).await;
    let needs = [("model", 2), ("rate", 1), ("tenant", 3)];
    on.reserve("A", needs).await.is_allowed();
    on.complete("A", []).await.is_ok();
    assert_eq!(on.used("model").await, 0);
    assert_eq!(on.used("tenant").await, 0);
    assert_eq!(on.used("rate").await, 1);
    on.reserve("B", needs).await.is_allowed();
}

/// COM-01
pub(crate) async fn com_01_complete_releases_only_the_lease_that_it_names(on: &TestContext) {
    on.concurrency("slots", 60, 5).await;
    on.reserve("A", [("slots", 2)]).await.is_allowed();
    on.reserve("B", [("slots", 3)]).await.is_allowed();
    on.complete("A", []).await.is_ok();
    assert_eq!(on.used("slots").await, 3);
}

/// COM-02
pub(crate) async fn com_02_a_reservation_shrinks_to_the_actual(on: &TestContext) {
    on.rolling("tokens", 60, 1_000).await;
    on.rolling("requests", 60, 10).await;
    let needs = [("tokens", 900), ("requests", 1)];
    on.reserve("A", needs).await.is_allowed();
    on.reserve("B", [("tokens", 101)]).await.is_denied_for(["tokens"]);
    on.complete("A", [("tokens", 340)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 340);
    assert_eq!(on.available("tokens").await, 660);
    assert_eq!(on.used("requests").await, 1);
    on.reserve("C", [("tokens", 661)]).await.is_denied_for(["tokens"]);
    on.reserve("D", [("tokens", 660)]).await.is_allowed();
}

/// COM-02
pub(crate) async fn com_02_a_shrunk_reservation_keeps_its_expiry(on: &TestContext) {
    on.rolling("tokens", 3, 100).await;
    let window = on.lifetime_of_seconds(3);
    on.reserve("A", [("tokens", 100)]).await.is_allowed();
    on.pass_seconds(1).await;
    on.complete("A", [("tokens", 60)]).await.is_ok();
    on.pass_seconds(1).await;
    let used = on.used("tokens").await;
    if on.is_within(window) {
        assert_eq!(used, 60);
    }
    on.outlast_reconciled_seconds(1).await;
    assert_eq!(on.used("tokens").await, 0);
}

/// COM-02
pub(crate) async fn com_02_an_actual_of_zero_frees_it_all(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 100)]).await.is_allowed();
    on.complete("A", [("tokens", 0)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 0);
    on.reserve("B", [("tokens", 100)]).await.is_allowed();
}

/// COM-02
pub(crate) async fn com_02_an_actual_equal_to_the_reservation_changes_nothing(on: &TestContext) {
    on.rolling("tokens", 2, 100).await;
    let window = on.lifetime_of_seconds(2);
    on.reserve("A", [("tokens", 70)]).await.is_allowed();
    on.complete("A", [("tokens", 70)]).await.is_ok();
    let used = on.used("tokens").await;
    if on.is_within(window) {
        assert_eq!(used, 70);
    }
    assert_eq!(on.debt("tokens").await, 0);
    on.outlast_reconciled_seconds(2).await;
    assert_eq!(on.used("tokens").await, 0);
}

/// COM-04
pub(crate) async fn com_04_a_rolling_key_without_an_actual_keeps_its_reservation(on: &TestContext) {
    on.rolling("tokens", 2, 100).await;
    on.rolling("requests", 2, 10).await;
    let needs = [("tokens", 80), ("requests", 1)];
    let window = on.lifetime_of_seconds(2);
    on.reserve("A", needs).await.is_allowed();
    on.complete("A", [("requests", 1)]).await.is_ok();
    on.pass_seconds(1).await;
    let used = on.used("tokens").await;
    if on.is_within(window) {
        assert_eq!(used, 80);
    }
    on.outlast_seconds(1).await;
    assert_eq!(on.used("tokens").await, 0);
}

/// COM-05
pub(crate) async fn com_05_completing_an_unknown_lease_is_ok(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 1).await;
    let needs = [("tokens", 50), ("slots", 1)];
    on.reserve("A", needs).await.is_allowed();
    on.complete("unknown", []).await.is_ok();
    on.complete("unknown too", [("tokens", 70)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 50);
    assert_eq!(on.used("slots").await, 1);
    assert_eq!(on.debt("tokens").await, 0);
}

/// COM-05
pub(crate) async fn com_05_completing_twice_is_completing_once(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 2).await;
    let needs = [("tokens", 50), ("slots", 1)];
    on.reserve("A", needs).await.is_allowed();
    on.reserve("B", [("slots", 1)]).await.is_allowed();
    on.complete("A", [("tokens", 30)]).await.is_ok();
    for actual in [30, 0, 50, 500] {
        on.complete("A", [("tokens", actual)]).await.is_ok();
        assert_eq!(on.used("tokens").await, 30, "{actual}");
    }
    on.complete("A", []).await.is_ok();
    assert_eq!(on.used("tokens").await, 30);
    assert_eq!(on.used("slots").await, 1, "the other lease's hold stays");
    assert_eq!(on.debt("tokens").await, 0);
}

/// COM-05: also if the first complete changed nothing.
pub(crate) async fn com_05_the_first_complete_stands_whatever_later_ones_say(on: &TestContext) {
    on.concurrency("slots", 60, 100).await;
    for (number, first) in ACTUALS.into_iter().enumerate() {
        for has_hold in [true, false] {
            let lease = format!("{number} hold {has_hold}");
            let tokens = format!("tokens:{number}:{has_hold}");
            on.rolling(&tokens, 60, 20).await;
            match has_hold {
                true => {
                    on.reserve(&lease, [(tokens.as_str(), 10), ("slots", 1)]).await.is_allowed()
                }
                false => on.reserve(&lease, [(tokens.as_str(), 10)]).await.is_allowed(),
            };
            on.complete_with(&lease, &tokens, first).await.is_ok();
            let completed = (on.used(&tokens).await, on.debt(&tokens).await);
            for later in ACTUALS {
                on.complete_with(&lease, &tokens, later).await.is_ok();
                let after = (on.used(&tokens).await, on.debt(&tokens).await);
                assert_eq!(after, completed, "{first:?}, then {later:?}, hold {has_hold}");
            }
        }
    }
    assert_eq!(on.used("slots").await, 0);
}

/// Actuals of 10 reserved units of 20: none given, all, some, zero, more with room, more without.
const ACTUALS: [Option<u64>; 6] = [None, Some(10), Some(4), Some(0), Some(12), Some(30)];

/// COM-05
pub(crate) async fn com_05_overage_counts_once(on: &TestContext) {
    on.rolling("tokens", 60, 50).await;
    on.reserve("A", [("tokens", 50)]).await.is_allowed();
    for _ in 0..3 {
        on.complete("A", [("tokens", 70)]).await.is_ok();
        assert_eq!(on.debt("tokens").await, 20);
        assert_eq!(on.used("tokens").await, 50);
    }
}

/// COM-05
pub(crate) async fn com_05_completing_an_expired_lease_changes_nothing(on: &TestContext) {
    on.rolling("tokens", 1, 100).await;
    on.concurrency("slots", 1, 1).await;
    on.reserve("A", [("tokens", 50), ("slots", 1)]).await.is_allowed();
    on.outlast_seconds(1).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("B", [("slots", 1)]).await.is_allowed();
    on.complete("A", [("tokens", 90)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 0);
    assert_eq!(on.debt("tokens").await, 0);
    assert_eq!(on.used("slots").await, 1, "the other lease's hold stays");
}

/// COM-06
pub(crate) async fn com_06_an_actual_for_a_key_that_the_lease_does_not_hold(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.rolling("other", 60, 100).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("tokens", 50), ("slots", 1)]).await.is_allowed();
    for name in ["other", "undefined"] {
        let answer = on.complete("A", [("tokens", 10), (name, 1)]).await;
        answer.is_refused_for_the_actual_of(name);
        assert_eq!(on.used("tokens").await, 50, "nothing was applied");
        assert_eq!(on.used("slots").await, 1, "nothing was applied");
        assert_eq!(on.used("other").await, 0, "nothing was applied");
    }
    on.complete("A", [("tokens", 10)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 10);
    assert_eq!(on.used("slots").await, 0);
}

/// COM-06
pub(crate) async fn com_06_an_actual_for_a_concurrency_key(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 1).await;
    on.reserve("A", [("tokens", 50), ("slots", 1)]).await.is_allowed();
    for actual in [0, 1, 2] {
        let answer = on.complete("A", [("tokens", 10), ("slots", actual)]).await;
        answer.is_refused_for_the_actual_of("slots");
        assert_eq!(on.used("tokens").await, 50, "nothing was applied");
        assert_eq!(on.used("slots").await, 1, "nothing was applied");
    }
    on.complete("A", [("tokens", 10)]).await.is_ok();
    assert_eq!(on.used("slots").await, 0);
}
