//! The conformance fixture: servers on one Redis.

use std::sync::Mutex;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter_client::HttpLimiter;
use ratelimiter_conformance::{Capabilities, Fixture};
use ratelimiter_redis::CAPACITY_MAX;
use testkit::redis::TestRedis;

use crate::deployment::Deployment;
use crate::processes::ServerProcess;

/// More than any other fact needs.
const INSTANCES_MAX: usize = 12;
const NEW_INSTANCES_MAX: usize = 8;

/// Servers of one installation, one after another or side by side. They end with the fact.
pub struct Served {
    deployment: Deployment,
    servers: Mutex<Vec<ServerProcess>>,
    clock: MonotonicClock,
}

impl Served {
    pub fn on(redis: &TestRedis) -> Self {
        let deployment = Deployment::on(redis)
            .with("RATELIMITER_REGISTRY__INSTANCES_MAX", INSTANCES_MAX.to_string())
            .with(
                "RATELIMITER_REGISTRY__NEW_INSTANCES_PER_SECOND_MAX",
                NEW_INSTANCES_MAX.to_string(),
            );
        Self { deployment, servers: Mutex::default(), clock: MonotonicClock::new() }
    }
}

impl Fixture for Served {
    type Limiter = HttpLimiter;

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn limiter(&self) -> HttpLimiter {
        self.another().await
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }

    async fn advance(&self, by: Duration) {
        testkit::pass(by).await;
    }

    async fn restarted(&self) -> HttpLimiter {
        let before = std::mem::take(&mut *self.servers.lock().unwrap());
        before.into_iter().for_each(ServerProcess::kill);
        self.another().await
    }

    async fn another(&self) -> HttpLimiter {
        let server = self.deployment.server().await;
        let limiter = server.limiter();
        self.servers.lock().unwrap().push(server);
        limiter
    }
}

pub fn capabilities() -> Capabilities {
    Capabilities {
        capacity_max: CAPACITY_MAX,
        expiry_lag: Duration::from_millis(100),
        reconciled_expiry_lag: Duration::ZERO,
        exact_time: Err("the time of Redis passes by itself"),
        virtual_time: Err("the time of Redis passes by itself"),
        exact_hints: Ok(()),
        names_every_denied_key: Ok(()),
        tells_uncovered: Ok(()),
        knows_leases_by_id: Ok(()),
        forgets_after: Err("ten minutes are too long for a test"),
        remembers_at_most: Err("the bound of a million is not worth reaching here"),
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
