//! A short run of every target, in one process and one thread, because memory is measured.
#![allow(missing_docs, clippy::print_stdout, reason = "the test prints its report")]

use fuzz::{Fuzzer, Report, SEED_VARIABLE, TARGETS, seed_from_environment};
use testkit::RunSeed;

/// Mutated inputs per target.
const ROUNDS: u64 = 3_000;
/// Fixed, so that nothing fails by chance. The command line uses random seeds.
const SEED: u64 = 1;

fn main() {
    // `cargo test -- --list` expects no run.
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
