//! Fuzz tests of every parser of untrusted input.
//!
//! A [`Target`] is one parser with a corpus of valid inputs. [`Fuzzer`] mutates them, token by token or byte by byte, and
//! checks three invariants: the parser does not panic, its memory is bounded by the input's length, and an accepted value
//! is the same after it was printed and parsed again. A seed reproduces a run exactly.

mod corpus;
mod fuzzer;
mod mutate;
mod targets;

pub use fuzzer::{Fuzzer, Report, SEED_VARIABLE, seed_from_environment};
pub use mutate::INPUT_BYTES_MAX;
pub use targets::{TARGETS, Target};
