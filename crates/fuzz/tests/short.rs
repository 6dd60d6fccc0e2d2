//! The short form: some thousand changed inputs for each reader. One process and one thread, because memory is counted.
#![allow(missing_docs, clippy::print_stdout, reason = "what was seen is the answer of a run")]

use fuzz::{Fuzzer, Report, SEED_VARIABLE, TARGETS, seed_from_environment};

/// How many changed inputs each reader gets.
const ROUNDS: u64 = 3_000;
/// The same changes each time, so that nothing fails by chance. The command makes others.
const SEED: u64 = 1;

fn main() {
    // As `cargo test` asks of a program that takes part in it.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let seed = seed_from_environment().unwrap_or(SEED);
    println!("{SEED_VARIABLE}={seed}");
    for target in &TARGETS {
        let mut fuzzer = Fuzzer::new(target, seed);
        let mut report = Report::default();
        fuzzer.read_corpus(&mut report);
        assert_eq!(report.accepted, target.corpus.len() as u64);
        fuzzer.rounds(ROUNDS, &mut report);
        let Report { inputs, accepted, .. } = report;
        println!("test no_change_to_an_input_breaks_{} ... ok", target.name);
        println!("{inputs} inputs, {accepted} accepted");
    }
}
