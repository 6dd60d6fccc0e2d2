//! 2 200 seeds, always the same ones, so that nothing fails by chance, and a fifth more that belong to the run, if it has a seed. The
//! command plays others.

use std::io::Write;

use simulation::report;
use simulation::run::{StopCondition, run};
use simulation::world::World;
use simulation::worlds::{CoordinationWorld, MemoryWorld, TigerBeetleWorld};
use testkit::RunSeed;

/// How many seeds of each test; together with those of the other worlds, 2 200.
const ON_A_LEDGER: u64 = 400;
const IN_MEMORY: u64 = 700;
const COORDINATION: u64 = 350;

#[track_caller]
fn keeps_every_invariant<W: World>(world: &W, first: u64, seeds: u64) {
    keeps_every_invariant_from(world, first, seeds);
    let own = RunSeed::for_command("cargo test -p simulation --test simulation invariant");
    for own_first in own.seeds(1) {
        keeps_every_invariant_from(world, own_first + first, seeds / 5);
    }
}

#[track_caller]
fn keeps_every_invariant_from<W: World>(world: &W, first: u64, seeds: u64) {
    let summary = run(world, first, StopCondition::Seeds(seeds));
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
fn servers_on_one_ledger_keep_every_invariant() {
    keeps_every_invariant(&TigerBeetleWorld::default(), 0, ON_A_LEDGER);
}

#[test]
fn servers_on_one_ledger_keep_every_invariant_with_other_seeds() {
    keeps_every_invariant(&TigerBeetleWorld::default(), ON_A_LEDGER, ON_A_LEDGER);
}

#[test]
fn a_server_in_memory_keeps_every_invariant() {
    keeps_every_invariant(&MemoryWorld::default(), 0, IN_MEMORY);
}

/// `CRD-02`, `CRD-03`, `CRD-04`
#[test]
fn coordination_workers_keep_every_invariant() {
    keeps_every_invariant(&CoordinationWorld::default(), 0, COORDINATION);
}

/// `CRD-02`, `CRD-03`, `CRD-04`
#[test]
fn coordination_workers_keep_every_invariant_with_other_seeds() {
    keeps_every_invariant(&CoordinationWorld::default(), COORDINATION, COORDINATION);
}
