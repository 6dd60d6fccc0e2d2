//! Observers and counters of a scheduler.

use std::fmt;
use std::time::Duration;

use ratelimiter::{Denial, JobId, LeaseId, LimitKey, Unanswered};

use super::report::JobEnd;
use crate::llm::LlmRequirements;

/// Observes every step of every job. The default methods do nothing.
///
/// The scheduler's tasks call these methods, so they should return quickly.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ratelimiter_client::{Denial, JobView, Observer};
///
/// #[derive(Debug, Default)]
/// struct CountsDenials(AtomicU64);
///
/// impl Observer for CountsDenials {
///     fn denied(&self, _job: &JobView<'_>, _denial: &Denial) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait Observer: fmt::Debug + Send + Sync {
    /// A reserve begins.
    fn reserve_started(&self, job: &JobView<'_>) {
        let _ = job;
    }

    /// The reserve was denied: the job asks again later, with a new lease.
    fn denied(&self, job: &JobView<'_>, denial: &Denial) {
        let _ = (job, denial);
    }

    /// The outcome is unknown: the job asks again later, with the same lease.
    fn unknown(&self, job: &JobView<'_>, unanswered: &Unanswered) {
        let _ = (job, unanswered);
    }

    /// The reserve was allowed, but these limits in [shadow mode](ratelimiter::LimitMode::Shadow) would have denied it.
    fn shadow_denied(&self, job: &JobView<'_>, keys: &[LimitKey]) {
        let _ = (job, keys);
    }

    /// The reserve was allowed, and the call begins.
    fn allowed(&self, job: &JobView<'_>) {
        let _ = job;
    }

    /// The job has ended. The complete of its lease, if it had one, may still be in progress.
    fn done(&self, job: &JobView<'_>, end: JobEnd) {
        let _ = (job, end);
    }
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// A job as an observer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobView<'a> {
    /// The owner's ID for it.
    pub id: Option<&'a JobId>,
    /// The tenant that the call is for.
    pub tenant: &'a str,
    /// The provider of the model.
    pub provider: &'a str,
    /// The model's name.
    pub model: &'a str,
    /// The lease of the current attempt; `None` for a job that ends without one.
    pub lease: Option<LeaseId>,
    /// Reserve requests so far, including this one.
    pub attempts: u32,
    /// How long the job has waited to be allowed.
    pub waited: Duration,
}

impl<'a> JobView<'a> {
    pub(crate) const fn new(
        call: &'a LlmRequirements,
        id: Option<&'a JobId>,
        lease: Option<LeaseId>,
        attempts: u32,
        waited: Duration,
    ) -> Self {
        let (tenant, provider, model) = (call.tenant(), call.provider(), call.model());
        Self { id, tenant, provider, model, lease, attempts, waited }
    }
}

/// Counters since the scheduler began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Jobs that wait now.
    pub waiting: usize,
    /// Jobs that ask the limiter or run now.
    pub busy: usize,
    /// Jobs that were submitted.
    pub submitted: u64,
    /// Reserve requests.
    pub attempts: u64,
    /// Attempts that were allowed.
    pub allowed: u64,
    /// Attempts that were denied.
    pub denied: u64,
    /// Attempts that got no answer.
    pub unanswered: u64,
    /// Jobs whose call succeeded.
    pub succeeded: u64,
    /// Jobs whose call failed.
    pub failed: u64,
    /// Jobs whose call panicked.
    pub panicked: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Jobs that the limiter refused permanently.
    pub refused: u64,
    /// Jobs that were handed back.
    pub handed_back: u64,
    /// Leases whose complete failed. Their holds time out.
    pub completes_given_up: u64,
}

impl Counters {
    pub(super) const fn count_end(&mut self, end: JobEnd) {
        match end {
            JobEnd::Succeeded => self.succeeded += 1,
            JobEnd::Failed => self.failed += 1,
            JobEnd::Panicked => self.panicked += 1,
            JobEnd::Cancelled => self.cancelled += 1,
            JobEnd::Refused => self.refused += 1,
        }
    }
}
