//! `TB-05`: a repeated lease at a limiter without it in the cache.

use std::time::Duration;

use ratelimiter::{Backend, Decision, DenialReason, ReserveError};
use ratelimiter_tigerbeetle::ledger::Ledger;

use crate::context::{TestContext, restore_all};

/// TB-05, RES-04
pub async fn tb_05_an_allowed_lease_is_allowed_again_with_its_first_moment<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.concurrency("slots", 60, 5)).await.unwrap();
    let lease = on.lease();
    let needs = [("tokens", 60), ("slots", 2)];
    let decision = on.reserve(&first, lease, needs).await.unwrap();
    assert!(decision.is_allowed());

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    for needs in [needs, [("slots", 2), ("tokens", 60)]] {
        assert_eq!(on.reserve(&second, lease, needs).await, Ok(decision.clone()));
    }
    assert_eq!(on.used(&second, "tokens").await, 60, "counted once");
    assert_eq!(on.used(&second, "slots").await, 2, "counted once");
    assert!(second.observations().cold_reads >= 2);
}

/// TB-05, RES-05
pub async fn tb_05_a_denied_lease_stays_denied<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.rolling("free", 60, 100)).await.unwrap();
    let (holder, denied) = (on.lease(), on.lease());
    assert!(on.reserve(&first, holder, [("tokens", 60)]).await.unwrap().is_allowed());
    let needs = [("free", 1), ("tokens", 60)];
    assert!(!on.reserve(&first, denied, needs).await.unwrap().is_allowed());
    on.complete(&first, holder, [("tokens", 0)]).await.unwrap();

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let Ok(Decision::Denied(denial)) = on.reserve(&second, denied, needs).await else {
        panic!("there is room, but the lease was denied");
    };
    let keys = vec![on.key("tokens")];
    assert_eq!(denial.reason, DenialReason::NoRoom { keys });
    assert_eq!(denial.retry_after, Duration::from_millis(1), "a new lease may try at once");
    assert_eq!(on.used(&second, "free").await, 0);
}

/// TB-05, RES-04
pub async fn tb_05_a_lease_with_other_requirements_is_a_conflict<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    for name in ["a", "b", "c"] {
        first.define(on.rolling(name, 60, 100)).await.unwrap();
    }
    let lease = on.lease();
    let needs = [("a", 1), ("b", 2)];
    assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let conflict = Err(ReserveError::LeaseConflict);
    assert_eq!(on.reserve(&second, lease, [("a", 2), ("b", 2)]).await, conflict);
    assert_eq!(on.reserve(&second, lease, [("a", 1), ("b", 3)]).await, conflict);
    assert_eq!(on.reserve(&second, lease, [("a", 1)]).await, conflict);
    assert_eq!(on.reserve(&second, lease, [("b", 2)]).await, conflict);
    assert_eq!(on.reserve(&second, lease, [("b", 2), ("c", 1)]).await, conflict);
    assert_eq!(on.reserve(&second, lease, [("a", 1), ("b", 2), ("c", 1)]).await, conflict);
    assert_eq!(on.used(&second, "c").await, 0);
    assert!(on.reserve(&second, lease, needs).await.unwrap().is_allowed());
}

/// TB-05, TB-03: the ledger stops at the first refused event, and an existing lease shows only in
/// its own keys.
pub async fn tb_05_a_further_key_without_room_is_denied_for_that_key<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("a", 3_600, 5)).await.unwrap();
    first.define(on.rolling("b", 3_600, 100)).await.unwrap();
    let (holder, lease) = (on.lease(), on.lease());
    assert!(on.reserve(&first, holder, [("a", 5)]).await.unwrap().is_allowed());
    assert!(on.reserve(&first, lease, [("b", 2)]).await.unwrap().is_allowed());

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let further = [("a", 1), ("b", 2)];
    assert_eq!(on.reserve(&first, lease, further).await, Err(ReserveError::LeaseConflict));
    let decision = on.reserve(&second, lease, further).await.unwrap();
    let reason = &decision.denial().expect("there is no room on a").reason;
    assert!(matches!(reason, DenialReason::NoRoom { keys } if *keys == [on.key("a")]));
    assert_eq!(on.used(&second, "a").await, 5);
    assert_eq!(on.used(&second, "b").await, 2);
    assert!(
        on.reserve(&second, lease, [("b", 2)]).await.unwrap().is_allowed(),
        "it is still there"
    );
}

/// TB-05, RES-09
pub async fn tb_05_an_ended_lease_is_never_allowed_again<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.rolling("short", 1, 100)).await.unwrap();
    first.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let [released, shrunk, kept, equal, grown, expired] = [(); 6].map(|()| on.lease());
    assert!(on.reserve(&first, released, [("slots", 1)]).await.unwrap().is_allowed());
    for lease in [shrunk, kept, equal, grown] {
        assert!(on.reserve(&first, lease, [("tokens", 10)]).await.unwrap().is_allowed());
    }
    assert!(on.reserve(&first, expired, [("short", 1)]).await.unwrap().is_allowed());
    on.complete(&first, released, []).await.unwrap();
    on.complete(&first, shrunk, [("tokens", 5)]).await.unwrap();
    on.complete(&first, kept, []).await.unwrap();
    on.complete(&first, equal, [("tokens", 10)]).await.unwrap();
    on.complete(&first, grown, [("tokens", 15)]).await.unwrap();
    on.pass(Duration::from_millis(1_700)).await;

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let ended = Err(ReserveError::LeaseEnded);
    assert_eq!(on.reserve(&second, released, [("slots", 1)]).await, ended);
    for lease in [shrunk, kept, equal, grown] {
        assert_eq!(on.reserve(&second, lease, [("tokens", 10)]).await, ended);
    }
    assert_eq!(on.reserve(&second, expired, [("short", 1)]).await, ended);
    assert_eq!(on.used(&second, "tokens").await, 40);
}

/// RES-04: an allowed lease is not denied because a limit has started to decrease.
pub async fn tb_05_an_allowed_lease_is_known_while_its_limit_decreases<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 10)).await.unwrap();
    let lease = on.lease();
    let decision = on.reserve(&first, lease, [("slots", 8)]).await.unwrap();
    first.define(on.concurrency("slots", 60, 5)).await.unwrap();

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    assert_eq!(on.reserve(&second, lease, [("slots", 8)]).await, Ok(decision));
    let other = on.reserve(&second, on.lease(), [("slots", 1)]).await.unwrap();
    let key = on.key("slots");
    assert_eq!(other.denial().unwrap().reason, DenialReason::Decreasing { key });
}

/// RES-06, RES-05: every server recognises a denied lease even after its limit changed, and the
/// check burns no ID.
pub async fn res_06_a_denied_lease_is_known_after_its_limit_changed<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("free", 60, 100)).await.unwrap();
    let second = on.uncached_limiter();
    let no_room = DenialReason::NoRoom { keys: vec![on.key("tokens")] };
    let needs = [("free", 1), ("tokens", 60)];
    for capacity in [0, 50] {
        first.define(on.rolling("tokens", 60, 100)).await.unwrap();
        let [holder, denied, new] = [(); 3].map(|()| on.lease());
        assert!(on.reserve(&first, holder, [("tokens", 60)]).await.unwrap().is_allowed());
        assert!(!on.reserve(&first, denied, needs).await.unwrap().is_allowed());
        on.complete(&first, holder, [("tokens", 0)]).await.unwrap();
        first.define(on.rolling("tokens", 60, capacity)).await.unwrap();
        restore_all(&second, &first).await;
        for limiter in [&first, &second] {
            let again = on.reserve(limiter, denied, needs).await.unwrap();
            assert_eq!(again.denial().unwrap().reason, no_room, "{capacity}");
            let answer = on.reserve(limiter, new, needs).await;
            let key = on.key("tokens");
            match capacity {
                0 => assert_eq!(
                    answer.unwrap().denial().unwrap().reason,
                    DenialReason::Paused { key }
                ),
                _ => assert_eq!(answer, Err(ReserveError::AmountExceedsCapacity { key })),
            }
        }
        first.define(on.rolling("tokens", 60, 100)).await.unwrap();
        assert!(on.reserve(&first, new, needs).await.unwrap().is_allowed(), "not burned");
        on.complete(&first, new, [("tokens", 0)]).await.unwrap();
    }
    assert_eq!(on.used(&first, "free").await, 2);
}
