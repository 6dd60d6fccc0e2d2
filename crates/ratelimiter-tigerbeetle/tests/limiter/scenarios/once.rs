//! `COM-05`: the first effective complete is final.
//!
//! No later one, at any server, with any actuals, however much later, frees, reserves or adds debt.

use std::time::Duration;

use ratelimiter::{Backend, CompleteError, LeaseId, Limit, LimitStatus, Limiter, Overage};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

/// Actual usage, by key.
type Actuals = &'static [(&'static str, u64)];

/// With room for an excess; without; without and `overage: deny`; and a hold.
const KEYS: [&str; 4] = ["roomy", "full", "denying", "slots"];

/// Long enough that nothing expires during a scenario on a slow machine.
const DAY: u64 = 86_400;

async fn define(on: &TestContext<impl Ledger + Clone>, at: &impl Backend) {
    at.define(on.rolling("roomy", DAY, 10_000)).await.unwrap();
    at.define(on.rolling("full", DAY, 10)).await.unwrap();
    let denying = Limit { overage: Overage::Deny, ..on.rolling("denying", DAY, 10) };
    at.define(denying).await.unwrap();
    at.define(on.concurrency("slots", DAY, 1)).await.unwrap();
}

/// Usage and debt of every key.
async fn accounts(on: &TestContext<impl Ledger + Clone>, at: &impl Backend) -> Vec<(u64, u128)> {
    let mut accounts = Vec::new();
    for name in KEYS {
        let usage = on.state(at, name).await.usage;
        accounts.push((usage.used, usage.debt));
    }
    accounts
}

async fn end<L: Ledger + Clone>(
    on: &TestContext<L>,
    at: &impl Limiter,
    lease: LeaseId,
    actuals: &[(&str, u64)],
) {
    at.complete(&on.to_complete(lease, actuals)).await.unwrap();
}

/// None given, all, some, zero, more, and one of each.
const ACTUALS: [Actuals; 6] = [
    &[],
    &[("roomy", 10), ("full", 10), ("denying", 10)],
    &[("roomy", 4), ("full", 4), ("denying", 4)],
    &[("roomy", 0), ("full", 0), ("denying", 0)],
    &[("roomy", 17), ("full", 17), ("denying", 17)],
    &[("roomy", 0), ("full", 12), ("denying", 9)],
];

/// COM-05, TB-16: the server that allowed the lease has it in its cache, and another one has
/// completed it.
pub async fn com_05_a_stale_server_changes_nothing_after_another_has_completed<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    define(&on, &first).await;
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    for (has_hold, actuals, later) in every_pair() {
        make_room(&on, &first).await;
        let lease = on.lease();
        let needs = [("roomy", 10), ("full", 10), ("denying", 10)];
        let allowed = match has_hold {
            true => on.reserve(&first, lease, [needs[0], needs[1], needs[2], ("slots", 1)]).await,
            false => on.reserve(&first, lease, needs).await,
        };
        assert!(allowed.unwrap().is_allowed(), "{actuals:?}");
        end(&on, &second, lease, actuals).await;
        let completed = accounts(&on, &first).await;
        for limiter in [&first, &second, &first] {
            end(&on, limiter, lease, later).await;
            let after = accounts(&on, &first).await;
            assert_eq!(after, completed, "hold {has_hold}: {actuals:?}, then {later:?}");
        }
    }
}

/// Every first complete with every later one, with a hold and without.
fn every_pair() -> impl Iterator<Item = (bool, Actuals, Actuals)> {
    let pairs = ACTUALS.into_iter().flat_map(|first| ACTUALS.map(|later| (first, later)));
    pairs.flat_map(|(first, later)| [(true, first, later), (false, first, later)])
}

/// Makes room for one more lease in both full limits.
async fn make_room<L: Ledger + Clone>(on: &TestContext<L>, at: &impl Backend) {
    for name in ["full", "denying"] {
        let used = on.state(at, name).await.usage.used;
        let limit = on.rolling(name, DAY, 10 + used);
        let overage = if name == "denying" { Overage::Deny } else { Overage::Debt };
        at.define(Limit { overage, ..limit }).await.unwrap();
    }
}

/// COM-05, TB-16: the hold that marks a lease as completed would have expired before the next
/// complete.
pub async fn com_05_the_first_complete_stands_when_its_hold_would_have_expired<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.concurrency("brief", 1, 10)).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let (early, late) = (on.lease(), on.lease());
    for lease in [early, late] {
        let needs = [("tokens", 30), ("brief", 1)];
        assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    }
    on.complete(&second, early, [("tokens", 30)]).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    on.complete(&first, early, [("tokens", 0)]).await.unwrap();
    assert_eq!(on.used(&first, "tokens").await, 60, "its hold was released before it expired");

    on.complete(&second, late, [("tokens", 20)]).await.unwrap();
    for actual in [0, 10, 90] {
        for limiter in [&first, &second] {
            on.complete(limiter, late, [("tokens", actual)]).await.unwrap();
            assert_eq!(on.used(&first, "tokens").await, 50, "its hold had expired: {actual}");
        }
    }
}

/// COM-05, TB-16: one of them takes effect, for all keys.
pub async fn com_05_of_two_completes_at_once_one_counts_for_all_keys<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    for (one, other) in [(4, 5), (0, 1), (2, 4), (4, 1), (2, 3), (5, 4)] {
        let first = on.limiter();
        define(&on, &first).await;
        let second = on.limiter();
        restore_all(&second, &first).await;
        let mut outcomes = Vec::new();
        let mut before = accounts(&on, &first).await;
        for order in [&[one][..], &[other], &[one, other]] {
            make_room(&on, &first).await;
            let lease = on.lease();
            let needs = [("roomy", 10), ("full", 10), ("denying", 10), ("slots", 1)];
            // Both have it in their cache, so neither reads it from the ledger.
            for limiter in [&first, &second] {
                assert!(on.reserve(limiter, lease, needs).await.unwrap().is_allowed());
            }
            let completes = order.iter().zip([&first, &second]);
            let completes = completes.map(|(at, limiter)| end(&on, limiter, lease, ACTUALS[*at]));
            futures::future::join_all(completes).await;
            let after = accounts(&on, &first).await;
            let change = before.iter().zip(&after).map(|(b, a)| (a.0 - b.0, a.1 - b.1));
            outcomes.push(change.collect::<Vec<_>>());
            before = after;
        }
        let both = outcomes.pop().unwrap();
        assert!(outcomes.contains(&both), "{both:?} is neither of {outcomes:?}");
    }
}

/// COM-05, TB-16: while a decrease keeps an account closed.
pub async fn com_05_the_first_complete_stands_while_a_limit_decreases<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let actuals = [50, 7, 0, 60];
    let mut leases = Vec::new();
    for _ in actuals {
        let lease = on.lease();
        assert!(on.reserve(&first, lease, [("tokens", 20)]).await.unwrap().is_allowed());
        leases.push(lease);
    }
    let lower = on.rolling("tokens", 60, 10);
    let to = lower.capacity;
    assert_eq!(first.define(lower).await, Ok(LimitStatus::Decreasing { to }));
    for (lease, actual) in leases.iter().zip(actuals) {
        on.complete(&second, *lease, [("tokens", actual)]).await.unwrap();
    }
    let tokens = on.state(&second, "tokens").await.usage;
    assert_eq!((tokens.used, tokens.debt), (20 + 7 + 20, 30 + 40));
    for actual in [0, 20, 90] {
        for lease in &leases {
            on.complete(&first, *lease, [("tokens", actual)]).await.unwrap();
            on.complete(&second, *lease, [("tokens", actual)]).await.unwrap();
        }
        let tokens = on.state(&first, "tokens").await.usage;
        assert_eq!((tokens.used, tokens.debt), (20 + 7 + 20, 30 + 40), "{actual}");
    }
}

/// COM-05: a refusal of what a server knows of a lease is no answer for one that has ended.
pub async fn com_05_a_lease_that_another_server_completed_takes_any_actuals<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 600, 10)).await.unwrap();
    let second = on.successor(&first).await;
    for is_renewed in [false, true] {
        let lease = on.lease();
        assert!(on.reserve(&first, lease, [("slots", 1)]).await.unwrap().is_allowed());
        if is_renewed {
            assert!(on.renew(&first, lease, 1, []).await.unwrap().is_renewed());
        }
        let refused = on.complete(&first, lease, [("slots", 4)]).await;
        assert!(matches!(refused, Err(CompleteError::InvalidActual { .. })), "{refused:?}");
        on.complete(&second, lease, []).await.unwrap();
        on.complete(&first, lease, [("slots", 4)]).await.unwrap();
    }
}
