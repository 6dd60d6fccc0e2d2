//! 2 200 seeds, always the same ones, so that nothing fails by chance, and a fifth more that belong to the run, if it has a seed. The
//! command plays others.

use std::io::Write;

use coordination_conformance::MemoryFixture;
use simulation::report;
use simulation::run::{Until, World, run};
use simulation::worlds::{CoordinationWorld, DispatchWorld, MemoryWorld, TigerBeetleWorld};
use testkit::RunSeed;

/// How many seeds of each test; together with those of the other worlds, 2 200.
const ON_A_LEDGER: u64 = 400;
const IN_MEMORY: u64 = 700;
const COORDINATION: u64 = 500;
const DISPATCH: u64 = 200;

#[track_caller]
fn keeps_every_promise<W: World>(world: &W, first: u64, seeds: u64) {
    keeps_every_promise_from(world, first, seeds);
    let own = RunSeed::for_command("cargo test -p simulation --test simulation promise");
    for own_first in own.seeds(1) {
        keeps_every_promise_from(world, own_first + first, seeds / 5);
    }
}

#[track_caller]
fn keeps_every_promise_from<W: World>(world: &W, first: u64, seeds: u64) {
    let summary = run(world, first, Until::Seeds(seeds));
    if let Some(failure) = &summary.failure {
        panic!("{}", report::failure(W::NAME, failure));
    }
    assert_eq!(summary.seeds, seeds);
    assert!(summary.faults.total() > seeds, "a seed has more than one fault on average");
    // Written past the harness, which keeps what a passing test prints to itself.
    let text = report::summary(W::NAME, &summary);
    let line = format!("simulation of {}\n", text.lines().next().unwrap());
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

#[test]
fn servers_on_one_ledger_keep_every_promise() {
    keeps_every_promise(&TigerBeetleWorld::default(), 0, ON_A_LEDGER);
}

#[test]
fn servers_on_one_ledger_keep_every_promise_with_other_seeds() {
    keeps_every_promise(&TigerBeetleWorld::default(), ON_A_LEDGER, ON_A_LEDGER);
}

#[test]
fn a_server_in_memory_keeps_every_promise() {
    keeps_every_promise(&MemoryWorld::default(), 0, IN_MEMORY);
}

#[test]
fn workers_on_a_provider_in_memory_keep_every_promise() {
    keeps_every_promise(&CoordinationWorld::<MemoryFixture>::new(None), 0, COORDINATION);
}

/// `CRD-02`, `CRD-03`, `CRD-04`
#[test]
fn dispatchers_keep_every_promise() {
    keeps_every_promise(&DispatchWorld::default(), 0, DISPATCH);
}
