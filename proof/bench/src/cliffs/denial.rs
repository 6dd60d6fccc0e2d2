//! The first denial of a limit with many live reservations, which must find out when there will be room.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter,
    Requirements, ReserveRequest, Window,
};

use crate::rounds::{float, nanos_each};
use crate::workload::keys;

const WINDOW_SECONDS: u64 = 60;
/// The reservations are made within this time, so that none of them has expired.
const MADE_WITHIN: Duration = Duration::from_secs(50);

/// What is denied, and what stands in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// Two units of a limit with one left; the leases are completed, each with an actual of 1.
    Completed,
    /// The same; the leases are open.
    Open,
    /// Half of the capacity; the leases are completed.
    Half,
}

impl Denial {
    pub(super) const ALL: [Self; 3] = [Self::Completed, Self::Open, Self::Half];

    /// Milliseconds of the first denial with so many live reservations, each of one unit.
    pub(super) fn milliseconds(self, live: usize) -> f64 {
        let clock = Arc::new(FakeClock::new());
        let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(Arc::clone(&clock)));
        let [key, ..] = keys(0);
        let kind =
            LimitKind::Rolling { window: Window::from_seconds(WINDOW_SECONDS).expect("valid") };
        let capacity = Capacity::new(live as u64 + 1).expect("in range");
        limiter.define_now(Limit::new(key.clone(), kind, capacity)).expect("a new key");
        let between = MADE_WITHIN.div_f64(float(live));
        for n in 0..live {
            let amount = if self == Self::Open { 1 } else { 2 };
            let request = reserve(n, &key, amount);
            assert!(limiter.reserve_now(&request).expect("a defined key").is_allowed(), "room");
            if self != Self::Open {
                let actuals = Actuals::of([(key.clone(), 1)]).expect("one key");
                let complete = CompleteRequest::new(request.lease, actuals);
                limiter.complete_now(&complete).expect("an open lease");
            }
            clock.advance(between);
        }
        let amount = if self == Self::Half { live / 2 } else { 2 };
        let request = reserve(live, &key, amount as u64);
        let nanos = nanos_each(1, |_| {
            let decision = limiter.reserve_now(&request).expect("a defined key");
            assert!(!decision.is_allowed(), "one unit is left");
        });
        nanos / 1e6
    }
}

fn reserve(n: usize, key: &LimitKey, amount: u64) -> ReserveRequest {
    let requirements = Requirements::of([(key.clone(), amount)]).expect("one key");
    ReserveRequest::new(LeaseId::from_u128(n as u128), requirements)
}
