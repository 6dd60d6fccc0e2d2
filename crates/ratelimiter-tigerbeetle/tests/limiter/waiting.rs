//! `TB-17`: attempts without answers, late attempts, and races of leases that wait.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::{Turn, TurnAnswer, TurnBackend};
use ratelimiter::{Backend, Decision, Denial, DenialReason, LeaseId, Limiter, ReserveError};
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::{Ledger, TransferId, WorkItem};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::interleavings::play;
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, Fault, RecordingLedger};
use crate::scenarios::wait::{ask, last, not_now};

type OnRecordingModel = TestContext<RecordingLedger<Arc<ModelLedger>>>;
type LimiterOnModel = Arc<TigerBeetleLimiter<RecordingLedger<Arc<ModelLedger>>>>;

const NEEDS: [(&str, u64); 2] = [("slots", 1), ("tokens", 10)];

fn items(calls: Vec<Call>) -> Vec<WorkItem> {
    let item = |call| match call {
        Call::CreateTransfers(item) => Some(item),
        Call::CreateAccounts | Call::Lookup | Call::Query => None,
    };
    calls.into_iter().filter_map(item).collect()
}

/// Two limiters with room for one lease of `NEEDS`, and a lease that waited until there was.
async fn with_room(on: &OnRecordingModel) -> ([LimiterOnModel; 2], LeaseId) {
    let first = on.limiter();
    first.define(on.concurrency("slots", 60, 1)).await.unwrap();
    first.define(on.rolling("tokens", 60, 100)).await.unwrap();
    let second = on.successor(&first).await;
    let (holder, lease) = (on.lease(), on.lease());
    assert!(on.reserve(&first, holder, [("slots", 1)]).await.unwrap().is_allowed());
    not_now(ask(on, &first, lease, &NEEDS, 0).await);
    on.complete(&first, holder, []).await.unwrap();
    ([first, second], lease)
}

/// TB-17, TB-03: a request without `wait_ms` sends what it always sent, and so does the first attempt of
/// one with it.
#[test]
fn tb_17_a_first_attempt_is_the_ordinary_chain() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("slots", 60, 2)).await.unwrap();
        limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
        let may_wait = Turn { attempt: Some(0), ..Turn::default() };
        // Both are allowed, then both are denied.
        for _ in 0..2 {
            let (plain, waits) = (on.lease(), on.lease());
            on.ledger.take_calls();
            let answer = limiter.reserve(&on.to_reserve(plain, &NEEDS)).await.unwrap();
            let turn = limiter.reserve_in_turn(&on.to_reserve(waits, &NEEDS), may_wait).await;
            assert_eq!(answer.is_allowed(), turn.unwrap().decision.is_allowed());
            let calls = on.ledger.take_calls();
            let sent = items(calls.clone());
            // Whoever begins to wait burns the other IDs.
            let burns = usize::from(!answer.is_allowed());
            assert_eq!((calls.len(), sent.len()), (2 + burns, 2 + burns), "{calls:?}");
            for (item, lease) in sent.iter().zip([plain, waits]) {
                let ids: Vec<TransferId> =
                    item.events().iter().map(|event| event.transfer.id).collect();
                let key = |name: &str| ids::transfer(TransferRole::Reserve, lease, &on.key(name));
                assert_eq!(ids, ["slots", "tokens"].map(key));
                let linked: Vec<bool> = item.events().iter().map(|event| event.linked).collect();
                assert_eq!(linked, [true, false]);
            }
        }
    });
}

/// TB-17: nothing is written while there is no room.
#[test]
fn tb_17_an_attempt_is_sent_only_after_a_look_shows_room() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("slots", 60, 1)).await.unwrap();
        limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
        let (holder, lease) = (on.lease(), on.lease());
        assert!(on.reserve(&limiter, holder, [("slots", 1)]).await.unwrap().is_allowed());
        not_now(ask(&on, &limiter, lease, &NEEDS, 0).await);
        on.ledger.take_calls();
        for attempt in 1..5 {
            not_now(ask(&on, &limiter, lease, &NEEDS, attempt).await);
            let calls = on.ledger.take_calls();
            assert!(matches!(calls[..], [Call::Lookup]), "{calls:?}");
        }
        on.complete(&limiter, holder, []).await.unwrap();
        on.ledger.take_calls();
        assert!(last(ask(&on, &limiter, lease, &NEEDS, 5).await).is_allowed());
        let calls = on.ledger.take_calls();
        let [Call::Lookup, Call::CreateTransfers(item), Call::Query] = &calls[..] else {
            panic!("a look, a chain, and whether the lease has only that: {calls:?}");
        };
        let ids: Vec<_> = item.events().iter().map(|event| event.transfer.id).collect();
        let number = NonZeroU32::new(5).unwrap();
        let at = |name: &str| ids::reservation_at(number, lease, &on.key(name));
        assert_eq!(ids, [ids::gate(lease), at("slots"), at("tokens")]);
    });
}

/// TB-17, WAIT-02: nothing that was denied because others wait is admitted later.
#[test]
fn tb_17_a_chain_that_arrives_after_its_lease_was_denied_is_refused() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        limiter.define(on.concurrency("slots", 60, 1)).await.unwrap();
        limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
        let (lease, key) = (on.lease(), on.key("slots"));
        // The chain is on its way when the caller repeats the request.
        on.ledger.fail_from(0, Fault::RequestLost);
        assert!(on.reserve(&limiter, lease, NEEDS).await.is_err());
        let late = items(on.ledger.take_calls());
        on.ledger.heal();
        let turn = Turn { behind: Some(&key), attempt: Some(0), ..Turn::default() };
        not_now(limiter.reserve_in_turn(&on.to_reserve(lease, &NEEDS), turn).await);
        for item in late {
            on.ledger.create_transfers(item).await.unwrap();
        }
        assert_eq!(on.used(&limiter, "slots").await, 0);
        assert!(last(ask(&on, &limiter, lease, &NEEDS, 1).await).is_allowed());
        assert_eq!((on.used(&limiter, "slots").await, on.used(&limiter, "tokens").await), (1, 10));
    });
}

/// How a caller goes on after an attempt without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    AsksAgain,
    GivesUp,
    RepeatsElsewhere,
}

/// TB-17, TB-10: without an answer at any call, whatever happens next, and with the lost requests
/// arriving at last, a lease is admitted at most once, and the last answer is true.
#[test]
fn tb_17_an_attempt_without_an_answer_is_admitted_at_most_once() {
    run(async {
        for number in 0..6 {
            for fault in [Fault::AnswerLost, Fault::RequestLost] {
                for next in [Next::AsksAgain, Next::GivesUp, Next::RepeatsElsewhere] {
                    for is_late in [false, true] {
                        unanswered(number, fault, next, is_late).await;
                    }
                }
            }
        }
    });
}

async fn unanswered(number: usize, fault: Fault, next: Next, is_late: bool) {
    let cut = format!("{number} {fault:?} {next:?} {is_late}");
    let on = on_recording_model();
    let ([first, second], lease) = with_room(&on).await;
    let request = on.to_reserve(lease, &NEEDS);
    let denial = denial(&on);
    on.ledger.fail_from(number, fault);
    let asked = ask(&on, &first, lease, &NEEDS, 1).await;
    let lost = items(on.ledger.take_calls());
    on.ledger.heal();
    assert!(asked.is_ok() || matches!(asked, Err(ReserveError::Unanswered(_))), "{cut}: {asked:?}");
    let decision = match next {
        Next::AsksAgain => last(ask(&on, &first, lease, &NEEDS, 2).await),
        Next::GivesUp => first.give_up(&request, denial).await.unwrap().decision,
        Next::RepeatsElsewhere => second.reserve(&request).await.unwrap(),
    };
    if let Ok(TurnAnswer { decision: Decision::Allowed { reserved_at, .. }, .. }) = asked {
        assert_eq!(decision, Decision::allowed_at(reserved_at), "{cut}");
    }
    if is_late {
        for item in lost {
            on.ledger.create_transfers(item).await.unwrap();
        }
    }
    let used = u64::from(decision.is_allowed());
    assert_eq!(on.used(&second, "slots").await, used, "{cut}: {decision:?}");
    assert_eq!(on.used(&second, "tokens").await, 10 * used, "{cut}: {decision:?}");
    let again = second.reserve(&request).await.unwrap();
    assert_eq!(again.is_allowed(), decision.is_allowed(), "{cut}: RES-04, RES-05");
    on.complete(&second, lease, [("tokens", 0)]).await.unwrap();
    assert_eq!((on.used(&second, "slots").await, on.used(&second, "tokens").await), (0, 0));
}

/// TB-17, WAIT-04: two servers try to admit a lease while one gives up and others come for the room.
#[test]
fn tb_17_of_attempts_and_giving_up_one_counts_whatever_the_interleaving() {
    play(race);
}

async fn race(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let on = Arc::new(on_recording_model());
    let ([first, second], lease) = with_room(&on).await;
    on.ledger.shuffle(seed);
    let mut tasks = tokio::task::JoinSet::new();
    for at in [&first, &second] {
        let (on, at, attempts) = (Arc::clone(&on), Arc::clone(at), random.u32(1..4));
        tasks.spawn(async move {
            for attempt in 1..=attempts {
                let answer = ask(&on, &at, lease, &NEEDS, attempt).await.unwrap();
                if answer.ask_again_after.is_none() {
                    return Some(answer.decision);
                }
            }
            None
        });
    }
    if random.bool() {
        let (on, at) = (Arc::clone(&on), Arc::clone(random.choice([&first, &second]).unwrap()));
        tasks.spawn(async move {
            let request = on.to_reserve(lease, &NEEDS);
            Some(at.give_up(&request, denial(&on)).await.unwrap().decision)
        });
    }
    let other = on.lease();
    if random.bool() {
        let (on, at) = (Arc::clone(&on), Arc::clone(&second));
        tasks.spawn(async move {
            if on.reserve(&at, other, [("slots", 1)]).await.unwrap().is_allowed() {
                on.complete(&at, other, []).await.unwrap();
            }
            None
        });
    }
    let mut decisions = Vec::new();
    while let Some(done) = tasks.join_next().await {
        decisions.extend(done.unwrap());
    }
    let is_allowed = on.used(&first, "tokens").await > 0;
    for decision in &decisions {
        assert_eq!(decision.is_allowed(), is_allowed, "seed {seed}: {decisions:?}");
    }
    let used = (on.used(&first, "slots").await, on.used(&first, "tokens").await);
    assert_eq!(used, if is_allowed { (1, 10) } else { (0, 0) }, "seed {seed}: {decisions:?}");
    on.complete(&second, lease, [("tokens", 0)]).await.unwrap();
    assert_eq!(on.used(&first, "slots").await, 0, "seed {seed}");
}

/// What a caller is told that gives up.
fn denial(on: &OnRecordingModel) -> Denial {
    let reason = DenialReason::NoRoom { keys: vec![on.key("slots")] };
    Denial { reason, retry_after: Duration::from_millis(50) }
}
