//! Results of a load test.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ratelimiter::Decision;
use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};

use super::latencies::Latencies;

/// Counts and latencies of requests.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names say what is counted")]
pub struct Results {
    pub allowed: u64,
    pub denied: u64,
    /// Reserves and completes without an answer, or with an error.
    pub failed: u64,
    pub first_failure: Option<String>,
    pub reserves: Latencies,
    pub completes: Latencies,
}

impl Results {
    pub(super) fn add(&mut self, more: &Self) {
        let Self { allowed, denied, failed, first_failure, reserves, completes } = more;
        self.allowed += allowed;
        self.denied += denied;
        self.failed += failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(first_failure);
        }
        self.reserves.add(reserves);
        self.completes.add(completes);
    }

    fn fail(&mut self, failure: &impl fmt::Display) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| failure.to_string());
    }
}

/// Records the requests of a caller.
#[derive(Debug)]
pub struct Recorder {
    clock: MonotonicClock,
    results: Arc<Mutex<Results>>,
}

impl Recorder {
    pub(super) const fn new(clock: MonotonicClock, results: Arc<Mutex<Results>>) -> Self {
        Self { clock, results }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records a reserve that was sent at `started_at` and is answered now. Returns the current time.
    pub fn reserved(
        &self,
        started_at: Timestamp,
        answer: &Result<Decision, impl fmt::Display>,
    ) -> Timestamp {
        let now = self.clock.now();
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.reserves.record(now.since(started_at));
        match answer {
            Ok(Decision::Allowed { .. }) => results.allowed += 1,
            Ok(Decision::Denied(_)) => results.denied += 1,
            Err(error) => results.fail(error),
        }
        now
    }

    /// Records a complete that was sent at `started_at` and is answered now. Returns the current time.
    pub fn completed(
        &self,
        started_at: Timestamp,
        answer: &Result<(), impl fmt::Display>,
    ) -> Timestamp {
        let now = self.clock.now();
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.completes.record(now.since(started_at));
        if let Err(error) = answer {
            results.fail(error);
        }
        now
    }
}
