//! What can be seen of a scheduler at work.

use std::fmt;
use std::time::Duration;

use ratelimiter::{Denial, JobId, LeaseId, Unanswered};

use super::report::JobEnd;

/// Is told what happens to each job, as it happens. Every method does nothing unless it is written.
///
/// The methods are called by the scheduler's tasks, so they should be quick.
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
    /// The limiter is being asked.
    fn reserve_started(&self, job: &JobView<'_>) {
        let _ = job;
    }

    /// Not now: the job asks again later, with a new lease.
    fn denied(&self, job: &JobView<'_>, denial: &Denial) {
        let _ = (job, denial);
    }

    /// Nobody knows: the job asks again later, with the same lease.
    fn unknown(&self, job: &JobView<'_>, unanswered: &Unanswered) {
        let _ = (job, unanswered);
    }

    /// The call may go ahead, and does.
    fn allowed(&self, job: &JobView<'_>) {
        let _ = job;
    }

    /// The job has ended, and its lease, if it had one, is completed.
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
    /// The owner's name for it.
    pub id: Option<&'a JobId>,
    /// On whose behalf.
    pub tenant: &'a str,
    /// Who serves the model.
    pub provider: &'a str,
    /// The model's name.
    pub model: &'a str,
    /// The lease of the present attempt; `None` for a job that ends without one.
    pub lease: Option<LeaseId>,
    /// How often the limiter was asked, this time included.
    pub attempts: u32,
    /// For how long the job has waited to be allowed.
    pub waited: Duration,
}

/// How many jobs there are and were, since the scheduler began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Jobs that wait for their turn, now.
    pub waiting: usize,
    /// Jobs that ask the limiter or run, now.
    pub busy: usize,
    /// Jobs that were submitted.
    pub submitted: u64,
    /// Times that the limiter was asked.
    pub attempts: u64,
    /// Attempts that were allowed.
    pub allowed: u64,
    /// Attempts that were denied.
    pub denied: u64,
    /// Attempts that got no answer.
    pub unanswered: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs whose call failed.
    pub failed: u64,
    /// Jobs whose call panicked.
    pub panicked: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Jobs that the limiter refused for good.
    pub refused: u64,
    /// Jobs that were handed back.
    pub handed_back: u64,
    /// Leases whose complete was given up. Their holds end by themselves when their time is over.
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
