//! The short form: some thousand changed inputs for each reader. One process and one thread, because memory is counted.
#![allow(missing_docs, clippy::print_stdout, reason = "what was seen is the answer of a run")]

use fuzz::{Fuzzer, Report, SEED_VARIABLE, TARGETS, seed_from_environment};
use testkit::RunSeed;

/// How many changed inputs each reader gets.
const ROUNDS: u64 = 3_000;
/// The same changes each time, so that nothing fails by chance. The command makes others.
const SEED: u64 = 1;

fn main() {
    // As `cargo test` asks of a program that takes part in it.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    if let Some(seed) = seed_from_environment() {
        return change_inputs(seed, ROUNDS);
    }
    change_inputs(SEED, ROUNDS);
    let own = RunSeed::for_command("cargo test -p fuzz --test short");
    for seed in own.seeds(1) {
        change_inputs(seed, ROUNDS / 3);
    }
}

fn change_inputs(seed: u64, rounds: u64) {
    println!("{SEED_VARIABLE}={seed}");
    for target in &TARGETS {
        let mut fuzzer = Fuzzer::new(target, seed);
        let mut report = Report::default();
        fuzzer.read_corpus(&mut report);
        assert_eq!(report.accepted, target.corpus.len() as u64);
        fuzzer.rounds(rounds, &mut report);
        let Report { inputs, accepted, .. } = report;
        println!("test no_change_to_an_input_breaks_{} ... ok", target.name);
        println!("{inputs} inputs, {accepted} accepted");
    }
}
