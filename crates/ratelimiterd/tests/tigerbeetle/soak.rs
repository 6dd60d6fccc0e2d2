//! Two servers, 64 clients, a kill -9 of either server again and again, one restart of the cluster: no unit is given out
//! twice, and none is left behind. Runs for `RATELIMITER_SOAK_SECONDS`, 20 if that is not set.

mod ledger_of_clients;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock};
use ratelimiter::{Backend, Decision, LeaseId, Limiter, ReserveError};
use ratelimiter_client::HttpLimiter;
use ratelimiter_tigerbeetle::testing::{Fixture, Mode, TestCluster};
use tokio::task::JoinSet;

use self::ledger_of_clients::ClientLedger;
use crate::servers::{Deployment, ServerProcess, eventually, new_lease, run};

const CLIENTS: usize = 64;
const SLOTS: u64 = 40;
const RATE: u64 = 400;
const RATE_WINDOW_SECONDS: u64 = 2;
const TOKENS: u64 = 2_000_000;
/// A server is killed so often in a long run; a short one has to be content with less.
const KILL_EVERY: Duration = Duration::from_secs(10);

/// What clients know of the servers, and count.
struct World {
    on: Deployment,
    limiters: RwLock<[HttpLimiter; 2]>,
    stop: AtomicBool,
    ledger: ClientLedger,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    ended: AtomicU64,
    unanswered: AtomicU64,
}

pub fn servers_and_cluster_are_killed_and_nothing_is_admitted_twice_or_left(_: &Fixture) {
    let seconds = std::env::var("RATELIMITER_SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    run(soak(Duration::from_secs(seconds.unwrap_or(20))));
}

async fn soak(lasts: Duration) {
    let mut cluster = TestCluster::start(Mode::Development);
    let on = Deployment::on(&cluster);
    let mut servers = [on.server().await, on.server().await];
    let limiters = servers.each_ref().map(ServerProcess::limiter);
    let window = Duration::from_secs(RATE_WINDOW_SECONDS);
    limiters[0].define(on.concurrency("slots", 3_600, SLOTS)).await.unwrap();
    limiters[0].define(on.rolling("rate", RATE_WINDOW_SECONDS, RATE)).await.unwrap();
    limiters[0].define(on.rolling("tokens", 10, TOKENS)).await.unwrap();
    let is_known = async || on.state(&limiters[1], "tokens").await.is_some();
    eventually("both know the limits", is_known).await;
    let world = Arc::new(World {
        on,
        limiters: RwLock::new(limiters),
        stop: AtomicBool::new(false),
        ledger: ClientLedger::new(SLOTS, RATE, window),
        counts: Counts::default(),
    });
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(client(Arc::clone(&world)));
    }

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
        let killed = std::mem::replace(&mut servers[victim], world.on.listening());
        killed.kill();
        world.limiters.write().unwrap()[victim] = servers[victim].limiter();
    }
    world.stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    eventually("it is ready", async || servers[0].get("/readyz").await.0 == 200).await;
    let limiter = servers[0].limiter();
    eventually("nothing is held", async || {
        world.on.state(&limiter, "slots").await.is_some_and(|state| state.usage.used == 0)
    })
    .await;
    let over_admissions = world.ledger.over_admissions();
    let counts = &world.counts;
    eprintln!("{lasts:?}, {rounds} kills: {counts:?}, over-admissions {over_admissions}, leaked 0");
    assert_eq!(over_admissions, 0);
    assert!(counts.allowed.load(Ordering::Relaxed) > 1_000, "{counts:?}");
}

/// One client: it repeats what was not answered, at either server, until it knows.
async fn client(world: Arc<World>) {
    let mut random = fastrand::Rng::new();
    while !world.stop.load(Ordering::Relaxed) {
        let lease = new_lease();
        let slots = random.u64(1..=2);
        let needs = [("rate", 1), ("slots", slots), ("tokens", 1_000)];
        match world.insist_on_reserve(&mut random, lease, &needs).await {
            Ok(Decision::Allowed { reserved_at }) => {
                world.ledger.reserved(lease, slots, reserved_at.unix_ms());
                world.counts.allowed.fetch_add(1, Ordering::Relaxed);
                let call = Duration::from_millis(random.u64(10..150));
                let _over = tokio::time::timeout(call, std::future::pending::<()>()).await;
                // From here on the units may be given to others.
                world.ledger.released(lease);
                let actuals = [("tokens", random.u64(..1_500))];
                world.insist_on_complete(&mut random, lease, &actuals).await;
            }
            Ok(Decision::Denied(denial)) => {
                world.counts.denied.fetch_add(1, Ordering::Relaxed);
                let wait = denial.retry_after.min(Duration::from_millis(200));
                let _over = tokio::time::timeout(wait, std::future::pending::<()>()).await;
            }
            // It was allowed so long ago, unheard, that a part of it has expired: the rest has to go back.
            Err(ReserveError::LeaseEnded) => {
                world.counts.ended.fetch_add(1, Ordering::Relaxed);
                world.insist_on_complete(&mut random, lease, &[]).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl World {
    async fn insist_on_reserve(
        &self,
        random: &mut fastrand::Rng,
        lease: LeaseId,
        needs: &[(&str, u64)],
    ) -> Result<Decision, ReserveError> {
        let request = self.on.reserve(lease, needs);
        let give_up_at = SystemClock::new().now().after(Duration::from_secs(60));
        loop {
            let limiter = self.limiters.read().unwrap()[random.usize(..2)].clone();
            match limiter.reserve(&request).await {
                Err(ReserveError::Unanswered(_)) => self.unanswered(random).await,
                answer => return answer,
            }
            assert!(SystemClock::new().now() < give_up_at, "a minute without an answer");
        }
    }

    async fn insist_on_complete(
        &self,
        random: &mut fastrand::Rng,
        lease: LeaseId,
        actuals: &[(&str, u64)],
    ) {
        let request = self.on.complete(lease, actuals);
        loop {
            let limiter = self.limiters.read().unwrap()[random.usize(..2)].clone();
            match limiter.complete(&request).await {
                Ok(()) => return,
                Err(ratelimiter::CompleteError::Unanswered(_)) => self.unanswered(random).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn unanswered(&self, random: &mut fastrand::Rng) {
        self.counts.unanswered.fetch_add(1, Ordering::Relaxed);
        let pause = Duration::from_millis(random.u64(1..50));
        let _over = tokio::time::timeout(pause, std::future::pending::<()>()).await;
    }
}
