//! Job handles and reports.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ratelimiter::ReserveError;
use tokio::sync::oneshot;

use super::control::Control;

/// The error of a job's call.
pub type JobError = Box<dyn std::error::Error + Send + Sync>;

/// How a job ended.
#[derive(Debug)]
pub struct JobReport<T> {
    /// The output of the call, or why there is none.
    pub result: Result<T, JobFailure>,
    /// Reserve requests.
    pub attempts: u32,
    /// How long the job waited until it was allowed, or ended without an allow.
    pub waited: Duration,
}

/// Why a job has no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum JobFailure {
    /// The limiter refused it permanently: an unknown key, an amount above the capacity, a token that is not accepted.
    #[error("the job can never be allowed: {0}")]
    Refused(ReserveError),
    /// The call failed.
    #[error("the call failed: {0}")]
    Failed(JobError),
    /// The call panicked.
    #[error("the call panicked: {message}")]
    Panicked { message: String },
    /// The owner cancelled it, or it still ran when the time to shut down was over.
    #[error("the job was cancelled")]
    Cancelled,
    /// The scheduler was shut down before the job ran, and the job was not resubmitted.
    #[error("the scheduler was shut down before the job could run")]
    NotRun,
}

/// How a job ended, without its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// The call succeeded.
    Succeeded,
    /// The call failed.
    Failed,
    /// The call panicked.
    Panicked,
    /// The owner cancelled the job, or the time to shut down was over.
    Cancelled,
    /// The limiter refused the job permanently.
    Refused,
}

/// A submitted job. Resolves to its [`JobReport`]; dropping it does not cancel the job, [`JobHandle::cancel`] does.
#[must_use = "the handle resolves to the job's report"]
pub struct JobHandle<T> {
    pub(super) report: oneshot::Receiver<JobReport<T>>,
    pub(super) control: Arc<Control>,
}

impl<T> JobHandle<T> {
    /// Cancels the job. One that waits ends at once; one that runs is dropped at its next await and completed with the tokens
    /// it has reported. One that has ended stays as it is.
    pub fn cancel(&self) {
        self.control.cancel();
    }
}

impl<T> Future for JobHandle<T> {
    type Output = JobReport<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<JobReport<T>> {
        let report = Pin::new(&mut self.report).poll(context);
        // There is no report if the scheduler's runtime was dropped.
        report.map(|report| {
            report.unwrap_or_else(|_| JobReport {
                result: Err(JobFailure::NotRun),
                attempts: 0,
                waited: Duration::ZERO,
            })
        })
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").finish_non_exhaustive()
    }
}
