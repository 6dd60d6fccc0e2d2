//! Jobs: one LLM call each, and its permit.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ratelimiter::clock::Timestamp;
use ratelimiter::{JobId, LeaseId};
use tokio::sync::oneshot;

use super::report::{JobEnd, JobError, JobFailure, JobReport};
use crate::llm::{LlmRequest, LlmRequestError, LlmRequirements};

/// One LLM call, made when its limits have room.
///
/// ```
/// use ratelimiter_client::{Done, Job, LlmRequest};
///
/// let request = LlmRequest {
///     tenant: "acme".to_owned(),
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "Why is the sky blue?".to_owned(),
///     max_output_tokens: 500,
///     want_daily_budget: false,
/// };
/// let job = Job::new(&request, |_permit| async {
///     // Call the provider here, and report the tokens that it counted.
///     Ok::<_, std::io::Error>(Done::using(74, "Because of Rayleigh scattering."))
/// })?;
/// # drop(job);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a job runs only when it is submitted"]
pub struct Job<T> {
    pub(super) id: Option<JobId>,
    pub(super) requirements: LlmRequirements,
    /// In a mutex that is never locked, so that a job, and with it a [`SubmitError`](super::SubmitError), is `Sync` whatever
    /// its closure captures.
    execute: Mutex<Execute<T>>,
}

type Execute<T> =
    Box<dyn FnOnce(Permit) -> BoxFuture<'static, Result<Done<T>, JobError>> + Send + 'static>;

/// The output of a call, and the tokens it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done<T> {
    /// The output of the call.
    pub output: T,
    /// The tokens it used, prompt and output together; `None` if unknown. Then the upper bound stays reserved until it
    /// expires.
    pub tokens: Option<u64>,
}

/// Permission to make one call.
#[derive(Debug, Clone)]
pub struct Permit {
    lease: LeaseId,
    reserved_at: Timestamp,
    known_tokens: Arc<Mutex<Option<u64>>>,
}

impl<T: Send + 'static> Job<T> {
    /// A job that makes this call, with its prompt estimated by its bytes.
    ///
    /// # Errors
    /// See [`LlmRequestError`].
    pub fn new<F, Fut, E>(request: &LlmRequest, execute: F) -> Result<Self, LlmRequestError>
    where
        F: FnOnce(Permit) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Done<T>, E>> + Send + 'static,
        E: Into<JobError>,
    {
        Ok(Self::with_requirements(request.requirements()?, execute))
    }

    /// A job that makes a call with these requirements.
    pub fn with_requirements<F, Fut, E>(requirements: LlmRequirements, execute: F) -> Self
    where
        F: FnOnce(Permit) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Done<T>, E>> + Send + 'static,
        E: Into<JobError>,
    {
        // Called within the future, so that panics of the closure itself are caught too.
        let execute: Execute<T> =
            Box::new(|permit| Box::pin(async move { execute(permit).await.map_err(Into::into) }));
        Self { id: None, requirements, execute: Mutex::new(execute) }
    }

    /// Sets the job's ID, which appears in logs here and at the server.
    pub fn named(self, id: JobId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// The requirements of the call.
    pub const fn requirements(&self) -> &LlmRequirements {
        &self.requirements
    }

    /// Erases the type of the output.
    pub(super) fn erase(
        self,
        reporter: oneshot::Sender<JobReport<T>>,
    ) -> (Option<JobId>, LlmRequirements, Box<dyn ErasedJob>) {
        let Self { id, requirements, execute } = self;
        let execute = execute.into_inner().expect("it is never locked");
        (id, requirements, Box::new(TypedJob { execute, reporter }))
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("requirements", &self.requirements)
            .finish_non_exhaustive()
    }
}

impl<T> Done<T> {
    /// A call that used `tokens`, prompt and output together.
    pub const fn using(tokens: u64, output: T) -> Self {
        Self { output, tokens: Some(tokens) }
    }

    /// A call whose use of tokens is unknown.
    pub const fn unmetered(output: T) -> Self {
        Self { output, tokens: None }
    }
}

impl Permit {
    pub(crate) fn new(lease: LeaseId, reserved_at: Timestamp) -> Self {
        Self { lease, reserved_at, known_tokens: Arc::default() }
    }

    /// The lease that was allowed.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// When the limits were reserved.
    pub const fn reserved_at(&self) -> Timestamp {
        self.reserved_at
    }

    /// Reports the tokens used so far. They count if the call fails, panics or is cancelled.
    ///
    /// # Panics
    /// Never: no code panics with the lock held.
    pub fn report_tokens(&self, tokens: u64) {
        *self.known_tokens.lock().expect("no panic with the lock held") = Some(tokens);
    }

    pub(crate) fn known_tokens(&self) -> Option<u64> {
        *self.known_tokens.lock().expect("no panic with the lock held")
    }
}

/// A job without the type of its output.
pub(super) trait ErasedJob: Send {
    /// Makes the call, until it ends or is cancelled.
    fn run(
        self: Box<Self>,
        permit: Permit,
        cancelled: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, CallOutcome>;

    /// Reports to the owner that the job did not run.
    fn fail(self: Box<Self>, failure: JobFailure, attempts: u32, waited: Duration);
}

/// How a call ended.
pub(super) struct CallOutcome {
    /// The tokens it used, if known.
    pub(super) tokens: Option<u64>,
    pub(super) end: JobEnd,
    /// Reports to the owner, with the number of attempts and the waiting time.
    pub(super) report: Box<dyn FnOnce(u32, Duration) + Send>,
}

struct TypedJob<T> {
    execute: Execute<T>,
    reporter: oneshot::Sender<JobReport<T>>,
}

impl<T: Send + 'static> ErasedJob for TypedJob<T> {
    fn run(
        self: Box<Self>,
        permit: Permit,
        cancelled: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, CallOutcome> {
        let Self { execute, reporter } = *self;
        Box::pin(async move {
            let call = AssertUnwindSafe(execute(permit.clone())).catch_unwind();
            let ended = tokio::select! {
                biased;
                ended = call => Some(ended),
                () = cancelled => None,
            };
            let known = permit.known_tokens();
            let (tokens, end, result) = match ended {
                Some(Ok(Ok(Done { output, tokens }))) => {
                    (tokens.or(known), JobEnd::Succeeded, Ok(output))
                }
                Some(Ok(Err(error))) => (known, JobEnd::Failed, Err(JobFailure::Failed(error))),
                Some(Err(panic)) => {
                    let message = panic_message(&*panic);
                    (known, JobEnd::Panicked, Err(JobFailure::Panicked { message }))
                }
                None => (known, JobEnd::Cancelled, Err(JobFailure::Cancelled)),
            };
            let report = move |attempts, waited| {
                // The owner may have dropped the handle.
                drop(reporter.send(JobReport { result, attempts, waited }));
            };
            CallOutcome { tokens, end, report: Box::new(report) }
        })
    }

    fn fail(self: Box<Self>, failure: JobFailure, attempts: u32, waited: Duration) {
        drop(self.reporter.send(JobReport { result: Err(failure), attempts, waited }));
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
