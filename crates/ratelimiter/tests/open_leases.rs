//! OPS-01, OPS-02: lists of many leases while they come and go, and debts that several threads forgive.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, JobId, LeaseId, LeasePage, LeasePosition, Limit, LimitKey,
    LimitKind, MemoryLimiter, OpenLease, Page, Requirements, ReserveRequest, Window,
};

fn key(n: u128) -> LimitKey {
    LimitKey::new(format!("key-{n}")).unwrap()
}

/// A limiter with three limits.
fn limiter(clock: &Arc<FakeClock>) -> MemoryLimiter {
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
    for n in 0..3 {
        let kind = LimitKind::Rolling { window: Window::from_seconds(3_600).unwrap() };
        let limit = Limit::new(key(n), kind, Capacity::new(1 << 40).unwrap());
        limiter.define_now(limit).unwrap();
    }
    limiter
}

fn reserve(limiter: &MemoryLimiter, id: u128) {
    let needs = Requirements::of([(key(id % 3), 1)]).unwrap();
    let job = id.is_multiple_of(2).then(|| JobId::new(format!("job-{id}")).unwrap());
    let request = ReserveRequest { job, ..ReserveRequest::new(LeaseId::from_u128(id), needs) };
    assert!(limiter.reserve_now(&request).unwrap().is_allowed());
}

fn complete(limiter: &MemoryLimiter, id: LeaseId) {
    limiter.complete_now(&CompleteRequest::new(id, Actuals::none())).unwrap();
}

/// All leases, page by page. `between` is called after each page.
fn list_all(
    limiter: &MemoryLimiter,
    mut page: LeasePage,
    mut between: impl FnMut(&[OpenLease]),
) -> Vec<OpenLease> {
    let mut all: Vec<OpenLease> = Vec::new();
    loop {
        let more = limiter.leases_now(&page).unwrap();
        let is_last = more.len() < page.count_max;
        page.after = more.last().map(|open| open.lease).or(page.after);
        between(&more);
        all.extend(more);
        if is_last {
            return all;
        }
    }
}

fn position(open: &OpenLease) -> LeasePosition {
    LeasePosition::of(open.reserved_at, open.lease)
}

/// OPS-01
#[test]
fn ops_01_every_lease_is_on_one_page_whatever_the_pages_are() {
    let clock = Arc::new(FakeClock::new());
    let limiter = limiter(&clock);
    let mut random = fastrand::Rng::with_seed(7);
    let mut expected = BTreeMap::new();
    for _ in 0..5_000 {
        let id = random.u128(..);
        clock.advance(Duration::from_micros(random.u64(..2_000)));
        reserve(&limiter, id);
        expected.insert(LeasePosition::of(clock.now(), LeaseId::from_u128(id)), id);
    }
    for count_max in [7, 100, 1_000] {
        for only in [None, Some(0), Some(2)] {
            let page = LeasePage { key: only.map(key), count_max, ..LeasePage::default() };
            let listed = list_all(&limiter, page, |_| ());
            let of_key = |id: &&u128| only.is_none_or(|n| **id % 3 == n);
            let expected: Vec<_> = expected.values().filter(of_key).copied().collect();
            let ids: Vec<_> = listed.iter().map(|open| open.lease.as_u128()).collect();
            assert_eq!(ids, expected);
            for OpenLease { lease, job, amounts, .. } in listed {
                let id = lease.as_u128();
                let expected = id.is_multiple_of(2).then(|| format!("job-{id}"));
                assert_eq!(job.map(|job| job.as_str().to_owned()), expected);
                assert_eq!((&amounts[0].key, amounts.len()), (&key(id % 3), 1));
            }
        }
    }
    let middle = expected.keys().nth(2_500).unwrap().reserved_at_ms;
    let half = clock.now().since(Timestamp::from_unix_ms(middle));
    let page = LeasePage { older_than: half, count_max: 1_000, ..LeasePage::default() };
    let listed = list_all(&limiter, page, |_| ());
    assert!((2_490..=2_510).contains(&listed.len()), "{}", listed.len());
    assert!(listed.iter().all(|open| open.age >= half));
}

/// OPS-01: what an operator does with a page, and what callers do in between, moves no lease to another page.
#[test]
fn ops_01_leases_that_end_between_pages_are_not_missed_by_others() {
    let clock = Arc::new(FakeClock::new());
    let limiter = limiter(&clock);
    let mut random = fastrand::Rng::with_seed(11);
    let mut lasting = BTreeSet::new();
    for _ in 0..2_000 {
        let id = random.u128(..);
        clock.advance(Duration::from_micros(random.u64(..2_000)));
        reserve(&limiter, id);
        lasting.insert(id);
    }
    let page = LeasePage { count_max: 50, ..LeasePage::default() };
    let listed = list_all(&limiter, page, |listed| {
        // The whole page is released, the last lease included, and some that were not listed complete.
        for open in listed {
            limiter.release_now(open.lease).unwrap();
        }
        for _ in 0..3 {
            let id = *lasting.iter().nth(random.usize(..lasting.len())).unwrap();
            if listed.iter().all(|open| open.lease.as_u128() != id) {
                complete(&limiter, LeaseId::from_u128(id));
                lasting.remove(&id);
            }
        }
    });
    assert!(listed.is_sorted_by(|a, b| position(a) < position(b)), "each is listed once");
    let listed: BTreeSet<_> = listed.iter().map(|open| open.lease.as_u128()).collect();
    assert!(lasting.is_subset(&listed), "each that was open until it was listed is listed");
    assert_eq!(limiter.open_leases(), 0);
}

/// OPS-01, MEM-02: calls of other threads go on while leases are listed.
#[test]
fn ops_01_leases_are_listed_while_threads_reserve_and_complete() {
    let clock = Arc::new(FakeClock::new());
    let limiter = limiter(&clock);
    let lasting: BTreeSet<u128> = (0..3_000).collect();
    lasting.iter().for_each(|id| reserve(&limiter, *id));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..=3_u128 {
            let (limiter, clock, is_over) = (&limiter, &clock, &is_over);
            scope.spawn(move || {
                for n in 0.. {
                    let id = thread << 100 | n;
                    clock.advance(Duration::from_nanos(100));
                    reserve(limiter, id);
                    complete(limiter, LeaseId::from_u128(id));
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for count_max in [100, 1_000, 333] {
            let page = LeasePage { count_max, ..LeasePage::default() };
            let listed = list_all(&limiter, page, |_| ());
            assert!(listed.is_sorted_by(|a, b| position(a) < position(b)));
            let listed: BTreeSet<_> = listed.iter().map(|open| open.lease.as_u128()).collect();
            assert!(lasting.is_subset(&listed));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// OPS-02
#[test]
fn ops_02_threads_forgive_each_unit_once() {
    let clock = Arc::new(FakeClock::new());
    let limiter = limiter(&clock);
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    let owing = LimitKey::new("owing").unwrap();
    limiter.define_now(Limit::new(owing.clone(), kind, Capacity::new(4_000).unwrap())).unwrap();
    let owe = |id: u128| {
        let needs = Requirements::of([(owing.clone(), 1)]).unwrap();
        let lease = LeaseId::from_u128(id);
        assert!(limiter.reserve_now(&ReserveRequest::new(lease, needs)).unwrap().is_allowed());
        let actuals = Actuals::of([(owing.clone(), 10_001)]).unwrap();
        limiter.complete_now(&CompleteRequest::new(lease, actuals)).unwrap();
    };
    let forgiven: u128 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u128)
            .map(|thread| {
                let (owe, limiter, owing) = (&owe, &limiter, &owing);
                scope.spawn(move || {
                    let mut forgiven = 0;
                    for n in 0..1_000 {
                        owe(thread << 100 | n);
                        forgiven += limiter.forgive_now(owing).unwrap();
                    }
                    forgiven
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(forgiven, 4 * 1_000 * 10_000);
    let usage = limiter.state_now(&owing).unwrap().usage;
    assert_eq!((usage.debt, usage.uncovered), (0, 4 * 1_000 * 10_000), "what was uncovered stays");
}

/// OPS-01: one pass over the leases, whatever is listed.
#[test]
fn ops_01_a_list_looks_at_every_lease_once() {
    let clock = Arc::new(FakeClock::new());
    let limiter = limiter(&clock);
    for id in 0..3_000 {
        reserve(&limiter, id);
    }
    limiter.delete_now(&key(0)).unwrap();
    let page = LeasePage { count_max: 1, ..LeasePage::default() };
    let looked_at = Cell::new(0);
    let only = |listed: Option<u128>| {
        looked_at.set(0);
        let is_listed = |limit: &LimitKey| {
            looked_at.set(looked_at.get() + 1);
            listed.is_some_and(|n| *limit == key(n))
        };
        let leases = limiter.leases_where(&page, is_listed).unwrap();
        leases.iter().map(|open| open.lease.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(only(Some(2)), [2], "the first lease of a deleted limit is passed over");
    assert!(looked_at.get() <= 2_000, "{}", looked_at.get());
    assert_eq!(only(None), []);
    assert_eq!(looked_at.get(), 2_000);
    looked_at.set(0);
    let states = limiter.states_where(&Page::default(), |_| {
        looked_at.set(looked_at.get() + 1);
        false
    });
    assert_eq!((states.unwrap(), looked_at.get()), (vec![], 2));
}
