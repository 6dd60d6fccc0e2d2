//! What an owner learns of a job.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ratelimiter::ReserveError;
use tokio::sync::oneshot;

use super::control::Control;

/// An error of a job's own.
pub type JobError = Box<dyn std::error::Error + Send + Sync>;

/// How a job ended.
#[derive(Debug)]
pub struct JobReport<T> {
    /// What the call brought, or why it brought nothing.
    pub result: Result<T, JobFailure>,
    /// How often the limiter was asked.
    pub attempts: u32,
    /// How long the job waited to be allowed, or until it ended without.
    pub waited: Duration,
}

/// Why a job brought nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// The limiter refused it for good: an unknown key, more than the whole capacity, a token that is not accepted.
    #[error("the job can never be allowed: {0}")]
    Refused(ReserveError),
    /// The call failed.
    #[error("the call failed: {0}")]
    Failed(JobError),
    /// The call panicked.
    #[error("the call panicked: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// The owner cancelled it, or it was still running when the time to shut down was over.
    #[error("the job was cancelled")]
    Cancelled,
    /// The scheduler was shut down before the job's turn came, and nobody submitted it again.
    #[error("the scheduler was shut down before the job could run")]
    NotRun,
}

/// How a job ended, without what it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// The call brought what was wanted.
    Succeeded,
    /// The call failed.
    Failed,
    /// The call panicked.
    Panicked,
    /// The owner cancelled the job, or the scheduler's time was over.
    Cancelled,
    /// The limiter refused the job for good.
    Refused,
}

/// A submitted job. Resolves to its [`JobReport`]; dropping it does not cancel the job, [`JobHandle::cancel`] does.
#[must_use = "a handle that is dropped says nothing of its job"]
pub struct JobHandle<T> {
    pub(super) report: oneshot::Receiver<JobReport<T>>,
    pub(super) control: Arc<Control>,
}

impl<T> JobHandle<T> {
    /// Cancels the job. One that waits is gone; one that runs is dropped at its next await, and completed with what it had
    /// said of its tokens. One that has ended stays as it is.
    pub fn cancel(&self) {
        self.control.cancel();
    }
}

impl<T> Future for JobHandle<T> {
    type Output = JobReport<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<JobReport<T>> {
        let report = Pin::new(&mut self.report).poll(context);
        // Nobody is left to report when the runtime that the scheduler ran on was dropped.
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
