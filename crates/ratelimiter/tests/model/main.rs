//! MEM-05: random operations on the memory backend and on a simple oracle, compared after every step.
//!
//! `SCRIPTS=100000` runs more scripts, `SEED=…` runs other ones, and a run that has a seed some of its own. A script that fails is made as short as it can be
//! before it is shown.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets the unexpected stops there"
)]

mod generator;
mod operation;
mod oracle;
mod player;

use std::io::Write;

use generator::{Flaw, Script};
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
    // Written past the harness, which keeps what a passing test prints to itself.
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
    if let Err(trace) = run_to_shortest(Script::random(seed, number)) {
        panic!("script {number} of SEED={seed} failed; the shortest that fails:\n{trace}");
    }
}

/// Plays a script; if it fails, `Err` has the trace of the shortest part of it that fails.
fn run_to_shortest(script: Script) -> Result<(), String> {
    match player::play(&script) {
        Ok(()) => Ok(()),
        Err(_) => player::play(&shrink(script)),
    }
}

/// MEM-05: a model that agrees with everything would prove nothing.
#[test]
fn mem_05_a_limiter_with_a_flaw_is_found_out_in_a_few_lines() {
    for flaw in [Flaw::ForgetsLeases, Flaw::HintsTooLate] {
        let flawed = |number| Script { flaw: Some(flaw), ..Script::random(1, number) };
        let failed = (0..1_000).find_map(|number| run_to_shortest(flawed(number)).err());
        let trace = failed.expect("a thousand scripts notice");
        let operations = trace.matches(" -> ").count();
        assert!(operations <= 12, "{operations} operations are not the shortest:\n{trace}");
    }
}

/// Takes out as many operations as possible, halves first, so long as the script still fails.
fn shrink(mut script: Script) -> Script {
    let mut part = script.operations.len() / 2;
    while part > 0 {
        let mut start = 0;
        while start < script.operations.len() {
            let end = (start + part).min(script.operations.len());
            let mut shorter = script.clone();
            shorter.operations.drain(start..end);
            if player::play(&shorter).is_err() {
                script = shorter;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    script
}
