//! Worker metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{ProviderError, Result};

/// A worker's counters. Clones share them, so a clone can be kept while the worker runs.
#[derive(Debug, Clone, Default)]
pub struct WorkerMetrics {
    counters: Arc<Mutex<MetricsSnapshot>>,
}

/// A snapshot of a worker's counters. All but the last two only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricsSnapshot {
    /// Items claimed.
    pub claimed: u64,
    /// Items handled successfully.
    pub acknowledged: u64,
    /// Items returned after a failed attempt.
    pub abandoned: u64,
    /// Items returned without an attempt: the worker was stopped, or they could not start in time.
    pub given_back: u64,
    /// Items failed permanently.
    pub failed: u64,
    /// Items made ready again because their claim had expired. Not only this worker's.
    pub reaped: u64,
    /// Finished items deleted.
    pub purged: u64,
    /// Items whose claim was lost before they were started or settled.
    pub too_late: u64,
    /// Calls without an answer from the provider.
    pub provider_errors: u64,
    /// Due jobs whose definition this build cannot read, as last seen.
    pub unreadable_jobs: u64,
    /// How long the oldest ready item had been due, as last measured; `None` if none was.
    pub oldest_ready_age: Option<Duration>,
}

impl WorkerMetrics {
    /// Adds to one counter.
    pub(super) fn add(&self, counter: impl FnOnce(&mut MetricsSnapshot) -> &mut u64, count: usize) {
        *counter(&mut self.lock()) += u64::try_from(count).expect("a count of items fits");
    }

    /// Sets values that are measured, not counted.
    pub(super) fn set(&self, change: impl FnOnce(&mut MetricsSnapshot)) {
        change(&mut self.lock());
    }

    /// The answer of a queue's provider. Counts and logs an error, and returns `None`.
    pub(super) fn answered<T>(&self, queue: &'static str, answer: Result<T>) -> Option<T> {
        let note = |error: &ProviderError| {
            self.add(|counters| &mut counters.provider_errors, 1);
            tracing::warn!(queue, %error, "provider gave no answer");
        };
        answer.inspect_err(note).ok()
    }

    /// The current counters.
    pub fn snapshot(&self) -> MetricsSnapshot {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, MetricsSnapshot> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
