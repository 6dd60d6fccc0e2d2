//! Many limits at once: few requests, and no needless writes.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use ratelimiter::{Backend, DefineError, LimitStatus, RegisteredLimit};
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{
    Action, Ledger, Movement, Transfer, TransferId, TransferStatus, UserData, WorkItem,
};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, CallCounts, Fault, RecordingLedger};

const LIMITS: usize = 2_000;

type OnModel = TestContext<RecordingLedger<Arc<ModelLedger>>>;
type Limiter = TigerBeetleLimiter<RecordingLedger<Arc<ModelLedger>>>;

fn limits(on: &OnModel, capacity: u64) -> Vec<RegisteredLimit> {
    let limit = |number| on.concurrency(&format!("{number:04}"), 60, capacity);
    (0..LIMITS).map(limit).map(RegisteredLimit::in_force).collect()
}

async fn restore(limiter: &Limiter, limits: Vec<RegisteredLimit>) -> Vec<LimitStatus> {
    limiter.restore_all(limits, &BTreeSet::new()).await.unwrap()
}

/// TB-08: a start costs only lookups; only differences are written.
#[test]
fn tb_08_a_start_writes_only_what_differs() {
    run(async {
        let on = on_recording_model();
        let statuses = restore(&on.limiter(), limits(&on, 10)).await;
        assert_eq!(statuses, vec![LimitStatus::Active; LIMITS]);
        let first = on.ledger.take_counts();
        assert_eq!(first.transfers, 2 * LIMITS, "each account is funded once");
        assert!(first.calls <= LIMITS / 25, "{first:?}");

        let again = on.limiter();
        restore(&again, limits(&on, 10)).await;
        assert_eq!(on.ledger.take_counts(), CallCounts { calls: LIMITS / 200, transfers: 0 });

        let mut changed = limits(&on, 10);
        changed[7].limit.capacity = on.concurrency("", 60, 11).capacity;
        restore(&again, changed).await;
        assert_eq!(on.ledger.take_counts(), CallCounts { calls: LIMITS / 200 + 1, transfers: 2 });
        assert_eq!(on.state(&again, "0007").await.usage.available, 11);
    });
}

/// OPS-03: a list costs as few requests as a start.
#[test]
fn ops_03_a_list_of_definitions_takes_few_requests() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let list = |capacity| limits(&on, capacity).into_iter().map(|limit| limit.limit).collect();
        for capacity in [10, 11, 5] {
            let statuses = limiter.define_all(list(capacity)).await;
            assert_eq!(statuses, Ok(vec![LimitStatus::Active; LIMITS]));
            let CallCounts { calls, .. } = on.ledger.take_counts();
            assert!(calls <= LIMITS / 25, "{calls} calls");
            let states = limiter.states(&ratelimiter::Page::default()).await.unwrap();
            assert_eq!(states.len(), LIMITS);
            assert!(states.iter().all(|state| state.usage.available == capacity));
            on.ledger.take_counts();
        }
        limiter.define_all(list(5)).await.unwrap();
        let equal = CallCounts { calls: LIMITS / 200, transfers: 0 };
        assert_eq!(on.ledger.take_counts(), equal, "an equal list writes nothing");
    });
}

/// OPS-03: whichever request gets no answer, nothing is changed here, and the next tick takes back
/// what the cluster has applied.
#[test]
fn ops_03_a_list_without_an_answer_is_taken_back() {
    const KNOWN: usize = 600;
    let list = |on: &OnModel, count: usize, capacity| {
        let registered = limits(on, capacity).into_iter().take(count);
        registered.map(|registered| registered.limit).collect::<Vec<_>>()
    };
    run(async {
        let first = on_recording_model();
        let limiter = first.limiter();
        limiter.define_all(list(&first, KNOWN, 10)).await.unwrap();
        first.ledger.take_calls();
        limiter.define_all(list(&first, KNOWN + 100, 20)).await.unwrap();
        let calls = first.ledger.take_calls().len();
        let mut taken_back = 0;
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            for number in 0..calls {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define_all(list(&on, KNOWN, 10)).await.unwrap();
                on.ledger.take_calls();
                on.ledger.fail_from(number, fault);
                let answer = limiter.define_all(list(&on, KNOWN + 100, 20)).await;
                assert!(matches!(answer, Err(DefineError::Unanswered(_))), "{answer:?}");
                on.ledger.heal();
                let available = async || {
                    let states = limiter.states(&ratelimiter::Page::default()).await.unwrap();
                    assert_eq!(states.len(), KNOWN, "new limits are not defined");
                    assert!(states.iter().all(|state| state.limit.capacity.get() == 10));
                    states.iter().filter(|state| state.usage.available == 10).count()
                };
                taken_back += KNOWN - available().await;
                limiter.tick().await;
                assert_eq!(available().await, KNOWN, "call {number}, {fault:?}");
                let statuses = limiter.define_all(list(&on, KNOWN + 100, 20)).await.unwrap();
                assert_eq!(statuses, vec![LimitStatus::Active; KNOWN + 100], "it may be repeated");
            }
        }
        assert!(taken_back >= KNOWN, "{taken_back}");
    });
}

/// TB-08, TB-13: a start respects the configured events per request.
#[test]
fn tb_08_a_start_keeps_to_the_events_that_a_request_may_have() {
    run(async {
        let on = on_recording_model();
        on.ledger.refuse_items_over(4);
        let statuses = restore(&on.limiter(), limits(&on, 10)).await;
        assert_eq!(statuses, vec![LimitStatus::Active; LIMITS]);
    });
}

/// DEF-07: all possible decreases are applied in one tick, in few calls.
#[test]
fn def_07_two_thousand_decreases_end_in_one_tick() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        restore(&limiter, limits(&on, 10)).await;
        let mut leases = Vec::new();
        for number in 0..LIMITS {
            let lease = on.lease();
            let needs = [(&*format!("{number:04}"), 8)];
            assert!(on.reserve(&limiter, lease, needs).await.unwrap().is_allowed());
            leases.push(lease);
        }
        let statuses = restore(&limiter, limits(&on, 5)).await;
        let waits = LimitStatus::Decreasing { to: limits(&on, 5)[0].limit.capacity };
        assert_eq!(statuses, vec![waits; LIMITS]);
        on.ledger.take_counts();

        limiter.tick().await;
        let CallCounts { calls, transfers } = on.ledger.take_counts();
        // The tick also measures the expiry lag and compares some accounts.
        assert!(calls <= LIMITS / 200 + 4, "{calls} calls while nothing is possible");
        assert!(transfers <= 1, "{transfers} transfers while nothing is possible");

        for lease in leases {
            on.complete(&limiter, lease, []).await.unwrap();
        }
        on.ledger.take_counts();
        limiter.tick().await;
        let CallCounts { calls, .. } = on.ledger.take_counts();
        assert!(calls <= LIMITS / 50, "{calls} calls");
        assert_eq!(limiter.observations().limits_decreasing, 0);
        let states = limiter.states(&ratelimiter::Page::default()).await.unwrap();
        assert!(states.iter().all(|state| state.usage.available == 5), "all are in force");
    });
}

/// DEF-07: an account that cannot be changed, here because another program has closed it, does not
/// block other limits.
#[test]
fn def_07_a_decrease_ends_although_another_cannot() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        let mut leases = Vec::new();
        for name in ["closed-by-others", "ours"] {
            limiter.define(on.concurrency(name, 60, 10)).await.unwrap();
            let lease = on.lease();
            assert!(on.reserve(&limiter, lease, [(name, 8)]).await.unwrap().is_allowed());
            leases.push(lease);
        }
        let movement = Movement {
            debit: ids::limit_account(&on.key("closed-by-others")),
            credit: ids::operator_account(),
            amount: 0,
            code: NonZeroU16::MAX,
        };
        let action =
            Action::Pending { movement, timeout_seconds: None, closes_debit_account: true };
        let id = TransferId::nearest(7);
        let closing = Transfer { id, action, user_data: UserData::default() };
        let results = on.ledger.create_transfers(WorkItem::new().with(closing)).await.unwrap();
        assert_eq!(results[0].status, TransferStatus::Created);
        for name in ["closed-by-others", "ours"] {
            let lower = on.concurrency(name, 60, 5);
            let to = lower.capacity;
            assert_eq!(limiter.define(lower).await, Ok(LimitStatus::Decreasing { to }));
        }
        for lease in leases {
            on.complete(&limiter, lease, []).await.unwrap();
        }
        limiter.tick().await;
        assert_eq!(on.state(&limiter, "ours").await.status, LimitStatus::Active);
        assert_eq!(limiter.observations().limits_decreasing, 1);
    });
}

/// TB-08, TB-15: a missing answer makes only the limits in flight uncertain.
#[test]
fn tb_08_a_lost_answer_makes_few_limits_uncertain() {
    const IN_FLIGHT_MAX: usize = 1_000;
    run(async {
        let first = on_recording_model();
        restore(&first.limiter(), limits(&first, 10)).await;
        let calls = first.ledger.take_calls();
        let is_change = |call: &Call| matches!(call, Call::CreateTransfers(_));
        let number = calls.iter().position(is_change).unwrap();

        let on = on_recording_model();
        let limiter = on.limiter();
        on.ledger.fail_from(number, Fault::RequestLost);
        assert!(limiter.restore_all(limits(&on, 10), &BTreeSet::new()).await.is_err());
        on.ledger.heal();
        on.ledger.take_counts();
        limiter.tick().await;
        let CallCounts { transfers, .. } = on.ledger.take_counts();
        // Three transfers invalidate each late request; the tick itself sends one more.
        assert!(transfers <= 3 * IN_FLIGHT_MAX + 1, "{transfers} of {LIMITS} limits");
        assert_eq!(restore(&limiter, limits(&on, 10)).await, vec![LimitStatus::Active; LIMITS]);
    });
}
