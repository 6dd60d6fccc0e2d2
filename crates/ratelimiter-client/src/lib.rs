//! For programs that make LLM calls: the limiter in process or over HTTP.
//!
//! Every implementer is a [`Limiter`], so that code written against the trait moves from a laptop to a cluster by changing one
//! line: [`MemoryLimiter`] needs nothing deployed, `HttpLimiter` asks a server.
//!
//! The feature `http`, on by default, brings `HttpLimiter` and everything that speaks HTTP. A program that limits itself in
//! process turns it off and compiles no HTTP client. The feature `jobs` brings durable jobs: LLM calls that wait in an outbox and
//! survive the process.

mod batcher;
mod completing;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "jobs")]
pub mod jobs;
mod limits_file;
mod llm;
mod scheduler;
pub mod simulation;
mod tokio_clock;

pub use ratelimiter::{
    Actual, Actuals, Backend, Backoff, CAPACITY_MAX, Capacity, CompleteError, CompleteRequest,
    Decision, DefineError, DeleteError, Denial, DenialReason, HintPolicy, HoldTimeout, JobId,
    KeyError, KeyFamily, LeaseId, LeaseIdError, Limit, LimitError, LimitKey, LimitKind, LimitState,
    LimitStatus, Limiter, LlmDimension, MemoryLimiter, Note, Overage, Page, Refused,
    RegisteredLimit, RequestError, Requirement, Requirements, ReserveError, ReserveRequest,
    StateError, Unanswered, Usage, Window, clock, memory,
};

pub use batcher::{BatchOptions, Batcher};
#[cfg(feature = "http")]
pub use http::{
    BearerToken, Cleartext, HttpFault, HttpLimiter, HttpOptions, HttpSetupError, TokenError,
    TrustedRoots, UrlError,
};
pub use limits_file::{FromFileError, FromLimitsFile};
pub use llm::{LlmNeeds, LlmRequest, LlmRequestError, TokenEstimator, Utf8Bytes};
pub use ratelimiter_wire::{FileFault, LimitsFileError};
pub use scheduler::{
    Counters, Done, Job, JobEnd, JobError, JobFailure, JobHandle, JobReport, JobView, NoObserver,
    Observer, Permit, Scheduler, SchedulerOptions, SubmitError, UnrunJob,
};
pub use tokio_clock::TokioClock;
