//! Many limits at a time: few requests, and nothing is written where nothing has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratelimiter::{Backend, LimitStatus, RegisteredLimit};
use ratelimiter_tigerbeetle::ledger::model::ModelLedger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use crate::on_model::on_watched_model;
use crate::scene::{Scene, run};
use crate::watched_ledger::{Asked, WatchedLedger};

const LIMITS: usize = 2_000;

type OnModel = Scene<WatchedLedger<Arc<ModelLedger>>>;
type Limiter = TigerBeetleLimiter<WatchedLedger<Arc<ModelLedger>>>;

fn limits(on: &OnModel, capacity: u64) -> Vec<RegisteredLimit> {
    let limit = |number| on.concurrency(&format!("{number:04}"), 60, capacity);
    (0..LIMITS).map(limit).map(RegisteredLimit::in_force).collect()
}

async fn restore(limiter: &Limiter, limits: Vec<RegisteredLimit>) -> Vec<LimitStatus> {
    limiter.restore_all(limits, &BTreeSet::new()).await.unwrap()
}

/// TB-08: a start costs lookups alone, and only what differs is written.
#[test]
fn tb_08_a_start_writes_only_what_differs() {
    run(async {
        let on = on_watched_model();
        let statuses = restore(&on.limiter(), limits(&on, 10)).await;
        assert_eq!(statuses, vec![LimitStatus::Active; LIMITS]);
        let first = on.ledger.take_asked();
        assert_eq!(first.transfers, 2 * LIMITS, "each account is funded once");
        assert!(first.calls <= LIMITS / 25, "{first:?}");

        let again = on.limiter();
        restore(&again, limits(&on, 10)).await;
        assert_eq!(on.ledger.take_asked(), Asked { calls: LIMITS / 200, transfers: 0 });

        let mut changed = limits(&on, 10);
        changed[7].limit.capacity = on.concurrency("", 60, 11).capacity;
        restore(&again, changed).await;
        assert_eq!(on.ledger.take_asked(), Asked { calls: LIMITS / 200 + 1, transfers: 2 });
        assert_eq!(on.state(&again, "0007").await.usage.available, 11);
    });
}

/// TB-08, TB-13: a start stays within the events of a request that the settings allow.
#[test]
fn tb_08_a_start_keeps_to_the_events_that_a_request_may_have() {
    run(async {
        let on = on_watched_model();
        on.ledger.refuse_items_over(4);
        let statuses = restore(&on.limiter(), limits(&on, 10)).await;
        assert_eq!(statuses, vec![LimitStatus::Active; LIMITS]);
    });
}

/// DEF-07: all decreases that have become possible end in one tick, in few calls.
#[test]
fn def_07_two_thousand_decreases_end_in_one_tick() {
    run(async {
        let on = on_watched_model();
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
        on.ledger.take_asked();

        limiter.tick().await;
        let Asked { calls, transfers } = on.ledger.take_asked();
        // The tick does more than this: it watches expiry, and compares some accounts.
        assert!(calls <= LIMITS / 200 + 4, "{calls} calls while nothing is possible");
        assert!(transfers <= 1, "{transfers} transfers while nothing is possible");

        for lease in leases {
            on.complete(&limiter, lease, []).await.unwrap();
        }
        on.ledger.take_asked();
        limiter.tick().await;
        let Asked { calls, .. } = on.ledger.take_asked();
        assert!(calls <= LIMITS / 50, "{calls} calls");
        assert_eq!(limiter.observations().limits_decreasing, 0);
        let states = limiter.states(&ratelimiter::Page::default()).await.unwrap();
        assert!(states.iter().all(|state| state.usage.available == 5), "all are in force");
    });
}
