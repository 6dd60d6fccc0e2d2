//! What the memory backend tells a server about a request that may wait.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::Turn;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Capacity, LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveRequest,
    Window,
};

const TICK: Duration = Duration::from_millis(10);

/// WAIT-06, MEM-03: after a change of the window the reservations are in two queues. When to ask again is exact where few of them lapse
/// before, and never too late.
#[test]
fn wait_06_when_to_ask_again_is_never_too_late() {
    for (amount, lapses) in [(2, 1), (200, 100), (1_000, 256)] {
        let clock = Arc::new(FakeClock::new());
        let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(Arc::clone(&clock)));
        let key = LimitKey::new("rpm").unwrap();
        let define = |seconds| {
            let window = Window::from_seconds(seconds).unwrap();
            let capacity = Capacity::new(1_000).unwrap();
            let limit = Limit::new(key.clone(), LimitKind::Rolling { window }, capacity);
            limiter.define_now(limit).unwrap();
        };
        let reserve = |lease: u64, amount| {
            let needs = Requirements::of([(key.clone(), amount)]).unwrap();
            let request = ReserveRequest::new(LeaseId::from_u128(lease.into()), needs);
            limiter
                .reserve_in_turn_now(&request, Turn { attempt: Some(0), ..Turn::default() })
                .unwrap()
        };
        define(60);
        for lease in 0..500 {
            assert!(reserve(lease, 1).decision.is_allowed());
            clock.advance(TICK);
        }
        define(3_600);
        for lease in 500..1_000 {
            assert!(reserve(lease, 1).decision.is_allowed());
        }
        let answer = reserve(1_000, amount);
        assert!(!answer.decision.is_allowed());
        // The first lapses 60 s after it was made, 500 ticks ago. Half of the amount and one more may let a smaller waiter in.
        let first = Duration::from_secs(60) - 500 * TICK;
        let expected = first + TICK * if lapses == 256 { 255 } else { lapses };
        assert_eq!(answer.ask_again_after, Some(expected), "{amount}");
    }
}
