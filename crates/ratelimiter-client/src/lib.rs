//! For programs that make LLM calls: the limiter in process or over HTTP.
//!
//! Every implementer is a [`Limiter`], so that code written against the trait moves from a laptop to a cluster by changing one
//! line: [`MemoryLimiter`] needs nothing deployed, [`HttpLimiter`] asks a server.
//!
//! The feature `http`, on by default, brings [`HttpLimiter`] and everything that speaks HTTP. A program that limits itself in
//! process turns it off and compiles no HTTP client.

#[cfg(feature = "http")]
mod http;

pub use ratelimiter::{
    Actual, Actuals, Backend, Backoff, Capacity, CompleteError, CompleteRequest, Decision,
    DefineError, DeleteError, Denial, DenialReason, HintPolicy, HoldTimeout, JobId, KeyError,
    KeyFamily, LeaseId, LeaseIdError, Limit, LimitError, LimitKey, LimitKind, LimitState,
    LimitStatus, Limiter, LlmDimension, MemoryLimiter, Note, Overage, Page, Refused,
    RegisteredLimit, RequestError, Requirement, Requirements, ReserveError, ReserveRequest,
    StateError, Unanswered, Usage, Window, clock, memory,
};

#[cfg(feature = "http")]
pub use http::{
    BearerToken, Cleartext, HttpFault, HttpLimiter, HttpOptions, HttpSetupError, TokenError,
    TrustedRoots, UrlError,
};
