//! A Redis whose address sentinels tell.

use ratelimiter::{Backend, Limiter};
use testkit::redis::{Fixture, Persistence, TestRedis, TestSentinel};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::outages::is_back;
use crate::processes::new_lease;

/// RDS-05, RDS-08
pub fn rds_08_a_server_follows_a_failover(_: &Fixture) {
    run(async {
        let mut primary = TestRedis::start(Persistence::None);
        let replica = primary.start_replica(Persistence::None).await;
        let sentinels = TestSentinel::start_three(&primary, &replica).await;
        let on = Deployment::at(TestSentinel::url(&sentinels)).with_brief_timeouts();
        let server = on.server().await;
        let limiter = server.limiter();
        limiter.define(on.rolling("rate", 3_600, 5)).await.unwrap();
        let request = on.reserve(new_lease(), &[("rate", 2)]);
        let decision = limiter.reserve(&request).await.unwrap();
        assert!(decision.is_allowed());
        replica.catch_up(&primary).await;
        primary.kill();
        // The sentinels wait for longer before they promote the replica.
        eventually("the loss is noticed", async || server.get("/readyz").await.0 == 503).await;
        is_back(&on, &server).await;
        assert_eq!(limiter.reserve(&request).await, Ok(decision), "RES-04");
        assert_eq!(on.state(&limiter, "rate").await.unwrap().usage.used, 3);
        eventually("it hears of changes there", async || {
            let (_, metrics) = server.get("/metrics").await;
            metrics.lines().any(|line| line == "ratelimiter_redis_subscribed 1")
        })
        .await;
    });
}
