//! `DEF-08` and `COM-07`: state that survives a server.

use ratelimiter::{Capacity, Limit, LimitStatus, Note, Overage};

use crate::context::TestContext;

/// DEF-08
pub(crate) async fn def_08_definitions_survive_a_restart(on: &mut TestContext) {
    let rate = Limit {
        overage: Overage::Deny,
        unit: Note::new("tokens").expect("a short note"),
        description: Note::new("two \"words\"\nand a line").expect("a short note"),
        ..on.rolling_limit("rate", 60, 5)
    };
    assert_eq!(on.define(rate.clone()).await, Ok(LimitStatus::Active));
    on.concurrency("slots", 60, 5).await;
    on.concurrency("slots", 30, 7).await;
    on.rolling("gone", 60, 5).await;
    assert_eq!(on.delete("gone").await, Ok(()));
    on.restart().await;
    assert_eq!(on.state("rate").await.limit, rate);
    let slots = on.state("slots").await.limit;
    assert_eq!(slots, on.concurrency_limit("slots", 30, 7));
    assert_eq!(on.state_if_defined("gone").await, None);
    on.reserve("A", [("rate", 5), ("slots", 7)]).await.is_allowed();
}

/// DEF-08
pub(crate) async fn def_08_a_decrease_survives_a_restart(on: &mut TestContext) {
    on.concurrency("slots", 60, 10).await;
    on.reserve("A", [("slots", 8)]).await.is_allowed();
    on.decrease(on.concurrency_limit("slots", 60, 5)).await;
    on.restart().await;
    // A limiter that loses its leases with the process has room for the decrease now.
    let state = on.state("slots").await;
    let target = match state.status {
        LimitStatus::Active => state.limit.capacity,
        LimitStatus::Paused => Capacity::ZERO,
        LimitStatus::Decreasing { to } => to,
    };
    assert_eq!(target.get(), 5);
    on.complete("A", []).await.is_ok();
    on.wait_for_decrease("slots").await;
    assert_eq!(on.capacity("slots").await, 5);
    on.reserve("B", [("slots", 5)]).await.is_allowed();
}

/// COM-07
pub(crate) async fn com_07_complete_after_a_restart_releases_and_reconciles(on: &mut TestContext) {
    reserve_tokens_and_a_slot(on).await;
    on.restart().await;
    assert_eq!(on.used("tokens").await, 50);
    assert_eq!(on.used("slots").await, 1);
    complete_and_look(on).await;
}

/// COM-07
pub(crate) async fn com_07_complete_at_another_server_releases_and_reconciles(
    on: &mut TestContext,
) {
    reserve_tokens_and_a_slot(on).await;
    on.move_to_another_server().await;
    assert_eq!(on.used("tokens").await, 50);
    complete_and_look(on).await;
}

/// COM-05, COM-07
pub(crate) async fn com_05_the_first_complete_stands_at_another_server(on: &mut TestContext) {
    let actuals = [None, Some(50), Some(20), Some(70)];
    on.rolling("tokens", 3_600, 1_000).await;
    on.concurrency("slots", 3_600, 10).await;
    for first in actuals {
        let lease = format!("{first:?}");
        on.reserve(&lease, [("tokens", 50), ("slots", 1)]).await.is_allowed();
        on.complete_with(&lease, "tokens", first).await.is_ok();
    }
    let used = 50 + 50 + 20 + 70;
    assert_eq!(on.used("tokens").await, used);
    on.move_to_another_server().await;
    for first in actuals {
        for later in [None, Some(0), Some(50), Some(90)] {
            on.complete_with(&format!("{first:?}"), "tokens", later).await.is_ok();
            assert_eq!(on.used("tokens").await, used, "{first:?}, then {later:?}");
        }
    }
}

/// COM-07, RES-04, RES-05, RES-09
pub(crate) async fn com_07_leases_are_known_after_a_restart(on: &mut TestContext) {
    on.rolling("tokens", 3_600, 100).await;
    let reserved_at = on.reserve("open", [("tokens", 50)]).await.is_allowed();
    on.reserve("denied", [("tokens", 51)]).await.is_denied();
    on.reserve("ended", [("tokens", 1)]).await.is_allowed();
    on.complete("ended", [("tokens", 0)]).await.is_ok();
    on.restart().await;
    let again = on.reserve("open", [("tokens", 50)]).await;
    assert_eq!(again.is_allowed(), reserved_at);
    on.reserve("open", [("tokens", 49)]).await.is_a_conflict();
    on.reserve("denied", [("tokens", 51)]).await.is_denied();
    on.reserve("ended", [("tokens", 1)]).await.is_of_an_ended_lease();
    assert_eq!(on.used("tokens").await, 50);
}

async fn reserve_tokens_and_a_slot(on: &TestContext) {
    on.rolling("tokens", 3_600, 100).await;
    on.concurrency("slots", 3_600, 1).await;
    let needs = [("tokens", 50), ("slots", 1)];
    on.reserve("A", needs).await.is_allowed();
}

async fn complete_and_look(on: &TestContext) {
    on.complete("A", [("tokens", 20)]).await.is_ok();
    assert_eq!(on.used("tokens").await, 20);
    assert_eq!(on.used("slots").await, 0);
    on.reserve("B", [("tokens", 80), ("slots", 1)]).await.is_allowed();
}
