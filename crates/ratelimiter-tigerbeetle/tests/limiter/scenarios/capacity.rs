//! `TB-07`: capacity changes at one limiter or at several.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{Backend, LimitStatus};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{AccountRow, Ledger};

use crate::context::{TestContext, restore_all};

async fn account<L: Ledger + Clone>(on: &TestContext<L>, name: &str) -> AccountRow {
    let id = ids::limit_account(&on.key(name));
    on.ledger.lookup_accounts(vec![id]).await.unwrap()[0]
}

async fn capacity<L: Ledger + Clone>(on: &TestContext<L>, name: &str) -> u128 {
    let balances = account(on, name).await.balances;
    balances.credits_posted - balances.debits_posted
}

/// TB-07, DEF-06
pub async fn tb_07_a_capacity_can_change_any_number_of_times<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    for round in 0..4 {
        for units in [10, 5, 10, 0] {
            let limit = on.concurrency("slots", 60, units);
            let status = if units == 0 { LimitStatus::Paused } else { LimitStatus::Active };
            assert_eq!(limiter.define(limit).await, Ok(status));
            assert_eq!(capacity(&on, "slots").await, u128::from(units), "round {round}");
        }
    }
}

/// TB-07: 10, a decrease to 5 that waits, cancelled by 10, and again, with constant usage.
pub async fn tb_07_a_decrease_can_be_cancelled_any_number_of_times<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&limiter, lease, [("slots", 8)]).await.unwrap().is_allowed());
    for round in 0..4 {
        let lower = on.concurrency("slots", 60, 5);
        let to = lower.capacity;
        assert_eq!(limiter.define(lower).await, Ok(LimitStatus::Decreasing { to }), "{round}");
        assert!(account(&on, "slots").await.closed, "every server denies");
        let same = on.concurrency("slots", 60, 10);
        assert_eq!(limiter.define(same).await, Ok(LimitStatus::Active), "{round}");
        let row = account(&on, "slots").await;
        assert!(!row.closed);
        assert_eq!(capacity(&on, "slots").await, 10);
        assert_eq!(row.balances.debits_pending, 8);
    }
    let other = on.lease();
    assert!(on.reserve(&limiter, other, [("slots", 2)]).await.unwrap().is_allowed());
}

/// TB-07, DEF-07
pub async fn tb_07_a_server_that_did_not_take_the_put_denies_too<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let second = on.limiter();
    restore_all(&second, &first).await;
    let lease = on.lease();
    assert!(on.reserve(&first, lease, [("slots", 8)]).await.unwrap().is_allowed());
    first.define(on.concurrency("slots", 60, 5)).await.unwrap();
    let answer = on.reserve(&second, on.lease(), [("slots", 1)]).await.unwrap();
    let denial = answer.denial().unwrap();
    assert_eq!(denial.retry_after, Duration::from_secs(10));
    let key = on.key("slots");
    assert_eq!(denial.reason, ratelimiter::DenialReason::Decreasing { key });
    on.complete(&second, lease, []).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    assert_eq!(on.state(&first, "slots").await.status, LimitStatus::Active);
    assert_eq!(capacity(&on, "slots").await, 5);
    assert!(on.reserve(&second, on.lease(), [("slots", 5)]).await.unwrap().is_allowed());
}

/// PAUSE-01: a server that does not know of the pause yet denies, and fails nothing permanently.
pub async fn pause_01_a_server_that_did_not_take_the_put_denies_too<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    for name in ["idle", "used"] {
        first.define(on.concurrency(name, 60, 10)).await.unwrap();
    }
    let second = on.limiter();
    restore_all(&second, &first).await;
    let lease = on.lease();
    assert!(on.reserve(&first, lease, [("used", 8)]).await.unwrap().is_allowed());
    for name in ["idle", "used"] {
        let paused = first.define(on.concurrency(name, 60, 0)).await;
        assert_eq!(paused, Ok(LimitStatus::Paused));
        for amount in [1, 10] {
            let answer = on.reserve(&second, on.lease(), [(name, amount)]).await.unwrap();
            assert!(answer.denial().is_some(), "{name}");
        }
    }
    restore_all(&second, &first).await;
    on.complete(&second, lease, []).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    for (limiter, name) in
        [(&first, "idle"), (&first, "used"), (&second, "idle"), (&second, "used")]
    {
        let state = on.state(limiter, name).await;
        assert_eq!((state.status, state.usage.available), (LimitStatus::Paused, 0), "{name}");
        assert_eq!(capacity(&on, name).await, 0);
    }
    for name in ["idle", "used"] {
        first.define(on.concurrency(name, 60, 10)).await.unwrap();
        assert!(on.reserve(&first, on.lease(), [(name, 10)]).await.unwrap().is_allowed());
    }
}

/// TB-07: in any order, the account ends at the last target of one of them.
pub async fn tb_07_racing_changes_end_at_one_of_the_targets<L: Ledger + Clone>(on: TestContext<L>) {
    let limiters = [on.limiter(), on.limiter(), on.limiter()];
    let held = on.lease();
    limiters[0].define(on.concurrency("slots", 60, 10)).await.unwrap();
    assert!(on.reserve(&limiters[0], held, [("slots", 6)]).await.unwrap().is_allowed());
    for round in 0..10 {
        let targets = [20 + round, 4, 10];
        let mut changes = tokio::task::JoinSet::new();
        for (limiter, target) in limiters.iter().zip(targets) {
            let limiter = Arc::clone(limiter);
            let limit = on.concurrency("slots", 60, target);
            changes.spawn(async move { limiter.define(limit).await });
        }
        let mut waits = false;
        while let Some(status) = changes.join_next().await {
            waits |= status.unwrap().unwrap() != LimitStatus::Active;
        }
        assert!(waits || limiters[1].observations().capacity_changes > 0);
        let row = account(&on, "slots").await;
        let capacity = row.balances.credits_posted - row.balances.debits_posted;
        let possible = [20 + round, 10].map(u128::from);
        assert!(possible.contains(&capacity) || row.closed, "{round}: {row:?}");
        assert_eq!(row.balances.debits_pending, 6, "no reservation was touched");
    }
    // The last change, without competition, wins.
    limiters[2].define(on.concurrency("slots", 60, 7)).await.unwrap();
    assert_eq!(capacity(&on, "slots").await, 7);
    assert!(!account(&on, "slots").await.closed);
}

/// TB-07, DEF-06, DEF-07: a server that has not read the newer definitions yet knows a decrease to 5.
pub async fn tb_07_the_end_of_an_older_decrease_leaves_newer_changes_alone<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    // What is kept of 8 units, and the newer definitions; then the capacity, and whether it is closed.
    let lower = ("lower", 0, &[4][..], (4, false));
    let higher = ("higher", 0, &[8][..], (8, false));
    let closed = ("closed", 4, &[5, 2][..], (5, true));
    for (name, kept, newer, expected) in [lower, higher, closed] {
        let limiter = on.limiter();
        limiter.define(on.concurrency(name, 60, 10)).await.unwrap();
        let returned = on.lease();
        for (lease, units) in [(returned, 8 - kept), (on.lease(), kept)] {
            if units > 0 {
                assert!(on.reserve(&limiter, lease, [(name, units)]).await.unwrap().is_allowed());
            }
        }
        limiter.define(on.concurrency(name, 60, 5)).await.unwrap();
        let older = on.successor(&limiter).await;
        on.complete(&limiter, returned, []).await.unwrap();
        for capacity in newer {
            limiter.define(on.concurrency(name, 60, *capacity)).await.unwrap();
        }
        on.pass(Duration::from_millis(500)).await;
        let closed = account(&on, name).await.closed;
        assert_eq!((capacity(&on, name).await, closed), expected, "{name}");
        restore_all(&older, &limiter).await;
        let (older, newer) = (on.state(&older, name).await, on.state(&limiter, name).await);
        assert_eq!((older.limit, older.status), (newer.limit, newer.status));
    }
}
