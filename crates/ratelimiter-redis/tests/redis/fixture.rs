//! The conformance fixture.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter_conformance::{Capabilities, Fixture};
use ratelimiter_redis::{CAPACITY_MAX, RedisLimiter};

use crate::context::{TestContext, Time};

/// More than any other fact needs.
const INSTANCES_MAX: usize = 12;
const NEW_INSTANCES_MAX: usize = 8;
const REMEMBER_MAX: usize = 20;
const REMEMBER_FOR: Duration = Duration::from_secs(600);

/// A Redis with one limiter, or several in succession.
pub struct OnRedis {
    context: TestContext,
}

impl OnRedis {
    pub fn new(context: TestContext) -> Self {
        Self { context }
    }
}

impl Fixture for OnRedis {
    type Limiter = Arc<RedisLimiter>;

    fn capabilities(&self) -> Capabilities {
        let is_simulated = self.context.clock.is_some();
        capabilities(if is_simulated { Time::Simulated } else { Time::Real })
    }

    async fn limiter(&self) -> Self::Limiter {
        self.context.limiter_with(|options| {
            options.instances_max = INSTANCES_MAX;
            options.new_instances_per_second_max = NEW_INSTANCES_MAX;
            options.remember_max = REMEMBER_MAX;
        })
    }

    async fn advance(&self, by: Duration) {
        self.context.pass(by).await;
    }

    fn now(&self) -> Option<Timestamp> {
        self.context.clock.is_none().then(|| MonotonicClock::new().now())
    }

    async fn restarted(&self) -> Self::Limiter {
        self.limiter().await
    }

    async fn another(&self) -> Self::Limiter {
        self.limiter().await
    }
}

pub fn capabilities(time: Time) -> Capabilities {
    let only_simulated = |why| match time {
        Time::Simulated => Ok(()),
        Time::Real => Err(why),
    };
    Capabilities {
        expiry_lag: match time {
            Time::Simulated => Duration::ZERO,
            Time::Real => Duration::from_millis(100),
        },
        reconciled_expiry_lag: Duration::ZERO,
        capacity_max: CAPACITY_MAX,
        exact_time: only_simulated("the time of Redis passes by itself"),
        virtual_time: only_simulated("the time of Redis passes by itself"),
        exact_hints: Ok(()),
        names_every_denied_key: Ok(()),
        tells_uncovered: Ok(()),
        knows_leases_by_id: Ok(()),
        forgets_after: only_simulated("ten minutes pass only in simulated time")
            .map(|()| REMEMBER_FOR),
        remembers_at_most: Ok(REMEMBER_MAX),
        renews: Ok(()),
        waits: Err("a server lets requests wait, around its backend"),
        templates: Ok(()),
        replaces_limits: Ok(()),
        instances_at_most: Ok(INSTANCES_MAX),
        new_instances_per_second: Ok(NEW_INSTANCES_MAX),
        keeps_definitions: Ok(()),
        keeps_leases: Ok(()),
        second_server: Ok(()),
    }
}
