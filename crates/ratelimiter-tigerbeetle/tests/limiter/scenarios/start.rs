//! `TB-08`: a limiter that starts brings the accounts to what its definitions say.

use std::time::Duration;

use ratelimiter::{Backend, LimitStatus, RegisteredLimit};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::scene::Scene;

/// TB-08
pub async fn tb_08_missing_accounts_are_made_and_funded<L: Ledger + Clone>(on: Scene<L>) {
    let limiter = on.limiter();
    let registered = RegisteredLimit::in_force(on.rolling("tokens", 60, 100));
    assert_eq!(limiter.restore(registered.clone()).await, Ok(LimitStatus::Active));
    assert_eq!(on.state(&limiter, "tokens").await.usage.available, 100);
    assert_eq!(limiter.restore(registered).await, Ok(LimitStatus::Active), "twice is once");
    assert_eq!(on.state(&limiter, "tokens").await.usage.available, 100);
}

/// TB-08: the file says 10, but a change that was cut short has taken the account elsewhere.
pub async fn tb_08_an_account_follows_the_definition_up_and_down<L: Ledger + Clone>(on: Scene<L>) {
    for (name, in_cluster) in [("above", 25), ("below", 4), ("equal", 10), ("zero", 0)] {
        let before = on.limiter();
        before.define(on.concurrency(name, 60, in_cluster)).await.unwrap();
        drop(before);
        let limiter = on.limiter();
        let registered = RegisteredLimit::in_force(on.concurrency(name, 60, 10));
        assert_eq!(limiter.restore(registered).await, Ok(LimitStatus::Active), "{name}");
        assert_eq!(on.state(&limiter, name).await.usage.available, 10, "{name}");
    }
}

/// TB-08, DEF-08
pub async fn tb_08_a_decrease_is_resumed<L: Ledger + Clone>(on: Scene<L>) {
    let before = on.limiter();
    before.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&before, lease, [("slots", 8)]).await.unwrap().is_allowed());
    drop(before);
    // The file was written, the cluster knows nothing of it yet.
    let limit = on.concurrency("slots", 60, 10);
    let to = on.concurrency("slots", 60, 5).capacity;
    let status = LimitStatus::Decreasing { to };
    let limiter = on.limiter();
    assert_eq!(limiter.restore(RegisteredLimit { limit, status }).await, Ok(status));
    let id = ids::limit_account(&on.key("slots"));
    assert!(on.ledger.lookup_accounts(vec![id]).await.unwrap()[0].closed);
    on.complete(&limiter, lease, []).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    let state = on.state(&limiter, "slots").await;
    assert_eq!((state.status, state.limit.capacity), (LimitStatus::Active, to));
}

/// TB-08: the account was closed for a decrease that the file does not know.
pub async fn tb_08_a_decrease_that_was_not_kept_is_taken_back<L: Ledger + Clone>(on: Scene<L>) {
    let before = on.limiter();
    before.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&before, lease, [("slots", 8)]).await.unwrap().is_allowed());
    before.define(on.concurrency("slots", 60, 5)).await.unwrap();
    let limiter = on.limiter();
    let registered = RegisteredLimit::in_force(on.concurrency("slots", 60, 10));
    assert_eq!(limiter.restore(registered).await, Ok(LimitStatus::Active));
    assert!(on.reserve(&limiter, on.lease(), [("slots", 2)]).await.unwrap().is_allowed());
}
