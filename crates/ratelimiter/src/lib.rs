//! Capacity control for LLM calls.
//!
//! Teams that call LLM providers are limited in requests, tokens, concurrency and money at once, and know what a call
//! used only after it is over. A [`Limiter`] lets a call go ahead only when **all** its limits have room: it reserves an
//! upper bound atomically, and makes the reservation match the actual use when the call ends.
//!
//! This crate holds the words and the rules: keys, limits, requirements, decisions, the [`Limiter`] trait and the
//! backend in memory. It does no I/O, needs no runtime, and knows no wire format.

pub mod admission;
pub mod clock;
mod decision;
mod error;
mod hint;
mod key;
mod lease;
mod limit;
mod limiter;
pub mod memory;
mod registry;
mod request;

pub use decision::{Decision, Denial, DenialReason};
pub use error::{
    CompleteError, DefineError, DeleteError, Refused, ReserveError, StateError, Unanswered,
};
pub use hint::{Backoff, HintPolicy};
pub use key::{KEY_BYTES_MAX, KeyError, KeyFamily, LimitKey, LlmDimension};
pub use lease::{LEASE_ID_CHARACTERS, LeaseId, LeaseIdError};
pub use limit::{
    CAPACITY_MAX, Capacity, HoldTimeout, Limit, LimitError, LimitKind, NOTE_BYTES_MAX, Note,
    Overage, TIMEOUT_SECONDS_MAX, WINDOW_SECONDS_MAX, Window,
};
pub use limiter::{Backend, Limiter};
pub use memory::MemoryLimiter;
pub use registry::{LimitState, LimitStatus, Page, RegisteredLimit, Registry, Usage};
pub use request::{
    ACTUALS_MAX, Actual, Actuals, CompleteRequest, JOB_ID_BYTES_MAX, JobId, REQUIREMENTS_MAX,
    RequestError, Requirement, Requirements, ReserveRequest,
};
