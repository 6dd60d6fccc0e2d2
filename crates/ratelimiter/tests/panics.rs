//! Panics during a call: harmless before the first change, poisoning after it.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteError, CompleteRequest, DefineError, DeleteError, HoldTimeout,
    LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, NewAmounts, RenewError, RenewNumber,
    RenewRequest, Requirements, ReserveError, ReserveRequest, Window,
};

const BEGAN_MS: u64 = 1_736_660_000_000;

/// A clock that panics at 0 and can be set back, which violates the contract of `Clock`.
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

struct TestContext {
    clock: Arc<BreakableClock>,
    limiter: MemoryLimiter,
}

/// Two limits of one model, which form a group, and a limit outside it.
fn keys() -> [LimitKey; 3] {
    ["global:llm:p:m:rpm", "global:llm:p:m:concurrency", "alone"]
        .map(|text| LimitKey::new(text).unwrap())
}

impl TestContext {
    fn new() -> Self {
        let clock = Arc::new(BreakableClock { ms: AtomicU64::new(BEGAN_MS) });
        let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        let context = Self { clock, limiter };
        keys()
            .into_iter()
            .for_each(|key| context.limiter.define_now(limit(key)).map(drop).unwrap());
        context
    }

    fn reserve(&self, lease: u128) -> Result<bool, ReserveError> {
        let requirements = Requirements::of(keys().map(|key| (key, 1))).unwrap();
        let request = ReserveRequest::new(LeaseId::from_u128(lease), requirements);
        self.limiter.reserve_now(&request).map(|decision| decision.is_allowed())
    }

    fn renew(&self, lease: u128, number: u64, amount: u64) -> Result<bool, RenewError> {
        let amounts = NewAmounts::of(keys().map(|key| (key, amount))).unwrap();
        let number = RenewNumber::new(number).unwrap();
        let request = RenewRequest::new(LeaseId::from_u128(lease), number, amounts);
        self.limiter.renew_now(&request).map(|renewal| renewal.is_renewed())
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
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "the planted panic occurs");
}

#[test]
fn a_panic_before_the_first_change_changes_nothing() {
    let context = TestContext::new();
    assert_eq!(context.reserve(1), Ok(true));
    context.clock.ms.store(0, Ordering::SeqCst);
    panics(|| context.reserve(2));
    panics(|| context.reserve(1));
    panics(|| context.renew(1, 1, 2));
    panics(|| context.complete(1));
    panics(|| context.limiter.define_now(limit(keys()[0].clone())));
    panics(|| context.limiter.define_now(limit(LimitKey::new("another").unwrap())));
    panics(|| context.used());
    panics(|| context.limiter.sweep());

    context.clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);
    assert_eq!(context.limiter.check_poisoned(), Ok(()));
    assert_eq!(context.used(), [1, 1, 1]);
    assert_eq!(context.reserve(2), Ok(true));
    assert_eq!(context.renew(1, 1, 3), Ok(true));
    assert_eq!(context.used(), [4, 4, 4]);
    assert_eq!(context.renew(1, 2, 1), Ok(true));
    assert_eq!(context.complete(1), Ok(()));
    assert_eq!(context.used(), [2, 1, 2]);
    context.limiter.sweep();
    assert_eq!(context.limiter.open_leases(), 1);
}

#[test]
fn after_a_panic_during_a_change_every_call_fails() {
    let context = TestContext::new();
    assert_eq!(context.reserve(1), Ok(true));
    context.clock.ms.store(BEGAN_MS - 1, Ordering::SeqCst);
    panics(|| context.complete(1));
    context.clock.ms.store(BEGAN_MS + 1, Ordering::SeqCst);

    let poisoned = context.limiter.check_poisoned().unwrap_err();
    assert!(poisoned.reason.contains("cannot be trusted"), "{poisoned}");
    assert!(poisoned.retry_after > Duration::ZERO);
    let [rpm, ..] = keys();
    assert_eq!(context.reserve(2), Err(ReserveError::Unanswered(poisoned.clone())));
    assert_eq!(context.renew(1, 1, 2), Err(RenewError::Unanswered(poisoned.clone())));
    assert_eq!(context.complete(1), Err(CompleteError::Unanswered(poisoned.clone())));
    let defined = context.limiter.define_now(limit(rpm.clone()));
    assert_eq!(defined, Err(DefineError::Unanswered(poisoned.clone())));
    for key in [rpm.clone(), LimitKey::new("unknown").unwrap()] {
        let deleted = context.limiter.delete_now(&key);
        assert_eq!(deleted, Err(DeleteError::Unanswered(poisoned.clone())), "{key}");
    }
    context.limiter.sweep();
    panics(|| context.limiter.state_now(&rpm));
}

/// A thread that unwinds because of another panic may complete its lease in a destructor.
#[test]
fn a_call_from_a_panicking_thread_is_like_any_other() {
    struct Completes<'a>(&'a TestContext);
    impl Drop for Completes<'_> {
        fn drop(&mut self) {
            self.0.complete(1).unwrap();
        }
    }
    let context = TestContext::new();
    assert_eq!(context.reserve(1), Ok(true));
    panics(|| {
        let _completes = Completes(&context);
        assert!(std::env::args().count() > 1_000, "a panic outside the limiter");
    });
    assert_eq!(context.limiter.check_poisoned(), Ok(()));
    assert_eq!(context.used(), [1, 0, 1]);
}
