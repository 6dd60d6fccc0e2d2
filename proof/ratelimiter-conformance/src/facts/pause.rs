//! `PAUSE-01`: a capacity of 0 is a pause.
//!
//! Reserves are denied and may be retried; none fails permanently.

use std::time::Duration;

use ratelimiter::{Capacity, LimitStatus};

use crate::context::TestContext;

/// Pauses a concurrency limit.
async fn pause(on: &TestContext, name: &str) {
    let paused = on.define(on.concurrency_limit(name, 60, 0)).await;
    assert_eq!(paused, Ok(LimitStatus::Paused), "{name}");
}

/// PAUSE-01, HINT-04
pub(crate) async fn pause_01_a_capacity_of_zero_denies_with_a_fixed_hint(on: &TestContext) {
    assert_eq!(on.define(on.rolling_limit("off", 60, 0)).await, Ok(LimitStatus::Paused));
    on.rolling("free", 60, 5).await;
    for (lease, amount) in [("A", 1), ("B", u64::MAX)] {
        let answer = on.reserve(lease, [("free", 1), ("off", amount)]).await;
        let denial = answer.is_denied_by_pause_of("off");
        assert_eq!(denial.retry_after, Duration::from_secs(10));
    }
    let state = on.state("off").await;
    assert_eq!((state.status, state.usage.available), (LimitStatus::Paused, 0));
    assert_eq!(on.used("free").await, 0, "a denial holds nothing");
}

/// PAUSE-01
pub(crate) async fn pause_01_a_lease_that_met_a_pause_goes_on_when_the_capacity_returns(
    on: &TestContext,
) {
    on.concurrency("slots", 60, 2).await;
    pause(on, "slots").await;
    for _ in 0..2 {
        on.reserve("A", [("slots", 2)]).await.is_denied_by_pause_of("slots");
    }
    on.concurrency("slots", 60, 2).await;
    on.reserve("A", [("slots", 2)]).await.is_allowed();
    assert_eq!(on.used("slots").await, 2);
}

/// PAUSE-01
pub(crate) async fn pause_01_a_limit_in_use_is_paused_from_the_put_on(on: &TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 6)]).await.is_allowed();
    for _ in 0..2 {
        pause(on, "slots").await;
        let state = on.state("slots").await;
        assert_eq!((state.status, state.usage.used), (LimitStatus::Paused, 6));
        for (lease, amount) in [("B", 1), ("C", 11)] {
            let answer = on.reserve(lease, [("slots", amount)]).await;
            let denial = answer.is_denied_by_pause_of("slots");
            assert_eq!(denial.retry_after, Duration::from_secs(10));
        }
    }
    on.complete("A", []).await.is_ok();
    on.wait_for_decrease("slots").await;
    let state = on.state("slots").await;
    assert_eq!((state.status, state.limit.capacity), (LimitStatus::Paused, Capacity::ZERO));
    on.reserve("B", [("slots", 1)]).await.is_denied_by_pause_of("slots");
}

/// PAUSE-01, DEF-06, DEF-07
pub(crate) async fn pause_01_a_pause_of_a_limit_in_use_ends_with_a_higher_capacity(
    on: &TestContext,
) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 6)]).await.is_allowed();
    pause(on, "slots").await;
    on.decrease(on.concurrency_limit("slots", 60, 5)).await;
    on.reserve("B", [("slots", 1)]).await.is_denied_by_decrease_of("slots");
    pause(on, "slots").await;
    on.concurrency("slots", 60, 10).await;
    on.reserve("C", [("slots", 4)]).await.is_allowed();
    assert_eq!(on.used("slots").await, 10);
}

/// PAUSE-01, COM-01, COM-03
pub(crate) async fn pause_01_leases_of_a_paused_limit_complete(on: &TestContext) {
    on.rolling("tokens", 60, 100).await;
    on.concurrency("slots", 60, 2).await;
    on.reserve("A", [("tokens", 60), ("slots", 2)]).await.is_allowed();
    on.reserve("B", [("tokens", 10)]).await.is_allowed();
    let paused = on.define(on.rolling_limit("tokens", 60, 0)).await;
    assert_eq!(paused, Ok(LimitStatus::Paused));
    pause(on, "slots").await;
    on.complete("A", [("tokens", 20)]).await.is_ok();
    on.complete("B", [("tokens", 15)]).await.is_ok();
    assert_eq!(on.used("slots").await, 0);
    assert_eq!(on.used("tokens").await, 30, "a paused limit has no room for an excess");
    assert_eq!(on.debt("tokens").await, 5);
}

/// RES-06
pub(crate) async fn res_06_a_pause_comes_before_an_amount_over_capacity_and_a_decrease(
    on: &TestContext,
) {
    on.concurrency("paused", 60, 2).await;
    pause(on, "paused").await;
    on.rolling("small", 60, 1).await;
    on.rolling("lowered", 60, 10).await;
    on.reserve("holder", [("lowered", 6)]).await.is_allowed();
    on.decrease(on.rolling_limit("lowered", 60, 5)).await;
    let answer = on.reserve("A", [("small", 2), ("lowered", 1), ("paused", 1)]).await;
    answer.is_denied_by_pause_of("paused");
    let answer = on.reserve("A", [("paused", 1), ("unknown", 1)]).await;
    answer.is_refused_for_unknown("unknown");
}

/// RES-06, RES-04, RES-05, RES-09
pub(crate) async fn res_06_a_known_lease_comes_before_a_pause(on: &TestContext) {
    on.concurrency("slots", 60, 2).await;
    on.reserve("ended", [("slots", 2)]).await.is_allowed();
    on.complete("ended", []).await.is_ok();
    let reserved_at = on.reserve("open", [("slots", 2)]).await.is_allowed();
    on.reserve("denied", [("slots", 2)]).await.is_denied_for(["slots"]);
    pause(on, "slots").await;
    assert_eq!(on.reserve("open", [("slots", 2)]).await.is_allowed(), reserved_at);
    on.reserve("open", [("slots", 1)]).await.is_a_conflict();
    on.reserve("denied", [("slots", 2)]).await.is_denied_for(["slots"]);
    on.reserve("ended", [("slots", 2)]).await.is_of_an_ended_lease();
    on.reserve("new", [("slots", 2)]).await.is_denied_by_pause_of("slots");
}

/// RES-06, RES-05
pub(crate) async fn res_06_a_denied_lease_stays_denied_when_the_capacity_has_dropped(
    on: &TestContext,
) {
    on.rolling("rate", 60, 10).await;
    on.reserve("A", [("rate", 8)]).await.is_allowed();
    on.reserve("B", [("rate", 5)]).await.is_denied_for(["rate"]);
    on.complete("A", [("rate", 0)]).await.is_ok();
    on.rolling("rate", 60, 3).await;
    on.reserve("B", [("rate", 5)]).await.is_denied_for(["rate"]);
    on.reserve("C", [("rate", 5)]).await.is_refused_for_more_than_capacity_of("rate");
    on.rolling("rate", 60, 10).await;
    on.reserve("B", [("rate", 5)]).await.is_denied_for(["rate"]);
    on.reserve("C", [("rate", 5)]).await.is_allowed();
}

/// PAUSE-01
pub(crate) async fn pause_01_only_the_requests_of_a_batch_that_name_a_paused_limit_are_denied(
    on: &TestContext,
) {
    on.concurrency("off", 60, 2).await;
    pause(on, "off").await;
    on.rolling("free", 60, 5).await;
    let requests = [
        on.to_reserve("A", [("free", 1), ("off", 1)]),
        on.to_reserve("B", [("free", 1)]),
        on.to_reserve("C", [("off", 9)]),
    ];
    let answers = on.reserve_batch(&requests).await;
    answers[0].is_denied_by_pause_of("off");
    answers[1].is_allowed();
    answers[2].is_denied_by_pause_of("off");
    assert_eq!(on.used("free").await, 1);
}

/// DEF-08, PAUSE-01
pub(crate) async fn def_08_a_pause_survives_a_restart(on: &mut TestContext) {
    on.concurrency("idle", 60, 10).await;
    on.concurrency("used", 60, 10).await;
    on.reserve("A", [("used", 6)]).await.is_allowed();
    pause(on, "idle").await;
    pause(on, "used").await;
    on.restart().await;
    for name in ["idle", "used"] {
        assert_eq!(on.status(name).await, LimitStatus::Paused, "{name}");
        on.reserve(name, [(name, 1)]).await.is_denied_by_pause_of(name);
    }
}
