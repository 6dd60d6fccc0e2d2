//! Unanswered changes that arrive late have no effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratelimiter::{Backend, Limit, LimitState, LimitStatus, RegisteredLimit};
use ratelimiter_tigerbeetle::ledger::{Ledger, WorkItem};
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};
use crate::on_model::on_recording_model;
use crate::recording_ledger::{Call, Fault, RecordingLedger};

/// The items of the recorded calls.
fn items(calls: Vec<Call>) -> Vec<WorkItem> {
    let item = |call| match call {
        Call::CreateTransfers(item) => Some(item),
        Call::CreateAccounts | Call::Lookup | Call::Query => None,
    };
    calls.into_iter().filter_map(item).collect()
}

/// TB-07, TB-10: found by the simulation, which delivered the change after the tick that reverted
/// it.
#[test]
fn tb_07_a_change_that_arrives_after_it_was_taken_back_changes_nothing() {
    run(async {
        for (used, capacity) in [(0, 20), (0, 5), (8, 20), (8, 9), (8, 5)] {
            for number in 0..4 {
                let on = on_recording_model();
                let limiter = on.limiter();
                limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
                if used > 0 {
                    let lease = on.lease();
                    assert!(on.reserve(&limiter, lease, [("slots", used)]).await.is_ok());
                }
                on.ledger.fail_from(number, Fault::RequestLost);
                let changed = limiter.define(on.concurrency("slots", 60, capacity)).await;
                let late_requests = items(on.ledger.take_calls());
                on.ledger.heal();
                if changed.is_ok() {
                    continue;
                }
                limiter.tick().await;
                for item in late_requests {
                    on.ledger.create_transfers(item).await.unwrap();
                }
                let LimitState { status, usage, .. } = on.state(&limiter, "slots").await;
                let cut = format!("10 to {capacity} with {used} used, call {number}");
                assert_eq!(status, LimitStatus::Active, "{cut}");
                assert_eq!(usage.available, 10 - used, "{cut}");
            }
        }
    });
}

/// A change that a process sent without receiving an answer, and the old definition, which is in
/// the file.
struct InterruptedChange {
    on: TestContext<RecordingLedger<Arc<ModelLedger>>>,
    old: Limit,
    late_requests: Vec<WorkItem>,
}

async fn interrupted_change(used: u64, capacity: u64) -> InterruptedChange {
    let on = on_recording_model();
    let before = on.limiter();
    let old = on.concurrency("slots", 60, 10);
    before.define(old.clone()).await.unwrap();
    if used > 0 {
        assert!(on.reserve(&before, on.lease(), [("slots", used)]).await.is_ok());
    }
    on.ledger.fail_from(1, Fault::RequestLost);
    assert!(before.define(on.concurrency("slots", 60, capacity)).await.is_err());
    let late_requests = items(on.ledger.take_calls());
    assert!(!late_requests.is_empty(), "the change was sent");
    on.ledger.heal();
    InterruptedChange { on, old, late_requests }
}

/// TB-08, TB-10: the process that sent the change has ended, and its successor has the old file. It
/// knows which change was staged and not confirmed.
#[test]
fn tb_08_a_change_of_a_process_that_is_gone_arrives_after_the_start_and_changes_nothing() {
    run(async {
        for (used, capacity) in [(0, 20), (0, 5), (8, 20), (8, 5)] {
            let InterruptedChange { on, old, late_requests } =
                interrupted_change(used, capacity).await;
            let limiter = on.limiter();
            let unconfirmed = BTreeSet::from([old.key.clone()]);
            let limits = vec![RegisteredLimit::in_force(old)];
            limiter.restore_all(limits, &unconfirmed).await.unwrap();
            for item in late_requests {
                on.ledger.create_transfers(item).await.unwrap();
            }
            let state = on.state(&limiter, "slots").await;
            assert_eq!(state.usage.available, 10 - used, "10 to {capacity} with {used} used");
        }
    });
}

/// TB-08: the list of unconfirmed changes is necessary. Without it nothing is written, and the late
/// request is applied.
#[test]
fn tb_08_a_late_change_that_is_not_named_as_unconfirmed_is_applied() {
    run(async {
        let InterruptedChange { on, old, late_requests } = interrupted_change(0, 20).await;
        let limiter = on.limiter();
        limiter.restore(RegisteredLimit::in_force(old)).await.unwrap();
        for item in late_requests {
            on.ledger.create_transfers(item).await.unwrap();
        }
        assert_eq!(on.state(&limiter, "slots").await.usage.available, 20);
    });
}

/// TB-07, TB-10: a limit whose definition failed may have an account, and its change may be late
/// too.
#[test]
fn tb_07_a_late_change_of_a_limit_that_was_never_defined_is_invalidated_by_the_next_tick() {
    run(async {
        let on = on_recording_model();
        let limiter = on.limiter();
        // Read, create the accounts, read again, and then the change.
        on.ledger.fail_from(3, Fault::RequestLost);
        assert!(limiter.define(on.rolling("tokens", 60, 20)).await.is_err());
        let late_requests = items(on.ledger.take_calls());
        assert!(!late_requests.is_empty(), "the change was sent");
        on.ledger.heal();
        limiter.tick().await;
        limiter.define(on.rolling("tokens", 60, 0)).await.unwrap();
        for item in late_requests {
            on.ledger.create_transfers(item).await.unwrap();
        }
        assert_eq!(on.state(&limiter, "tokens").await.usage.available, 0);
    });
}
