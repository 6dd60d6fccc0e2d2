//! Completes of another limiter's leases, compared with a limiter's own, and their effect on
//! reserves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    Limiter, Requirements, ReserveRequest, Window,
};
use testkit::tigerbeetle::TestCluster;
use tokio::task::JoinSet;

use crate::comparison::{TestedLimiter, median, micros, open, per_second};

/// Leases completed in one measurement, the callers that complete, and those that reserve.
const LEASES: usize = 40_000;
const CALLERS: usize = 1_024;
const RESERVERS: usize = 16;
/// How long reserves run alone in a measurement.
const ALONE: Duration = Duration::from_secs(1);
const MODELS: usize = 50;
const SECONDS: u64 = 3_600;

/// Two limiters on one cluster.
pub struct ColdComparison {
    clock: MonotonicClock,
    maker: Arc<TestedLimiter>,
    other: Arc<TestedLimiter>,
}

/// Medians: completes per second, and the reserves' 99th percentile in microseconds.
pub struct ColdResults {
    pub warm: f64,
    pub cold: f64,
    pub p99_alone: f64,
    pub p99_with_warm: f64,
    pub p99_with_cold: f64,
}

impl ColdComparison {
    pub async fn prepare(cluster: &TestCluster) -> Self {
        let (maker, other) = (open(cluster, 8_000).await, open(cluster, 8_000).await);
        for limit in (0..MODELS).flat_map(limits) {
            maker.define(limit.clone()).await.unwrap();
            other.define(limit).await.unwrap();
        }
        Self { clock: MonotonicClock::new(), maker, other }
    }

    /// Alternating, so that other load on the machine affects all of them alike.
    pub async fn run(&self, rounds: usize) -> ColdResults {
        let mut results = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            let p99_alone = self.reserves_alone().await;
            let (warm, p99_with_warm) = self.completes(&self.maker).await;
            let (cold, p99_with_cold) = self.completes(&self.other).await;
            let round = [warm, cold, p99_alone, p99_with_warm, p99_with_cold];
            for (values, value) in results.iter_mut().zip(round) {
                values.push(value);
            }
        }
        let [warm, cold, p99_alone, p99_with_warm, p99_with_cold] = results.map(median);
        ColdResults { warm, cold, p99_alone, p99_with_warm, p99_with_cold }
    }

    async fn reserves_alone(&self) -> f64 {
        let reserves = Reserves::start(&self.other, &self.clock);
        let _passed = tokio::time::timeout(ALONE, std::future::pending::<()>()).await;
        reserves.p99().await
    }

    /// Completes per second at one of them, and the p99 of the concurrent reserves there.
    async fn completes(&self, at: &Arc<TestedLimiter>) -> (f64, f64) {
        let leases = Arc::new(self.make().await);
        let next = Arc::new(AtomicUsize::new(0));
        let reserves = Reserves::start(at, &self.clock);
        let started_at = self.clock.now();
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (at, leases, next) = (Arc::clone(at), Arc::clone(&leases), Arc::clone(&next));
            callers.spawn(async move {
                while let Some(&(lease, model)) = leases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let actuals = Actuals::of([(key(model, "tokens"), 40)]).unwrap();
                    at.complete(&CompleteRequest::new(lease, actuals)).await.unwrap();
                }
            });
        }
        callers.join_all().await;
        let rate = per_second(LEASES as u64, self.clock.now().since(started_at));
        (rate, reserves.p99().await)
    }

    async fn make(&self) -> Vec<(LeaseId, usize)> {
        let mut leases = Vec::new();
        while leases.len() < LEASES {
            let made: Vec<_> =
                (0..256).map(|n| (request(&self.clock, n % MODELS), n % MODELS)).collect();
            let requests: Vec<_> = made.iter().map(|(request, _)| request.clone()).collect();
            for decision in self.maker.reserve_batch(&requests).await {
                assert!(decision.unwrap().is_allowed());
            }
            leases.extend(made.iter().map(|(request, model)| (request.lease, *model)));
        }
        leases.truncate(LEASES);
        leases
    }
}

/// Callers that reserve in a loop until they are asked for their latencies.
struct Reserves {
    stop: Arc<AtomicBool>,
    callers: JoinSet<Vec<f64>>,
}

impl Reserves {
    fn start(at: &Arc<TestedLimiter>, clock: &MonotonicClock) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for model in 0..RESERVERS {
            let (at, clock, stop) = (Arc::clone(at), clock.clone(), Arc::clone(&stop));
            callers.spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let request = request(&clock, model);
                    let started_at = clock.now();
                    assert!(at.reserve(&request).await.unwrap().is_allowed());
                    took.push(micros(clock.now().since(started_at)));
                }
                took
            });
        }
        Self { stop, callers }
    }

    async fn p99(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = self.callers.join_all().await.concat();
        took.sort_by(f64::total_cmp);
        took[took.len() * 99 / 100]
    }
}

fn key(model: usize, dimension: &str) -> LimitKey {
    LimitKey::new(format!("global:llm:cold:model-{model}:{dimension}")).unwrap()
}

/// Limits of a model in production: one lease is four reservations.
fn limits(model: usize) -> Vec<Limit> {
    let window = Window::from_seconds(SECONDS).unwrap();
    let timeout = HoldTimeout::from_seconds(SECONDS).unwrap();
    let limit =
        |dimension, kind| Limit::new(key(model, dimension), kind, Capacity::new(1 << 60).unwrap());
    let rolling = LimitKind::Rolling { window };
    vec![
        limit("concurrency", LimitKind::Concurrency { timeout }),
        limit("rpm", rolling),
        limit("tokens", rolling),
        limit("tpm", rolling),
    ]
}

fn request(clock: &MonotonicClock, model: usize) -> ReserveRequest {
    let needs = [("concurrency", 1), ("rpm", 1), ("tokens", 100), ("tpm", 100)];
    let needs = needs.map(|(dimension, amount)| (key(model, dimension), amount));
    ReserveRequest::new(LeaseId::generate(clock.now()), Requirements::of(needs).unwrap())
}
