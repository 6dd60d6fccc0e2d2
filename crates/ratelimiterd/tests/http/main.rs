//! The server over a real socket, in the test's own process, on a clock that the test moves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on says so"
)]

mod admin;
mod auth;
mod batch;
mod bounds;
mod certificates;
mod conformance;
mod encrypted;
mod harness;
mod hostile;
mod no_answer;
mod operation;
mod outcomes;
mod panics;
mod persistence;
mod shapes;
mod stop;
