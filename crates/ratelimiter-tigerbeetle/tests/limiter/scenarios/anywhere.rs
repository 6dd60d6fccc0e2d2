//! `COM-07`: completing a lease at another limiter.

use std::time::Duration;

use ratelimiter::{Backend, CompleteError, Limiter, Requirements, ReserveError, ReserveRequest};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

/// COM-07, TB-04
pub async fn com_07_another_limiter_completes_what_the_first_one_allowed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.rolling("requests", 60, 10)).await.unwrap();
    first.define(on.concurrency("slots", 60, 1)).await.unwrap();
    let second = on.limiter();
    restore_all(&second, &first).await;
    let lease = on.lease();
    let needs = [("tokens", 50), ("requests", 1), ("slots", 1)];
    assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    drop(first);

    let wrong = on.complete(&second, lease, [("tokens", 20), ("slots", 1)]).await;
    assert_eq!(wrong, Err(CompleteError::InvalidActual { key: on.key("slots") }));
    assert_eq!(on.used(&second, "tokens").await, 50, "nothing was applied");
    on.complete(&second, lease, [("tokens", 20)]).await.unwrap();
    for (name, used) in [("tokens", 20), ("requests", 1), ("slots", 0)] {
        assert_eq!(on.used(&second, name).await, used, "{name}");
    }
}

/// COM-07, TB-04: a lease with more transfers than usual is read completely.
pub async fn com_07_a_lease_of_many_limits_is_completed_at_another_limiter<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    const NEEDS: [(&str, u64); 9] =
        [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1), ("h", 1), ("i", 1)];
    for count in 7..=NEEDS.len() {
        let (first, second) = (on.limiter(), on.uncached_limiter());
        for (name, _) in NEEDS {
            first.define(on.concurrency(name, 60, 1)).await.unwrap();
        }
        restore_all(&second, &first).await;
        let lease = on.lease();
        let needs = NEEDS[..count].iter().map(|&(name, amount)| (on.key(name), amount));
        let request = ReserveRequest::new(lease, Requirements::of(needs).unwrap());
        assert!(first.reserve(&request).await.unwrap().is_allowed());
        on.complete(&second, lease, []).await.unwrap();
        for (name, _) in NEEDS {
            assert_eq!(on.used(&first, name).await, 0, "{name} of {count}");
        }
        assert_eq!(second.reserve(&request).await, Err(ReserveError::LeaseEnded));
    }
}

/// COM-07, COM-05
pub async fn com_07_completing_at_both_limiters_is_completing_once<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.rolling("full", 60, 10)).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let lease = on.lease();
    let needs = [("tokens", 50), ("full", 10)];
    assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    let actuals = [("tokens", 60), ("full", 13)];
    for limiter in [&second, &first, &second, &first] {
        on.complete(limiter, lease, actuals).await.unwrap();
        assert_eq!(on.used(limiter, "tokens").await, 60);
        let full = on.state(limiter, "full").await.usage;
        assert_eq!((full.used, full.debt), (10, 3));
    }
    for actuals in [[("tokens", 0), ("full", 0)], [("tokens", 90), ("full", 90)]] {
        on.complete(&second, lease, actuals).await.unwrap();
        assert_eq!(on.used(&second, "tokens").await, 60);
        assert_eq!(on.state(&second, "full").await.usage.debt, 3);
    }
}

/// COM-07, DEF-09
pub async fn com_07_what_a_deleted_limit_holds_is_released_anywhere<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.concurrency("slots", 60, 5)).await.unwrap();
    let lease = on.lease();
    assert!(on.reserve(&first, lease, [("slots", 5), ("tokens", 50)]).await.unwrap().is_allowed());

    let second = on.limiter();
    on.complete(&second, lease, [("tokens", 20)]).await.unwrap();
    assert_eq!(on.used(&first, "slots").await, 0, "the second one knows neither limit");
    assert_eq!(on.used(&first, "tokens").await, 20);
    on.complete(&first, lease, [("tokens", 10)]).await.unwrap();
    assert_eq!(on.used(&first, "slots").await, 0);
    assert_eq!(on.used(&first, "tokens").await, 20, "it was completed before");
}

/// DEF-09: a key that is deleted and defined again, as the other kind too.
pub async fn def_09_a_key_can_be_defined_again_while_old_leases_hold_it<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let limiter = on.limiter();
    limiter.define(on.rolling("key", 60, 10)).await.unwrap();
    let old = on.lease();
    assert!(on.reserve(&limiter, old, [("key", 6)]).await.unwrap().is_allowed());
    limiter.delete(&on.key("key")).await.unwrap();
    limiter.define(on.concurrency("key", 60, 10)).await.unwrap();
    assert_eq!(on.used(&limiter, "key").await, 6, "the cluster still counts what is held");
    assert!(!on.reserve(&limiter, on.lease(), [("key", 5)]).await.unwrap().is_allowed());
    let new = on.lease();
    assert!(on.reserve(&limiter, new, [("key", 4)]).await.unwrap().is_allowed());
    on.complete(&limiter, old, [("key", 1)]).await.unwrap();
    assert_eq!(on.used(&limiter, "key").await, 5, "the old one is reconciled as what it was");
    on.complete(&limiter, new, []).await.unwrap();
    assert_eq!(on.used(&limiter, "key").await, 1);

    limiter.define(on.rolling("brief", 1, 10)).await.unwrap();
    assert!(on.reserve(&limiter, on.lease(), [("brief", 6)]).await.unwrap().is_allowed());
    limiter.delete(&on.key("brief")).await.unwrap();
    limiter.define(on.concurrency("brief", 60, 10)).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;
    assert_eq!(on.used(&limiter, "brief").await, 0, "the old one expires as what it was");
    assert!(on.reserve(&limiter, on.lease(), [("brief", 10)]).await.unwrap().is_allowed());
}
