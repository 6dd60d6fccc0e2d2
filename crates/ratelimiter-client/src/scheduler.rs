//! The scheduler: runs LLM calls as soon as their limits have room.
//!
//! [`Admission`](ratelimiter::admission::Admission) decides which job asks next. A driver starts one task per attempt, which
//! reserves, runs the job and completes.

mod attempt;
mod context;
mod control;
mod driver;
mod job;
mod observer;
mod options;
mod queued;
mod report;
mod shutdown;
mod unrun;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::Limiter;
use ratelimiter::clock::Clock;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, oneshot};

use self::context::SchedulerContext;
use self::control::Control;
#[cfg(feature = "jobs")]
pub(crate) use self::job::panic_message;
pub use self::job::{Done, Job, Permit};
pub use self::observer::{Counters, JobView, NoObserver, Observer};
pub use self::options::SchedulerOptions;
use self::queued::{JobFacts, QueuedJob};
pub use self::report::{JobEnd, JobError, JobFailure, JobHandle, JobReport};
pub use self::unrun::UnrunJob;

/// Runs LLM calls as soon as their limits have room; no model and no tenant waits for another. Clones share it.
///
/// There is a queue for each provider and model. A job asks the limiter on its turn; if it is denied it waits, and the next one
/// that may be allowed asks. A job's `execute` runs only after an allow, and a complete always follows. When the last clone is
/// dropped, submitted jobs still run.
///
/// ```
/// use ratelimiter_client::{
///     Capacity, Done, HoldTimeout, Job, Limit, LimitKey, LimitKind, LlmRequest, MemoryLimiter, Scheduler, Window,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = MemoryLimiter::new();
/// let minute = LimitKind::Rolling { window: Window::from_seconds(60)? };
/// let slots = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(300)? };
/// limiter.define_now(Limit::new(LimitKey::llm_rpm("openai", "gpt-4o")?, minute, Capacity::new(500)?))?;
/// limiter.define_now(Limit::new(LimitKey::llm_tpm("openai", "gpt-4o")?, minute, Capacity::new(30_000)?))?;
/// limiter.define_now(Limit::new(LimitKey::llm_concurrency("openai", "gpt-4o")?, slots, Capacity::new(8)?))?;
///
/// let scheduler = Scheduler::new(limiter, 32);
/// let request = LlmRequest {
///     tenant: "acme".to_owned(),
///     provider: "openai".to_owned(),
///     model: "gpt-4o".to_owned(),
///     prompt: "Why is the sky blue?".to_owned(),
///     max_output_tokens: 500,
///     want_daily_budget: false,
/// };
/// let job = Job::new(&request, |_permit| async {
///     Ok::<_, std::io::Error>(Done::using(74, "Because of Rayleigh scattering."))
/// })?;
/// let report = scheduler.submit(job).await?.await;
/// assert_eq!(report.result?, "Because of Rayleigh scattering.");
/// # Ok(())
/// # }
/// ```
pub struct Scheduler<L> {
    context: Arc<SchedulerContext<L>>,
    /// Notifies the driver when the last clone is dropped.
    _guard: Arc<CloneGuard<L>>,
}

struct CloneGuard<L>(Arc<SchedulerContext<L>>);

/// Why a job was not submitted. Returns the job.
#[expect(missing_docs, reason = "the job is what was submitted")]
pub enum SubmitError<T> {
    /// The queue is full.
    Full { job: Box<Job<T>> },
    /// The scheduler is shut down.
    ShutDown { job: Box<Job<T>> },
}

impl<L: Limiter + 'static> Scheduler<L> {
    /// A scheduler with this limiter and number of workers.
    ///
    /// # Panics
    /// Outside a tokio runtime, or without workers.
    pub fn new(limiter: L, workers: usize) -> Self {
        Self::with_options(limiter, SchedulerOptions::with_workers(workers))
    }

    /// A scheduler with these options.
    ///
    /// # Panics
    /// Outside a tokio runtime, without workers, or if `queue_max` is 0.
    pub fn with_options(limiter: L, options: SchedulerOptions) -> Self {
        let context = Arc::new(SchedulerContext::new(limiter, options));
        context.runtime.spawn(driver::drive(context.clone()));
        Self { _guard: Arc::new(CloneGuard(context.clone())), context }
    }

    /// Submits a job; waits while the queue is full.
    ///
    /// # Errors
    /// The scheduler is shut down, or was while waiting. Returns the job.
    pub async fn submit<T: Send + 'static>(
        &self,
        job: Job<T>,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        match self.context.queue_slots.clone().acquire_owned().await {
            Ok(queue_permit) => self.take(job, queue_permit),
            Err(_) => Err(SubmitError::ShutDown { job: Box::new(job) }),
        }
    }

    /// Submits a job unless the queue is full.
    ///
    /// # Errors
    /// The queue is full, or the scheduler is shut down. Returns the job.
    pub fn try_submit<T: Send + 'static>(
        &self,
        job: Job<T>,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        match self.context.queue_slots.clone().try_acquire_owned() {
            Ok(queue_permit) => self.take(job, queue_permit),
            Err(TryAcquireError::NoPermits) => Err(SubmitError::Full { job: Box::new(job) }),
            Err(TryAcquireError::Closed) => Err(SubmitError::ShutDown { job: Box::new(job) }),
        }
    }

    fn take<T: Send + 'static>(
        &self,
        job: Job<T>,
        queue_permit: OwnedSemaphorePermit,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        let mut state = self.context.lock();
        if !state.is_open() {
            return Err(SubmitError::ShutDown { job: Box::new(job) });
        }
        let (reporter, report) = oneshot::channel();
        let (id, requirements, work) = job.erase(reporter);
        let control = Arc::new(Control::default());
        let facts = JobFacts { id, requirements, submitted_at: self.context.clock.now() };
        let queued = QueuedJob {
            facts: Arc::new(facts),
            control: control.clone(),
            work,
            earlier_attempts: 0,
            queue_permit: Some(queue_permit),
        };
        state.counters.submitted += 1;
        self.context.clone().enqueue(&mut state, queued);
        Ok(JobHandle { report, control })
    }

    /// Submits a job that another scheduler handed back. Its handle stays valid.
    ///
    /// # Errors
    /// The scheduler is shut down, or was while waiting. Returns the job.
    pub async fn resubmit(&self, mut job: UnrunJob) -> Result<(), UnrunJob> {
        let Ok(queue_permit) = self.context.queue_slots.clone().acquire_owned().await else {
            return Err(job);
        };
        let mut state = self.context.lock();
        if !state.is_open() {
            return Err(job);
        }
        if let Some(mut queued) = job.take() {
            queued.queue_permit = Some(queue_permit);
            state.counters.submitted += 1;
            self.context.clone().enqueue(&mut state, queued);
        }
        Ok(())
    }

    /// The counters of the scheduler.
    pub fn counters(&self) -> Counters {
        self.context.lock().counters()
    }

    /// Accepts no more jobs, lets running jobs finish for at most `deadline`, cancels those that still run then, and returns
    /// the jobs that did not run, in the order of submission. Every lease is completed.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<UnrunJob> {
        shutdown::shut_down(&self.context, deadline).await
    }
}

impl<L> Drop for CloneGuard<L> {
    fn drop(&mut self) {
        self.0.on_last_clone_dropped();
    }
}

impl<L> Clone for Scheduler<L> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), _guard: self._guard.clone() }
    }
}

impl<L> fmt::Debug for Scheduler<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.context.lock().counters();
        f.debug_struct("Scheduler").field("counters", &counters).finish_non_exhaustive()
    }
}

impl<T> SubmitError<T> {
    /// The job that was not submitted.
    pub fn into_job(self) -> Job<T> {
        match self {
            Self::Full { job } | Self::ShutDown { job } => *job,
        }
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full { .. } => "the queue is full; try again later, or use `submit`, which waits",
            Self::ShutDown { .. } => "the scheduler is shut down",
        })
    }
}

impl<T> fmt::Debug for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, job) = match self {
            Self::Full { job } => ("Full", job),
            Self::ShutDown { job } => ("ShutDown", job),
        };
        f.debug_struct(name).field("job", job).finish()
    }
}

impl<T> std::error::Error for SubmitError<T> {}
