//! MEM-05, REN-01, REN-03: many threads renew and complete the same leases, while limits change.
//!
//! Renews of a lease may overtake each other. What it holds is what the greatest number has set that was answered "renewed". So when all threads
//! are idle, the sum over all leases equals the limiter's usage, and does not exceed the capacity.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    MemoryLimiter, NewAmounts, RenewError, RenewNumber, RenewRequest, Renewal, Requirements,
    ReserveRequest, Window,
};
use testkit::RunSeed;

const THREADS: u64 = 8;
const ROUNDS: u64 = 20;
const OPERATIONS_PER_ROUND: u64 = 2_000;
/// How many leases the threads share. If each held the most, they would hold several times the capacity.
const LEASES: usize = 32;
const AMOUNT_MAX: u64 = 8;
const CAPACITY: u64 = 60;
/// Longer than the test, so that nothing lapses before its end.
const SECONDS: u64 = 86_400;
/// Rolling limits first, then concurrency limits; two of them are one group.
const NAMES: [&str; 4] = ["rolling", "global:llm:p:m:tpm", "global:llm:p:m:concurrency", "hold"];
const ROLLING: usize = 2;

type Amounts = [u64; NAMES.len()];

/// A lease that is open.
struct Shared {
    lease: LeaseId,
    /// The number of the last renew that was sent.
    sent: RenewNumber,
    /// The greatest number that has set amounts, and these.
    holds: (RenewNumber, Amounts),
}

struct World {
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
    keys: [LimitKey; NAMES.len()],
    capacity: u64,
    leases: [Mutex<Option<Shared>>; LEASES],
    next_lease: AtomicU64,
    grown_count: AtomicU64,
    denied_count: AtomicU64,
    superseded_count: AtomicU64,
    completed_count: AtomicU64,
}

impl World {
    fn new(capacity: u64) -> Self {
        let clock = Arc::new(FakeClock::new());
        let world = Self {
            limiter: MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone())),
            clock,
            keys: NAMES.map(|name| LimitKey::new(name).unwrap()),
            capacity,
            leases: std::array::from_fn(|_| Mutex::default()),
            next_lease: AtomicU64::new(1),
            grown_count: AtomicU64::new(0),
            denied_count: AtomicU64::new(0),
            superseded_count: AtomicU64::new(0),
            completed_count: AtomicU64::new(0),
        };
        (0..NAMES.len()).for_each(|at| world.define(at, capacity));
        world
    }

    fn define(&self, at: usize, capacity: u64) {
        let kind = match at < ROLLING {
            true => LimitKind::Rolling { window: Window::from_seconds(SECONDS).unwrap() },
            false => {
                LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(SECONDS).unwrap() }
            }
        };
        let limit = Limit::new(self.keys[at].clone(), kind, Capacity::new(capacity).unwrap());
        self.limiter.define_now(limit).unwrap();
    }

    fn used(&self) -> Amounts {
        std::array::from_fn(|at| self.limiter.state_now(&self.keys[at]).unwrap().usage.used)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Option<Shared>> {
        self.leases[at].lock().unwrap()
    }

    /// Opens a lease where there is none, if there is room.
    fn open(&self, at: usize) {
        let mut place = self.lock(at);
        if place.is_some() {
            return;
        }
        let lease = LeaseId::from_u128(self.next_lease.fetch_add(1, Ordering::Relaxed).into());
        let needs = Requirements::of(self.keys.clone().map(|key| (key, 1))).unwrap();
        if self.limiter.reserve_now(&ReserveRequest::new(lease, needs)).unwrap().is_allowed() {
            // No renew has the number 1: the reserve stands for it.
            let sent = RenewNumber::FIRST;
            *place = Some(Shared { lease, sent, holds: (sent, [1; NAMES.len()]) });
        }
    }

    /// Completes a lease, of which other threads may have renews under way.
    fn complete(&self, at: usize) {
        let Some(Shared { lease, .. }) = self.lock(at).take() else { return };
        let actuals = Actuals::of(self.keys[..ROLLING].iter().map(|key| (key.clone(), 0)));
        self.limiter.complete_now(&CompleteRequest::new(lease, actuals.unwrap())).unwrap();
        self.completed_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets new amounts of a lease.
    fn renew(&self, at: usize, random: &mut Rng) {
        let amounts: Amounts = std::array::from_fn(|_| random.u64(0..=AMOUNT_MAX));
        let (lease, number) = {
            let mut place = self.lock(at);
            let Some(shared) = &mut *place else { return };
            shared.sent = shared.sent.next();
            (shared.lease, shared.sent)
        };
        let pairs = self.keys.iter().cloned().zip(amounts);
        let request = RenewRequest::new(lease, number, NewAmounts::of(pairs).unwrap());
        match self.limiter.renew_now(&request) {
            Ok(Renewal::Renewed { .. }) => {
                if let Some(shared) = &mut *self.lock(at)
                    && shared.lease == lease
                    && shared.holds.0 < number
                {
                    let grows = (0..NAMES.len()).any(|key| amounts[key] > shared.holds.1[key]);
                    self.grown_count.fetch_add(grows.into(), Ordering::Relaxed);
                    shared.holds = (number, amounts);
                }
            }
            Ok(Renewal::Denied(_)) => {
                self.denied_count.fetch_add(1, Ordering::Relaxed);
            }
            Err(RenewError::Superseded | RenewError::LeaseEnded) => {}
            Err(error) => panic!("{request:?}: {error}"),
        }
    }

    /// REN-03: renews with a number that was answered, which changes nothing.
    fn renew_late(&self, at: usize) {
        let Some((lease, number)) =
            self.lock(at).as_ref().map(|shared| (shared.lease, shared.holds.0))
        else {
            return;
        };
        if number == RenewNumber::FIRST {
            return;
        }
        let pairs = self.keys.iter().map(|key| (key.clone(), CAPACITY));
        let request = RenewRequest::new(lease, number, NewAmounts::of(pairs).unwrap());
        match self.limiter.renew_now(&request) {
            Err(RenewError::Superseded) => {
                self.superseded_count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Renewal::Renewed { .. }) | Err(RenewError::LeaseEnded) => {}
            answer => panic!("REN-03: {request:?}: {answer:?}"),
        }
    }

    /// While the threads are at work: moves time, sweeps, and lowers and raises capacities.
    fn change(&self, random: &mut Rng) {
        self.clock.advance(Duration::from_millis(random.u64(1..=50)));
        if random.u8(..10) == 0 {
            self.limiter.sweep();
            let at = random.usize(..NAMES.len());
            self.define(at, self.capacity / 2);
            self.define(at, self.capacity);
        }
        let used = self.used();
        assert!(used.iter().all(|used| *used <= self.capacity), "RES-02: {used:?} are in use");
    }

    /// While all threads are idle: the limiter's usage is what the leases hold.
    fn compare(&self) {
        let mut held = Amounts::default();
        for at in 0..LEASES {
            if let Some(Shared { holds: (_, amounts), .. }) = &*self.lock(at) {
                held.iter_mut().zip(amounts).for_each(|(held, amount)| *held += amount);
            }
        }
        assert!(held.iter().all(|held| *held <= CAPACITY), "RES-02: {held:?} are held");
        assert_eq!(self.used(), held, "REN-01");
    }
}

fn work(world: &World, random: &mut Rng) {
    for _ in 0..OPERATIONS_PER_ROUND {
        let at = random.usize(..LEASES);
        match random.u8(..16) {
            0..=2 => world.open(at),
            3 => world.complete(at),
            4..=6 => world.renew_late(at),
            _ => world.renew(at, random),
        }
    }
}

/// Runs all workers at once, and another thread that changes limits.
fn run_round(world: &World, seed: u64) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let mut random = Rng::with_seed(seed.wrapping_mul(1_000) + thread);
                scope.spawn(move || work(world, &mut random))
            })
            .collect();
        let changes = scope.spawn(|| {
            let mut random = Rng::with_seed(seed);
            while !is_over.load(Ordering::SeqCst) {
                world.change(&mut random);
                std::thread::yield_now();
            }
        });
        let mut results: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        results.push(changes.join());
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    world.compare();
}

fn renews_never_exceed_a_capacity(seed: u64) {
    let world = World::new(CAPACITY);
    for round in 0..ROUNDS {
        run_round(&world, seed.wrapping_add(round));
    }
    let counts =
        [&world.grown_count, &world.denied_count, &world.superseded_count, &world.completed_count];
    let counts = counts.map(|count| count.load(Ordering::SeqCst));
    assert!(counts.iter().all(|count| *count > 500), "{counts:?} of each are too few");
    world.clock.advance(Duration::from_secs(SECONDS));
    world.limiter.sweep();
    assert_eq!((world.used(), world.limiter.open_leases()), (Amounts::default(), 0));
}

/// MEM-05, REN-01, REN-03, RES-02
#[test]
fn mem_05_renews_from_many_threads_never_exceed_a_capacity() {
    let own = RunSeed::for_command("cargo test -p ratelimiter --test stress renews");
    for seed in std::iter::once(0).chain(own.seeds(1)) {
        renews_never_exceed_a_capacity(seed);
    }
}

/// MEM-05: the sums detect a limiter that over-admits.
#[test]
#[should_panic(expected = "RES-02")]
fn mem_05_over_admission_by_renews_is_detected() {
    let world = World::new(2 * CAPACITY);
    for round in 0..ROUNDS {
        run_round(&world, round);
    }
}
