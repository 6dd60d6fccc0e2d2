//! Durable jobs: LLM calls that wait in an outbox until their limits have room, and survive the process.
//!
//! A job is an outbox message ([`LlmJob`]). A [`JobQueue`] submits it and reads its result; an application with an SQL outbox
//! can enqueue [`LlmJob::message`] inside its own transaction instead. A [`JobRunner`] claims due jobs, reserves their
//! requirements, calls the [`JobHandler`], completes the lease with the actual use, and stores the result in the message. Any
//! number of runners in any number of processes share one queue and one limiter.
//!
//! # Guarantees
//!
//! - **No job is lost.** A job is in the outbox until it is finished or has failed permanently. Every step in between may be
//!   interrupted: the claim of a crashed runner expires, and another runner takes the job.
//! - **A handler runs at least once**, and never twice at a time as long as its runner can reach the outbox: the claim is
//!   extended while the handler runs. If the claim is lost anyway, the handler is dropped at its next await and its result
//!   discarded. So effects may be repeated; use [`JobCall::id`], which is the same in every attempt, as idempotency key.
//! - **One outcome is stored**, the first by a runner that held the claim.
//! - **No call without room.** A handler runs only after the limiter allowed it. What a crashed runner had reserved stays
//!   reserved until it expires, because its call may still be in flight.
//! - **A denial is no failure.** A denied job waits for the limiter's hint, also while its model is paused, and no attempt is
//!   counted. On an unknown key, a token that is not accepted, a proxy's error page or a client that was shut down, the job is
//!   postponed, and its record has the reason. An amount above the capacity, or a request that the server calls invalid, fails
//!   the job at once. An error, a panic and a timeout count as an attempt; after [`RunnerSettings::attempts_max`] the job fails
//!   with the last reason. Failed jobs can be [listed](JobQueue::failed) and [revived](JobQueue::revive).
//! - **A saturated model delays no other**, and a tenant without budget no other tenant.
//!
//! ```
//! use coordination::{CancellationToken, MemoryProvider};
//! use ratelimiter_client::jobs::{JobCall, JobQueue, JobRunner, JobState, LlmJob, RunnerSettings};
//! use ratelimiter_client::{
//!     Capacity, Done, HoldTimeout, Limit, LimitKey, LimitKind, LlmRequest, MemoryLimiter, Window,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = MemoryLimiter::new();
//! let per_minute = LimitKind::Rolling { window: Window::from_seconds(60)? };
//! let at_a_time = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(300)? };
//! for (key, kind, capacity) in [
//!     (LimitKey::llm_rpm("openai", "gpt-4o")?, per_minute, 60),
//!     (LimitKey::llm_tpm("openai", "gpt-4o")?, per_minute, 100_000),
//!     (LimitKey::llm_concurrency("openai", "gpt-4o")?, at_a_time, 4),
//! ] {
//!     limiter.define_now(Limit::new(key, kind, Capacity::new(capacity)?))?;
//! }
//! // In memory here; with an SQL provider the jobs survive the process.
//! let outbox = MemoryProvider::new();
//! let queue = JobQueue::new(outbox.clone());
//! let request = LlmRequest {
//!     tenant: "acme".to_owned(),
//!     provider: "openai".to_owned(),
//!     model: "gpt-4o".to_owned(),
//!     prompt: "Why is the sky blue?".to_owned(),
//!     max_output_tokens: 500,
//!     want_daily_budget: false,
//! };
//! let id = queue.submit(&LlmJob::new(request)?).await?;
//!
//! let shutdown = CancellationToken::new();
//! let stop = shutdown.clone();
//! let runner = JobRunner::new(outbox, limiter, RunnerSettings::default(), move |call: JobCall| {
//!     let stop = stop.clone();
//!     async move {
//!         // Call the provider here, with `call.id` as the idempotency key.
//!         stop.cancel();
//!         Ok(Done::using(74, format!("{} Because of Rayleigh scattering.", call.job.request().prompt)))
//!     }
//! })?;
//! runner.run(shutdown).await;
//!
//! let job = queue.job(id).await?.expect("it was submitted");
//! let JobState::Done(result) = job.state else { panic!("it was not shut down before its end") };
//! assert_eq!(result.tokens, Some(74));
//! # Ok(())
//! # }
//! ```

mod admission;
mod claim;
mod context;
mod counters;
mod handler;
mod job;
mod model_gates;
mod queue;
mod runner;
mod running;
mod settings;

pub use counters::{JobCounters, JobCountersSnapshot};
pub use handler::{JobCall, JobHandler};
pub use job::{CONTEXT_BYTES_MAX, InvalidJob, JOB_VERSION, LlmJob, UnreadableJob};
pub use queue::{JobQueue, JobRecord, JobResult, JobState, QueueError};
pub use runner::JobRunner;
pub use settings::{CLAIM_FOR_MIN, InvalidRunnerSettings, Models, RunnerSettings, WORKERS_MAX};

/// Types of `coordination` in this module's API.
pub use coordination::{
    CancellationToken, HandlerError, LeaseDuration, MessageId, NewOutboxMessage, Outbox,
    ProviderError,
};
