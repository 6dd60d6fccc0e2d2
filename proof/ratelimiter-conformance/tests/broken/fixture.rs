//! A fixture for a limiter that may have a fault. It pretends to every power, so that every fact is played.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::MemoryLimiter;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_conformance::{Fixture, Powers};

use crate::limiter::{Fault, Faulty};

const REMEMBER_MAX: usize = 20;
const SWEEP_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct Breakable {
    fault: Option<Fault>,
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
}

impl Breakable {
    pub(crate) fn with(fault: Option<Fault>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let limiter = limiter_on(&clock);
        Self { fault, clock, limiter }
    }
}

fn limiter_on(clock: &Arc<FakeClock>) -> MemoryLimiter {
    MemoryLimiter::with_options(MemoryOptions {
        remember_max: REMEMBER_MAX,
        ..MemoryOptions::for_tests(clock.clone())
    })
}

impl Fixture for Breakable {
    type Limiter = Faulty;

    fn powers(&self) -> Powers {
        Powers {
            expiry_lag: Duration::ZERO,
            reconciled_expiry_lag: Duration::ZERO,
            exact_time: Ok(()),
            exact_hints: Ok(()),
            names_every_denied_key: Ok(()),
            tells_uncovered: Ok(()),
            knows_leases_by_id: Ok(()),
            forgets_after: Ok(Duration::from_secs(600)),
            remembers_at_most: Ok(REMEMBER_MAX),
            keeps_definitions: Ok(()),
            keeps_leases: Ok(()),
            second_server: Ok(()),
        }
    }

    async fn limiter(&self) -> Faulty {
        Faulty::new(self.limiter.clone(), self.fault)
    }

    async fn advance(&self, by: Duration) {
        let mut left = match self.fault {
            Some(Fault::NeverExpires) => Duration::ZERO,
            Some(Fault::ExpiresEarly) => by * 2,
            _ => by,
        };
        while !left.is_zero() {
            let step = left.min(SWEEP_EVERY);
            self.clock.advance(step);
            self.limiter.sweep();
            left -= step;
        }
    }

    /// A limiter that never stopped looks like one that lost nothing.
    async fn restarted(&self) -> Faulty {
        match self.fault {
            Some(Fault::LosesAllAtRestart) => Faulty::new(limiter_on(&self.clock), self.fault),
            _ => self.limiter().await,
        }
    }

    async fn another(&self) -> Faulty {
        self.restarted().await
    }
}
