//! `TB-08`: a starting limiter brings the accounts to its definitions.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{Backend, LimitStatus, RegisteredLimit, RenewError};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{
    Action, Ledger, Movement, Transfer, TransferResult, UserData, WorkItem,
};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};

use crate::context::TestContext;
use crate::recording_ledger::{CallCounts, RecordingLedger};

/// TB-08
pub async fn tb_08_missing_accounts_are_made_and_funded<L: Ledger + Clone>(on: TestContext<L>) {
    let limiter = on.limiter();
    let registered = RegisteredLimit::in_force(on.rolling("tokens", 60, 100));
    assert_eq!(limiter.restore(registered.clone()).await, Ok(LimitStatus::Active));
    assert_eq!(on.state(&limiter, "tokens").await.usage.available, 100);
    assert_eq!(limiter.restore(registered).await, Ok(LimitStatus::Active), "twice is once");
    assert_eq!(on.state(&limiter, "tokens").await.usage.available, 100);
}

/// TB-08: the file has 10, but an interrupted change has moved the account.
pub async fn tb_08_an_account_follows_the_definition_up_and_down<L: Ledger + Clone>(
    on: TestContext<L>,
) {
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
pub async fn tb_08_a_decrease_is_resumed<L: Ledger + Clone>(on: TestContext<L>) {
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

/// Closes the account of a limit with 5 units as an older release does.
async fn close_as_before<L: Ledger + Clone>(on: &TestContext<L>, name: &str) {
    let (key, operator) = (on.key(name), ids::operator_account());
    let movement = |debit, credit, code| {
        let code = NonZeroU16::new(code).unwrap();
        Movement { debit, credit, amount: 0, code }
    };
    let transfer = |verb, action| {
        let id = ids::transfer_at(0, &format!("xfer:{verb}:5:0:{key}"));
        Transfer { id, action, user_data: UserData::default() }
    };
    let leave = Action::Posted(movement(operator, ids::marker_account(), 6));
    let movement = movement(ids::limit_account(&key), operator, 5);
    let close = Action::Pending { movement, timeout_seconds: None, closes_debit_account: true };
    let chain = [transfer("capacity", leave), transfer("close", close)];
    let results = on.ledger.create_transfers(WorkItem::new().with_chain(chain)).await.unwrap();
    assert_eq!(TransferResult::first_refusal(&results), None);
}

/// TB-08, TB-18: an older release closes an account without the user data that other servers find its closing
/// transfer by. Whoever knows the key goes on; a renew that needs it and does not have it says so at once.
pub async fn tb_08_a_decrease_that_an_older_release_began_is_resumed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let ledger = RecordingLedger::new(on.ledger.clone());
    let options = LimiterOptions { clock: Arc::clone(&on.clock), ..LimiterOptions::default() };
    let (first, second) = (on.limiter(), TigerBeetleLimiter::new(ledger.clone(), options));
    first.define(on.concurrency("t:*", 60, 5)).await.unwrap();
    second.define(on.concurrency("t:*", 60, 5)).await.unwrap();
    let (renewed, other) = (on.lease(), on.lease());
    for (lease, name) in [(renewed, "t:a"), (other, "t:b")] {
        assert!(on.reserve(&first, lease, [(name, 5)]).await.unwrap().is_allowed());
        close_as_before(&on, name).await;
    }
    ledger.take_calls();
    let answer = on.renew(&second, renewed, 1, []).await;
    assert!(matches!(answer, Err(RenewError::Unanswered(_))), "{answer:?}");
    assert!(ledger.take_calls().len() <= 5, "it is refused at once");
    assert!(on.renew(&second, renewed, 1, [("t:a", 5)]).await.unwrap().is_renewed());
    assert!(on.renew(&second, renewed, 2, []).await.unwrap().is_renewed(), "it is found now");
    assert!(on.renew(&first, renewed, 3, []).await.unwrap().is_renewed());

    let template = on.concurrency("t:*", 60, 2);
    let to = template.capacity;
    first.define(template).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    for (lease, name) in [(renewed, "t:a"), (other, "t:b")] {
        let state = on.state(&first, name).await;
        assert_eq!(state.status, LimitStatus::Decreasing { to }, "{name}");
        on.complete(&first, lease, []).await.unwrap();
    }
    on.pass(Duration::from_millis(1_700)).await;
    for name in ["t:a", "t:b"] {
        let state = on.state(&first, name).await;
        assert_eq!((state.status, state.limit.capacity), (LimitStatus::Active, to), "{name}");
        assert!(on.reserve(&first, on.lease(), [(name, 2)]).await.unwrap().is_allowed());
    }
}

/// TB-08: the account was closed for a decrease that the file does not know.
pub async fn tb_08_a_decrease_that_was_not_kept_is_taken_back<L: Ledger + Clone>(
    on: TestContext<L>,
) {
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

/// TB-08: three starts with the same file, of which the first writes everything and the others
/// nothing; then one with a change.
pub async fn tb_08_a_start_writes_nothing_when_nothing_has_changed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let ledger = RecordingLedger::new(on.ledger.clone());
    let limit = |number: usize| on.rolling(&format!("{number:03}"), 60, 10);
    let mut limits: Vec<_> = (0..600).map(limit).map(RegisteredLimit::in_force).collect();
    let start = async |limits: &[RegisteredLimit]| {
        // Without ticks, which would be counted too.
        let options = LimiterOptions { clock: Arc::clone(&on.clock), ..LimiterOptions::default() };
        let limiter = TigerBeetleLimiter::new(ledger.clone(), options);
        let statuses = limiter.restore_all(limits.to_vec(), &BTreeSet::new()).await.unwrap();
        assert_eq!(statuses, vec![LimitStatus::Active; limits.len()]);
        ledger.take_counts()
    };
    let first = start(&limits).await;
    assert_eq!(first.transfers, 1_200, "each account is funded once");
    assert!(first.calls < 24, "{first:?}");
    for _ in 0..2 {
        assert_eq!(start(&limits).await, CallCounts { calls: 3, transfers: 0 });
    }
    limits[300].limit.capacity = on.rolling("", 60, 11).capacity;
    assert_eq!(start(&limits).await, CallCounts { calls: 4, transfers: 2 });
    assert_eq!(start(&limits).await, CallCounts { calls: 3, transfers: 0 });
}
