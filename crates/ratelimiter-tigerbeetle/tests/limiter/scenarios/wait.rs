//! `TB-17`: leases that wait, at several limiters.

use std::sync::Arc;

use futures::future::join;
use ratelimiter::admission::{Turn, TurnAnswer, TurnBackend};
use ratelimiter::{
    Backend, Decision, Denial, DenialReason, LeaseId, LeasePage, Limit, LimitMode, Limiter,
    ReserveError,
};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use crate::context::{TestContext, restore_all};

type Answer = Result<TurnAnswer, ReserveError>;

/// Asks for a caller that waits, and has asked so often before.
pub async fn ask<L: Ledger + Clone>(
    on: &TestContext<L>,
    at: &TigerBeetleLimiter<L>,
    lease: LeaseId,
    needs: &[(&str, u64)],
    attempt: u32,
) -> Answer {
    let turn = Turn { attempt: Some(attempt), ..Turn::default() };
    at.reserve_in_turn(&on.to_reserve(lease, needs), turn).await
}

/// The denial of a lease that may ask again.
pub fn not_now(answer: Answer) -> Denial {
    match answer {
        Ok(TurnAnswer { decision: Decision::Denied(denial), ask_again_after: Some(_), .. }) => {
            denial
        }
        other => panic!("it goes on waiting: {other:?}"),
    }
}

/// The decision of a lease that may not.
pub fn last(answer: Answer) -> Decision {
    match answer {
        Ok(TurnAnswer { decision, ask_again_after: None, .. }) => decision,
        other => panic!("it is decided: {other:?}"),
    }
}

/// A lease that holds the only slot.
async fn full_slot<L: Ledger + Clone>(on: &TestContext<L>, at: &TigerBeetleLimiter<L>) -> LeaseId {
    at.define(on.concurrency("slots", 60, 1)).await.unwrap();
    let holder = on.lease();
    assert!(on.reserve(at, holder, [("slots", 1)]).await.unwrap().is_allowed());
    holder
}

/// TB-17, RES-04, RES-09, COM-07, OPS-01: what a later attempt has is a lease like any other.
pub async fn tb_17_a_lease_of_a_later_attempt_is_known_everywhere<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    let holder = full_slot(&on, &first).await;
    let (lease, needs) = (on.lease(), [("tokens", 60), ("slots", 1)]);
    let denial = not_now(ask(&on, &first, lease, &needs, 0).await);
    assert_eq!(denial.reason, DenialReason::NoRoom { keys: vec![on.key("slots")] });
    not_now(ask(&on, &first, lease, &needs, 1).await);
    assert_eq!(on.used(&first, "tokens").await, 0);
    let freed = first.complete_freeing(&on.to_complete(holder, &[])).await.unwrap();
    assert_eq!(freed, [on.key("slots")]);
    let decision = last(ask(&on, &first, lease, &needs, 2).await);
    assert!(decision.is_allowed());

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    assert_eq!(on.reserve(&second, lease, needs).await, Ok(decision.clone()));
    assert_eq!(last(ask(&on, &second, lease, &needs, 0).await), decision);
    assert_eq!(last(ask(&on, &first, lease, &needs, 3).await), decision);
    let other = on.reserve(&second, lease, [("tokens", 61), ("slots", 1)]).await;
    assert_eq!(other, Err(ReserveError::LeaseConflict));
    assert_eq!((on.used(&second, "tokens").await, on.used(&second, "slots").await), (60, 1));
    let page = LeasePage { key: Some(on.key("slots")), ..LeasePage::default() };
    let listed = first.leases(&page).await.unwrap();
    assert_eq!(listed.iter().map(|open| open.lease).collect::<Vec<_>>(), [lease]);
    let after = LeasePage { after: Some(lease), ..LeasePage::default() };
    assert!(second.leases(&after).await.is_ok(), "its transfers say when it was reserved");

    let freed = second.complete_freeing(&on.to_complete(lease, &[("tokens", 20)])).await.unwrap();
    assert_eq!(freed, [on.key("slots"), on.key("tokens")]);
    first.complete(&on.to_complete(lease, &[("tokens", 0)])).await.unwrap();
    assert_eq!((on.used(&second, "tokens").await, on.used(&second, "slots").await), (20, 0));
    assert_eq!(on.reserve(&first, lease, needs).await, Err(ReserveError::LeaseEnded));
    assert_eq!(on.reserve(&second, lease, needs).await, Err(ReserveError::LeaseEnded));
    let third = ask(&on, &second, lease, &needs, 4).await;
    assert_eq!(third, Err(ReserveError::LeaseEnded));
}

/// TB-17, RES-05: who has given up is not admitted by a late attempt, here or elsewhere.
pub async fn tb_17_giving_up_denies_a_lease_for_good<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    let holder = full_slot(&on, &first).await;
    let (lease, needs) = (on.lease(), [("slots", 1)]);
    let denial = not_now(ask(&on, &first, lease, &needs, 0).await);
    let request = on.to_reserve(lease, &needs);
    for _ in 0..2 {
        let given_up = first.give_up(&request, denial.clone()).await;
        assert_eq!(last(given_up), Decision::Denied(denial.clone()));
    }
    on.complete(&first, holder, []).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    for (at, attempt) in [(&first, 1), (&second, 1), (&second, 0), (&first, 0)] {
        let decision = last(ask(&on, at, lease, &needs, attempt).await);
        assert_eq!(decision.denial().unwrap().keys(), [on.key("slots")]);
    }
    for at in [&first, &second] {
        assert!(!on.reserve(at, lease, needs).await.unwrap().is_allowed());
        on.complete(at, lease, []).await.unwrap();
    }
    assert_eq!(on.used(&second, "slots").await, 0);
    assert!(on.reserve(&second, on.lease(), needs).await.unwrap().is_allowed());
}

/// TB-17, WAIT-04: whoever has given up learns that it was admitted before.
pub async fn tb_17_giving_up_too_late_returns_the_allow<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    let holder = full_slot(&on, &first).await;
    let (lease, needs) = (on.lease(), [("slots", 1)]);
    let denial = not_now(ask(&on, &first, lease, &needs, 0).await);
    on.complete(&first, holder, []).await.unwrap();
    let decision = last(ask(&on, &first, lease, &needs, 1).await);
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    for at in [&first, &second] {
        let given_up = at.give_up(&on.to_reserve(lease, &needs), denial.clone()).await;
        assert_eq!(last(given_up), decision);
    }
}

/// TB-17, RES-05: the limit that denied it has room now, and another one, which comes first in its chain,
/// has none.
pub async fn tb_17_a_lease_that_was_denied_for_another_limit_does_not_wait<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("tokens", 60, 1)).await.unwrap();
    let tokens = on.lease();
    assert!(on.reserve(&first, tokens, [("tokens", 1)]).await.unwrap().is_allowed());
    let (lease, needs) = (on.lease(), [("slots", 1), ("tokens", 1)]);
    first.define(on.concurrency("slots", 60, 1)).await.unwrap();
    assert!(!on.reserve(&first, lease, needs).await.unwrap().is_allowed());
    on.complete(&first, tokens, []).await.unwrap();
    let slots = full_slot(&on, &first).await;
    let decision = last(ask(&on, &first, lease, &needs, 0).await);
    assert_eq!(decision.denial().unwrap().keys(), [on.key("slots")]);
    on.complete(&first, slots, []).await.unwrap();
    for attempt in [0, 1] {
        assert!(!last(ask(&on, &first, lease, &needs, attempt).await).is_allowed());
    }
    assert_eq!((on.used(&first, "slots").await, on.used(&first, "tokens").await), (0, 0));
}

/// Two limits with one unit each at two servers, the second of which remembers no lease, and a lease
/// that waits at the first server for the limit that comes last in its chain.
async fn waits_for_the_last<L: Ledger + Clone>(
    on: &TestContext<L>,
) -> ([Arc<TigerBeetleLimiter<L>>; 2], LeaseId, LeaseId) {
    let first = on.limiter();
    for name in ["slots", "tokens"] {
        first.define(on.concurrency(name, 60, 1)).await.unwrap();
    }
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let (tokens, lease) = (on.lease(), on.lease());
    assert!(on.reserve(&first, tokens, [("tokens", 1)]).await.unwrap().is_allowed());
    not_now(ask(on, &first, lease, &[("slots", 1), ("tokens", 1)], 0).await);
    ([first, second], lease, tokens)
}

/// TB-17, RES-04: the lease itself takes all of the limit that comes first in its chain.
pub async fn tb_17_a_repeat_of_an_admitted_lease_is_told_the_same<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    for attempt in [None, Some(0)] {
        let ([first, second], lease, tokens) = waits_for_the_last(&on).await;
        on.complete(&first, tokens, []).await.unwrap();
        let needs = [("slots", 1), ("tokens", 1)];
        let decision = last(ask(&on, &first, lease, &needs, 1).await);
        assert!(decision.is_allowed());
        let turn = Turn { attempt, ..Turn::default() };
        let repeat = second.reserve_in_turn(&on.to_reserve(lease, &needs), turn).await.unwrap();
        assert!(!repeat.is_new, "somebody was told before");
        assert_eq!(last(Ok(repeat)), decision);
        on.complete(&second, lease, []).await.unwrap();
    }
}

/// TB-17, RES-05: the limit that comes first in the chain is full when a lease that waits is repeated.
pub async fn tb_17_a_lease_that_is_denied_elsewhere_is_not_admitted<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    for attempt in [None, Some(0)] {
        let ([first, second], lease, tokens) = waits_for_the_last(&on).await;
        let slots = on.lease();
        assert!(on.reserve(&first, slots, [("slots", 1)]).await.unwrap().is_allowed());
        let needs = [("slots", 1), ("tokens", 1)];
        let turn = Turn { attempt, ..Turn::default() };
        let repeat = second.reserve_in_turn(&on.to_reserve(lease, &needs), turn).await;
        assert!(!last(repeat).is_allowed());
        on.complete(&first, slots, []).await.unwrap();
        on.complete(&first, tokens, []).await.unwrap();
        assert!(!last(ask(&on, &first, lease, &needs, 1).await).is_allowed());
    }
}

/// TB-17, RES-05: a repeat at another server denies the lease that waits.
pub async fn tb_17_a_repeat_elsewhere_ends_a_wait<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    let holder = full_slot(&on, &first).await;
    let second = on.successor(&first).await;
    let (lease, needs) = (on.lease(), [("slots", 1)]);
    not_now(ask(&on, &first, lease, &needs, 0).await);
    assert!(!last(ask(&on, &second, lease, &needs, 0).await).is_allowed());
    on.complete(&second, holder, []).await.unwrap();
    assert!(!last(ask(&on, &first, lease, &needs, 1).await).is_allowed());
    assert_eq!(on.used(&first, "slots").await, 0);
}

/// TB-17: two servers that wait for one lease admit it once.
pub async fn tb_17_two_servers_that_wait_for_one_lease_admit_it_once<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 4)).await.unwrap();
    let second = on.successor(&first).await;
    let (holder, lease, needs) = (on.lease(), on.lease(), [("slots", 1)]);
    assert!(on.reserve(&first, holder, [("slots", 4)]).await.unwrap().is_allowed());
    not_now(ask(&on, &first, lease, &needs, 0).await);
    on.complete(&first, holder, []).await.unwrap();
    for attempt in [1, 2] {
        let answers = join(
            ask(&on, &first, lease, &needs, attempt),
            ask(&on, &second, lease, &needs, attempt),
        );
        let (one, other) = answers.await;
        let (one, other) = (last(one), last(other));
        assert!(one.is_allowed() && one == other, "{one:?} {other:?}");
    }
    assert_eq!(on.used(&second, "slots").await, 1);
    on.complete(&second, lease, []).await.unwrap();
    assert_eq!(on.used(&second, "slots").await, 0);
}

/// TB-17, PAUSE-01, DEF-07: a pause or a decrease is waited for, and the first chain is not admitted
/// after it.
pub async fn tb_17_a_pause_and_a_decrease_are_waited_for<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    first.define(on.concurrency("paused", 60, 0)).await.unwrap();
    first.define(on.concurrency("lowered", 60, 4)).await.unwrap();
    let (holder, lease) = (on.lease(), on.lease());
    assert!(on.reserve(&first, holder, [("lowered", 4)]).await.unwrap().is_allowed());
    first.define(on.concurrency("lowered", 60, 2)).await.unwrap();
    let needs = [("lowered", 1), ("paused", 1)];
    let denial = not_now(ask(&on, &first, lease, &needs, 0).await);
    assert_eq!(denial.reason, DenialReason::Paused { key: on.key("paused") });
    first.define(on.concurrency("paused", 60, 1)).await.unwrap();
    let denial = not_now(ask(&on, &first, lease, &needs, 1).await);
    assert_eq!(denial.reason, DenialReason::Decreasing { key: on.key("lowered") });
    on.complete(&first, holder, []).await.unwrap();
    first.define(on.concurrency("lowered", 60, 3)).await.unwrap();
    let decision = last(ask(&on, &first, lease, &needs, 2).await);
    assert!(decision.is_allowed());
    assert_eq!(on.reserve(&first, lease, needs).await, Ok(decision));
    assert_eq!((on.used(&first, "lowered").await, on.used(&first, "paused").await), (1, 1));
}

/// TB-17, TB-19, TB-20, TB-21: limits of every kind take part in later attempts.
pub async fn tb_17_calendar_shadow_and_template_limits_are_waited_for<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    let holder = full_slot(&on, &first).await;
    first.define(on.hourly("budget", 30, 10)).await.unwrap();
    first.define(Limit { mode: LimitMode::Shadow, ..on.rolling("try", 60, 1) }).await.unwrap();
    first.define(on.rolling("tenant:*:tokens", 60, 5)).await.unwrap();
    let lease = on.lease();
    let needs = [("budget", 4), ("slots", 1), ("tenant:acme:tokens", 5), ("try", 2)];
    not_now(ask(&on, &first, lease, &needs, 0).await);
    let denial = not_now(ask(&on, &first, lease, &needs, 1).await);
    assert_eq!(denial.keys(), [on.key("slots")]);
    assert!(first.instances_by_template().iter().all(|(_, count)| *count == 0), "none is made");
    on.complete(&first, holder, []).await.unwrap();
    let Decision::Allowed { shadow_denied, .. } = last(ask(&on, &first, lease, &needs, 2).await)
    else {
        panic!("there is room");
    };
    assert_eq!(shadow_denied, [on.key("try")]);
    let waits = on.lease();
    let full = [("tenant:acme:tokens", 1), ("budget", 7)];
    not_now(ask(&on, &first, waits, &full, 0).await);
    let denial = not_now(ask(&on, &first, waits, &full, 1).await);
    assert_eq!(denial.keys(), [on.key("budget"), on.key("tenant:acme:tokens")], "all are named");

    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let actuals = [("budget", 1), ("tenant:acme:tokens", 0), ("try", 0)];
    on.complete(&second, lease, actuals).await.unwrap();
    assert_eq!((on.used(&first, "slots").await, on.used(&first, "budget").await), (0, 1));
    assert!(last(ask(&on, &first, waits, &full, 2).await).is_allowed());
    assert_eq!(on.used(&first, "budget").await, 8);
}

/// TB-17, WAIT-02: nothing new is admitted while others wait for its limit.
pub async fn tb_17_whoever_comes_behind_others_is_denied_and_a_known_lease_is_not<
    L: Ledger + Clone,
>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 4)).await.unwrap();
    let (known, fresh, waits, needs) = (on.lease(), on.lease(), on.lease(), [("slots", 1)]);
    let decision = on.reserve(&first, known, needs).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let key = on.key("slots");
    let turn = Turn { behind: Some(&key), ..Turn::default() };
    for at in [&first, &second] {
        let again = last(at.reserve_in_turn(&on.to_reserve(known, &needs), turn).await);
        assert_eq!(again, decision);
        for _ in 0..2 {
            let denied = last(at.reserve_in_turn(&on.to_reserve(fresh, &needs), turn).await);
            assert_eq!(denied.denial().unwrap().keys(), std::slice::from_ref(&key));
        }
    }
    assert!(!on.reserve(&second, fresh, needs).await.unwrap().is_allowed(), "RES-05");
    let turn = Turn { behind: Some(&key), attempt: Some(0), ..Turn::default() };
    not_now(second.reserve_in_turn(&on.to_reserve(waits, &needs), turn).await);
    assert_eq!(on.used(&second, "slots").await, 1);
    assert!(last(ask(&on, &second, waits, &needs, 1).await).is_allowed());
    assert_eq!(on.used(&second, "slots").await, 2);
}

/// TB-17, WAIT-06: one look tells which limits have room for whoever waits.
pub async fn tb_17_a_look_finds_the_limits_with_room<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    for (name, capacity) in [("free", 3), ("full", 2), ("paused", 0), ("small", 1)] {
        first.define(on.concurrency(name, 60, capacity)).await.unwrap();
    }
    let second = on.successor(&first).await;
    let holder = on.lease();
    assert!(on.reserve(&second, holder, [("free", 1), ("full", 1)]).await.unwrap().is_allowed());
    let amounts = [("free", 2), ("full", 2), ("gone", 1), ("paused", 1), ("small", 2)];
    let amounts = amounts.map(|(name, amount)| (on.key(name), amount));
    let look = async || {
        let mut found = first.limits_with_room(&amounts).await.unwrap();
        found.sort_unstable();
        found
    };
    // Whoever waits for one that is gone or too small is refused when it asks.
    assert_eq!(look().await, ["free", "gone", "small"].map(|name| on.key(name)));
    on.complete(&second, holder, []).await.unwrap();
    assert_eq!(look().await, ["free", "full", "gone", "small"].map(|name| on.key(name)));
}

/// TB-17, WAIT-04: the callers of a lease go away before they are told, and the request is repeated at
/// another server before or after the lease is returned.
pub async fn tb_17_a_lease_is_returned_unless_somebody_else_was_told_of_it<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 1)).await.unwrap();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    first.define(on.hourly("budget", 30, 100)).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let needs = [("budget", 3), ("slots", 1), ("tokens", 10)];
    let used = async || {
        let names = ["budget", "slots", "tokens"];
        (
            on.used(&first, names[0]).await,
            on.used(&first, names[1]).await,
            on.used(&first, names[2]).await,
        )
    };
    for attempt in [0, 1] {
        for is_repeated in [false, true] {
            let lease = on.lease();
            let request = on.to_reserve(lease, &needs);
            if attempt == 1 {
                let holder = on.lease();
                assert!(on.reserve(&first, holder, [("slots", 1)]).await.unwrap().is_allowed());
                not_now(ask(&on, &first, lease, &needs, 0).await);
                on.complete(&first, holder, []).await.unwrap();
            }
            let turn = Turn { behind: None, attempt: Some(attempt), may_return: true };
            let admitted = first.reserve_in_turn(&request, turn).await.unwrap();
            assert!(admitted.is_new && admitted.decision.is_allowed(), "{admitted:?}");
            assert_eq!(used().await, (3, 1, 10));
            if is_repeated {
                for _ in 0..2 {
                    let repeated = second.reserve(&request).await;
                    assert_eq!(repeated.as_ref(), Ok(&admitted.decision));
                }
                assert_eq!(first.return_lease(&request).await, Ok(Vec::new()));
                assert_eq!(used().await, (3, 1, 10));
                let unused = [("budget", 0), ("tokens", 0)];
                on.complete(&second, lease, unused).await.unwrap();
            } else {
                let freed = first.return_lease(&request).await.unwrap();
                assert_eq!(freed, ["budget", "slots", "tokens"].map(|name| on.key(name)));
                assert_eq!(first.return_lease(&request).await, Ok(Vec::new()), "once");
            }
            assert_eq!(used().await, (0, 0, 0));
            for at in [&first, &second] {
                assert_eq!(at.reserve(&request).await, Err(ReserveError::LeaseEnded));
            }
        }
    }
}

/// TB-17, RES-04: the requirements of the two have no key in common, so that only reading the lease tells.
pub async fn tb_17_of_two_leases_with_one_id_the_one_that_waits_is_refused<L: Ledger + Clone>(
    on: TestContext<L>,
) {
    let first = on.limiter();
    let holder = full_slot(&on, &first).await;
    first.define(on.concurrency("other", 60, 1)).await.unwrap();
    let second = on.uncached_limiter();
    restore_all(&second, &first).await;
    let (lease, needs, others) = (on.lease(), [("slots", 1)], [("other", 1)]);
    not_now(ask(&on, &first, lease, &needs, 0).await);
    let decision = on.reserve(&second, lease, others).await;
    assert!(decision.as_ref().unwrap().is_allowed());
    on.complete(&first, holder, []).await.unwrap();
    let refused = ask(&on, &first, lease, &needs, 1).await;
    assert_eq!(refused, Err(ReserveError::LeaseConflict));
    assert_eq!((on.used(&first, "slots").await, on.used(&first, "other").await), (0, 1));
    assert_eq!(on.reserve(&second, lease, others).await, decision);
    on.complete(&second, lease, []).await.unwrap();
    assert_eq!(on.used(&first, "other").await, 0);
    assert_eq!(on.reserve(&second, lease, others).await, Err(ReserveError::LeaseEnded));
}

/// TB-17, PAUSE-01: the accounts of gates exist also where no limit ever was.
pub async fn tb_17_who_waits_on_a_new_cluster_can_give_up<L: Ledger + Clone>(on: TestContext<L>) {
    let first = on.limiter();
    first.define(on.concurrency("tenant:*:slots", 60, 0)).await.unwrap();
    let (lease, needs) = (on.lease(), [("tenant:acme:slots", 1)]);
    let denial = not_now(ask(&on, &first, lease, &needs, 0).await);
    let request = on.to_reserve(lease, &needs);
    for _ in 0..2 {
        let given_up = first.give_up(&request, denial.clone()).await;
        assert_eq!(last(given_up), Decision::Denied(denial.clone()));
    }
}
