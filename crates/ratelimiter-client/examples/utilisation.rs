//! Utilisation of two providers, one of them with far more work than it allows: how much of its capacity is used, how often
//! it returns 429, and whether the other one's jobs are delayed.
//!
//! `cargo run --release -p ratelimiter-client --example utilisation`
//!
//! Ten thousand jobs take 25 minutes of provider time; on tokio's paused clock that is seconds. Exits with 1 if a goal is
//! not reached.

#![allow(clippy::print_stdout, reason = "the program prints a table")]

use std::process::ExitCode;

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{JobError, MemoryLimiter, TokioClock};
use simulated_provider::TwoProviders;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<ExitCode, JobError> {
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = TwoProviders::default().compare(in_process).await?;
    print!("{comparison}");
    let unmet = comparison.unmet_goals();
    for goal in &unmet {
        println!("not reached: {goal}");
    }
    Ok(if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
