//! `DEF-06` and `DEF-07`: increases and decreases.

use ratelimiter::{Capacity, Limit, LimitStatus, Overage};

use crate::context::TestContext;

fn decreasing_to(capacity: u64) -> LimitStatus {
    let to = Capacity::new(capacity).expect("facts use valid capacities");
    LimitStatus::Decreasing { to }
}

/// DEF-06
pub(crate) async fn def_06_an_increase_holds_at_once(on: &TestContext) {
    on.rolling("rate", 60, 1).await;
    on.reserve("A", [("rate", 1)]).await.is_allowed();
    on.reserve("B", [("rate", 1)]).await.is_denied_for(["rate"]);
    on.rolling("rate", 60, 3).await;
    assert_eq!(on.available("rate").await, 2);
    on.reserve("C", [("rate", 2)]).await.is_allowed();
    on.reserve("D", [("rate", 1)]).await.is_denied_for(["rate"]);
}

/// DEF-06
pub(crate) async fn def_06_an_increase_cancels_a_decrease(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 8)]).await.is_allowed();
    for capacity in [10, 12] {
        on.decrease(on.concurrency_limit("slots", 60, 5)).await;
        on.concurrency("slots", 60, capacity).await;
        assert_eq!(on.status("slots").await, LimitStatus::Active);
        assert_eq!(on.capacity("slots").await, capacity);
    }
    on.reserve("B", [("slots", 4)]).await.is_allowed();
    on.reserve("C", [("slots", 1)]).await.is_denied_for(["slots"]);
}

/// DEF-06
pub(crate) async fn def_06_a_capacity_goes_down_and_up_any_number_of_times(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    for round in 0..5 {
        for capacity in [5, 10] {
            on.concurrency("slots", 60, capacity).await;
            let (fits, beyond) = (format!("{round}:{capacity}"), format!("{round}:{capacity}+"));
            on.reserve(&fits, [("slots", capacity)]).await.is_allowed();
            on.reserve(&beyond, [("slots", 1)]).await.is_denied_for(["slots"]);
            on.complete(&fits, []).await.is_ok();
        }
    }
}

/// DEF-06
pub(crate) async fn def_06_a_decrease_in_use_can_be_repeated(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    for round in ["A", "B", "C"] {
        on.reserve(round, [("slots", 10)]).await.is_allowed();
        on.decrease(on.concurrency_limit("slots", 60, 5)).await;
        on.complete(round, []).await.is_ok();
        on.wait_for_decrease("slots").await;
        assert_eq!(on.status("slots").await, LimitStatus::Active);
        assert_eq!(on.capacity("slots").await, 5);
        on.concurrency("slots", 60, 10).await;
    }
}

/// DEF-07
pub(crate) async fn def_07_a_decrease_into_free_room_holds_at_once(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.reserve("A", [("rate", 4)]).await.is_allowed();
    on.rolling("rate", 60, 4).await;
    assert_eq!(on.status("rate").await, LimitStatus::Active);
    assert_eq!(on.capacity("rate").await, 4);
    assert_eq!(on.available("rate").await, 0);
    on.reserve("B", [("rate", 1)]).await.is_denied_for(["rate"]);
    let over = on.reserve("C", [("rate", 5)]).await;
    over.is_refused_for_more_than_capacity_of("rate");
}

/// DEF-07
pub(crate) async fn def_07_a_decreasing_limit_admits_nothing(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.rolling("other", 60, 10).await;
    on.reserve("A", [("rate", 6)]).await.is_allowed();
    on.decrease(on.rolling_limit("rate", 60, 5)).await;
    assert_eq!(on.status("rate").await, decreasing_to(5));
    assert_eq!(on.capacity("rate").await, 10, "the old one is in force");
    let answer = on.reserve("B", [("other", 1), ("rate", 1)]).await;
    answer.is_denied_by_decrease_of("rate");
    assert_eq!(on.used("rate").await, 6);
    assert_eq!(on.used("other").await, 0);
    on.reserve("C", [("other", 10)]).await.is_allowed();
}

/// DEF-07
pub(crate) async fn def_07_a_decrease_is_applied_when_enough_has_expired(on: &TestContext) {
    on.rolling("rate", 3, 10).await;
    let window = on.lifetime_of_seconds(3);
    on.reserve("A", [("rate", 6)]).await.is_allowed();
    on.pass_seconds(1).await;
    on.reserve("B", [("rate", 2)]).await.is_allowed();
    let lowered = on.define(on.rolling_limit("rate", 60, 2)).await;
    on.pass_seconds(1).await;
    let status = on.status("rate").await;
    if on.is_within(window) {
        assert_eq!(lowered, Ok(decreasing_to(2)));
        assert_eq!(status, decreasing_to(2));
    }
    on.outlast_seconds(1).await;
    on.wait_for_decrease("rate").await;
    assert_eq!(on.status("rate").await, LimitStatus::Active);
    assert_eq!(on.capacity("rate").await, 2);
    on.reserve("C", [("rate", 2)]).await.is_allowed();
    on.reserve("D", [("rate", 1)]).await.is_denied_for(["rate"]);
}

/// DEF-07
pub(crate) async fn def_07_a_decrease_is_applied_when_enough_was_released(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 3)]).await.is_allowed();
    on.reserve("B", [("slots", 3)]).await.is_allowed();
    on.decrease(on.concurrency_limit("slots", 60, 3)).await;
    on.complete("A", []).await.is_ok();
    on.wait_for_decrease("slots").await;
    assert_eq!(on.status("slots").await, LimitStatus::Active);
    assert_eq!(on.capacity("slots").await, 3);
    on.reserve("C", [("slots", 1)]).await.is_denied_for(["slots"]);
    on.complete("B", []).await.is_ok();
    on.reserve("D", [("slots", 3)]).await.is_allowed();
}

/// DEF-07
pub(crate) async fn def_07_a_reconciled_reservation_lets_a_decrease_through(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.reserve("A", [("rate", 8)]).await.is_allowed();
    on.decrease(on.rolling_limit("rate", 60, 5)).await;
    on.complete("A", [("rate", 3)]).await.is_ok();
    on.wait_for_decrease("rate").await;
    assert_eq!(on.status("rate").await, LimitStatus::Active);
    assert_eq!(on.used("rate").await, 3);
    on.reserve("B", [("rate", 2)]).await.is_allowed();
    on.reserve("C", [("rate", 1)]).await.is_denied_for(["rate"]);
}

/// DEF-07
pub(crate) async fn def_07_another_lower_capacity_replaces_the_target(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 6)]).await.is_allowed();
    for target in [5, 2, 4] {
        on.decrease(on.concurrency_limit("slots", 60, target)).await;
        assert_eq!(on.status("slots").await, decreasing_to(target));
    }
    on.complete("A", []).await.is_ok();
    on.wait_for_decrease("slots").await;
    assert_eq!(on.capacity("slots").await, 4);
}

/// DEF-07
pub(crate) async fn def_07_a_target_that_fits_ends_the_decrease(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 6)]).await.is_allowed();
    on.decrease(on.concurrency_limit("slots", 60, 5)).await;
    on.concurrency("slots", 60, 7).await;
    assert_eq!(on.capacity("slots").await, 7);
    on.reserve("B", [("slots", 1)]).await.is_allowed();
    on.reserve("C", [("slots", 1)]).await.is_denied_for(["slots"]);
}

/// DEF-07
pub(crate) async fn def_07_only_the_capacity_of_a_decrease_waits(on: &TestContext) {
    on.rolling("rate", 60, 10).await;
    on.reserve("A", [("rate", 6)]).await.is_allowed();
    let lower = Limit { overage: Overage::Deny, ..on.rolling_limit("rate", 30, 5) };
    on.decrease(lower.clone()).await;
    let in_force = on.state("rate").await.limit;
    let capacity = Capacity::new(10).expect("facts use valid capacities");
    assert_eq!(in_force, Limit { capacity, ..lower });
}
