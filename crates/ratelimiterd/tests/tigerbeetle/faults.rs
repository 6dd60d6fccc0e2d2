//! Real faults under load, one kind at a time: counted are over-admissions, leaked holds and lost definitions, all of
//! which must be 0, and printed is how long the service was away. `RATELIMITER_FAULTS=long` runs the long form.

use std::time::Duration;

use testkit::tigerbeetle::{Fixture, Mode, TestCluster};
use testkit::{eventually, pass, run};

use crate::load::{Limits, Load, insist_on_define, short_or_long};
use crate::servers::Deployment;

/// There are fewer slots than clients, and the rate is reached on a fast machine.
pub const LIMITS: Limits = Limits {
    slots: 40,
    slot_timeout_seconds: 3_600,
    rate: 400,
    rate_window_seconds: 2,
    tokens: 2_000_000,
    tokens_window_seconds: 10,
    brief_timeout_seconds: 2,
};
/// So many leases are through when the service is back.
const BACK: u64 = 50;

/// One of three replicas is killed, the others go on without it, and it is started again; each in turn.
pub fn a_replica_of_three_is_killed_and_restarted_under_load(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start_three(Mode::Development);
        let on = Deployment::on(&cluster).with_brief_timeouts();
        let servers = [on.server().await];
        let load = Load::start(&on, LIMITS, &servers).await;
        let rounds = short_or_long(2, 30);
        let mut away = Vec::new();
        for round in 0..rounds {
            load.progress(BACK).await;
            cluster.kill(round % 3);
            away.push(load.progress(BACK).await);
            cluster.restart(round % 3);
        }
        let away_max = away.iter().max().unwrap();
        let what = format!("{rounds} replicas killed, away for at most {away_max:?}");
        load.finish(&servers[0], &what).await;
    });
}

/// `kill -9` of the only server, with a definition each time: what was answered is there afterwards.
pub fn a_server_is_killed_again_and_again_under_load(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let on = Deployment::on(&cluster).with_brief_timeouts();
        let mut servers = [on.server().await];
        let load = Load::start(&on, LIMITS, &servers).await;
        let rounds: u64 = short_or_long(3, 50);
        let mut away = Vec::new();
        for round in 1..=rounds {
            load.progress(BACK).await;
            let limit = on.rolling("generation", 60, round);
            insist_on_define(&servers[0].limiter(), limit).await;
            let killed = std::mem::replace(&mut servers[0], on.listening());
            killed.kill();
            load.replace(0, &servers[0]);
            away.push(load.progress(BACK).await);
            let is_ready = async || servers[0].get("/readyz").await.0 == 200;
            eventually("it is ready", is_ready).await;
            let state = on.state(&servers[0].limiter(), "generation").await;
            let kept = state.expect("no definition is lost").limit.capacity.get();
            assert_eq!(kept, round, "the last definition that was answered");
        }
        let away_max = away.iter().max().unwrap();
        let what = format!("{rounds} kills, lost definitions 0, away for at most {away_max:?}");
        load.finish(&servers[0], &what).await;
    });
}

/// `SIGSTOP` of TigerBeetle: it neither answers nor goes away.
pub fn a_cluster_is_stopped_for_a_while_under_load(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(Mode::Development);
        let on = Deployment::on(&cluster).with_brief_timeouts();
        let servers = [on.server().await];
        let load = Load::start(&on, LIMITS, &servers).await;
        let (rounds, stopped_for) = short_or_long((1, 2), (6, 10));
        let stopped_for = Duration::from_secs(stopped_for);
        let mut away = Vec::new();
        for _ in 0..rounds {
            load.progress(BACK).await;
            cluster.pause(0);
            pass(stopped_for).await;
            eventually("it is said", async || servers[0].get("/readyz").await.0 == 503).await;
            cluster.resume(0);
            away.push(load.progress(BACK).await);
        }
        let away_max = away.iter().max().unwrap();
        let what = format!(
            "{rounds} stops of {stopped_for:?}, back at most {away_max:?} after the cluster was"
        );
        load.finish(&servers[0], &what).await;
    });
}
