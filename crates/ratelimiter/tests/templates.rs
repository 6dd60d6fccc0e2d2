//! Limits from templates while several threads use and change them, and keys of the first edition.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, DefineError, DeleteError, HoldTimeout, KeyPattern, LeaseId,
    Limit, LimitKey, LimitKind, LimitStatus, MemoryLimiter, Page, RegisteredLimit, Requirements,
    ReserveRequest, Window,
};

const THREADS: usize = 4;

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn slots(text: &str, capacity: u64) -> Limit {
    let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() };
    Limit::new(key(text), kind, Capacity::new(capacity).unwrap())
}

fn limiter(change: impl FnOnce(&mut MemoryOptions)) -> MemoryLimiter {
    let mut options = MemoryOptions::for_tests(Arc::new(FakeClock::new()));
    options.new_instances_per_second_max = usize::MAX;
    change(&mut options);
    MemoryLimiter::with_options(options)
}

fn reserve(lease: u128, text: &str) -> ReserveRequest {
    let requirements = Requirements::of([(key(text), 1)]).unwrap();
    ReserveRequest::new(LeaseId::from_u128(lease), requirements)
}

fn complete(limiter: &MemoryLimiter, lease: u128) {
    let request = CompleteRequest::new(LeaseId::from_u128(lease), Actuals::none());
    limiter.complete_now(&request).unwrap();
}

/// TPL-03, DEF-08
#[test]
fn tpl_03_a_definition_that_is_taken_back_leaves_what_is_reserved() {
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:*", 2)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    let used = |text| limiter.state_now(&key(text)).map(|state| state.usage.used);
    for (capacity, status) in [(5, LimitStatus::Active), (0, LimitStatus::Paused)] {
        assert_eq!(limiter.define_now(slots("t:a", capacity)), Ok(status));
        limiter.undefine_now(&key("t:a")).unwrap();
        let state = limiter.state_now(&key("t:a")).unwrap();
        assert_eq!((state.limit.capacity.get(), state.status), (2, LimitStatus::Active));
        assert_eq!((state.usage.used, limiter.instances()), (1, 1));
    }
    let unknown = DeleteError::UnknownKey { key: key("t:a") };
    assert_eq!(limiter.undefine_now(&key("t:a")), Err(unknown), "it has no definition");
    // One that is not in use goes at once.
    limiter.define_now(slots("t:b", 5)).unwrap();
    limiter.undefine_now(&key("t:b")).unwrap();
    assert_eq!((used("t:b"), limiter.instances()), (Some(0), 1));
    // Without a template it is deleted.
    limiter.define_now(slots("u:a", 5)).unwrap();
    assert!(limiter.reserve_now(&reserve(2, "u:a")).unwrap().is_allowed());
    limiter.undefine_now(&key("u:a")).unwrap();
    assert_eq!(used("u:a"), None);
    complete(&limiter, 1);
    complete(&limiter, 2);
    assert_eq!(used("t:a"), Some(0));
}

/// TPL-03, TPL-06: what was uncovered while it had a definition of its own counts for the template.
#[test]
fn tpl_03_a_definition_that_is_taken_back_leaves_its_debt() {
    let limiter = limiter(|_| {});
    let rolling = |text: &str, capacity| {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        Limit { kind, ..slots(text, capacity) }
    };
    limiter.define_now(rolling("t:*", 2)).unwrap();
    limiter.define_now(rolling("t:a", 1)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    let actuals = Actuals::of([(key("t:a"), 8)]).unwrap();
    limiter.complete_now(&CompleteRequest::new(LeaseId::from_u128(1), actuals)).unwrap();
    limiter.undefine_now(&key("t:a")).unwrap();
    let usage = |text| limiter.state_now(&key(text)).unwrap().usage;
    assert_eq!((usage("t:a").used, usage("t:a").debt, usage("t:a").uncovered), (1, 7, 0));
    assert_eq!(usage("t:*").uncovered, 7);
}

/// TPL-04: whether an instance is made before or after a change, it ends with the last definition.
#[test]
fn tpl_04_every_limit_follows_a_change_while_it_is_made() {
    const CHANGES: u64 = 400;
    const TENANTS: usize = 64;
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:**", 1_000)).unwrap();
    limiter.define_now(slots("t:*", 1_000)).unwrap();
    let is_over = AtomicBool::new(false);
    let reserves = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, is_over, reserves) = (&limiter, &is_over, &reserves);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut open = std::collections::VecDeque::new();
                let first = (thread as u128 + 1) << 64;
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) && n > 1_000 {
                        break;
                    }
                    let tenant = random.usize(..TENANTS);
                    let answer = limiter.reserve_now(&reserve(first + n, &format!("t:{tenant}")));
                    if answer.unwrap().is_allowed() {
                        open.push_back(first + n);
                        reserves.fetch_add(1, Ordering::Relaxed);
                    }
                    if open.len() > 8 {
                        complete(limiter, open.pop_front().unwrap());
                    }
                    if n % 50 == 0 {
                        limiter.sweep();
                    }
                }
            });
        }
        for n in 1..=CHANGES {
            match n % 4 {
                0 => limiter.delete_now(&key("t:*")).unwrap(),
                _ => drop(limiter.define_now(slots("t:*", 1_000 + n)).unwrap()),
            }
        }
        limiter.define_now(slots("t:*", 2_000)).unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(reserves.load(Ordering::Relaxed) > THREADS * 500, "the threads were not idle");
    let instances = |template: &str| {
        let template = Some(KeyPattern::new(template).unwrap());
        limiter.states_now(&Page { template, ..Page::default() })
    };
    let states = instances("t:*");
    assert!(!states.is_empty());
    for state in states {
        assert_eq!((state.limit.capacity.get(), state.status), (2_000, LimitStatus::Active));
    }
    assert_eq!(instances("t:**"), []);
}

/// TPL-07: the bound is exact, however many threads make limits.
#[test]
fn tpl_07_the_bound_on_limits_is_exact() {
    const INSTANCES_MAX: usize = 100;
    let limiter = limiter(|options| options.instances_max = INSTANCES_MAX);
    limiter.define_now(slots("t:*", 1)).unwrap();
    let allowed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, allowed) = (&limiter, &allowed);
            scope.spawn(move || {
                for n in 0..INSTANCES_MAX {
                    let number = thread * INSTANCES_MAX + n;
                    let request = reserve(number as u128 + 1, &format!("t:{number}"));
                    if limiter.reserve_now(&request).unwrap().is_allowed() {
                        allowed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(allowed.load(Ordering::Relaxed), INSTANCES_MAX);
    assert_eq!(limiter.instances(), INSTANCES_MAX);
    assert_eq!(limiter.instances_by_template(), [(key("t:*"), INSTANCES_MAX)]);
    (1..=(THREADS * INSTANCES_MAX) as u128).for_each(|lease| complete(&limiter, lease));
    limiter.delete_now(&key("t:*")).unwrap();
    assert_eq!(limiter.instances(), 0, "a limit that is not in use goes with its template");
}

/// TPL-01: a limit of the first edition may have a `*` in its key, and can be changed; a new one may not.
#[test]
fn tpl_01_a_key_of_the_first_edition_goes_on_working() {
    let limiter = limiter(|_| {});
    let old = slots("a*b", 2);
    assert!(matches!(limiter.define_now(old.clone()), Err(DefineError::InvalidKey { .. })));
    assert_eq!(limiter.restore(RegisteredLimit::in_force(old)), LimitStatus::Active);
    assert!(limiter.reserve_now(&reserve(1, "a*b")).unwrap().is_allowed());
    assert_eq!(limiter.define_now(slots("a*b", 1)), Ok(LimitStatus::Active));
    assert!(!limiter.reserve_now(&reserve(2, "a*b")).unwrap().is_allowed());
    limiter.delete_now(&key("a*b")).unwrap();
    assert!(limiter.define_now(slots("a*b", 1)).is_err());
    assert_eq!(limiter.states_now(&Page::default()), []);
}

/// TPL-01: a restored template replaces one of another kind.
#[test]
fn tpl_01_a_template_is_restored_whatever_its_kind_was() {
    let limiter = limiter(|_| {});
    let window = Window::from_seconds(60).unwrap();
    let rolling = Limit { kind: LimitKind::Rolling { window }, ..slots("t:*", 7) };
    limiter.define_now(rolling).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    let lowered = RegisteredLimit::going_down(slots("t:*", 7), Capacity::new(3).unwrap());
    assert_eq!(limiter.restore(lowered), LimitStatus::Active);
    assert_eq!(limiter.state_now(&key("t:*")).unwrap().limit, slots("t:*", 3));
    assert_eq!(limiter.state_now(&key("t:a")).unwrap().limit, slots("t:a", 3));
    assert_eq!(limiter.state_now(&key("t:a")).unwrap().usage.used, 0);
}

/// TPL-06
#[test]
fn tpl_06_the_template_of_a_key_is_known() {
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:*", 1)).unwrap();
    limiter.define_now(slots("t:vip", 1)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    for (text, expected) in
        [("t:a", Some("t:*")), ("t:b", Some("t:*")), ("t:vip", None), ("x", None), ("t:*", None)]
    {
        assert_eq!(limiter.template_of(&key(text)), expected.map(key), "{text}");
    }
}
