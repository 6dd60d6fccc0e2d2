//! A change without an answer may arrive long after everybody has given it up, and then does nothing.

use ratelimiter::{Backend, LimitState, LimitStatus, RegisteredLimit};
use ratelimiter_tigerbeetle::ledger::{Ledger, WorkItem};

use crate::on_model::on_watched_model;
use crate::scene::run;
use crate::watched_ledger::{Call, Fault};

/// The items that were asked for.
fn items(calls: Vec<Call>) -> Vec<WorkItem> {
    let item = |call| match call {
        Call::CreateTransfers(item) => Some(item),
        Call::CreateAccounts | Call::Lookup | Call::Query => None,
    };
    calls.into_iter().filter_map(item).collect()
}

/// TB-07, TB-10: found by the simulation, which delivered the change after the tick that took it back.
#[test]
fn tb_07_a_change_that_arrives_after_it_was_taken_back_changes_nothing() {
    run(async {
        for (used, capacity) in [(0, 20), (0, 5), (8, 20), (8, 9), (8, 5)] {
            for number in 0..4 {
                let on = on_watched_model();
                let limiter = on.limiter();
                limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
                if used > 0 {
                    let lease = on.lease();
                    assert!(on.reserve(&limiter, lease, [("slots", used)]).await.is_ok());
                }
                on.ledger.fail_from(number, Fault::Lost);
                let changed = limiter.define(on.concurrency("slots", 60, capacity)).await;
                let stragglers = items(on.ledger.take_calls());
                on.ledger.heal();
                if changed.is_ok() {
                    continue;
                }
                limiter.tick().await;
                for item in stragglers {
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

/// TB-08, TB-10: the process that sent the change is gone, and its successor has the old file.
#[test]
fn tb_08_a_change_of_a_process_that_is_gone_arrives_after_the_start_and_changes_nothing() {
    run(async {
        for (used, capacity) in [(0, 20), (0, 5), (8, 20), (8, 5)] {
            let on = on_watched_model();
            let before = on.limiter();
            let old = on.concurrency("slots", 60, 10);
            before.define(old.clone()).await.unwrap();
            if used > 0 {
                assert!(on.reserve(&before, on.lease(), [("slots", used)]).await.is_ok());
            }
            on.ledger.fail_from(2, Fault::Lost);
            drop(before.define(on.concurrency("slots", 60, capacity)).await);
            let stragglers = items(on.ledger.take_calls());
            assert!(!stragglers.is_empty(), "the change was sent");
            drop(before);
            on.ledger.heal();

            let limiter = on.limiter();
            limiter.restore(RegisteredLimit::in_force(old)).await.unwrap();
            for item in stragglers {
                on.ledger.create_transfers(item).await.unwrap();
            }
            let state = on.state(&limiter, "slots").await;
            assert_eq!(state.usage.available, 10 - used, "10 to {capacity} with {used} used");
        }
    });
}
