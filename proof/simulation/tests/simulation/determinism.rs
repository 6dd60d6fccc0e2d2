//! The same seed gives the same trace, byte for byte, whenever and on whichever thread it is played.

use simulation::world::World;
use simulation::worlds::{CoordinationWorld, MemoryWorld, TigerBeetleWorld};

const SEEDS: u64 = 25;

fn is_repeatable<W: World + Sync>(world: &W) {
    for seed in 0..SEEDS {
        let play = || world.play(&world.plan(seed), true);
        let here = play();
        assert!(here.trace.lines().count() > 10, "seed {seed} has a trace");
        let there = std::thread::scope(|scope| scope.spawn(play).join().unwrap());
        let difference = here.trace.lines().zip(there.trace.lines()).find(|(a, b)| a != b);
        assert_eq!(difference, None, "{} seed {seed}", W::NAME);
        assert_eq!(here, there, "{} seed {seed}", W::NAME);
        let untraced = world.play(&world.plan(seed), false);
        assert_eq!(untraced.trace, "");
        assert_eq!((untraced.checks, untraced.faults), (here.checks, here.faults), "seed {seed}");
    }
}

#[test]
fn a_run_on_a_ledger_can_be_repeated() {
    is_repeatable(&TigerBeetleWorld::default());
}

#[test]
fn a_run_in_memory_can_be_repeated() {
    is_repeatable(&MemoryWorld::default());
}

#[test]
fn a_run_of_workers_can_be_repeated() {
    is_repeatable(&CoordinationWorld::default());
}
