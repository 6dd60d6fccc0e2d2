//! MEM-05: random operations on the memory backend and on a simple oracle, compared after every step.
//!
//! `SCRIPTS=100000` runs more scripts and `SEED=…` runs others. `RUN_SEED` adds some. A failing script is shrunk before it is printed;
//! `tests/scripts` can play what is printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod case;
mod oracle;
mod script_runner;

use std::io::Write;

use case::{Case, Flaw};
use testkit::RunSeed;

const SCRIPTS_IN_CI: u64 = 10_000;
/// The same scripts each time, so that nothing fails by chance.
const SEED_IN_CI: u64 = 1;
const THREADS: u64 = 2;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number in the environment"))
}

/// MEM-05
#[test]
fn mem_05_the_limiter_and_the_oracle_agree_at_every_step() {
    let count = from_environment("SCRIPTS").unwrap_or(SCRIPTS_IN_CI);
    if let Some(seed) = from_environment("SEED") {
        return run_all(seed, count);
    }
    run_all(SEED_IN_CI, count);
    let own = RunSeed::for_command("cargo test -p ratelimiter --test model");
    for seed in own.seeds(1) {
        run_all(seed, count / 5);
    }
}

fn run_all(seed: u64, count: u64) {
    // Bypasses the test harness, which captures the output of passing tests.
    let line = format!("model test: SEED={seed} SCRIPTS={count}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                for number in (first..count).step_by(usize::try_from(THREADS).unwrap()) {
                    run(seed, number);
                }
            });
        }
    });
}

fn run(seed: u64, number: u64) {
    if let Err(trace) = script_runner::run(&Case::random(seed, number)) {
        panic!("script {number} of SEED={seed} failed; the shortest that fails:\n{trace}");
    }
}

/// MEM-05: the model detects planted bugs.
#[test]
fn mem_05_a_limiter_with_a_flaw_is_detected_in_a_few_lines() {
    for flaw in [Flaw::ForgetsLeases, Flaw::HintsTooLate] {
        let flawed = |number| Case { flaw: Some(flaw), ..Case::random(1, number) };
        // Script 0 is a long one, which takes hundreds of steps to fill a limit.
        let failed = (1..1_000).find_map(|number| script_runner::run(&flawed(number)).err());
        let trace = failed.expect("a thousand scripts detect the flaw");
        let steps = trace.matches(" -> ").count();
        assert!(steps <= 12, "{steps} steps are not the shortest:\n{trace}");
    }
}
