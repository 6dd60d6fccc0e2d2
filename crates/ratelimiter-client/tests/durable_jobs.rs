//! The example `durable_jobs` in short: jobs of two providers, three processes, one killed twice, nothing lost and no 429.

#![allow(clippy::print_stdout, reason = "the table says what happened")]

#[path = "../examples/durable_jobs/provider.rs"]
mod provider;
#[path = "../examples/durable_jobs/runner.rs"]
mod runner;
#[path = "../examples/durable_jobs/scenario.rs"]
mod scenario;

use std::process::ExitCode;

fn main() -> ExitCode {
    scenario::main(300)
}
