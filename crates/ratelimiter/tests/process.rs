//! MEM-01, MEM-02: no I/O, time only from the injected clock, any thread.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, Decision, LeaseId, Limit, LimitKey, LimitKind,
    LimitStatus, Limiter, MemoryLimiter, Page, RegisteredLimit, Requirements, ReserveRequest,
    Window,
};

/// A clock that returns what it was last set to, and counts its reads.
#[derive(Debug)]
struct Scripted {
    nanos: AtomicU64,
    reads: AtomicU64,
}

impl Clock for Scripted {
    fn now(&self) -> Timestamp {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Timestamp::from_unix_nanos(self.nanos.load(Ordering::SeqCst))
    }
}

fn limiter_on(clock: &Arc<Scripted>) -> MemoryLimiter {
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
    let kind = LimitKind::Rolling { window: Window::from_seconds(1).unwrap() };
    limiter.define_now(Limit::new(rpm(), kind, Capacity::new(1).unwrap())).unwrap();
    limiter
}

fn clock() -> Arc<Scripted> {
    Arc::new(Scripted { nanos: AtomicU64::new(5_000_000_000), reads: AtomicU64::new(0) })
}

fn rpm() -> LimitKey {
    LimitKey::new("rpm").unwrap()
}

fn request(lease: u128) -> ReserveRequest {
    ReserveRequest::new(LeaseId::from_u128(lease), Requirements::of([(rpm(), 1)]).unwrap())
}

/// MEM-01
#[test]
fn mem_01_time_comes_from_the_clock() {
    let clock = clock();
    let limiter = limiter_on(&clock);
    let at = Timestamp::from_unix_nanos(5_000_000_000);
    let allowed = Ok(Decision::allowed_at(at));
    assert_eq!(limiter.reserve_now(&request(1)), allowed);
    for lease in 2..10_000 {
        assert!(!limiter.reserve_now(&request(lease)).unwrap().is_allowed(), "time stands still");
    }
    clock.nanos.store(6_000_000_000, Ordering::SeqCst);
    assert!(limiter.reserve_now(&request(10_000)).unwrap().is_allowed());
}

/// MEM-01: without a background sweep only requests read the clock.
#[test]
fn mem_01_each_request_reads_the_clock_once() {
    let clock = clock();
    let limiter = limiter_on(&clock);
    clock.reads.store(0, Ordering::SeqCst);
    assert!(limiter.reserve_now(&request(1)).unwrap().is_allowed());
    assert_eq!(clock.reads.load(Ordering::SeqCst), 1);
    let complete = CompleteRequest::new(LeaseId::from_u128(1), Actuals::none());
    limiter.complete_now(&complete).unwrap();
    assert_eq!(clock.reads.load(Ordering::SeqCst), 2);
}

/// DEF-08: a limit restored from a limits file has no live reservations, so its decrease applies at once.
#[test]
fn def_08_a_restored_limit_has_the_requested_capacity_in_force() {
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock()));
    let kind = LimitKind::Rolling { window: Window::from_seconds(1).unwrap() };
    let limit = Limit::new(rpm(), kind, Capacity::new(10).unwrap());
    let to = Capacity::new(5).unwrap();
    let status = LimitStatus::Decreasing { to };
    assert_eq!(limiter.restore(RegisteredLimit { limit, status }), LimitStatus::Active);
    let state = limiter.state_now(&rpm()).unwrap();
    assert_eq!((state.limit.capacity, state.usage.used), (to, 0));
}

/// DEF-08: a change that could not be stored is rolled back without losing live reservations.
#[test]
fn def_08_a_rolled_back_limit_keeps_its_reservations() {
    let limiter = limiter_on(&clock());
    let before = limiter.state_now(&rpm()).unwrap();
    assert!(limiter.reserve_now(&request(1)).unwrap().is_allowed());
    let raised = Limit { capacity: Capacity::new(3).unwrap(), ..before.limit.clone() };
    limiter.define_now(raised).unwrap();

    let status = limiter.restore(RegisteredLimit::in_force(before.limit.clone()));
    assert_eq!(status, LimitStatus::Active);
    assert_eq!(limiter.state_now(&rpm()).unwrap().usage.used, 1);
    assert!(!limiter.reserve_now(&request(2)).unwrap().is_allowed());
}

/// DEF-08: units that were admitted under the change still count, so the rollback is pending like any decrease.
#[test]
fn def_08_a_rollback_below_the_current_use_is_pending() {
    let limiter = limiter_on(&clock());
    let before = limiter.state_now(&rpm()).unwrap();
    let raised = Limit { capacity: Capacity::new(3).unwrap(), ..before.limit.clone() };
    limiter.define_now(raised).unwrap();
    for lease in 1..=3 {
        assert!(limiter.reserve_now(&request(lease)).unwrap().is_allowed());
    }
    let status = limiter.restore(RegisteredLimit::in_force(before.limit.clone()));
    assert_eq!(status, LimitStatus::Decreasing { to: before.limit.capacity });
    assert_eq!(limiter.state_now(&rpm()).unwrap().usage.used, 3);
}

/// Polls once with a no-op waker.
fn poll_once<T>(future: impl Future<Output = T> + Send) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// MEM-02: a future that is ready at its first poll never awaits, so no lock is held across an await.
#[test]
fn mem_02_every_answer_is_ready_at_the_first_poll() {
    let limiter = limiter_on(&clock());
    let state = limiter.state_now(&rpm()).unwrap();
    assert!(poll_once(limiter.define(state.limit)).is_some());
    assert!(poll_once(limiter.reserve(&request(1))).is_some());
    assert!(poll_once(limiter.reserve_batch(&[request(2), request(3)])).is_some());
    let complete = CompleteRequest::new(LeaseId::from_u128(1), Actuals::none());
    assert!(poll_once(limiter.complete(&complete)).is_some());
    assert!(poll_once(limiter.complete_batch(&[complete])).is_some());
    assert!(poll_once(limiter.state(&rpm())).is_some());
    assert!(poll_once(limiter.states(&Page::default())).is_some());
    assert!(poll_once(limiter.delete(&rpm())).is_some());
}

/// MEM-02
#[test]
fn mem_02_clones_on_many_threads_share_one_state() {
    let limiter = limiter_on(&clock());
    let allowed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for lease in 1..=16 {
            let (limiter, allowed) = (limiter.clone(), &allowed);
            scope.spawn(move || {
                if limiter.reserve_now(&request(lease)).unwrap().is_allowed() {
                    allowed.lock().unwrap().push(lease);
                }
            });
        }
    });
    assert_eq!(allowed.into_inner().unwrap().len(), 1);
}
