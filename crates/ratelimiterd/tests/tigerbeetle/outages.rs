//! A cluster that is not there, goes away, or is another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ratelimiter::{Backend, Limiter, ReserveError};
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::{eventually, run, within};
use tokio::task::JoinSet;

use crate::load::insist_on_define;
use crate::processes::new_lease;
use crate::servers::Deployment;

pub fn an_unreachable_cluster_is_reported_until_it_answers(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        let on = Deployment::on(&cluster).with_brief_timeouts();
        let first = on.server().await;
        insist_on_define(&first.limiter(), on.rolling("rate", 60, 5)).await;
        first.kill();
        cluster.kill(0);
        let server = on.listening();
        eventually("the reason is said", async || {
            let (status, body) = server.get("/readyz").await;
            status == 503 && body.contains("address is wrong or the server is down")
        })
        .await;
        assert_eq!(server.get("/healthz").await.0, 200);
        let request = on.reserve(new_lease(), &[("rate", 1)]);
        let answer = server.limiter().reserve(&request).await;
        assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
        cluster.restart(0);
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
        let limiter = server.limiter();
        let is_allowed = async || limiter.reserve(&request).await.is_ok_and(|one| one.is_allowed());
        eventually("the lease is allowed", is_allowed).await;
        assert_eq!(on.state(&limiter, "rate").await.unwrap().usage.used, 1);
    });
}

pub fn a_wrong_cluster_id_is_reported(fixture: &Fixture) {
    run(async {
        let cluster = fixture.development();
        let on = Deployment::at(cluster.cluster_id() + 1, cluster.addresses().join(","));
        let server = on.listening();
        eventually("the reason is said", async || {
            let (status, body) = server.get("/readyz").await;
            status == 503 && body.contains("cluster ID is wrong")
        })
        .await;
    });
}

/// `/readyz` is 200 only while the backend answers: a caller that got no answer sees 503 there too.
pub fn a_caller_without_an_answer_means_not_ready_at_once(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        // A reserve is a write; the complete of a lease that is not known here begins with a query.
        for (sessions, completes) in [(1, false), (2, false), (1, true)] {
            let on = Deployment::on(&cluster).with_brief_timeouts().with_sessions(sessions);
            let server = on.server().await;
            // One session is enough to be ready. One that never was has another problem than those that lose the cluster.
            for session in 0..sessions {
                let line = format!("tigerbeetle session ready role=Write session={session}");
                server.server.wait_for_line(&line).unwrap();
            }
            let limiter = server.limiter();
            insist_on_define(&limiter, on.rolling("rate", 60, 5)).await;
            let request = on.reserve(new_lease(), &[("rate", 1)]);
            cluster.kill(0);
            let is_unanswered = if completes {
                limiter.complete(&on.complete(new_lease(), &[])).await.is_err()
            } else {
                limiter.reserve(&request).await.is_err()
            };
            let (status, body) = server.get("/readyz").await;
            assert!(is_unanswered, "a killed cluster does not answer");
            assert_eq!(status, 503, "{sessions} sessions: {body}");
            assert!(body.contains("the cluster is down, unreachable, or stuck"), "{body}");
            cluster.restart(0);
            eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
            let is_allowed =
                async || limiter.reserve(&request).await.is_ok_and(|one| one.is_allowed());
            eventually("the lease is allowed", is_allowed).await;
        }
    });
}

/// However long a caller would wait.
pub fn a_cluster_failure_is_detected_without_traffic(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        let on = Deployment::on(&cluster).with_endless_timeouts();
        let server = on.server().await;
        cluster.kill(0);
        eventually("it is not ready", async || server.get("/readyz").await.0 == 503).await;
        cluster.restart(0);
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
    });
}

/// TB-10
pub fn tb_10_a_stopped_cluster_under_load_answers_in_time_and_recovers(_: &Fixture) {
    outage_under_load(|cluster| cluster.pause(0), |cluster| cluster.resume(0));
}

/// TB-10
pub fn tb_10_a_killed_cluster_under_load_answers_in_time_and_recovers(_: &Fixture) {
    outage_under_load(|cluster| cluster.kill(0), |cluster| cluster.restart(0));
}

fn outage_under_load(begin: fn(&mut TestCluster), end: fn(&mut TestCluster)) {
    run(async {
        let mut cluster = TestCluster::start(Mode::Development);
        let on = Arc::new(Deployment::on(&cluster).with_brief_timeouts());
        let server = on.server().await;
        insist_on_define(&server.limiter(), on.concurrency("slots", 600, 1_000)).await;
        let (stop, allowed, unanswered) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::default());
        let mut callers = JoinSet::new();
        for _ in 0..16 {
            let (on, limiter) = (Arc::clone(&on), server.limiter());
            let counters = (Arc::clone(&stop), Arc::clone(&allowed), Arc::clone(&unanswered));
            callers.spawn(call_until_stopped(on, limiter, counters));
        }
        let progress = |more: u64| {
            let target = allowed.load(Ordering::Relaxed) + more;
            let allowed = Arc::clone(&allowed);
            async move {
                eventually("leases go through", async || allowed.load(Ordering::Relaxed) >= target)
                    .await;
            }
        };
        progress(200).await;
        begin(&mut cluster);
        eventually("callers hear of it", async || unanswered.load(Ordering::Relaxed) >= 16).await;
        eventually("it is not ready", async || server.get("/readyz").await.0 == 503).await;
        end(&mut cluster);
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
        progress(200).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        let usage = on.state(&server.limiter(), "slots").await.unwrap().usage;
        assert_eq!(usage.used, 0, "every hold was released");
        let (allowed, unanswered) = (&allowed, &unanswered);
        eprintln!("{allowed:?} leases, {unanswered:?} calls without an answer");
    });
}

type Counters = (Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>);

/// Reserves and completes, each until it is answered.
async fn call_until_stopped(
    on: Arc<Deployment>,
    limiter: ratelimiter_client::HttpLimiter,
    (stop, allowed, unanswered): Counters,
) {
    while !stop.load(Ordering::Relaxed) {
        let lease = new_lease();
        let request = on.reserve(lease, &[("slots", 1)]);
        loop {
            match within("a call is answered", limiter.reserve(&request)).await {
                Ok(decision) => break assert!(decision.is_allowed()),
                Err(_) => unanswered.fetch_add(1, Ordering::Relaxed),
            };
        }
        allowed.fetch_add(1, Ordering::Relaxed);
        let request = on.complete(lease, &[]);
        while limiter.complete(&request).await.is_err() {
            unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub fn metrics_include_the_cluster(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let server = on.server().await;
        let limiter = server.limiter();
        limiter.define(on.rolling("tokens", 60, 10)).await.unwrap();
        let lease = new_lease();
        let request = on.reserve(lease, &[("tokens", 4)]);
        assert!(limiter.reserve(&request).await.unwrap().is_allowed());
        limiter.complete(&on.complete(lease, &[("tokens", 15)])).await.unwrap();
        let (status, text) = server.get("/metrics").await;
        assert_eq!(status, 200);
        let key = on.key("tokens");
        for line in [
            "ratelimiter_tb_leases_total 1".to_owned(),
            // The reservation, the marker of its end, and the debt.
            "ratelimiter_tb_lease_transfers_total 3".to_owned(),
            "ratelimiter_tb_limits_disagreeing 0".to_owned(),
            format!("ratelimiter_limit_used{{key=\"{key}\"}} 4"),
            format!("ratelimiter_overage_units_total{{key=\"{key}\",policy=\"debt\"}} 11"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        // How late the cluster is depends on the machine.
        let lag = "ratelimiter_tb_expiry_lag_seconds";
        for name in [lag, "ratelimiter_tb_batch_events_count", "ratelimiter_tb_sessions_busy"] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name}\n{text}");
        }
        assert_eq!(on.state(&limiter, "tokens").await.unwrap().usage.debt, 11);
    });
}
