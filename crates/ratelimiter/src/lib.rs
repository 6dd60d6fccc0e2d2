#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! | type | for |
//! | --- | --- |
//! | [`LimitKey`], [`Limit`], [`LimitKind`] | what is limited |
//! | [`KeyPattern`], [`Templates`] | which keys are meant; limits for keys that nobody listed |
//! | [`ReserveRequest`], [`CompleteRequest`] | requirements before a call, actual use after it |
//! | [`RenewRequest`], [`Renewal`] | a long call goes on, and needs more or less than it reserved |
//! | [`Decision`], [`Denial`] | the answer; a denial names the full limits and when to retry |
//! | [`Limiter`], [`Backend`] | the traits of every limiter and of every backend |
//! | [`MemoryLimiter`] | the in-process limiter |
//! | [`admission`] | which waiting call asks next, and when |
//! | [`clock`] | time, injected so that tests control it |

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
mod open_lease;
mod registry;
mod request;
mod template;

pub use decision::{Decision, Denial, DenialReason, Renewal};
pub use error::{
    CompleteError, DefineError, DeleteError, ForgiveError, LeasesError, Refused, ReleaseError,
    RenewError, ReserveError, StateError, Unanswered,
};
pub use hint::{Backoff, HintPolicy};
pub use key::{
    KEY_BYTES_MAX, KeyError, KeyFamily, KeyPattern, LimitKey, LlmDimension, PatternError,
};
pub use lease::{LEASE_ID_CHARACTERS, LeaseId, LeaseIdError};
pub use limit::{
    CAPACITY_MAX, Capacity, HoldTimeout, Limit, LimitError, LimitKind, LimitMode, NOTE_BYTES_MAX,
    Note, Overage, RESET_DAY_MAX, ResetDay, ResetMinute, ResetSchedule, ResetTime,
    TIMEOUT_SECONDS_MAX, TimeZone, WINDOW_SECONDS_MAX, Weekday, Window,
};
pub use limiter::{Backend, Limiter};
pub use memory::MemoryLimiter;
pub use open_lease::{
    FirstLeases, HeldAmount, LEASE_AGE_SECONDS_MAX, LEASE_PAGE_DEFAULT, LEASE_PAGE_MAX, LeasePage,
    LeasePosition, OpenLease,
};
pub use registry::{LimitState, LimitStatus, Page, RegisteredLimit, Registry, Usage};
pub use request::{
    ACTUALS_MAX, Actual, Actuals, CompleteRequest, JOB_ID_BYTES_MAX, JobId, NEW_AMOUNTS_MAX,
    NewAmount, NewAmounts, PARTS_MAX, QUEUE_BYTES_MAX, REQUIREMENTS_MAX, RESERVE_WAIT_MAX,
    RenewNumber, RenewRequest, RequestError, Requirement, Requirements, ReserveRequest, Wait,
};
pub use template::{
    CountedTemplates, InstanceBounds, InstanceMark, NewInstance, NewInstances, NoInstance,
    TEMPLATES_MAX, Templates, check_new_key,
};
