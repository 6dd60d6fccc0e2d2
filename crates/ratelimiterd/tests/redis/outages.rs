//! A Redis that is not there, goes away, or forgets its scripts.

use std::time::Duration;

use ratelimiter::{Backend, CompleteError, DefineError, Limiter, ReserveError, StateError};
use ratelimiter_client::HttpLimiter;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{eventually, run};

use crate::deployment::Deployment;
use crate::processes::{ServerProcess, new_lease, waits};

const CANNOT_BE_REACHED: &str = "it cannot be reached";

/// Waits until a server is not ready for this reason.
pub async fn not_ready(server: &ServerProcess, reason: &str) {
    eventually(&format!("not ready: {reason}"), async || {
        let (status, body) = server.get("/readyz").await;
        status == 503 && body.contains(r#""error":"backend_error""#) && body.contains(reason)
    })
    .await;
    assert_eq!(server.get("/healthz").await.0, 200);
}

/// The answer to a reserve is 503 `backend_error` with this reason.
pub async fn reserve_is_refused(on: &Deployment, server: &ServerProcess, reason: &str) {
    let (lease, key) = (new_lease(), on.key("rate"));
    let body = format!(r#"{{"lease_id":"{lease}","requirements":[{{"key":"{key}","amount":1}}]}}"#);
    let (status, body) = server.ask("POST", "/v1/reserve", body).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(r#""error":"backend_error""#) && body.contains(reason), "{body}");
}

/// Waits until a server is ready and allows a lease.
pub async fn is_back(on: &Deployment, server: &ServerProcess) {
    let limiter = ready_again(server).await;
    let request = on.reserve(new_lease(), &[("rate", 1)]);
    assert!(limiter.reserve(&request).await.unwrap().is_allowed());
}

/// Waits until a server is ready. From then on each request is answered: the first connection that is opened again ends the pauses of all.
async fn ready_again(server: &ServerProcess) -> HttpLimiter {
    eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
    server.limiter()
}

/// RDS-05
pub fn rds_05_a_server_starts_without_redis_and_serves_once_it_is_there(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start(Persistence::AofAlways);
        let on = Deployment::on(&redis).with_brief_timeouts();
        on.server().await.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        redis.kill();
        let server = on.listening();
        not_ready(&server, CANNOT_BE_REACHED).await;
        reserve_is_refused(&on, &server, CANNOT_BE_REACHED).await;
        redis.restart();
        is_back(&on, &server).await;
    });
}

/// RDS-05: every request is answered, and a lease that is repeated counts once.
pub fn rds_05_a_redis_that_was_killed_is_reported_until_it_is_back(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start(Persistence::AofAlways);
        let on = Deployment::on(&redis).with_brief_timeouts();
        let server = on.server().await;
        let limiter = server.limiter();
        limiter.define(on.rolling("rate", 3_600, 5)).await.unwrap();
        let lease = new_lease();
        let request = on.reserve(lease, &[("rate", 3)]);
        let decision = limiter.reserve(&request).await.unwrap();
        assert!(decision.is_allowed());
        redis.kill();
        not_ready(&server, CANNOT_BE_REACHED).await;
        reserve_is_refused(&on, &server, CANNOT_BE_REACHED).await;
        let repeated = limiter.reserve(&request).await;
        assert!(matches!(repeated, Err(ReserveError::Unanswered(_))), "{repeated:?}");
        let completed = limiter.complete(&on.complete(lease, &[("rate", 1)])).await;
        assert!(matches!(completed, Err(CompleteError::Unanswered(_))), "{completed:?}");
        let state = limiter.state(&on.key("rate")).await;
        assert!(matches!(state, Err(StateError::Unanswered(_))), "{state:?}");
        let defined = limiter.define(on.rolling("rate", 3_600, 9)).await;
        let Err(DefineError::Unanswered(unanswered)) = &defined else { panic!("{defined:?}") };
        assert!(unanswered.reason.contains("nothing was changed"), "{unanswered}");
        let (status, metrics) = server.get("/metrics").await;
        assert_eq!(status, 200);
        assert!(metrics.contains("ratelimiter_redis_errors_total{reason=\"away\"} "), "{metrics}");
        redis.restart();
        let limiter = ready_again(&server).await;
        assert_eq!(limiter.reserve(&request).await, Ok(decision));
        let state = on.state(&limiter, "rate").await.unwrap();
        assert_eq!((state.limit.capacity.get(), state.usage.used), (5, 3));
        limiter.complete(&on.complete(lease, &[("rate", 1)])).await.unwrap();
        assert_eq!(on.state(&limiter, "rate").await.unwrap().usage.used, 1);
    });
}

/// RDS-05, RDS-06: whatever makes Redis hang.
pub fn rds_05_a_redis_that_hangs_is_reported_until_it_goes_on(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis).with_brief_timeouts();
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 50)).await.unwrap();
        redis.pause();
        reserve_is_refused(&on, &server, "no answer in time (redis.request_timeout_ms)").await;
        not_ready(&server, "no answer in time").await;
        redis.resume();
        is_back(&on, &server).await;
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| redis.command(&["DEBUG", "SLEEP", "8"]));
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(not_ready(&server, "no answer in time"));
                assert_eq!(sleeping.join().unwrap(), "OK");
            });
        });
        is_back(&on, &server).await;
    });
}

/// RDS-05
pub fn rds_05_a_failure_is_detected_without_traffic(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        redis.kill();
        not_ready(&server, CANNOT_BE_REACHED).await;
        redis.restart();
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
    });
}

/// RDS-05, WAIT-01: who waits goes on waiting.
pub fn rds_05_wait_01_who_waits_is_admitted_after_an_outage(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start(Persistence::AofAlways);
        let on = Deployment::on(&redis).with_brief_timeouts();
        let servers = on.two_servers().await;
        let first = servers[0].limiter();
        first.define(on.concurrency("slots", 3_600, 1)).await.unwrap();
        let holder = new_lease();
        let held = first.reserve(&on.reserve(holder, &[("slots", 1)])).await;
        assert!(held.unwrap().is_allowed());
        let request = on.reserve(new_lease(), &[("slots", 1)]);
        let request = waits(request, Duration::from_secs(60));
        let answer = servers[0].wait(&request).await;
        redis.kill();
        not_ready(&servers[0], CANNOT_BE_REACHED).await;
        redis.restart();
        let second = ready_again(&servers[1]).await;
        second.complete(&on.complete(holder, &[])).await.unwrap();
        assert!(answer.await.unwrap().is_allowed());
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 1);
    });
}

/// RDS-05, WAIT-04: whether or not Redis has admitted an attempt that it did not answer.
pub fn rds_05_wait_04_who_goes_away_in_an_outage_holds_nothing(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis).with_brief_timeouts();
        let servers = on.two_servers().await;
        let [first, second] = servers.each_ref().map(ServerProcess::limiter);
        first.define(on.concurrency("slots", 3_600, 1)).await.unwrap();
        for _ in 0..4 {
            let holder = new_lease();
            let held = first.reserve(&on.reserve(holder, &[("slots", 1)])).await;
            assert!(held.unwrap().is_allowed());
            let lease = new_lease();
            let request = waits(on.reserve(lease, &[("slots", 1)]), Duration::from_secs(60));
            let answer = servers[0].wait(&request).await;
            second.complete(&on.complete(holder, &[])).await.unwrap();
            redis.pause();
            not_ready(&servers[0], "no answer in time").await;
            answer.abort();
            let was_answered = answer.await.is_ok();
            redis.resume();
            for server in &servers {
                ready_again(server).await;
            }
            if was_answered {
                // Before the outage began.
                first.complete(&on.complete(lease, &[])).await.unwrap();
            }
            let is_forgotten = async || servers[0].waiters().await == 0;
            eventually("the caller is forgotten", is_forgotten).await;
            eventually("nothing is held", async || {
                on.state(&second, "slots").await.unwrap().usage.used == 0
            })
            .await;
        }
    });
}

/// RDS-06
pub fn rds_06_a_lost_script_cache_is_not_noticed(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        let limiter = server.limiter();
        let flush = || assert_eq!(redis.command(&["SCRIPT", "FLUSH", "SYNC"]), "OK");
        flush();
        limiter.define(on.rolling("rate", 60, 50)).await.unwrap();
        for used in 1..=3 {
            let lease = new_lease();
            flush();
            let request = on.reserve(lease, &[("rate", 2)]);
            assert!(limiter.reserve(&request).await.unwrap().is_allowed());
            flush();
            limiter.complete(&on.complete(lease, &[("rate", 1)])).await.unwrap();
            flush();
            assert_eq!(limiter.state(&on.key("rate")).await.unwrap().unwrap().usage.used, used);
            flush();
            assert_eq!(server.get("/readyz").await.0, 200);
        }
        let (_, metrics) = server.get("/metrics").await;
        assert!(!metrics.contains("ratelimiter_redis_errors_total{"), "{metrics}");
    });
}
