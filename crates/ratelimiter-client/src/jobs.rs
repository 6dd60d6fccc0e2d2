//! Durable jobs: LLM calls that wait in an outbox until their limits have room, and survive the process.
//!
//! A job is an outbox message ([`LlmJob`]). A [`JobQueue`] submits it and reads back what came of it; an application with an
//! SQL outbox enqueues [`LlmJob::message`] inside its own transaction instead. A [`JobRunner`] claims due jobs, reserves what
//! each needs with the limiter, calls the [`JobHandler`], completes the lease with what was really used, and finishes the
//! message with the result. Any number of runners in any number of processes share one queue and one limiter.
//!
//! # What is promised
//!
//! - **No job is lost.** A job is in the outbox until it is finished or failed for good, and every step in between may be
//!   interrupted: the claim of a runner that is gone runs out and another runner begins anew.
//! - **A handler runs at least once**, never twice at a time as long as its runner can reach the outbox: the claim is extended
//!   while the handler runs, and a handler whose claim was lost all the same is dropped at its next await and its result
//!   discarded. So an effect may be repeated; [`JobCall::id`] is the same in every attempt and makes a good idempotency key.
//! - **One outcome is kept**, the first that was stored by whoever had the claim.
//! - **No call without room.** A handler runs only after the limiter allowed it. What a crashed runner had reserved stays
//!   reserved until it expires, because its call may still be under way.
//! - **Not now is no failure.** A denied job is put off by the limiter's hint and counts no attempt, through a pause of its
//!   model too. A job that meets an unknown key, a token that is not accepted, a page of a proxy or a client that was shut down
//!   is postponed, and its record says why. Only more than a whole capacity, or a request that the server calls invalid, fails it
//!   at once. An error, a panic and a timeout count one attempt; after [`RunnerSettings::attempts_max`] the job has failed, with
//!   the last reason. Failed jobs are [listed](JobQueue::failed) and [revived](JobQueue::revive).
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
//!         // Here the provider is called, with `call.id` as the idempotency key.
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

mod asking;
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
pub use settings::{InvalidRunnerSettings, Models, RunnerSettings, WORKERS_MAX};

/// What jobs are made of, from `coordination`.
pub use coordination::{
    CancellationToken, HandlerError, LeaseDuration, MessageId, NewOutboxMessage, Outbox,
    ProviderError,
};
