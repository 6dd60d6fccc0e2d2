//! RDS-06: a Redis that answers and cannot be used, and the reason in `/readyz`.

use ratelimiter::Backend;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::outages::{is_back, not_ready, reserve_is_refused};

const WRONG_PASSWORD: &str = "the user or password in redis.url is wrong, or missing";

/// RDS-06
pub fn rds_06_a_wrong_password_is_reported(_: &Fixture) {
    run(async {
        let redis = TestRedis::start_with(Persistence::None, &["--requirepass", "s3cret"]);
        let addr = redis.addr();
        for user in ["", ":wr0ng@", "nobody:s3cret@"] {
            let on = Deployment::at(format!("redis://{user}{addr}"));
            let server = on.listening();
            not_ready(&server, WRONG_PASSWORD).await;
            reserve_is_refused(&on, &server, WRONG_PASSWORD).await;
        }
        let on = Deployment::at(format!("redis://:s3cret@{addr}"));
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        is_back(&on, &server).await;
    });
}

/// RDS-06
pub fn rds_06_a_missing_permission_is_reported_until_it_is_given(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let permit = |right: &str| {
            let words = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", right];
            assert_eq!(redis.command(&words), "OK");
        };
        permit("+@all");
        let on = Deployment::at(format!("redis://app:s3cret@{}", redis.addr()));
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        for right in ["@write", "@scripting"] {
            permit(&format!("-{right}"));
            not_ready(&server, "the user may not do this").await;
            reserve_is_refused(&on, &server, "the user may not do this").await;
            permit(&format!("+{right}"));
            is_back(&on, &server).await;
        }
    });
}

/// RDS-06
pub fn rds_06_a_full_redis_is_reported_until_it_has_room(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        assert_eq!(redis.command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        not_ready(&server, "maxmemory is reached").await;
        reserve_is_refused(&on, &server, "maxmemory is reached").await;
        assert_eq!(redis.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        is_back(&on, &server).await;
    });
}

/// RDS-06: a policy that evicts loses what is counted.
pub fn rds_06_a_policy_that_evicts_is_logged_and_counted(_: &Fixture) {
    run(async {
        let arguments = ["--maxmemory-policy", "volatile-lru"];
        let redis = TestRedis::start_with(Persistence::None, &arguments);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        let (_, metrics) = server.get("/metrics").await;
        assert!(metrics.lines().any(|line| line == "ratelimiter_redis_may_evict 1"), "{metrics}");
        server.server.process.signal("TERM");
        let (_, log) = server.server.process.wait();
        let lines = log.lines().filter(|line| line.contains("redis may evict what is counted"));
        // Another limiter reads the definitions at the start.
        assert!((1..=2).contains(&lines.count()), "{log}");
    });
}

/// RDS-06
pub fn rds_06_a_read_only_replica_is_reported_until_it_is_the_primary(_: &Fixture) {
    run(async {
        let primary = TestRedis::start(Persistence::None);
        let redis = TestRedis::start(Persistence::None);
        let (at_primary, on) = (Deployment::on(&primary), Deployment::on(&redis));
        at_primary.server().await;
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        redis.follow(&primary).await;
        not_ready(&server, "it is a read-only replica").await;
        redis.promote();
        // The primary had no limits of this installation.
        eventually("the limit is defined", async || {
            server.limiter().define(on.rolling("rate", 60, 5)).await.is_ok()
        })
        .await;
        is_back(&on, &server).await;
    });
}

/// RDS-06: here a replica loads what its primary has, slowly.
pub fn rds_06_a_redis_that_loads_its_data_is_reported(_: &Fixture) {
    run(async {
        let primary = TestRedis::start(Persistence::None);
        for number in 0..2_000 {
            primary.command(&["SET", &format!("key:{number}"), &"x".repeat(2_000)]);
        }
        let slowly =
            ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
        let redis = TestRedis::start_with(Persistence::None, &slowly);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        redis.replicate(primary.addr());
        not_ready(&server, "it loads its data").await;
    });
}
