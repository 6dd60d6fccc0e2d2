//! A caller of a limiter: reserves, then completes.

use std::sync::Arc;

use ratelimiter::clock::Timestamp;
use ratelimiter::{CompleteRequest, LeaseId, Limiter, ReserveRequest};

use super::workload::Call;
use super::{Caller, Recorder};

/// Calls one model after another.
#[derive(Debug)]
pub struct LimiterCaller<L> {
    limiter: L,
    calls: Arc<[Call]>,
    next: usize,
    completes: bool,
}

impl<L: Limiter> LimiterCaller<L> {
    /// A caller that completes allowed calls. Callers with different numbers start at different models, so that they
    /// do not use the same keys in lockstep.
    ///
    /// # Panics
    /// Without calls.
    pub fn new(limiter: L, calls: &Arc<[Call]>, number: usize) -> Self {
        let (calls, next) = (Arc::clone(calls), number % calls.len());
        Self { limiter, calls, next, completes: true }
    }

    /// Does not complete allowed calls.
    #[must_use]
    pub fn reserve_only(self) -> Self {
        Self { completes: false, ..self }
    }
}

impl<L: Limiter + 'static> Caller for LimiterCaller<L> {
    async fn call(&mut self, _: Timestamp, recorder: &Recorder) -> Option<Timestamp> {
        let Call { requirements, actuals } = &self.calls[self.next];
        self.next = (self.next + 1) % self.calls.len();
        // The clock is read before each request: an in-process call is so short that recording the last one would count.
        let started_at = recorder.now();
        let lease = LeaseId::generate(started_at);
        let request = ReserveRequest::new(lease, requirements.clone());
        let answer = self.limiter.reserve(&request).await;
        let reserved_at = recorder.reserved(started_at, &answer);
        if !self.completes || !answer.is_ok_and(|decision| decision.is_allowed()) {
            return Some(reserved_at);
        }
        let started_at = recorder.now();
        let request = CompleteRequest::new(lease, actuals.clone());
        let answer = self.limiter.complete(&request).await;
        Some(recorder.completed(started_at, &answer))
    }
}
