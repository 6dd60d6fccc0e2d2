#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! Every limiter implements [`Limiter`], so the same code runs in process or against a server.
//!
//! | type | for |
//! | --- | --- |
//! | [`MemoryLimiter`] | limits of one process; [`FromLimitsFile`] loads them from a file |
//! | `HttpLimiter` | limits of a server |
//! | [`Batcher`] | joining concurrent calls into batches |
//! | [`LlmRequest`] | the requirements of an LLM call, and its actuals |
//! | [`Scheduler`] | running jobs as soon as their limits have room |
//! | `jobs` | running jobs that survive the process |
#![cfg_attr(
    all(doc, feature = "http"),
    doc = "\n# Guides\n\n[Choosing limits](guide::choosing_limits), [from one process to many](guide::one_process_to_many), [what an allow promises](guide::what_an_allow_promises)."
)]

mod batcher;
mod completer;
#[cfg(any(doc, doctest))]
pub mod guide;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "jobs")]
pub mod jobs;
mod limits_file;
mod llm;
mod scheduler;
mod tokio_clock;
mod wait_at_limiter;

pub use ratelimiter::{
    Actual, Actuals, Backend, Backoff, CAPACITY_MAX, Capacity, CompleteError, CompleteRequest,
    Decision, DefineError, DeleteError, Denial, DenialReason, ForgiveError, HeldAmount, HintPolicy,
    HoldTimeout, JobId, KeyError, KeyFamily, KeyPattern, LeaseId, LeaseIdError, LeasePage,
    LeasesError, Limit, LimitError, LimitKey, LimitKind, LimitMode, LimitState, LimitStatus,
    Limiter, LlmDimension, MemoryLimiter, Note, OpenLease, Overage, Page, PatternError, Refused,
    RegisteredLimit, ReleaseError, RequestError, Requirement, Requirements, ReserveError,
    ReserveRequest, ResetDay, ResetMinute, ResetSchedule, ResetTime, StateError, TimeZone,
    Unanswered, Usage, Wait, Weekday, Window, clock, memory,
};

pub use batcher::{BatchOptions, Batcher};
#[cfg(feature = "http")]
pub use http::{
    BearerToken, Cleartext, HttpError, HttpLimiter, HttpOptions, HttpSetupError, TokenError,
    TrustedRoots, UrlError,
};
pub use limits_file::{FromFileError, FromLimitsFile};
pub use llm::{LlmRequest, LlmRequestError, LlmRequirements, TokenEstimator, Utf8Bytes};
pub use ratelimiter_wire::{FileError, LimitsFileError};
pub use scheduler::{
    Counters, Done, Job, JobEnd, JobError, JobFailure, JobHandle, JobReport, JobView, NoObserver,
    Observer, Permit, Scheduler, SchedulerOptions, SubmitError, UnrunJob,
};
pub use tokio_clock::TokioClock;
