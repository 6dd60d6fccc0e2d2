//! What a program does with a job that was allowed.

use coordination::{HandlerError, MessageId};

use super::job::LlmJob;
use crate::scheduler::{Done, Permit};

/// Makes the call of a job. Functions and closures that return a future are handlers.
///
/// It runs after a confirmed allow, and at least once: after a crash, a lost claim or a failure it is called again, so an
/// effect must bear repetition. [`JobCall::id`] is the same in every attempt.
///
/// A [`HandlerError::Retry`], a panic and a timeout lead to another attempt after a while, until the attempts are used up; a
/// [`HandlerError::Permanent`] fails the job at once.
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
    /// Makes the call and gives its answer, with the tokens it used.
    fn run(&self, call: JobCall)
    -> impl Future<Output = Result<Done<String>, HandlerError>> + Send;
}

/// A call that may be made now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobCall {
    /// The job's identity, the same in every attempt: the idempotency key for whatever the handler does.
    pub id: MessageId,
    /// What is asked for.
    pub job: LlmJob,
    /// Which attempt this is, from 1. Attempts that were cut off by a crash count.
    pub attempt: u32,
    /// The right to make one call; to report tokens of a call that may fail.
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
