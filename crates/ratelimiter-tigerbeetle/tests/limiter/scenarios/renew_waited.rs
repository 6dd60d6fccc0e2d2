//! `TB-17` with `TB-18`: leases that waited are renewed, and renews make room for those that wait.

use std::sync::Arc;

use futures::future::join;
use ratelimiter::admission::{Turn, TurnBackend};
use ratelimiter::{Backend, Limiter, RenewError, ReserveError, ReserveRequest};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use super::wait::{ask, last, not_now};
use crate::context::{TestContext, restore_all};

/// Long enough that nothing expires during a scenario on a slow machine.
const DAY: u64 = 86_400;

/// Three servers with the same limits, of which the last two remember no lease.
async fn servers<L: Ledger + Clone>(on: &TestContext<L>) -> [Arc<TigerBeetleLimiter<L>>; 3] {
    let first = on.limiter();
    first.define(on.concurrency("calls", DAY, 2)).await.unwrap();
    first.define(on.rolling("rpm", DAY, 10)).await.unwrap();
    first.define(on.concurrency("slots", DAY, 1)).await.unwrap();
    first.define(on.rolling("tokens", DAY, 100)).await.unwrap();
    let others = [on.uncached_limiter(), on.uncached_limiter()];
    for other in &others {
        restore_all(other, &first).await;
    }
    let [second, third] = others;
    [first, second, third]
}

async fn used<L: Ledger + Clone>(on: &TestContext<L>, at: &TigerBeetleLimiter<L>) -> [u64; 4] {
    [
        on.used(at, "calls").await,
        on.used(at, "rpm").await,
        on.used(at, "slots").await,
        on.used(at, "tokens").await,
    ]
}

/// A lease that was admitted at the first attempt or at the second one, and whose callers are not told yet.
async fn admitted<L: Ledger + Clone>(
    on: &TestContext<L>,
    at: &TigerBeetleLimiter<L>,
    needs: &[(&str, u64)],
    attempt: u32,
) -> ReserveRequest {
    let request = on.to_reserve(on.lease(), needs);
    if attempt > 0 {
        let (holder, all) = (on.lease(), [("slots", 1), ("tokens", 100)]);
        assert!(on.reserve(at, holder, all).await.unwrap().is_allowed());
        not_now(ask(on, at, request.lease, needs, 0).await);
        on.complete(at, holder, [("tokens", 0)]).await.unwrap();
    }
    let turn = Turn { behind: None, attempt: Some(attempt), may_return: true };
    let answer = at.reserve_in_turn(&request, turn).await.unwrap();
    assert!(answer.is_new && answer.decision.is_allowed(), "{answer:?}");
    request
}

/// TB-17, TB-18, RES-04, COM-07: with several limits, so that their places have many values.
pub async fn tb_18_a_lease_of_a_later_attempt_is_renewed_anywhere<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let [first, second, third] = servers(&on).await;
    let needs = [("calls", 1), ("rpm", 2), ("slots", 1), ("tokens", 60)];
    for is_read in [false, true] {
        let request = admitted(&on, &first, &needs, 1).await;
        let lease = request.lease;
        let decision = first.reserve(&request).await;
        if is_read {
            assert_eq!(second.reserve(&request).await, decision);
        }
        for (number, at, rpm, tokens) in [
            (1, &second, 2, 40),
            (2, &first, 1, 50),
            (3, &first, 4, 50),
            (4, &third, 3, 45),
            (5, &second, 3, 47),
        ] {
            let amounts = [("rpm", rpm), ("tokens", tokens)];
            let renewed = on.renew(at, lease, number, amounts).await.unwrap();
            assert!(renewed.is_renewed());
            assert_eq!(used(&on, &third).await, [1, rpm, 1, tokens], "renew {number}");
            for other in [&first, &second, &third] {
                assert_eq!(other.reserve(&request).await, decision);
                assert_eq!(on.renew(other, lease, number, amounts).await, Ok(renewed.clone()));
            }
        }
        let actuals = [("rpm", 0), ("tokens", 0)];
        let freed = third.complete_freeing(&on.to_complete(lease, &actuals)).await.unwrap();
        assert_eq!(freed, ["calls", "rpm", "slots", "tokens"].map(|name| on.key(name)));
        for at in [&first, &second, &third] {
            on.complete(at, lease, [("tokens", 9)]).await.unwrap();
            assert_eq!(used(&on, at).await, [0; 4]);
            assert_eq!(on.renew(at, lease, 6, []).await, Err(RenewError::LeaseEnded));
            assert_eq!(at.reserve(&request).await, Err(ReserveError::LeaseEnded));
        }
    }
}

/// TB-17, TB-18, WAIT-04: also one whose renew was denied was told that the lease is allowed.
pub async fn tb_18_a_lease_that_somebody_renews_is_not_returned<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let [first, second, third] = servers(&on).await;
    for needs in [vec![("tokens", 60)], vec![("slots", 1), ("tokens", 60)]] {
        for (attempt, at) in [(0, &first), (0, &second), (1, &first), (1, &second)] {
            for (tokens, after) in [(50, 50), (80, 60)] {
                let request = admitted(&on, &first, &needs, attempt).await;
                let (lease, other) = (request.lease, on.lease());
                assert!(on.reserve(&third, other, [("tokens", 30)]).await.unwrap().is_allowed());
                let renewed = on.renew(at, lease, 1, [("tokens", tokens)]).await.unwrap();
                assert_eq!(renewed.is_renewed(), tokens == after);
                on.complete(&third, other, [("tokens", 0)]).await.unwrap();

                assert_eq!(first.return_lease(&request).await, Ok(Vec::new()));
                let slots = needs.len() as u64 - 1;
                assert_eq!(used(&on, &first).await, [0, 0, slots, after], "{needs:?} {attempt}");
                for at in [&first, &second, &third] {
                    assert!(at.reserve(&request).await.unwrap().is_allowed());
                }
                assert!(on.renew(&third, lease, 2, [("tokens", 70)]).await.unwrap().is_renewed());
                on.complete(&first, lease, [("tokens", 0)]).await.unwrap();
                assert_eq!(used(&on, &second).await, [0; 4]);
                assert_eq!(second.reserve(&request).await, Err(ReserveError::LeaseEnded));
            }
        }
    }
}

/// TB-17, TB-18
pub async fn tb_18_a_lease_that_was_returned_is_not_renewed<L: Ledger + Clone>(on: TestContext<L>) {
    let [first, second, _] = servers(&on).await;
    for needs in [vec![("tokens", 60)], vec![("slots", 1), ("tokens", 60)]] {
        for attempt in [0, 1] {
            let request = admitted(&on, &first, &needs, attempt).await;
            let lease = request.lease;
            let freed = first.return_lease(&request).await.unwrap();
            assert_eq!(freed.len(), needs.len());
            for at in [&first, &second] {
                let renewed = on.renew(at, lease, 1, [("tokens", 1)]).await;
                assert_eq!(renewed, Err(RenewError::LeaseEnded));
            }
            assert_eq!(used(&on, &first).await, [0; 4]);
        }
    }
}

/// TB-17, TB-18: whoever is told that it has renewed a lease has it.
pub async fn tb_18_of_a_renew_and_a_return_at_once_one_succeeds<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let [first, second, third] = servers(&on).await;
    for needs in [vec![("tokens", 60)], vec![("slots", 1), ("tokens", 60)]] {
        for (attempt, at) in [(0, &first), (0, &second), (1, &first), (1, &second)] {
            for is_renew_first in [false, true] {
                let request = admitted(&on, &first, &needs, attempt).await;
                let lease = request.lease;
                let renew = on.renew(at, lease, 1, [("tokens", 50)]);
                let (renewed, returned) = if is_renew_first {
                    join(renew, first.return_lease(&request)).await
                } else {
                    let (returned, renewed) = join(first.return_lease(&request), renew).await;
                    (renewed, returned)
                };
                let is_renewed = match renewed {
                    Ok(renewal) => renewal.is_renewed(),
                    Err(error) => {
                        assert_eq!(error, RenewError::LeaseEnded);
                        false
                    }
                };
                assert_eq!(returned.unwrap().is_empty(), is_renewed);
                let tokens = if is_renewed { 50 } else { 0 };
                assert_eq!(on.used(&third, "tokens").await, tokens);
                on.complete(&third, lease, [("tokens", 0)]).await.unwrap();
                assert_eq!(used(&on, &third).await, [0; 4]);
            }
        }
    }
}

/// TB-17, TB-18, RES-04: a lease that waits and another one have the same ID and no key in common.
pub async fn tb_18_a_withdrawn_attempt_is_no_part_of_a_renewed_lease<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let [first, second, third] = servers(&on).await;
    let (holder, lease) = (on.lease(), on.lease());
    assert!(on.reserve(&first, holder, [("slots", 1)]).await.unwrap().is_allowed());
    not_now(ask(&on, &first, lease, &[("slots", 1), ("tokens", 10)], 0).await);
    let others = [("calls", 1), ("rpm", 2)];
    let decision = on.reserve(&second, lease, others).await;
    assert!(decision.as_ref().unwrap().is_allowed());
    assert!(on.renew(&second, lease, 1, [("rpm", 5)]).await.unwrap().is_renewed());
    on.complete(&first, holder, []).await.unwrap();
    let refused = ask(&on, &first, lease, &[("slots", 1), ("tokens", 10)], 1).await;
    assert_eq!(refused, Err(ReserveError::LeaseConflict));
    assert_eq!(used(&on, &first).await, [1, 5, 0, 0]);
    for (number, at) in [(2, &third), (3, &first), (4, &second)] {
        assert_eq!(on.reserve(at, lease, others).await, decision);
        assert!(on.renew(at, lease, number, [("rpm", number)]).await.unwrap().is_renewed());
        assert_eq!(used(&on, &first).await, [1, number, 0, 0]);
    }
    on.complete(&third, lease, [("rpm", 0)]).await.unwrap();
    assert_eq!(used(&on, &first).await, [0; 4]);
    assert_eq!(on.reserve(&second, lease, others).await, Err(ReserveError::LeaseEnded));
}

/// TB-18, WAIT-06, REN-01: a renew tells which limits have room again.
pub async fn tb_18_what_a_renew_gives_back_admits_who_waits<L: Ledger + Clone>(on: TestContext<L>) {
    let [first, second, _] = servers(&on).await;
    let (held, waits) = (on.lease(), on.lease());
    let needs = [("calls", 2), ("rpm", 2), ("tokens", 100)];
    assert!(on.reserve(&first, held, needs).await.unwrap().is_allowed());
    let wants = [("calls", 1), ("tokens", 30)];
    not_now(ask(&on, &second, waits, &wants, 0).await);
    let renew = async |number, amounts: &[(&str, u64)]| {
        let request = on.to_renew(held, number, amounts);
        let (renewal, freed) = second.renew_freeing(&request).await.unwrap();
        (renewal.is_renewed(), freed)
    };
    assert_eq!(renew(1, &[]).await, (true, Vec::new()));
    assert_eq!(renew(2, &[("calls", 2), ("rpm", 3)]).await, (true, Vec::new()));
    let shrink = [("calls", 1), ("rpm", 4), ("tokens", 90)];
    let freed = vec![on.key("calls"), on.key("tokens")];
    assert_eq!(renew(3, &shrink).await, (true, freed));
    assert_eq!(renew(3, &shrink).await, (true, Vec::new()), "once");
    let full = on.lease();
    assert!(on.reserve(&first, full, [("rpm", 6)]).await.unwrap().is_allowed());
    assert_eq!(renew(4, &[("calls", 0), ("rpm", 5)]).await, (false, Vec::new()), "all or none");
    not_now(ask(&on, &second, waits, &wants, 1).await);
    assert_eq!(renew(5, &[("tokens", 70)]).await, (true, vec![on.key("tokens")]));
    assert!(last(ask(&on, &second, waits, &wants, 2).await).is_allowed());
    assert_eq!(used(&on, &first).await, [2, 10, 0, 100]);
}
