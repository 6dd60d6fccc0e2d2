//! What a worker has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{ProviderError, Result};

/// A worker's counters. Clones show the same worker, so one can be kept while the worker runs.
#[derive(Debug, Clone, Default)]
pub struct WorkerMetrics {
    counters: Arc<Counters>,
}

/// A worker's counters at one moment. All but the last two grow for as long as the worker lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricsSnapshot {
    /// Items claimed.
    pub claimed: u64,
    /// Items finished well.
    pub acknowledged: u64,
    /// Items given back to be tried again.
    pub abandoned: u64,
    /// Items given back untried: the worker was told to stop, or they could not be started in time.
    pub given_back: u64,
    /// Items failed for good.
    pub failed: u64,
    /// Items whose claim had run out, made ready again. Not only this worker's.
    pub reaped: u64,
    /// Finished items forgotten.
    pub purged: u64,
    /// Items that were no longer this worker's when it wanted to start or settle them.
    pub too_late: u64,
    /// Calls that the provider gave no answer to.
    pub provider_errors: u64,
    /// Due jobs whose definition this build cannot read, when they were last looked at.
    pub unreadable_jobs: u64,
    /// How long the oldest ready item had been due, when it was last measured; none if none was.
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

    /// What the provider of a queue answered. None if it did not, which is counted.
    pub(super) fn answered<T>(&self, queue: &'static str, answer: Result<T>) -> Option<T> {
        let note = |error: &ProviderError| {
            self.counters.provider_errors.add(1);
            tracing::warn!(queue, %error, "provider gave no answer");
        };
        answer.inspect_err(note).ok()
    }

    /// The counters now.
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
