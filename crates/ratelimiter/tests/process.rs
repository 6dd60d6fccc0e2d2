//! MEM-01, MEM-02: the backend is one process's memory and nothing else: no I/O, no time of its own, any thread.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected stops there")]

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

/// A clock that shows what it was last set to, and counts who looked.
#[derive(Debug)]
struct Scripted {
    nanos: AtomicU64,
    looks: AtomicU64,
}

impl Clock for Scripted {
    fn now(&self) -> Timestamp {
        self.looks.fetch_add(1, Ordering::SeqCst);
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
    Arc::new(Scripted { nanos: AtomicU64::new(5_000_000_000), looks: AtomicU64::new(0) })
}

fn rpm() -> LimitKey {
    LimitKey::new("rpm").unwrap()
}

fn request(lease: u128) -> ReserveRequest {
    ReserveRequest::new(LeaseId::from_u128(lease), Requirements::of([(rpm(), 1)]).unwrap())
}

/// MEM-01
#[test]
fn mem_01_time_is_what_the_clock_says() {
    let clock = clock();
    let limiter = limiter_on(&clock);
    let at = Timestamp::from_unix_nanos(5_000_000_000);
    let allowed = Ok(Decision::Allowed { reserved_at: at });
    assert_eq!(limiter.reserve_now(&request(1)), allowed);
    for lease in 2..10_000 {
        assert!(!limiter.reserve_now(&request(lease)).unwrap().is_allowed(), "time stands still");
    }
    clock.nanos.store(6_000_000_000, Ordering::SeqCst);
    assert!(limiter.reserve_now(&request(10_000)).unwrap().is_allowed());
}

/// MEM-01: without a sweep in the background nothing looks at the clock but requests.
#[test]
fn mem_01_each_request_looks_at_the_clock_once() {
    let clock = clock();
    let limiter = limiter_on(&clock);
    clock.looks.store(0, Ordering::SeqCst);
    assert!(limiter.reserve_now(&request(1)).unwrap().is_allowed());
    assert_eq!(clock.looks.load(Ordering::SeqCst), 1);
    let complete = CompleteRequest::new(LeaseId::from_u128(1), Actuals::none());
    limiter.complete_now(&complete).unwrap();
    assert_eq!(clock.looks.load(Ordering::SeqCst), 2);
}

/// DEF-08: a limit that a limits file brings back has nothing live, so its decrease is over.
#[test]
fn def_08_a_restored_limit_is_in_force_with_the_capacity_that_was_asked_for_last() {
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock()));
    let kind = LimitKind::Rolling { window: Window::from_seconds(1).unwrap() };
    let limit = Limit::new(rpm(), kind, Capacity::new(10).unwrap());
    let to = Capacity::new(5).unwrap();
    let status = LimitStatus::Decreasing { to };
    assert_eq!(limiter.restore(RegisteredLimit { limit, status }), LimitStatus::Active);
    let state = limiter.state_now(&rpm()).unwrap();
    assert_eq!((state.limit.capacity, state.usage.used), (to, 0));
}

/// DEF-08: a change that could not be kept is taken back without losing what is live.
#[test]
fn def_08_a_limit_that_is_put_back_keeps_its_reservations() {
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

/// DEF-08: units that the change let in stay counted, so what is put back waits for them as any decrease does.
#[test]
fn def_08_a_limit_that_is_put_back_below_its_use_waits() {
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

/// Polls once, without anybody to wake.
fn poll_once<T>(future: impl Future<Output = T> + Send) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// MEM-02: a future that is done at its first poll has nothing to wait for, so no lock is held across an await.
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
