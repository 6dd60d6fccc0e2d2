//! `cargo run --release -p fuzz -- --seconds N [TARGET…]` fuzzes each target for N seconds; `RATELIMITER_TEST_SEED` repeats a run.
#![expect(clippy::print_stdout, reason = "the command prints its report")]

use std::process::ExitCode;
use std::time::Duration;

use fuzz::{Fuzzer, Report, SEED_VARIABLE, TARGETS, Target, seed_from_environment};
use ratelimiter::clock::{Clock, MonotonicClock};

/// The number of inputs between two checks of the clock.
const ROUNDS_AT_ONCE: u64 = 1_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--seconds"), Some(text)) => text.parse().ok(),
        _ => None,
    };
    let names: Vec<String> = arguments.collect();
    let unknown = names.iter().find(|name| TARGETS.iter().all(|target| target.name != **name));
    let (Some(seconds), None) = (seconds, unknown) else {
        let known = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        println!("usage: fuzz --seconds N [TARGET…], with the targets {known}");
        return ExitCode::FAILURE;
    };
    let seed = seed_from_environment().unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED_VARIABLE}={seed}");
    for target in &TARGETS {
        if names.is_empty() || names.iter().any(|name| name == target.name) {
            run(target, seed, Duration::from_secs(seconds));
        }
    }
    ExitCode::SUCCESS
}

fn run(target: &'static Target, seed: u64, duration: Duration) {
    let clock = MonotonicClock::new();
    let end = clock.now().after(duration);
    let mut fuzzer = Fuzzer::new(target, seed);
    let mut report = Report::default();
    fuzzer.read_corpus(&mut report);
    while clock.now() < end {
        fuzzer.rounds(ROUNDS_AT_ONCE, &mut report);
    }
    let Report { inputs, accepted, memory_max, took_max } = report;
    let (name, memory_kib) = (target.name, memory_max.div_ceil(1024));
    println!(
        "{name}: {inputs} inputs, {accepted} accepted, at most {memory_kib} KiB and {took_max:?} each"
    );
}
