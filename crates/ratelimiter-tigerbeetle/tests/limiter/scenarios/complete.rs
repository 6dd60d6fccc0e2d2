//! `TB-06`: the transfers at the end of a lease.

use std::time::Duration;

use ratelimiter::{Backend, Limit, LimitStatus, Overage};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

/// TB-06
pub async fn tb_06_one_expired_reservation_does_not_fail_the_others<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.uncached_limiter();
    limiter.define(on.concurrency("brief", 1, 10)).await.unwrap();
    limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
    limiter.define(on.rolling("short", 1, 100)).await.unwrap();
    limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
    let lease = on.lease();
    let needs = [("brief", 1), ("slots", 1), ("short", 50), ("tokens", 50)];
    assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
    on.pass(Duration::from_millis(1_700)).await;
    on.complete(&limiter, lease, [("short", 20), ("tokens", 20)]).await.unwrap();
    for (name, used) in [("brief", 0), ("slots", 0), ("short", 0), ("tokens", 20)] {
        assert_eq!(on.used(&limiter, name).await, used, "{name}");
    }
}

/// TB-06, TB-15: a lease creates the minimum of transfers.
pub async fn tb_15_a_lease_makes_no_transfer_that_it_does_not_need<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    for name in ["a", "b", "c"] {
        limiter.define(on.rolling(name, 60, 1_000)).await.unwrap();
    }
    limiter.define(on.concurrency("slots", 60, 100)).await.unwrap();
    let mut before = limiter.observations().lease_transfers;
    for (actuals, transfers) in [
        // A hold is voided; an equal actual or none changes nothing.
        (vec![("a", 10)], 5),
        // Nothing used: a void and no reservation of 0.
        (vec![("a", 0), ("b", 10)], 6),
        // Less: a void and a reservation.
        (vec![("a", 4)], 7),
        // More: a reservation of the rest.
        (vec![("a", 11)], 6),
    ] {
        let lease = on.lease();
        let needs = [("a", 10), ("b", 10), ("c", 10), ("slots", 1)];
        assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
        let request = on.to_complete(lease, &actuals);
        ratelimiter::Limiter::complete(&limiter, &request).await.unwrap();
        let after = limiter.observations().lease_transfers;
        assert_eq!(after - before, transfers, "{actuals:?}");
        before = after;
    }
    // Without a hold, a marker ends the lease.
    for (actual, transfers) in [(10, 2), (0, 3), (4, 4), (11, 3)] {
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("a", 10)]).await.unwrap().is_allowed());
        on.complete(&limiter, lease, [("a", actual)]).await.unwrap();
        let after = limiter.observations().lease_transfers;
        assert_eq!(after - before, transfers, "{actual}");
        before = after;
    }
    assert_eq!(limiter.observations().leases_allowed, 8);
}

/// TB-06, TB-07: reservations shrink on a closed account too.
pub async fn tb_06_a_reservation_shrinks_while_its_limit_decreases<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    let leases = [(); 8].map(|()| on.lease());
    for lease in leases {
        assert!(on.reserve(&first, lease, [("tokens", 10)]).await.unwrap().is_allowed());
    }
    let lower = on.rolling("tokens", 60, 20);
    let to = lower.capacity;
    assert_eq!(first.define(lower).await, Ok(LimitStatus::Decreasing { to }));
    // The second server still believes that the limit is active.
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let completes = leases.map(|lease| {
        let limiter = if lease.as_u128() % 2 == 0 { &first } else { &second };
        on.complete(limiter, lease, [("tokens", 2)])
    });
    for answer in futures::future::join_all(completes).await {
        answer.unwrap();
    }
    on.pass(Duration::from_millis(1_700)).await;
    let state = on.state(&first, "tokens").await;
    assert_eq!(state.usage.used, 16);
    assert_eq!((state.status, state.limit.capacity), (LimitStatus::Active, to));
    for lease in leases {
        on.complete(&second, lease, [("tokens", 1)]).await.unwrap();
    }
    assert_eq!(on.used(&first, "tokens").await, 16, "each was completed once");
}

/// TB-06, COM-03: the debt is the same, wherever and how often the lease is completed.
pub async fn com_03_an_excess_that_is_refused_becomes_debt_once<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 10)).await.unwrap();
    let denying = Limit { overage: Overage::Deny, ..on.rolling("denying", 60, 10) };
    first.define(denying).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let lease = on.lease();
    let needs = [("tokens", 10), ("denying", 10)];
    assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    let actuals = [("tokens", 17), ("denying", 17)];
    for limiter in [&first, &second, &first] {
        on.complete(limiter, lease, actuals).await.unwrap();
    }
    let (tokens, denying) =
        (on.state(&first, "tokens").await.usage, on.state(&first, "denying").await.usage);
    assert_eq!((tokens.used, tokens.debt, tokens.uncovered), (10, 7, 7));
    assert_eq!((denying.used, denying.debt, denying.uncovered), (10, 0, 7));
}
