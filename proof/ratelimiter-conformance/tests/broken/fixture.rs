//! A fixture for a limiter that may have a flaw.
//!
//! It claims every capability, so that every fact runs.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::MemoryLimiter;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_conformance::{Capabilities, Fixture};

use crate::limiter::{Flaw, FlawedLimiter};

const REMEMBER_MAX: usize = 20;
const INSTANCES_MAX: usize = 12;
const NEW_INSTANCES_MAX: usize = 9;
const SWEEP_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct FlawedFixture {
    flaw: Option<Flaw>,
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
}

impl FlawedFixture {
    pub(crate) fn with(flaw: Option<Flaw>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let limiter = limiter_on(&clock);
        Self { flaw, clock, limiter }
    }
}

fn limiter_on(clock: &Arc<FakeClock>) -> MemoryLimiter {
    MemoryLimiter::with_options(MemoryOptions {
        remember_max: REMEMBER_MAX,
        instances_max: INSTANCES_MAX,
        new_instances_per_second_max: NEW_INSTANCES_MAX,
        ..MemoryOptions::for_tests(clock.clone())
    })
}

impl Fixture for FlawedFixture {
    type Limiter = FlawedLimiter;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            expiry_lag: Duration::ZERO,
            reconciled_expiry_lag: Duration::ZERO,
            capacity_max: ratelimiter::CAPACITY_MAX,
            exact_time: Ok(()),
            virtual_time: Ok(()),
            exact_hints: Ok(()),
            names_every_denied_key: Ok(()),
            tells_uncovered: Ok(()),
            knows_leases_by_id: Ok(()),
            forgets_after: Ok(Duration::from_secs(600)),
            remembers_at_most: Ok(REMEMBER_MAX),
            renews: Ok(()),
            waits: Ok(()),
            templates: Ok(()),
            replaces_limits: Ok(()),
            instances_at_most: Ok(INSTANCES_MAX),
            new_instances_per_second: Ok(NEW_INSTANCES_MAX),
            keeps_definitions: Ok(()),
            keeps_leases: Ok(()),
            second_server: Ok(()),
        }
    }

    async fn limiter(&self) -> FlawedLimiter {
        FlawedLimiter::new(self.limiter.clone(), self.flaw)
    }

    async fn advance(&self, by: Duration) {
        let mut left = match self.flaw {
            Some(Flaw::NeverExpires) => Duration::ZERO,
            Some(Flaw::ExpiresEarly) => by * 2,
            _ => by,
        };
        while !left.is_zero() {
            let step = left.min(SWEEP_EVERY);
            self.clock.advance(step);
            self.limiter.sweep();
            left -= step;
        }
    }

    /// A limiter that was never stopped looks like one that lost nothing.
    async fn restarted(&self) -> FlawedLimiter {
        match self.flaw {
            Some(Flaw::LosesAllAtRestart) => FlawedLimiter::new(limiter_on(&self.clock), self.flaw),
            _ => self.limiter().await,
        }
    }

    async fn another(&self) -> FlawedLimiter {
        self.restarted().await
    }
}
