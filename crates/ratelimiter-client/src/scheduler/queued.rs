//! A submitted job.

use std::sync::Arc;

use ratelimiter::clock::Timestamp;
use ratelimiter::{JobId, LeaseId};
use tokio::sync::OwnedSemaphorePermit;

use super::control::Control;
use super::job::ErasedJob;
use super::observer::JobView;
use crate::llm::LlmRequirements;

/// A job that waits, asks or runs.
pub(super) struct QueuedJob {
    pub(super) facts: Arc<JobFacts>,
    pub(super) control: Arc<Control>,
    pub(super) work: Box<dyn ErasedJob>,
    /// Attempts at earlier schedulers.
    pub(super) earlier_attempts: u32,
    /// Counts the job as waiting.
    pub(super) queue_permit: Option<OwnedSemaphorePermit>,
}

/// The immutable part of a job.
#[derive(Debug)]
pub(super) struct JobFacts {
    pub(super) id: Option<JobId>,
    pub(super) requirements: LlmRequirements,
    pub(super) submitted_at: Timestamp,
}

impl JobFacts {
    pub(super) fn view(
        &self,
        lease: Option<LeaseId>,
        attempts: u32,
        now: Timestamp,
    ) -> JobView<'_> {
        let waited = now.since(self.submitted_at);
        JobView::new(&self.requirements, self.id.as_ref(), lease, attempts, waited)
    }
}
