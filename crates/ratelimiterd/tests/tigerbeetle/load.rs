//! Clients that never give up, whatever happens to the servers and the cluster, and what they know in the end: how often
//! more was given out than there is, and whether anything is left that nobody holds.

mod ledger_of_clients;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{Backend, CompleteError, Decision, LeaseId, Limit, Limiter, ReserveError};
use ratelimiter_client::HttpLimiter;
use testkit::{eventually, pass, within};
use tokio::task::JoinSet;

use self::ledger_of_clients::ClientLedger;
use crate::processes::{ServerProcess, new_lease};
use crate::servers::Deployment;

const CLIENTS: usize = 64;
/// Of them, those that never complete: their holds must return by their timeout.
const FORGETFUL: usize = 4;
const SLOTS: u64 = 40;
const RATE: u64 = 400;
const RATE_WINDOW_SECONDS: u64 = 2;
const TOKENS: u64 = 2_000_000;
const BRIEF_TIMEOUT_SECONDS: u64 = 2;

/// The clients, and what they know of the servers.
pub struct Load {
    world: Arc<World>,
    clients: JoinSet<()>,
}

struct World {
    on: Deployment,
    limiters: RwLock<Vec<HttpLimiter>>,
    stop: AtomicBool,
    ledger: ClientLedger,
    counts: Counts,
}

/// What became of their requests.
#[derive(Debug, Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    forgotten: AtomicU64,
    ended: AtomicU64,
    unanswered: AtomicU64,
}

impl Load {
    /// Defines the limits, waits until every server knows them, and starts.
    pub async fn start(on: Deployment, servers: &[ServerProcess]) -> Self {
        let limiters: Vec<_> = servers.iter().map(ServerProcess::limiter).collect();
        for limit in [
            on.concurrency("slots", 3_600, SLOTS),
            on.rolling("rate", RATE_WINDOW_SECONDS, RATE),
            on.concurrency("brief", BRIEF_TIMEOUT_SECONDS, 1_000_000),
            on.rolling("tokens", 10, TOKENS),
        ] {
            insist_on_define(&limiters[0], limit).await;
        }
        for limiter in &limiters {
            let is_known = async || on.state(limiter, "tokens").await.is_some();
            eventually("every server knows the limits", is_known).await;
        }
        let window = Duration::from_secs(RATE_WINDOW_SECONDS);
        let world = Arc::new(World {
            on,
            limiters: RwLock::new(limiters),
            stop: AtomicBool::new(false),
            ledger: ClientLedger::new(SLOTS, RATE, window),
            counts: Counts::default(),
        });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let world = Arc::clone(&world);
            match number {
                ..FORGETFUL => clients.spawn(forgetful_client(world)),
                _ => clients.spawn(client(world)),
            };
        }
        Self { world, clients }
    }

    pub fn on(&self) -> &Deployment {
        &self.world.on
    }

    /// From now on the clients ask this server in the place of another one.
    pub fn replace(&self, index: usize, server: &ServerProcess) {
        self.world.limiters.write().unwrap()[index] = server.limiter();
    }

    /// How long it takes until `count` more leases are through.
    pub async fn progress(&self, count: u64) -> Duration {
        let clock = MonotonicClock::new();
        let (begun, allowed) = (clock.now(), &self.world.counts.allowed);
        let target = allowed.load(Ordering::Relaxed) + count;
        eventually("leases go through", async || allowed.load(Ordering::Relaxed) >= target).await;
        clock.now().since(begun)
    }

    /// Stops the clients, and compares what they know with a server's state: nothing was admitted twice, nothing is left.
    pub async fn finish(mut self, server: &ServerProcess, what: &str) {
        self.world.stop.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.unwrap();
        }
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
        let limiter = server.limiter();
        for name in ["slots", "brief"] {
            eventually("nothing is held", async || {
                self.on().state(&limiter, name).await.is_some_and(|state| state.usage.used == 0)
            })
            .await;
        }
        let over_admissions = self.world.ledger.over_admissions();
        let counts = &self.world.counts;
        eprintln!("{what}: {counts:?}, over-admissions {over_admissions}, leaked holds 0");
        assert_eq!(over_admissions, 0);
        assert!(counts.allowed.load(Ordering::Relaxed) > 0, "{counts:?}");
    }
}

/// One client: it repeats what was not answered, at any server, until it knows.
async fn client(world: Arc<World>) {
    let mut random = fastrand::Rng::new();
    while !world.stop.load(Ordering::Relaxed) {
        let lease = new_lease();
        let slots = random.u64(1..=2);
        let needs = [("rate", 1), ("slots", slots), ("tokens", 1_000)];
        match world.insist_on_reserve(&mut random, lease, &needs).await {
            Ok(Decision::Allowed { reserved_at, .. }) => {
                world.ledger.reserved(lease, slots, reserved_at.unix_ms());
                world.counts.allowed.fetch_add(1, Ordering::Relaxed);
                pass(Duration::from_millis(random.u64(10..150))).await;
                // From here on the units may be given to others.
                world.ledger.released(lease);
                let actuals = [("tokens", random.u64(..1_500))];
                world.insist_on_complete(&mut random, lease, &actuals).await;
            }
            Ok(Decision::Denied(denial)) => {
                world.counts.denied.fetch_add(1, Ordering::Relaxed);
                pass(denial.retry_after.min(Duration::from_millis(200))).await;
            }
            // It was allowed so long ago, without the client knowing, that a part has expired: release the rest.
            Err(ReserveError::LeaseEnded) => {
                world.counts.ended.fetch_add(1, Ordering::Relaxed);
                world.insist_on_complete(&mut random, lease, &[]).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// One client that reserves and never completes, as if it were killed each time.
async fn forgetful_client(world: Arc<World>) {
    let mut random = fastrand::Rng::new();
    while !world.stop.load(Ordering::Relaxed) {
        let needs = [("brief", 1)];
        match world.insist_on_reserve(&mut random, new_lease(), &needs).await {
            Ok(Decision::Allowed { .. }) | Err(ReserveError::LeaseEnded) => {
                world.counts.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("there is always room: {other:?}"),
        }
        pass(Duration::from_millis(20)).await;
    }
}

/// Defines a limit, again if that was not answered on a busy machine.
pub async fn insist_on_define(at: &HttpLimiter, limit: Limit) {
    eventually("the limit is defined", async || at.define(limit.clone()).await.is_ok()).await;
}

impl World {
    async fn insist_on_reserve(
        &self,
        random: &mut fastrand::Rng,
        lease: LeaseId,
        needs: &[(&str, u64)],
    ) -> Result<Decision, ReserveError> {
        let request = self.on.reserve(lease, needs);
        within("a reserve is answered", async {
            loop {
                match self.any_limiter(random).reserve(&request).await {
                    Err(ReserveError::Unanswered(_)) => self.unanswered(random).await,
                    answer => return answer,
                }
            }
        })
        .await
    }

    async fn insist_on_complete(
        &self,
        random: &mut fastrand::Rng,
        lease: LeaseId,
        actuals: &[(&str, u64)],
    ) {
        let request = self.on.complete(lease, actuals);
        loop {
            match self.any_limiter(random).complete(&request).await {
                Ok(()) => return,
                Err(CompleteError::Unanswered(_)) => self.unanswered(random).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn any_limiter(&self, random: &mut fastrand::Rng) -> HttpLimiter {
        let limiters = self.limiters.read().unwrap();
        limiters[random.usize(..limiters.len())].clone()
    }

    async fn unanswered(&self, random: &mut fastrand::Rng) {
        self.counts.unanswered.fetch_add(1, Ordering::Relaxed);
        pass(Duration::from_millis(random.u64(1..50))).await;
    }
}
