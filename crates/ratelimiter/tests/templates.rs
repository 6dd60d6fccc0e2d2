//! Limits from templates while several threads use and change them, and keys of the first edition.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, DefineError, HoldTimeout, KeyPattern, LeaseId,
    Limit, LimitKey, LimitKind, LimitStatus, MemoryLimiter, Page, RegisteredLimit, Requirements,
    ReserveError, ReserveRequest, ResetSchedule, ResetTime, TEMPLATES_MAX,
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

/// TPL-01: a template gives no limit to a key with a `*`, wherever that is.
#[test]
fn tpl_01_no_template_matches_a_key_of_the_first_edition() {
    let limiter = limiter(|_| {});
    limiter.restore(RegisteredLimit::in_force(slots("t:a*b", 1)));
    limiter.define_now(slots("t:**", 5)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a*b")).unwrap().is_allowed());
    assert_eq!(limiter.state_now(&key("t:a*b")).unwrap().limit, slots("t:a*b", 1));
    limiter.delete_now(&key("t:a*b")).unwrap();
    assert_eq!(limiter.state_now(&key("t:a*b")), None);
    for text in ["t:a*b", "t:b*", "t:x:*y"] {
        let unknown = ReserveError::UnknownKey { key: key(text) };
        assert_eq!(limiter.reserve_now(&reserve(2, text)), Err(unknown));
    }
}

/// TPL-01: a restored template replaces one of another kind.
#[test]
fn tpl_01_a_template_is_restored_whatever_its_kind_was() {
    let limiter = limiter(|_| {});
    let window = ratelimiter::Window::from_seconds(60).unwrap();
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

/// TPL-06: a key that is defined differs from one that nothing matches any more.
#[test]
fn tpl_06_metrics_of_a_key_that_nothing_matches_have_no_key() {
    let limiter = limiter(|_| {});
    assert_eq!(limiter.metrics_key(&key("x")), Some(key("x")), "there never was a template");
    limiter.define_now(slots("t:*", 1)).unwrap();
    limiter.define_now(slots("t:vip", 1)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    for (text, expected) in [("t:a", "t:*"), ("t:b", "t:*"), ("t:*", "t:*"), ("t:vip", "t:vip")] {
        assert_eq!(limiter.metrics_key(&key(text)), Some(key(expected)), "{text}");
    }
    limiter.delete_now(&key("t:*")).unwrap();
    for (text, expected) in [("t:a", None), ("t:b", None), ("t:*", None), ("t:vip", Some("t:vip"))]
    {
        assert_eq!(limiter.metrics_key(&key(text)), expected.map(key), "{text}");
    }
}

/// TPL-01: all of a template's capacity is available.
#[test]
fn tpl_01_a_template_has_its_whole_capacity_available() {
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:*", 7)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
    for state in limiter.states_now(&Page::default()) {
        assert_eq!((state.usage.used, state.usage.available), (0, 7));
    }
    assert_eq!(limiter.state_now(&key("t:*")).unwrap().usage.available, 7);
}

/// The number of instances in the tests of walks.
const TENANTS: usize = 1_000;

/// A limiter with a limit for each tenant, all of which are in use.
fn limiter_with_tenants() -> MemoryLimiter {
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:*", 5)).unwrap();
    for n in 0..TENANTS {
        assert!(
            limiter.reserve_now(&reserve(n as u128 + 1, &format!("t:{n}"))).unwrap().is_allowed()
        );
    }
    limiter
}

/// How often a future yields before it is ready.
fn yields<T>(future: impl Future<Output = T>) -> usize {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    while future.as_mut().poll(&mut context).is_pending() {
        count += 1;
    }
    count
}

fn count_with_capacity(limiter: &MemoryLimiter, capacity: u64) -> usize {
    let template = Some(KeyPattern::new("t:*").unwrap());
    let states = limiter.states_now(&Page { template, ..Page::default() });
    states.iter().filter(|state| state.limit.capacity.get() == capacity).count()
}

/// TPL-04: other tasks run while a change reaches the instances.
#[test]
fn tpl_04_a_change_yields_while_the_instances_follow() {
    let limiter = limiter_with_tenants();
    let mut change = Box::pin(limiter.define(slots("t:*", 6)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(change.as_mut().poll(&mut context).is_pending());
    let followed = count_with_capacity(&limiter, 6);
    assert!(followed < TENANTS, "{followed} at once");
    let new = reserve(u128::MAX, "t:new");
    assert!(limiter.reserve_now(&new).unwrap().is_allowed(), "others are served");
    assert!(yields(change) > 2);
    assert_eq!(count_with_capacity(&limiter, 6), TENANTS + 1);
    assert!(yields(limiter.delete(&key("t:*"))) > 2);
    assert_eq!(limiter.instances(), 0);
}

/// TPL-04, OPS-03: a list of templates walks over the instances once, and a list that changes nothing does not.
#[test]
fn tpl_04_a_list_of_templates_is_one_walk() {
    let limiter = limiter_with_tenants();
    let one = yields(limiter.define(slots("t:*", 6)));
    assert!(one > 2);
    let list: Vec<_> = (0..50).map(|n| slots(&format!("t{n}:*"), 1)).collect();
    let list: Vec<_> = list.into_iter().chain([slots("t:*", 7)]).collect();
    assert_eq!(yields(limiter.define_all(list.clone())), one);
    assert_eq!(count_with_capacity(&limiter, 7), TENANTS);
    assert_eq!(yields(limiter.define_all(list)), 0, "nothing has changed");
    let empty = self::limiter(|_| {});
    assert_eq!(yields(empty.define(slots("t:*", 6))), 0, "there are no instances");
}

/// TPL-04: an equal definition completes a change whose caller went away.
#[test]
fn tpl_04_a_change_that_was_dropped_is_completed_by_the_next() {
    let limiter = limiter_with_tenants();
    let mut dropped = Box::pin(limiter.define(slots("t:*", 6)));
    assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dropped);
    assert!(count_with_capacity(&limiter, 6) < TENANTS);
    assert!(yields(limiter.define(slots("t:*", 6))) > 2);
    assert_eq!(count_with_capacity(&limiter, 6), TENANTS);
    assert_eq!(yields(limiter.define(slots("t:*", 6))), 0);
}

/// TPL-03, OPS-03: limits of a list come before its templates, and the statuses are in the order of the list.
#[test]
fn tpl_03_limits_of_a_list_come_before_its_templates() {
    let limiter = limiter(|_| {});
    limiter.define_now(slots("t:**", 5)).unwrap();
    assert!(limiter.reserve_now(&reserve(1, "t:a:x")).unwrap().is_allowed());
    let window = ratelimiter::Window::from_seconds(60).unwrap();
    let rolling = Limit { kind: LimitKind::Rolling { window }, ..slots("t:a:*", 0) };
    let list = vec![rolling, slots("t:a:x", 4), slots("p", 0)];
    let mut defined = std::pin::pin!(limiter.define_all(list));
    let mut context = Context::from_waker(Waker::noop());
    let statuses = loop {
        if let Poll::Ready(statuses) = defined.as_mut().poll(&mut context) {
            break statuses.unwrap();
        }
    };
    assert_eq!(statuses, [LimitStatus::Paused, LimitStatus::Active, LimitStatus::Paused]);
    assert_eq!(limiter.state_now(&key("t:a:x")).unwrap().usage.used, 1);
}

/// TPL-03, OPS-03: a list that meets a limit of another kind changes nothing, whenever that came into use.
#[test]
fn tpl_03_a_list_with_a_conflict_leaves_the_instances_as_they_were() {
    const ROUNDS: u128 = 2_000;
    let window = ratelimiter::Window::from_seconds(60).unwrap();
    let rolling = Limit { kind: LimitKind::Rolling { window }, ..slots("t:b", 1) };
    for round in 0..ROUNDS {
        let limiter = limiter(|_| {});
        limiter.define_now(slots("t:*", 5)).unwrap();
        assert!(limiter.reserve_now(&reserve(1, "t:a")).unwrap().is_allowed());
        let is_conflict = std::thread::scope(|scope| {
            scope.spawn(|| drop(limiter.reserve_now(&reserve(2, "t:b"))));
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            let mut defined =
                std::pin::pin!(limiter.define_all(vec![slots("t:a", 9), rolling.clone()]));
            let answer = defined.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            matches!(answer, Poll::Ready(Err(DefineError::KindConflict { .. })))
        });
        let expected = is_conflict.then(|| key("t:*"));
        assert_eq!(limiter.template_of(&key("t:a")), expected, "round {round}");
        assert_eq!(limiter.state_now(&key("t:a")).unwrap().usage.used, 1);
    }
}

/// TPL-07: a list that would have too many templates changes nothing.
#[test]
fn tpl_07_a_list_with_too_many_templates_changes_nothing() {
    let limiter = limiter(|_| {});
    let list = |count| (0..count).map(|n| slots(&format!("t{n}:*"), 1)).collect::<Vec<_>>();
    let too_many = list(TEMPLATES_MAX + 1);
    let refused = DefineError::TooManyTemplates { templates_max: TEMPLATES_MAX };
    assert_eq!(limiter.check_definitions(&too_many), Err(refused.clone()));
    assert_eq!(yields(limiter.define_all(too_many)), 0);
    assert_eq!(limiter.states_now(&Page::default()), []);
    assert_eq!(yields(limiter.define_all(list(TEMPLATES_MAX))), 0);
    assert_eq!(limiter.states_now(&Page::default()).len(), TEMPLATES_MAX);
    assert_eq!(limiter.define_now(slots("t:*", 1)), Err(refused));
}

/// TPL-05, CAL-04: a late excess on a key whose template is of another kind by now leaves no instance behind.
#[test]
fn tpl_05_a_late_excess_leaves_no_limit_of_another_kind() {
    let clock = Arc::new(FakeClock::new());
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(Arc::clone(&clock)));
    let resets = ResetSchedule::Hourly { minute: ResetTime::MIDNIGHT.minute() };
    let hourly = Limit { kind: LimitKind::Calendar { resets }, ..slots("t:*", 5) };
    limiter.define_now(hourly).unwrap();
    let timeout = HoldTimeout::from_seconds(86_400).unwrap();
    let kind = LimitKind::Concurrency { timeout };
    limiter.define_now(Limit { kind, ..slots("slots", 1) }).unwrap();
    let requirements = Requirements::of([(key("t:a"), 2), (key("slots"), 1)]).unwrap();
    let request = ReserveRequest::new(LeaseId::from_u128(1), requirements);
    assert!(limiter.reserve_now(&request).unwrap().is_allowed());
    clock.advance(Duration::from_secs(3_700));
    limiter.sweep();
    assert_eq!(limiter.instances(), 0);
    limiter.delete_now(&key("t:*")).unwrap();
    limiter.define_now(slots("t:*", 5)).unwrap();
    let actuals = Actuals::of([(key("t:a"), 7)]).unwrap();
    limiter.complete_now(&CompleteRequest::new(LeaseId::from_u128(1), actuals)).unwrap();
    clock.advance(Duration::from_secs(60));
    limiter.sweep();
    assert_eq!(limiter.instances(), 0, "nothing is reserved and nothing is owed");
}
