//! The handler: the application's code that makes the call of a job.

use coordination::{HandlerError, MessageId};

use super::job::LlmJob;
use crate::scheduler::{Done, Permit};

/// Makes the call of a job. Functions and closures that return a future are handlers.
///
/// It runs after a confirmed allow, and at least once: after a crash, a lost claim or a failure it is called again, so its
/// effects must be idempotent. [`JobCall::id`] is the same in every attempt.
///
/// After a [`HandlerError::Retry`], a panic or a timeout there is another attempt, up to
/// [`attempts_max`](super::RunnerSettings::attempts_max); a [`HandlerError::Permanent`] fails the job at once.
///
/// ```
/// use ratelimiter_client::Done;
/// use ratelimiter_client::jobs::{HandlerError, JobCall, JobHandler};
///
/// struct Answers {
///     url: String,
/// }
///
/// impl JobHandler for Answers {
///     async fn run(&self, call: JobCall) -> Result<Done<String>, HandlerError> {
///         // A real handler posts the prompt to `self.url` with the header `Idempotency-Key: <call.id>`.
///         call.permit.report_tokens(20);
///         Ok(Done::using(74, format!("{} was asked at {}", call.job.request().prompt, self.url)))
///     }
/// }
/// ```
pub trait JobHandler: Send + Sync + 'static {
    /// Makes the call. Returns its output and the tokens it used.
    fn run(&self, call: JobCall)
    -> impl Future<Output = Result<Done<String>, HandlerError>> + Send;
}

/// A call that was allowed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobCall {
    /// The job's ID, the same in every attempt: use it as the idempotency key.
    pub id: MessageId,
    /// The job.
    pub job: LlmJob,
    /// The number of the attempt, from 1. Attempts that a crash interrupted count.
    pub attempt: u32,
    /// The permit of this call, to report the tokens of a call that may fail.
    pub permit: Permit,
}

impl<F, Fut> JobHandler for F
where
    F: Fn(JobCall) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Done<String>, HandlerError>> + Send,
{
    fn run(
        &self,
        call: JobCall,
    ) -> impl Future<Output = Result<Done<String>, HandlerError>> + Send {
        self(call)
    }
}
