//! Everything that is read from outside, read after random changes to what is right.
//!
//! A [`Target`] is one reader with a corpus of real texts. [`Fuzzer`] changes them, knowing their structure, and holds
//! the reader to three promises: it does not panic, its memory is bounded by the input's length, and what it accepts is
//! the same after it was printed and read again. A seed replays a run exactly.

mod corpus;
mod fuzzer;
mod mutate;
mod targets;

pub use fuzzer::{Fuzzer, Report, SEED_VARIABLE, seed_from_environment};
pub use mutate::INPUT_BYTES_MAX;
pub use targets::{TARGETS, Target};
