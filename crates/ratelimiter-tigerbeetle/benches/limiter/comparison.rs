//! Measurements of the client crate alone and of the limiter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Backend, Capacity, LeaseId, Limit, LimitKey, LimitKind, Limiter, Requirements, ReserveRequest,
    Window,
};
use ratelimiter_tigerbeetle::ids::{self, TransferRole};
use ratelimiter_tigerbeetle::ledger::LEDGER_LIMITS;
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterConfig, ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::tigerbeetle::TestCluster;
use tigerbeetle as tb;
use tokio::task::JoinSet;

const MODELS: usize = 250;
const DIMENSIONS: [&str; 4] = ["concurrency", "rpm", "tokens", "tpm"];
const WINDOW_SECONDS: u64 = 3_600;
const CHAINS_PER_CALL: usize = 2_000;
const LONE_REQUESTS: usize = 400;

pub type TestedLimiter = TigerBeetleLimiter<ClusterLedger>;

/// One server and everything that is measured on it.
pub struct Comparison {
    clock: MonotonicClock,
    turn: Duration,
    client: tb::Client,
    limiter: Arc<TestedLimiter>,
    unbatched: Arc<TestedLimiter>,
}

/// Medians: per second, and microseconds for one caller.
pub struct LimiterResults {
    pub direct: f64,
    pub limiter: f64,
    pub batched: f64,
    pub unbatched: f64,
    pub direct_micros: f64,
    pub limiter_micros: f64,
}

impl Comparison {
    pub async fn prepare(cluster: &TestCluster, turn: Duration) -> Self {
        let client = tb::Client::new(cluster.cluster_id(), &cluster.addresses()[0]).unwrap();
        client.lookup_accounts(&[1]).await.unwrap();
        let limiter = open(cluster, 8_000).await;
        let unbatched = open(cluster, 4).await;
        for model in 0..MODELS {
            for dimension in DIMENSIONS {
                limiter.define(limit(model, dimension)).await.unwrap();
                unbatched.define(limit(model, dimension)).await.unwrap();
            }
        }
        Self { clock: MonotonicClock::new(), turn, client, limiter, unbatched }
    }

    /// Alternating, so that other load on the machine affects all of them alike.
    pub async fn run(&self, rounds: usize) -> LimiterResults {
        let mut results = [const { Vec::new() }; 6];
        for _ in 0..rounds {
            let (direct_micros, limiter_micros) = self.lone_caller().await;
            let round = [
                self.direct().await,
                self.callers(&self.limiter, 4_096).await,
                self.callers(&self.limiter, 256).await,
                self.callers(&self.unbatched, 256).await,
                direct_micros,
                limiter_micros,
            ];
            for (values, value) in results.iter_mut().zip(round) {
                values.push(value);
            }
        }
        let [direct, limiter, batched, unbatched, direct_micros, limiter_micros] =
            results.map(median);
        LimiterResults { direct, limiter, batched, unbatched, direct_micros, limiter_micros }
    }

    /// Chains per second with the client alone: one call at a time, as full as the limiter's
    /// batches.
    async fn direct(&self) -> f64 {
        let started_at = self.clock.now();
        let mut done = 0;
        while self.clock.now().since(started_at) < self.turn {
            let chains: Vec<_> = (0..CHAINS_PER_CALL).flat_map(|_| self.chain()).collect();
            self.client.create_transfers(&chains).await.unwrap();
            done += CHAINS_PER_CALL as u64;
        }
        per_second(done, self.clock.now().since(started_at))
    }

    /// Leases per second through the limiter.
    async fn callers(&self, limiter: &Arc<TestedLimiter>, callers: usize) -> f64 {
        let started_at = self.clock.now();
        let done = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (limiter, clock) = (Arc::clone(limiter), self.clock.clone());
            let (done, turn) = (Arc::clone(&done), self.turn);
            tasks.spawn(async move {
                while clock.now().since(started_at) < turn {
                    assert!(limiter.reserve(&request(&clock)).await.unwrap().is_allowed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        per_second(done.load(Ordering::Relaxed), self.clock.now().since(started_at))
    }

    /// One caller, alternating with the client alone: the median of each, in microseconds.
    async fn lone_caller(&self) -> (f64, f64) {
        let (mut direct, mut limiter) = (Vec::new(), Vec::new());
        for _ in 0..LONE_REQUESTS {
            let started_at = self.clock.now();
            self.client.create_transfers(&self.chain()).await.unwrap();
            direct.push(micros(self.clock.now().since(started_at)));
            let started_at = self.clock.now();
            assert!(self.limiter.reserve(&request(&self.clock)).await.unwrap().is_allowed());
            limiter.push(micros(self.clock.now().since(started_at)));
        }
        (median(direct), median(limiter))
    }

    /// The limiter's chain for a request, in the client's types.
    fn chain(&self) -> Vec<tb::Transfer> {
        let request = request(&self.clock);
        let lease = request.lease;
        let event = |(at, requirement): (usize, &ratelimiter::Requirement)| tb::Transfer {
            id: ids::transfer(TransferRole::Reserve, lease, &requirement.key).get(),
            debit_account_id: ids::limit_account(&requirement.key).get(),
            credit_account_id: ids::operator_account().get(),
            amount: 1,
            user_data_128: lease.as_u128(),
            timeout: u32::try_from(WINDOW_SECONDS).unwrap(),
            ledger: LEDGER_LIMITS,
            code: 1,
            flags: if at == DIMENSIONS.len() - 1 {
                tb::TransferFlags::Pending
            } else {
                tb::TransferFlags::Pending | tb::TransferFlags::Linked
            },
            ..tb::Transfer::default()
        };
        request.requirements.iter().enumerate().map(event).collect()
    }
}

pub async fn open(cluster: &TestCluster, max_batch_events: u32) -> Arc<TestedLimiter> {
    let mut settings = cluster.settings();
    settings.max_batch_events = max_batch_events;
    settings.request_timeout_ms = 30_000;
    let config = ClusterConfig::new(&settings).unwrap();
    let ledger = ClusterLedger::open(config, NoObserver).unwrap();
    ledger.warm_up().await.unwrap();
    Arc::new(TigerBeetleLimiter::new(ledger, LimiterOptions::default()))
}

fn key(model: usize, dimension: &str) -> LimitKey {
    LimitKey::new(format!("global:llm:provider:model-{model}:{dimension}")).unwrap()
}

fn limit(model: usize, dimension: &str) -> Limit {
    let kind = LimitKind::Rolling { window: Window::from_seconds(WINDOW_SECONDS).unwrap() };
    Limit::new(key(model, dimension), kind, Capacity::new(1 << 60).unwrap())
}

fn request(clock: &MonotonicClock) -> ReserveRequest {
    let model = fastrand::usize(..MODELS);
    let needs = DIMENSIONS.map(|dimension| (key(model, dimension), 1));
    ReserveRequest::new(LeaseId::generate(clock.now()), Requirements::of(needs).unwrap())
}

pub fn median(mut results: Vec<f64>) -> f64 {
    results.sort_by(f64::total_cmp);
    results[results.len() / 2]
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
