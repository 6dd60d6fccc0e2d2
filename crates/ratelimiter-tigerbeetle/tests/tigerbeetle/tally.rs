//! An observer that counts events and can be awaited.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimiter_tigerbeetle::ledger::SessionProblem;
use ratelimiter_tigerbeetle::ledger::cluster::{Observation, Observer, Operation};
use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: Arc<Mutex<Counts>>,
    changed: Arc<Notify>,
}

/// Counts of sessions and of requests that create transfers.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub requests: usize,
    pub items: usize,
    /// Waves of queries that were sent, and that were answered.
    pub waves: usize,
    pub waves_answered: usize,
    /// The largest answered request.
    pub answered_events_max: usize,
    pub refused_batches: usize,
    pub sessions_busy_max: usize,
    pub evictions: usize,
    /// The slowest request.
    pub took_max: Duration,
    pub failures: BTreeMap<&'static str, usize>,
}

impl Tally {
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// Waits until the counts meet a condition.
    pub async fn until(&self, wanted: impl Fn(&Counts) -> bool) {
        loop {
            let changed = self.changed.notified();
            if wanted(&self.counts()) {
                return;
            }
            changed.await;
        }
    }
}

impl Observer for Tally {
    fn observe(&self, observation: &Observation) {
        let mut counts = self.counts.lock().unwrap();
        match observation {
            Observation::RequestSent { operation: Operation::CreateTransfers, items, .. } => {
                counts.requests += 1;
                counts.items += items;
            }
            Observation::RequestSent { operation: Operation::QueryTransfers, .. } => {
                counts.waves += 1;
            }
            Observation::RequestAnswered { operation: Operation::QueryTransfers, .. } => {
                counts.waves_answered += 1;
            }
            &Observation::RequestAnswered {
                operation: Operation::CreateTransfers,
                events,
                took,
            } => {
                counts.answered_events_max = counts.answered_events_max.max(events);
                counts.took_max = counts.took_max.max(took);
            }
            Observation::BatchRefused { .. } => counts.refused_batches += 1,
            &Observation::SessionsBusy { count } => {
                counts.sessions_busy_max = counts.sessions_busy_max.max(count);
            }
            Observation::SessionTroubled { problem } => {
                counts.evictions += usize::from(*problem == SessionProblem::Evicted);
            }
            Observation::CallFailed { error } => {
                *counts.failures.entry(error.reason()).or_default() += 1;
            }
            Observation::RequestSent { .. }
            | Observation::RequestAnswered { .. }
            | Observation::SessionReady
            | _ => {}
        }
        drop(counts);
        self.changed.notify_waiters();
    }
}
