//! Calls on limits with a long window.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;

use crate::rounds::float;
use crate::workload::{PreparedLimiter, limits_lasting};

pub(crate) const DAY_SECONDS: u64 = 86_400;
const DAY: Duration = Duration::from_secs(DAY_SECONDS);
/// Calls between two sweeps: less than a minute, so that the leases between them take little memory.
const CALLS_PER_SWEEP: usize = 1_000;

/// A limiter after completed calls to one model, spread evenly over a day. Every window is this long; as many leases are
/// remembered as may be.
pub(crate) fn spread_over_a_day(calls: usize, window_seconds: u64) -> PreparedLimiter {
    let clock = Arc::new(FakeClock::new());
    let options =
        MemoryOptions { remember_for: 2 * DAY, ..MemoryOptions::for_tests(Arc::clone(&clock)) };
    let mut limiter = PreparedLimiter::with(1, options, limits_lasting(window_seconds));
    let between_calls = DAY.div_f64(float(calls));
    for n in 0..calls {
        limiter.reserve_and_complete(n);
        clock.advance(between_calls);
        if n.is_multiple_of(CALLS_PER_SWEEP) {
            limiter.limiter.sweep();
        }
    }
    limiter.limiter.sweep();
    limiter
}
