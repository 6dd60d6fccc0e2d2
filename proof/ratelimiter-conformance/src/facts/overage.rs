//! `COM-03`: usage above the reservation.

use ratelimiter::{CAPACITY_MAX, Limit, LimitStatus, Overage};

use crate::context::TestContext;

/// COM-03
pub(crate) async fn com_03_an_excess_is_reserved_where_there_is_room(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 40)]).await.is_allowed();
    on.complete("A", [("tokens", 70)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 70);
    assert_eq!(on.debt("tokens").await, 0);
    on.reserve("B", [("tokens", 31)]).await.is_denied_for(["tokens"]);
    on.reserve("C", [("tokens", 30)]).await.is_allowed();
}

/// COM-03
pub(crate) async fn com_03_an_excess_may_fill_the_limit(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 40)]).await.is_allowed();
    on.complete("A", [("tokens", 100)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 100);
    assert_eq!(on.debt("tokens").await, 0);
}

/// COM-03
pub(crate) async fn com_03_a_reserved_excess_returns_with_its_reservation(on: &TestContext) {
    on.rolling("tokens", 3, 100).await;
    let window = on.lifetime_of_seconds(3);
    on.reserve("A", [("tokens", 40)]).await.is_allowed();
    on.pass_seconds(1).await;
    on.complete("A", [("tokens", 70)]).await.is_ok();
    on.pass_seconds(1).await;
    let used = on.used("tokens").await;
    if on.is_within(window) {
        assert_eq!(used, 70);
    }
    on.outlast_reconciled_seconds(1).await;
    assert_eq!(on.used("tokens").await, 0);
}

/// COM-03
pub(crate) async fn com_03_an_excess_without_room_is_debt_as_a_whole(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 90)]).await.is_allowed();
    on.complete("A", [("tokens", 101)]).await.is_ok();
    assert_eq!(on.debt("tokens").await, 11, "10 would fit, but it is all or nothing");
    assert_eq!(on.used("tokens").await, 90);
    on.reserve("B", [("tokens", 10)]).await.is_allowed();
}

/// COM-03
pub(crate) async fn com_03_debt_adds_up_and_takes_no_capacity(on: &TestContext) {
    on.rolling("tokens", 2, 10).await;
    let mut debt = 0;
    for (lease, actual) in [("A", 25), ("B", 12)] {
        let window = on.lifetime_of_seconds(2);
        on.reserve(lease, [("tokens", 10)]).await.is_allowed();
        on.complete(lease, [("tokens", actual)]).await.is_ok();
        let before = debt;
        debt = on.debt("tokens").await;
        if on.is_within(window) {
            assert_eq!(debt - before, u128::from(actual) - 10);
        }
        on.outlast_reconciled_seconds(2).await;
        assert_eq!(on.debt("tokens").await, debt, "debt does not expire");
        assert_eq!(on.available("tokens").await, 10);
    }
}

/// COM-03
pub(crate) async fn com_03_with_deny_an_excess_without_room_is_no_debt(on: &TestContext) {
    define_with_deny(on, 100).await;
    on.reserve("A", [("tokens", 90)]).await.is_allowed();
    on.complete("A", [("tokens", 101)]).await.is_ok();
    assert_eq!(on.debt("tokens").await, 0);
    assert_eq!(on.used("tokens").await, 90);
}

/// COM-03
pub(crate) async fn com_03_with_deny_an_excess_is_reserved_where_there_is_room(on: &TestContext) {
    define_with_deny(on, 100).await;
    on.reserve("A", [("tokens", 40)]).await.is_allowed();
    on.complete("A", [("tokens", 70)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 70);
    assert_eq!(on.debt("tokens").await, 0);
}

/// COM-03
pub(crate) async fn com_03_uncovered_use_is_counted_whatever_the_policy(on: &TestContext) {
    on.rolling("indebted", 60, 10).await;
    define_with_deny(on, 10).await;
    let needs = [("indebted", 10), ("tokens", 10)];
    on.reserve("A", needs).await.is_allowed();
    let actuals = [("indebted", 13), ("tokens", 14)];
    on.complete("A", actuals).await.is_ok();
    let indebted = on.state("indebted").await.usage;
    assert_eq!((indebted.debt, indebted.uncovered), (3, 3));
    let denied = on.state("tokens").await.usage;
    assert_eq!((denied.debt, denied.uncovered), (0, 4));
}

/// COM-03
pub(crate) async fn com_03_a_decreasing_limit_has_no_room_for_an_excess(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.reserve("A", [("tokens", 30)]).await.is_allowed();
    on.reserve("B", [("tokens", 30)]).await.is_allowed();
    on.decrease(on.rolling_limit("tokens", 60, 50)).await;
    on.complete("A", [("tokens", 31)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 60);
    assert_eq!(on.debt("tokens").await, 1);
    on.complete("B", [("tokens", 20)]).await.is_ok();
    on.wait_for_decrease("tokens").await;
    assert_eq!(on.status("tokens").await, LimitStatus::Active);
    assert_eq!(on.used("tokens").await, 50);
}

/// COM-03
pub(crate) async fn com_03_each_key_is_reconciled_on_its_own(on: &TestContext) {
    for name in ["less", "equal", "more", "beyond"] {
        on.rolling(name, 60, 10).await;
    }
    let needs = [("more", 5), ("less", 5), ("beyond", 5), ("equal", 5)];
    on.reserve("A", needs).await.is_allowed();
    let actuals = [("beyond", 11), ("equal", 5), ("less", 4), ("more", 6)];
    on.complete("A", actuals).await.is_ok();
    for (name, used, debt) in [("less", 4, 0), ("equal", 5, 0), ("more", 6, 0), ("beyond", 5, 6)] {
        assert_eq!(on.used(name).await, used, "{name}");
        assert_eq!(on.debt(name).await, debt, "{name}");
    }
}

/// RES-07, COM-03
pub(crate) async fn res_07_debt_of_the_largest_actuals_adds_up(on: &TestContext) {
    on.rolling("tokens", 60, CAPACITY_MAX).await;
    on.rolling("small", 60, 10).await;
    let mut debt = 0;
    for lease in ["A", "B", "C"] {
        on.reserve(lease, [("tokens", 1), ("small", 1)]).await.is_allowed();
        let actuals = [("tokens", u64::MAX), ("small", u64::MAX)];
        on.complete(lease, actuals).await.is_ok();
        debt += u128::from(u64::MAX) - 1;
        assert_eq!(on.debt("tokens").await, debt);
        assert_eq!(on.debt("small").await, debt);
    }
    assert_eq!(on.used("tokens").await, 3);
    assert_eq!(on.used("small").await, 3);
}

async fn define_with_deny(on: &TestContext, capacity: u64) {
    let limit = Limit { overage: Overage::Deny, ..on.rolling_limit("tokens", 60, capacity) };
    assert_eq!(on.define(limit).await, Ok(LimitStatus::Active));
}
