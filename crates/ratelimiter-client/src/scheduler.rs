//! Makes LLM calls as soon as their limits have room, and lets no model and no tenant wait for another.
//!
//! [`Admission`](ratelimiter::admission::Admission) decides which job asks next; it is plain data. Around it, a driver lets
//! jobs ask when it says so, and one task per attempt reserves, runs the job and completes.

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
use self::queued::{JobFacts, Queued};
pub use self::report::{JobEnd, JobError, JobFailure, JobHandle, JobReport};
pub use self::unrun::UnrunJob;

/// Makes LLM calls as soon as their limits have room. Clones share it.
///
/// There is a queue for each provider and model. A job asks the limiter when its turn comes; if it is denied it waits, and
/// the next one that could fare better asks. A job's `execute` runs only after an allow, and a complete always follows.
/// When the last clone is dropped, the jobs that were submitted go on.
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
    /// Tells the driver when the last clone is gone.
    _presence: Arc<Presence<L>>,
}

struct Presence<L>(Arc<SchedulerContext<L>>);

/// Why a job was not taken. The job comes back.
pub enum SubmitError<T> {
    /// As many jobs wait as may.
    Full {
        /// The job.
        job: Box<Job<T>>,
    },
    /// The scheduler is shut down.
    ShutDown {
        /// The job.
        job: Box<Job<T>>,
    },
}

impl<L: Limiter + 'static> Scheduler<L> {
    /// A scheduler that asks this limiter, with so many workers.
    ///
    /// # Panics
    /// Outside a tokio runtime, or without workers.
    pub fn new(limiter: L, workers: usize) -> Self {
        Self::with_options(limiter, SchedulerOptions::with_workers(workers))
    }

    /// A scheduler with these options.
    ///
    /// # Panics
    /// Outside a tokio runtime, without workers, or when no job may wait.
    pub fn with_options(limiter: L, options: SchedulerOptions) -> Self {
        let context = Arc::new(SchedulerContext::new(limiter, options));
        context.runtime.spawn(driver::drive(context.clone()));
        Self { _presence: Arc::new(Presence(context.clone())), context }
    }

    /// Submits a job; waits while as many jobs wait as may.
    ///
    /// # Errors
    /// The scheduler is, or while waiting was, shut down. The job comes back.
    pub async fn submit<T: Send + 'static>(
        &self,
        job: Job<T>,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        match self.context.room.clone().acquire_owned().await {
            Ok(place) => self.take(job, place),
            Err(_) => Err(SubmitError::ShutDown { job: Box::new(job) }),
        }
    }

    /// Submits a job if it finds a place.
    ///
    /// # Errors
    /// As many jobs wait as may, or the scheduler is shut down. The job comes back.
    pub fn try_submit<T: Send + 'static>(
        &self,
        job: Job<T>,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        match self.context.room.clone().try_acquire_owned() {
            Ok(place) => self.take(job, place),
            Err(TryAcquireError::NoPermits) => Err(SubmitError::Full { job: Box::new(job) }),
            Err(TryAcquireError::Closed) => Err(SubmitError::ShutDown { job: Box::new(job) }),
        }
    }

    fn take<T: Send + 'static>(
        &self,
        job: Job<T>,
        place: OwnedSemaphorePermit,
    ) -> Result<JobHandle<T>, SubmitError<T>> {
        let mut state = self.context.lock();
        if !state.is_open() {
            return Err(SubmitError::ShutDown { job: Box::new(job) });
        }
        let (reporter, report) = oneshot::channel();
        let (id, requirements, work) = job.erase(reporter);
        let control = Arc::new(Control::default());
        let facts = JobFacts { id, requirements, submitted_at: self.context.clock.now() };
        let queued = Queued {
            facts: Arc::new(facts),
            control: control.clone(),
            work,
            earlier_attempts: 0,
            place: Some(place),
        };
        state.counters.submitted += 1;
        self.context.clone().enqueue(&mut state, queued);
        Ok(JobHandle { report, control })
    }

    /// Submits a job that another scheduler, or this one's forerunner, handed back. Its handle is still good.
    ///
    /// # Errors
    /// The scheduler is, or while waiting was, shut down. The job comes back.
    pub async fn resubmit(&self, mut job: UnrunJob) -> Result<(), UnrunJob> {
        let Ok(place) = self.context.room.clone().acquire_owned().await else {
            return Err(job);
        };
        let mut state = self.context.lock();
        if !state.is_open() {
            return Err(job);
        }
        if let Some(mut queued) = job.take() {
            queued.place = Some(place);
            state.counters.submitted += 1;
            self.context.clone().enqueue(&mut state, queued);
        }
        Ok(())
    }

    /// How many jobs there are and were.
    pub fn counters(&self) -> Counters {
        self.context.lock().counters()
    }

    /// Takes no more jobs, lets those that run finish for at most `deadline`, cancels what then still runs, and hands
    /// back the jobs that did not run, in the order of submission. Every lease is completed.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<UnrunJob> {
        shutdown::shut_down(&self.context, deadline).await
    }
}

impl<L> Drop for Presence<L> {
    fn drop(&mut self) {
        self.0.last_clone_is_gone();
    }
}

impl<L> Clone for Scheduler<L> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), _presence: self._presence.clone() }
    }
}

impl<L> fmt::Debug for Scheduler<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.context.lock().counters();
        f.debug_struct("Scheduler").field("counters", &counters).finish_non_exhaustive()
    }
}

impl<T> SubmitError<T> {
    /// The job that was not taken.
    pub fn into_job(self) -> Job<T> {
        match self {
            Self::Full { job } | Self::ShutDown { job } => *job,
        }
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full { .. } => "as many jobs wait as may; try again later, or wait in `submit`",
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
