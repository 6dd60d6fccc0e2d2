#![doc = include_str!("../README.md")]
//!
//! # Compatibility
//!
//! A server parses a body with [`read`], [`read_batch`] or [`read_define`] and builds an answer with `of`; a client builds a body with `From` and
//! parses the answer with `into_result`. Requests with unknown fields are rejected, answers with unknown fields are accepted, so
//! that a client works with a newer server. [`read_limits_file`] preserves what a newer version wrote.

mod admin;
mod answer;
mod complete;
mod decode;
mod definition;
mod definitions;
mod denial;
mod error_code;
mod field;
mod forgive;
mod lease;
mod limits_file;
mod renew;
mod reserve;
mod state;
mod strict;

pub use admin::{DefineAnswer, DeleteAnswer, LimitStatusBody};
pub use complete::{ActualBody, CompleteAnswer, CompleteBody};
pub use decode::{
    BATCH_ITEMS_MAX, BatchAnswer, BatchBody, Body, ErrorBody, Refusal, read, read_batch,
};
pub use definition::{
    DefinitionBody, KindBody, ModeBody, OverageBody, PeriodBody, StatusBody, WeekdayBody,
};
pub use definitions::{
    DEFINITIONS_BYTES_MAX, DEFINITIONS_MAX, DefineRequest, DefinitionsBody, read_define,
};
pub use error_code::ErrorCode;
pub use forgive::{ForgiveAnswer, ForgiveBody};
pub use lease::{HeldAmountBody, LeasesAnswer, OpenLeaseBody, ReleaseAnswer};
pub use limits_file::{
    FileError, LIMITS_FILE_BYTES_MAX, LIMITS_FILE_VERSION, LimitsDocument, LimitsFileError,
    PreservedFields, read_limits_file, write_limits_file,
};
pub use renew::{NewAmountBody, RenewAnswer, RenewBody};
pub use reserve::{RequirementBody, ReserveAnswer, ReserveBody};
pub use state::{ListAnswer, StateAnswer, StateBody};
