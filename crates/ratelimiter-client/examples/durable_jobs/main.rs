//! 2 000 durable jobs over 2 providers, run by 3 processes of which one is killed twice.
//!
//! `cargo run --release -p ratelimiter-client --example durable_jobs --features jobs`
//!
//! The queue is a SQLite file, the limiter `ratelimiterd` over HTTP, and the providers count every call of every process. Exits
//! with 1 if a job is lost, fails or has the answer of another, or if a provider returns 429.

#![allow(clippy::print_stdout, reason = "the program prints a table")]

mod provider;
mod runner;
mod scenario;

use std::process::ExitCode;

fn main() -> ExitCode {
    scenario::main(2_000)
}
