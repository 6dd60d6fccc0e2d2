//! Servers that share one Redis.

use std::time::Duration;

use ratelimiter::{Backend, LeaseId, Limiter};
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::processes::{ServerProcess, new_lease, waits};

const NEEDS: [(&str, u64); 2] = [("slots", 1), ("tokens", 10)];

/// Two servers with one slot, which a lease has.
async fn full(on: &Deployment) -> ([ServerProcess; 2], LeaseId) {
    let servers = on.two_servers().await;
    let first = servers[0].limiter();
    first.define(on.concurrency("slots", 3_600, 1)).await.unwrap();
    first.define(on.rolling("tokens", 3_600, 100)).await.unwrap();
    let holder = new_lease();
    assert!(first.reserve(&on.reserve(holder, &NEEDS[..1])).await.unwrap().is_allowed());
    (servers, holder)
}

/// RDS-01, COM-07
pub fn rds_01_com_07_a_lease_of_one_server_is_completed_at_the_other(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let servers = on.two_servers().await;
        let [first, second] = servers.each_ref().map(ServerProcess::limiter);
        first.define(on.concurrency("slots", 60, 2)).await.unwrap();
        first.define(on.rolling("tokens", 60, 100)).await.unwrap();
        let lease = new_lease();
        let request = on.reserve(lease, &NEEDS);
        let decision = first.reserve(&request).await;
        assert!(decision.as_ref().unwrap().is_allowed(), "{decision:?}");
        assert_eq!(second.reserve(&request).await, decision, "RES-04");
        second.complete(&on.complete(lease, &[("tokens", 4)])).await.unwrap();
        for limiter in [&first, &second] {
            assert_eq!(on.state(limiter, "slots").await.unwrap().usage.used, 0);
            assert_eq!(on.state(limiter, "tokens").await.unwrap().usage.used, 4);
        }
        // The first complete stands.
        first.complete(&on.complete(lease, &[("tokens", 9)])).await.unwrap();
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.used, 4);
    });
}

/// RDS-01, WAIT-01, WAIT-06: the room comes from this server, or from another one.
pub fn rds_01_wait_06_a_complete_at_any_server_admits_who_waits(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let (servers, mut holder) = full(&on).await;
        for completes_at in [0, 1] {
            let request = waits(on.reserve(new_lease(), &NEEDS), Duration::from_secs(60));
            let answer = servers[0].wait(&request).await;
            let completes_at = servers[completes_at].limiter();
            completes_at.complete(&on.complete(holder, &[])).await.unwrap();
            let decision = answer.await.unwrap();
            assert!(decision.is_allowed(), "{decision:?}");
            assert_eq!(servers[1].limiter().reserve(&request).await, Ok(decision), "RES-04");
            holder = request.lease;
        }
        let second = servers[1].limiter();
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.used, 20);
    });
}

/// RDS-01, WAIT-01, WAIT-04, RES-05: who waited in vain, or went away, is not admitted later.
pub fn rds_01_wait_04_who_gives_up_is_denied_for_good(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let (servers, holder) = full(&on).await;
        let in_vain = waits(on.reserve(new_lease(), &NEEDS), Duration::from_millis(300));
        assert!(!servers[0].limiter().reserve(&in_vain).await.unwrap().is_allowed());
        let gone = waits(on.reserve(new_lease(), &NEEDS), Duration::from_secs(60));
        let answer = servers[0].wait(&gone).await;
        answer.abort();
        let is_gone = async || servers[0].waiters().await == 0;
        eventually("the caller is forgotten", is_gone).await;
        let second = servers[1].limiter();
        second.complete(&on.complete(holder, &[])).await.unwrap();
        for request in [&in_vain, &gone] {
            for server in &servers {
                assert!(!server.limiter().reserve(request).await.unwrap().is_allowed());
            }
        }
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 0);
    });
}

/// RDS-01: each server hears of changes at the other, also after the connection for that was lost.
pub fn rds_01_a_server_hears_of_changes_at_another(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let servers = on.two_servers().await;
        let hears = async |count: u64| {
            let lines = [
                "ratelimiter_redis_subscribed 1".to_owned(),
                format!("ratelimiter_redis_changes_total {count}"),
            ];
            for server in &servers {
                eventually("it hears of the change", async || {
                    let (_, text) = server.get("/metrics").await;
                    lines.iter().all(|line| text.lines().any(|other| other == line))
                })
                .await;
            }
        };
        hears(0).await;
        servers[0].limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        hears(1).await;
        assert_eq!(redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), "2");
        let subscribers = || redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count();
        eventually("they are subscribed", async || subscribers() == 2).await;
        servers[1].limiter().define(on.rolling("rate", 60, 6)).await.unwrap();
        hears(2).await;
    });
}

/// RDS-01, WAIT-06: a capacity that is raised at another server is used at once. Here the server cannot look for room, and nothing expires.
pub fn rds_01_wait_06_a_change_at_another_server_admits_who_waits(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let other = on.server().await;
        let limiter = other.limiter();
        limiter.define(on.rolling("rate", 3_600, 1)).await.unwrap();
        assert!(
            limiter.reserve(&on.reserve(new_lease(), &[("rate", 1)])).await.unwrap().is_allowed()
        );
        // Only the script that looks for room needs this command.
        let words = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all", "-hmget"];
        assert_eq!(redis.command(&words), "OK");
        let on = on.with("RATELIMITER_REDIS__URL", format!("redis://app:s3cret@{}", redis.addr()));
        let server = on.server().await;
        let request = waits(on.reserve(new_lease(), &[("rate", 1)]), Duration::from_secs(60));
        let answer = server.wait(&request).await;
        limiter.define(on.rolling("rate", 3_600, 2)).await.unwrap();
        assert!(answer.await.unwrap().is_allowed());
    });
}

pub fn metrics_include_redis(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let server = on.server().await;
        let limiter = server.limiter();
        limiter.define(on.rolling("tokens", 60, 10)).await.unwrap();
        let lease = new_lease();
        let request = on.reserve(lease, &[("tokens", 4)]);
        assert!(limiter.reserve(&request).await.unwrap().is_allowed());
        let key = on.key("tokens");
        let used = format!("ratelimiter_limit_used{{key=\"{key}\"}} 4");
        // As of the last tick.
        let leases = "ratelimiter_open_leases 1";
        eventually("the lease is counted", async || {
            let (status, text) = server.get("/metrics").await;
            assert_eq!(status, 200);
            assert!(text.lines().any(|line| line == used), "{used}\n{text}");
            for name in ["round_trips", "calls"] {
                let name = format!("ratelimiter_redis_{name}_total ");
                let count = text.lines().find_map(|line| line.strip_prefix(name.as_str()));
                assert!(count.unwrap().parse::<u64>().unwrap() > 0, "{text}");
            }
            text.lines().any(|line| line == leases)
        })
        .await;
    });
}
