//! MEM-05, RES-02 with time that moves during requests: the grants are checked on a timeline afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Capacity, Decision, LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, Requirements,
    ReserveRequest, Window,
};

const THREADS: u128 = 8;
const OPERATIONS: u128 = 10_000;
const CAPACITY: i128 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// The grants of one thread: when, and how much.
type Grants = Vec<(u64, u64)>;

fn reserve_at_random(limiter: &MemoryLimiter, key: &LimitKey, thread: u128) -> Grants {
    let mut random = Rng::with_seed(u64::try_from(thread).unwrap());
    let mut grants = Vec::new();
    for n in 0..OPERATIONS {
        let amount = random.u64(1..=5);
        let requirements = Requirements::of([(key.clone(), amount)]).unwrap();
        let request = ReserveRequest::new(LeaseId::from_u128(n * THREADS + thread), requirements);
        if let Decision::Allowed { reserved_at, .. } = limiter.reserve_now(&request).unwrap() {
            grants.push((reserved_at.unix_nanos(), amount));
        }
    }
    grants
}

/// The most units that were live at any instant.
fn most_live(grants: impl Iterator<Item = (u64, u64)>) -> i128 {
    let window = u64::try_from(WINDOW.as_nanos()).unwrap();
    let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
    for (reserved_at, amount) in grants {
        *changes.entry(reserved_at).or_default() += i128::from(amount);
        *changes.entry(reserved_at + window).or_default() -= i128::from(amount);
    }
    let mut live = 0;
    let after_each = changes.into_values().map(|change| {
        live += change;
        live
    });
    after_each.max().unwrap_or(0)
}

/// MEM-05, RES-02
#[test]
fn mem_05_no_instant_has_more_live_than_the_capacity() {
    let clock = Arc::new(FakeClock::new());
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
    let key = LimitKey::new("rolling").unwrap();
    let kind = LimitKind::Rolling { window: Window::from_seconds(WINDOW.as_secs()).unwrap() };
    let capacity = Capacity::new(u64::try_from(CAPACITY).unwrap()).unwrap();
    limiter.define_now(Limit::new(key.clone(), kind, capacity)).unwrap();
    let is_over = AtomicBool::new(false);
    let grants: Vec<Grants> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                clock.advance(Duration::from_millis(1));
                std::thread::yield_now();
            }
        });
        let (limiter, key) = (&limiter, &key);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || reserve_at_random(limiter, key, thread)))
            .collect();
        let results: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        results.into_iter().map(|result| result.unwrap()).collect()
    });
    let most = most_live(grants.iter().flatten().copied());
    assert!(most <= CAPACITY, "RES-02: {most} units were live at one instant");
    assert!(most > CAPACITY - 5, "the limit was never full, {most} units at most");
}

#[test]
fn units_are_live_from_their_grant_to_the_end_of_the_window() {
    let second = 1_000_000_000;
    let live = |grants: &[(u64, u64)]| most_live(grants.iter().copied());
    assert_eq!(live(&[(0, 3), (second, 4)]), 4);
    assert_eq!(live(&[(0, 3), (second - 1, 4)]), 7);
}
