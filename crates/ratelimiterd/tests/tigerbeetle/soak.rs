//! Two servers, 64 clients, a kill -9 of either server again and again, one restart of the cluster: no unit is given out
//! twice, and none is left behind. Runs for `RATELIMITER_SOAK_SECONDS`, 20 if that is not set.

use std::time::Duration;

use testkit::run;
use testkit::tigerbeetle::{Fixture, Mode, TestCluster};

use crate::faults::LIMITS;
use crate::load::Load;
use crate::servers::Deployment;

/// A server is killed so often in a long run; a short one has to be content with less.
const KILL_EVERY: Duration = Duration::from_secs(10);

pub fn servers_and_cluster_are_killed_and_nothing_is_admitted_twice_or_left(_: &Fixture) {
    let seconds = std::env::var("RATELIMITER_SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    run(soak(Duration::from_secs(seconds.unwrap_or(20))));
}

async fn soak(lasts: Duration) {
    let mut cluster = TestCluster::start(Mode::Development);
    let on = Deployment::on(&cluster).with_brief_timeouts();
    let mut servers = [on.server().await, on.server().await];
    let load = Load::start(&on, LIMITS, &servers).await;
    let kill_every = KILL_EVERY.min(lasts / 5);
    let mut turns = tokio::time::interval(kill_every);
    turns.tick().await;
    let rounds = usize::try_from(lasts.as_millis() / kill_every.as_millis()).unwrap();
    for round in 0..rounds {
        turns.tick().await;
        if round == rounds / 2 {
            cluster.kill(0);
            cluster.restart(0);
        }
        let victim = round % 2;
        let killed = std::mem::replace(&mut servers[victim], on.listening());
        killed.kill();
        load.replace(victim, &servers[victim]);
    }
    load.finish(&servers[0], &format!("{lasts:?}, {rounds} kills")).await;
}
