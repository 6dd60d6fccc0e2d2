//! MEM-05, MEM-02: many threads on one limiter, checked against separate accounts.
//!
//! Each thread records its grants after the grant and before it releases anything, so that the records are a lower
//! bound of what the limiter has granted: if their sum exceeds a capacity at any step, the limiter over-admitted
//! (RES-02). Time moves only between steps, so that nothing expires unnoticed. When all threads are idle, the records
//! and the limiter's usage must be equal, so that no denial has left a trace (RES-01).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod free_running;
mod renews;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{LeaseId, Page, Requirements, ReserveRequest};
use testkit::RunSeed;

use world::{
    BESIDE, CAPACITY, FLEETING, HOLDS, MODEL, Open, PAIR, ROLLING, WINDOW_SECONDS, World, key,
};

const THREADS: u64 = 8;
/// Each thread does 100 000 operations, in rounds after which all are idle and the usage is compared.
const ROUNDS: u64 = 10;
const OPERATIONS_PER_ROUND: u64 = 10_000;
/// The most leases that a thread keeps open.
const OPEN_MAX: usize = 16;

/// One thread, which reserves and completes at random.
struct Worker {
    random: Rng,
    open: Vec<Open>,
}

impl Worker {
    fn new(seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), open: Vec::new() }
    }

    fn work(&mut self, world: &World) {
        let Self { random, open } = self;
        for _ in 0..OPERATIONS_PER_ROUND {
            if open.len() >= OPEN_MAX || (!open.is_empty() && random.bool()) {
                let lease = open.swap_remove(random.usize(..open.len()));
                world.complete(lease, random);
            } else {
                open.extend(world.reserve(&random_needs(random), random));
            }
            // In addition to the dedicated thread, which may not get enough CPU time on a busy machine.
            if random.u8(..100) == 0 {
                world.advance(Duration::from_millis(random.u64(1..=50)));
                world.change_a_limit(random);
            }
        }
    }
}

/// The pair, or a rolling key and a hold, or both, or the limits of a model with or without these; shuffled.
fn random_needs(random: &mut Rng) -> Vec<(&'static str, u64)> {
    let mut needs = Vec::new();
    let choice = random.u8(..8);
    if matches!(choice, 0 | 1 | 5) {
        let amount = random.u64(1..=4);
        needs.extend(PAIR.map(|name| (name, amount)));
    }
    if matches!(choice, 0 | 2 | 6) {
        needs.push((ROLLING[random.usize(..2)], random.u64(1..=4)));
        needs.push((HOLDS[random.usize(..2)], random.u64(1..=4)));
    }
    match choice {
        3..=5 => needs.extend(MODEL.map(|name| (name, random.u64(1..=4)))),
        6 => needs.extend(BESIDE.into_iter().chain([FLEETING[0]]).map(|name| (name, 1))),
        7 => needs.extend(FLEETING.map(|name| (name, 1))),
        _ => {}
    }
    random.shuffle(&mut needs);
    needs
}

/// Runs all workers at once, and another thread that moves time and sweeps.
fn run_round(world: &World, workers: &mut [Worker], seed: u64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_work: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(|| worker.work(world))).collect();
        scope.spawn(|| {
            let mut random = Rng::with_seed(seed);
            while !is_over.load(Ordering::SeqCst) {
                world.advance(Duration::from_millis(random.u64(1..=50)));
                world.change_a_limit(&mut random);
                if random.u8(..10) == 0 {
                    world.limiter.sweep();
                }
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = at_work.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    world.compare();
}

fn workers(seed: u64) -> Vec<Worker> {
    (seed..seed + THREADS).map(Worker::new).collect()
}

/// MEM-05, MEM-02, RES-01, RES-02
#[test]
fn mem_05_eight_threads_never_hold_more_than_the_capacity_and_leave_nothing() {
    let own = RunSeed::for_command("cargo test -p ratelimiter --test stress");
    for seed in std::iter::once(0).chain(own.seeds(1)) {
        eight_threads_never_hold_more_than_the_capacity_and_leave_nothing(seed);
    }
}

fn eight_threads_never_hold_more_than_the_capacity_and_leave_nothing(seed: u64) {
    let world = World::new(CAPACITY);
    let mut workers = workers(seed);
    for round in 0..ROUNDS {
        run_round(&world, &mut workers, seed + round);
    }
    for Worker { open, random } in &mut workers {
        for lease in open.drain(..) {
            world.complete(lease, random);
        }
    }
    world.compare();
    world.end_changes();
    world.advance(Duration::from_secs(WINDOW_SECONDS));
    world.compare();
    for state in world.limiter.states_now(&Page::default()) {
        assert_eq!(state.usage.used, 0, "{}", state.limit.key);
        assert_eq!(state.usage.available, CAPACITY);
        assert_eq!(state.usage.debt, 0);
    }
    world.limiter.sweep();
    assert_eq!(world.limiter.open_leases(), 0);
    let decisions = [&world.allowed_count, &world.denied_count, &world.unknown_count];
    let decisions = decisions.map(|count| count.load(Ordering::SeqCst));
    assert!(decisions.iter().all(|count| *count > 10_000), "{decisions:?} of each are too few");
}

/// MEM-05: the accounts detect a limiter that over-admits.
#[test]
#[should_panic(expected = "RES-02")]
fn mem_05_over_admission_is_detected() {
    let world = World::new(CAPACITY + 1);
    run_round(&world, &mut workers(0), 0);
}

/// MEM-05: the accounts detect units that no thread was granted.
#[test]
#[should_panic(expected = "RES-01")]
fn mem_05_a_trace_of_a_denial_is_detected() {
    let world = World::new(CAPACITY);
    let requirements = Requirements::of([(key(HOLDS[0]), 1)]).unwrap();
    let unnoted = ReserveRequest::new(LeaseId::from_u128(u128::MAX), requirements);
    assert!(world.limiter.reserve_now(&unnoted).unwrap().is_allowed());
    run_round(&world, &mut workers(0), 0);
}
