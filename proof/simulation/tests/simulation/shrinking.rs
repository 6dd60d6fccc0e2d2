//! A failing seed becomes a few events that a person can read.

use simulation::flaw::Flaw;
use simulation::run::{Failure, explain};
use simulation::world::{Plan, World};
use simulation::worlds::{MemoryWorld, TigerBeetleWorld};

#[test]
fn a_limit_that_is_not_checked_is_shown_by_one_reserve() {
    let world = TigerBeetleWorld { flaw: Some(Flaw::SkipsOneLimit) };
    let Failure { events: (before, after), trace, .. } = explain(&world, 0);
    assert!(before > 20, "the plan was not short by itself: {before}");
    assert_eq!(after, 1, "{trace}");
    assert!(trace.contains("-> Allowed"), "{trace}");
}

#[test]
fn a_forgotten_complete_is_shown_by_a_reserve_and_its_complete() {
    let world = MemoryWorld { flaw: Some(Flaw::ForgetsCompletes) };
    let Failure { events: (_, after), trace, .. } = explain(&world, 1);
    assert_eq!(after, 2, "{trace}");
}

#[test]
fn a_plan_that_keeps_every_invariant_is_not_shortened() {
    let world = MemoryWorld::default();
    let plan = world.plan(0);
    let count = plan.events().len();
    assert_eq!(simulation::shortest(&world, plan).events().len(), count);
}
