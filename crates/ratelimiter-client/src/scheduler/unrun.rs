//! A job that was handed back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::JobId;

use super::queued::{JobFacts, Queued};
use super::report::JobFailure;
use crate::llm::LlmRequirements;

/// A job that did not run before its scheduler was shut down. [`Scheduler::resubmit`] gives it to another one, and its
/// handle goes on waiting; if it is dropped, the handle resolves to [`JobFailure::NotRun`].
///
/// [`Scheduler::resubmit`]: super::Scheduler::resubmit
#[must_use = "a job that is dropped here has failed"]
pub struct UnrunJob {
    /// `None` once it was taken.
    queued: Option<Queued>,
    facts: Arc<JobFacts>,
}

impl UnrunJob {
    pub(super) fn new(mut queued: Queued, attempts: u32) -> Self {
        queued.earlier_attempts += attempts;
        queued.place = None;
        let facts = queued.facts.clone();
        Self { queued: Some(queued), facts }
    }

    /// The owner's name for it.
    pub fn id(&self) -> Option<&JobId> {
        self.facts.id.as_ref()
    }

    /// The requirements of its call.
    pub fn requirements(&self) -> &LlmRequirements {
        &self.facts.requirements
    }

    /// Takes the job out, so that dropping what is left does not fail it.
    pub(super) const fn take(&mut self) -> Option<Queued> {
        self.queued.take()
    }
}

impl Drop for UnrunJob {
    fn drop(&mut self) {
        if let Some(Queued { work, earlier_attempts, control, .. }) = self.queued.take() {
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
