//! The limiter that job runners ask, with a deliberate bug or without.

use std::sync::Arc;

use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Limiter, MemoryLimiter, Requirement, Requirements,
    ReserveError, ReserveRequest,
};

use super::flawed::Flawed;
use crate::flaw::Flaw;

/// The limiter, between the runners and its real self.
pub(super) struct FlawedLimiter {
    pub(super) inner: MemoryLimiter,
    pub(super) flawed: Arc<Flawed>,
}

impl Limiter for FlawedLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        if !self.flawed.has(Flaw::SkipsSlots) {
            return self.inner.reserve(request).await;
        }
        let mut requirements: Vec<Requirement> = request.requirements.to_vec();
        requirements.retain(|requirement| !requirement.key.as_str().ends_with(":concurrency"));
        let requirements = Requirements::new(requirements).expect("a job needs tokens too");
        self.inner.reserve(&ReserveRequest { requirements, ..request.clone() }).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.inner.complete(request).await
    }
}
