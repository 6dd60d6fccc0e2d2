//! The bytes ratelimiter promises to keep: HTTP v1 JSON and the limits file.
//!
//! This is the only serde of the domain. A server reads a body with [`read`] or [`read_batch`] and writes an answer made
//! by `of`; a client writes a body made by `From` and reads the answer with `into_result`. Both sides get the domain's
//! own types, so nothing but this crate knows a field's name.

mod admin;
mod complete;
mod decode;
mod definition;
mod failure;
mod field;
mod limits_file;
mod object;
mod reserve;
mod state;
mod word;

pub use admin::{DefineAnswer, DeleteAnswer};
pub use complete::{ActualBody, CompleteAnswer, CompleteBody};
pub use decode::{
    BATCH_ITEMS_MAX, BatchAnswer, BatchBody, Body, ErrorBody, Refusal, read, read_batch,
};
pub use definition::{DefinitionBody, KindBody, OverageBody, StatusBody};
pub use limits_file::{
    FileFault, Kept, LIMITS_FILE_BYTES_MAX, LIMITS_FILE_VERSION, LimitsDocument, LimitsFileError,
    read_limits_file, write_limits_file,
};
pub use reserve::{RequirementBody, ReserveAnswer, ReserveBody};
pub use state::{ListAnswer, StateAnswer, StateBody};
pub use word::ErrorWord;
