//! A job as its owner writes it, and as the scheduler keeps it.

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

/// One LLM call that is made when its limits have room.
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
///     // Here the provider is called. It says how many tokens the call used.
///     Ok::<_, std::io::Error>(Done::using(74, "Because of Rayleigh scattering."))
/// })?;
/// # drop(job);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a job runs only when it is submitted"]
pub struct Job<T> {
    pub(super) id: Option<JobId>,
    pub(super) requirements: LlmRequirements,
    /// Behind a lock that nobody takes, so that a job, and with it a [`SubmitError`](super::SubmitError), can be shared
    /// between threads whatever its closure holds.
    execute: Mutex<Execute<T>>,
}

type Execute<T> =
    Box<dyn FnOnce(Permit) -> BoxFuture<'static, Result<Done<T>, JobError>> + Send + 'static>;

/// What a call brought, and how many tokens it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done<T> {
    /// What the call brought.
    pub output: T,
    /// How many tokens it used, prompt and output together; `None` if the provider did not say. Then the upper bound stays
    /// reserved until it expires.
    pub tokens: Option<u64>,
}

/// The right to make one call, from its allow to its end.
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
        // The closure is called within the future, so that a panic of either is caught alike.
        let execute: Execute<T> =
            Box::new(|permit| Box::pin(async move { execute(permit).await.map_err(Into::into) }));
        Self { id: None, requirements, execute: Mutex::new(execute) }
    }

    /// The same job with its owner's name for it, which goes into logs here and at the server.
    pub fn named(self, id: JobId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// The requirements of the call.
    pub const fn requirements(&self) -> &LlmRequirements {
        &self.requirements
    }

    /// Splits off what depends on the job's output.
    pub(super) fn erase(
        self,
        reporter: oneshot::Sender<JobReport<T>>,
    ) -> (Option<JobId>, LlmRequirements, Box<dyn Work>) {
        let Self { id, requirements, execute } = self;
        let execute = execute.into_inner().expect("nobody takes the lock");
        (id, requirements, Box::new(TypedWork { execute, reporter }))
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
    /// The call used so many tokens, prompt and output together.
    pub const fn using(tokens: u64, output: T) -> Self {
        Self { output, tokens: Some(tokens) }
    }

    /// Nobody knows how many tokens the call used.
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

    /// When the reservations began.
    pub const fn reserved_at(&self) -> Timestamp {
        self.reserved_at
    }

    /// Says how many tokens the call has used as far as is known. Counts if the call fails, panics or is cancelled.
    ///
    /// # Panics
    /// Never: nobody panics while saying so.
    pub fn report_tokens(&self, tokens: u64) {
        *self.known_tokens.lock().expect("nobody panics with the lock held") = Some(tokens);
    }

    pub(crate) fn known_tokens(&self) -> Option<u64> {
        *self.known_tokens.lock().expect("nobody panics with the lock held")
    }
}

/// What is left of a job when its output's type is forgotten.
pub(super) trait Work: Send {
    /// Makes the call, unless it is cancelled before its end.
    fn run(
        self: Box<Self>,
        permit: Permit,
        cancelled: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, Ran>;

    /// Tells the owner that the job did not run.
    fn fail(self: Box<Self>, failure: JobFailure, attempts: u32, waited: Duration);
}

/// A call that was made, or begun.
pub(super) struct Ran {
    /// How many tokens it used, as far as is known.
    pub(super) tokens: Option<u64>,
    pub(super) end: JobEnd,
    /// Tells the owner, with the number of attempts and the waiting time.
    pub(super) report: Box<dyn FnOnce(u32, Duration) + Send>,
}

struct TypedWork<T> {
    execute: Execute<T>,
    reporter: oneshot::Sender<JobReport<T>>,
}

impl<T: Send + 'static> Work for TypedWork<T> {
    fn run(
        self: Box<Self>,
        permit: Permit,
        cancelled: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, Ran> {
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
                // An owner that dropped the handle does not want to know.
                drop(reporter.send(JobReport { result, attempts, waited }));
            };
            Ran { tokens, end, report: Box::new(report) }
        })
    }

    fn fail(self: Box<Self>, failure: JobFailure, attempts: u32, waited: Duration) {
        drop(self.reporter.send(JobReport { result: Err(failure), attempts, waited }));
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without words".to_owned())
}
