//! Worker metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{ProviderError, Result};

/// A worker's counters. Clones share them, so a clone can be kept while the worker runs.
#[derive(Debug, Clone, Default)]
pub struct WorkerMetrics {
    counters: Arc<Counters>,
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

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) claimed: Counter,
    pub(super) acknowledged: Counter,
    pub(super) abandoned: Counter,
    pub(super) given_back: Counter,
    pub(super) failed: Counter,
    pub(super) reaped: Counter,
    pub(super) purged: Counter,
    pub(super) too_late: Counter,
    pub(super) provider_errors: Counter,
    pub(super) unreadable_jobs: Counter,
    oldest_ready_age: Mutex<Option<Duration>>,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        let count = u64::try_from(count).expect("a count of items in memory fits");
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn set(&self, count: usize) {
        let count = u64::try_from(count).expect("a count of items in memory fits");
        self.0.store(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn set_oldest_ready_age(&self, age: Option<Duration>) {
        *self.oldest_ready_age.lock().unwrap_or_else(PoisonError::into_inner) = age;
    }
}

impl WorkerMetrics {
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The answer of a queue's provider. Counts and logs an error, and returns `None`.
    pub(super) fn answered<T>(&self, queue: &'static str, answer: Result<T>) -> Option<T> {
        let note = |error: &ProviderError| {
            self.counters.provider_errors.add(1);
            tracing::warn!(queue, %error, "provider gave no answer");
        };
        answer.inspect_err(note).ok()
    }

    /// The current counters.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let counters = &self.counters;
        let age = counters.oldest_ready_age.lock().unwrap_or_else(PoisonError::into_inner);
        MetricsSnapshot {
            claimed: counters.claimed.get(),
            acknowledged: counters.acknowledged.get(),
            abandoned: counters.abandoned.get(),
            given_back: counters.given_back.get(),
            failed: counters.failed.get(),
            reaped: counters.reaped.get(),
            purged: counters.purged.get(),
            too_late: counters.too_late.get(),
            provider_errors: counters.provider_errors.get(),
            unreadable_jobs: counters.unreadable_jobs.get(),
            oldest_ready_age: *age,
        }
    }
}
