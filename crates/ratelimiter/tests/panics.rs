//! A panic in the midst of a call: what was not changed goes on, what may be half-changed is not trusted any more.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected stops there")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteError, CompleteRequest, DefineError, DeleteError, HoldTimeout,
    LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveError, ReserveRequest,
    Window,
};

const BEGAN_MS: u64 = 1_736_660_000_000;

/// A clock that can be broken: at 0 it panics, and it may go back, which a clock never does.
#[derive(Debug, Default)]
struct BreakableClock {
    ms: AtomicU64,
}

impl Clock for BreakableClock {
    fn now(&self) -> Timestamp {
        let ms = self.ms.load(Ordering::SeqCst);
        assert!(ms > 0, "the clock has stopped");
        Timestamp::from_unix_ms(ms)
    }
}

struct Scene {
    clock: Arc<BreakableClock>,
    limiter: MemoryLimiter,
}

/// The limits of one model, and one that stands alone.
fn keys() -> [LimitKey; 3] {
    ["global:llm:p:m:rpm", "global:llm:p:m:concurrency", "alone"]
        .map(|text| LimitKey::new(text).unwrap())
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::new(BreakableClock { ms: AtomicU64::new(BEGAN_MS) });
        let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        let scene = Self { clock, limiter };
        keys().into_iter().for_each(|key| scene.limiter.define_now(limit(key)).map(drop).unwrap());
        scene
    }

    fn reserve(&self, lease: u128) -> Result<bool, ReserveError> {
        let requirements = Requirements::of(keys().map(|key| (key, 1))).unwrap();
        let request = ReserveRequest::new(LeaseId::from_u128(lease), requirements);
        self.limiter.reserve_now(&request).map(|decision| decision.is_allowed())
    }

    fn complete(&self, lease: u128) -> Result<(), CompleteError> {
        let actuals = Actuals::of([(keys()[0].clone(), 1)]).unwrap();
        self.limiter.complete_now(&CompleteRequest::new(LeaseId::from_u128(lease), actuals))
    }

    fn used(&self) -> [u64; 3] {
        keys().map(|key| self.limiter.state_now(&key).unwrap().usage.used)
    }
}

fn limit(key: LimitKey) -> Limit {
    let kind = match key.as_str().ends_with("concurrency") {
        true => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60).unwrap() },
        false => LimitKind::Rolling { window: Window::from_seconds(60).unwrap() },
    };
    Limit::new(key, kind, Capacity::new(10).unwrap())
}

fn panics<T>(call: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "the planted panic is met");
}

#[test]
fn a_panic_before_the_first_change_leaves_everything_as_it_was() {
    let scene = Scene::new();
    assert_eq!(scene.reserve(1), Ok(true));
    scene.clock.ms.store(0, Ordering::SeqCst);
    panics(|| scene.reserve(2));
    panics(|| scene.reserve(1));
    panics(|| scene.complete(1));
    panics(|| scene.limiter.define_now(limit(keys()[0].clone())));
    panics(|| scene.limiter.define_now(limit(LimitKey::new("another").unwrap())));
    panics(|| scene.used());
    panics(|| scene.limiter.sweep());

    scene.clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);
    assert_eq!(scene.limiter.check_sound(), Ok(()));
    assert_eq!(scene.used(), [1, 1, 1]);
    assert_eq!(scene.reserve(2), Ok(true));
    assert_eq!(scene.complete(1), Ok(()));
    assert_eq!(scene.used(), [2, 1, 2]);
    scene.limiter.sweep();
    assert_eq!(scene.limiter.open_leases(), 1);
}

#[test]
fn after_a_panic_in_the_midst_of_a_change_nothing_is_answered_any_more() {
    let scene = Scene::new();
    assert_eq!(scene.reserve(1), Ok(true));
    scene.clock.ms.store(BEGAN_MS - 1, Ordering::SeqCst);
    panics(|| scene.complete(1));
    scene.clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);

    let unsound = scene.limiter.check_sound().unwrap_err();
    assert!(unsound.reason.contains("cannot be trusted"), "{unsound}");
    assert!(unsound.retry_after > Duration::ZERO);
    let [rpm, ..] = keys();
    assert_eq!(scene.reserve(2), Err(ReserveError::Unanswered(unsound.clone())));
    assert_eq!(scene.complete(1), Err(CompleteError::Unanswered(unsound.clone())));
    let defined = scene.limiter.define_now(limit(rpm.clone()));
    assert_eq!(defined, Err(DefineError::Unanswered(unsound.clone())));
    for key in [rpm.clone(), LimitKey::new("unknown").unwrap()] {
        let deleted = scene.limiter.delete_now(&key);
        assert_eq!(deleted, Err(DeleteError::Unanswered(unsound.clone())), "{key}");
    }
    scene.limiter.sweep();
    panics(|| scene.limiter.state_now(&rpm));
}

/// A thread that unwinds for a reason of its own may end its lease on the way.
#[test]
fn a_call_from_a_thread_that_panics_already_is_a_call_like_any_other() {
    struct Completes<'a>(&'a Scene);
    impl Drop for Completes<'_> {
        fn drop(&mut self) {
            self.0.complete(1).unwrap();
        }
    }
    let scene = Scene::new();
    assert_eq!(scene.reserve(1), Ok(true));
    panics(|| {
        let _completes = Completes(&scene);
        assert!(std::env::args().count() > 1_000, "a call of the program that fails");
    });
    assert_eq!(scene.limiter.check_sound(), Ok(()));
    assert_eq!(scene.used(), [1, 0, 1]);
}
