//! Jobs that a scheduler handed back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::JobId;

use super::queued::{JobFacts, QueuedJob};
use super::report::JobFailure;
use crate::llm::LlmRequirements;

/// A job that did not run before its scheduler was shut down. [`Scheduler::resubmit`] submits it to another one, and its
/// handle stays valid; if it is dropped, the handle resolves to [`JobFailure::NotRun`].
///
/// [`Scheduler::resubmit`]: super::Scheduler::resubmit
#[must_use = "a job that is dropped here fails"]
pub struct UnrunJob {
    /// `None` once it was taken.
    queued: Option<QueuedJob>,
    facts: Arc<JobFacts>,
}

impl UnrunJob {
    pub(super) fn new(mut queued: QueuedJob, attempts: u32) -> Self {
        queued.earlier_attempts += attempts;
        queued.queue_permit = None;
        let facts = queued.facts.clone();
        Self { queued: Some(queued), facts }
    }

    /// The owner's ID for it.
    pub fn id(&self) -> Option<&JobId> {
        self.facts.id.as_ref()
    }

    /// The requirements of its call.
    pub fn requirements(&self) -> &LlmRequirements {
        &self.facts.requirements
    }

    /// Takes the job, so that dropping the rest does not fail it.
    pub(super) const fn take(&mut self) -> Option<QueuedJob> {
        self.queued.take()
    }
}

impl Drop for UnrunJob {
    fn drop(&mut self) {
        if let Some(QueuedJob { work, earlier_attempts, control, .. }) = self.queued.take() {
            let failure = match control.is_cancelled() {
                true => JobFailure::Cancelled,
                false => JobFailure::NotRun,
            };
            work.fail(failure, earlier_attempts, Duration::ZERO);
        }
    }
}

impl fmt::Debug for UnrunJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnrunJob")
            .field("id", &self.facts.id)
            .field("requirements", &self.facts.requirements)
            .finish_non_exhaustive()
    }
}
