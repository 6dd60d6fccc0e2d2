//! Completes of leases that another limiter made, beside completes of a limiter's own, and what reserves feel of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    Limiter, Requirements, ReserveRequest, Window,
};
use testkit::tigerbeetle::TestCluster;
use tokio::task::JoinSet;

use crate::contestants::{TestedLimiter, median, micros, open, per_second};

/// Completed in one turn, by so many callers, while so many others reserve.
const LEASES: usize = 40_000;
const CALLERS: usize = 1_024;
const RESERVERS: usize = 16;
/// How long reserves are alone in a turn.
const ALONE: Duration = Duration::from_secs(1);
const MODELS: usize = 50;
const SECONDS: u64 = 3_600;

/// Two limiters on one cluster, as two servers have them.
pub struct ColdContest {
    clock: SystemClock,
    maker: Arc<TestedLimiter>,
    other: Arc<TestedLimiter>,
}

/// Medians: completes per second, and the reserves' 99th percentile in microseconds.
pub struct ColdFigures {
    pub warm: f64,
    pub cold: f64,
    pub p99_alone: f64,
    pub p99_beside_warm: f64,
    pub p99_beside_cold: f64,
}

impl ColdContest {
    pub async fn prepare(cluster: &TestCluster) -> Self {
        let (maker, other) = (open(cluster, 8_000).await, open(cluster, 8_000).await);
        for limit in (0..MODELS).flat_map(limits) {
            maker.define(limit.clone()).await.unwrap();
            other.define(limit).await.unwrap();
        }
        Self { clock: SystemClock::new(), maker, other }
    }

    /// Turn by turn, so that what else the machine does hits all of them alike.
    pub async fn run(&self, rounds: usize) -> ColdFigures {
        let mut figures = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            let p99_alone = self.reserves_alone().await;
            let (warm, p99_beside_warm) = self.completes(&self.maker).await;
            let (cold, p99_beside_cold) = self.completes(&self.other).await;
            let round = [warm, cold, p99_alone, p99_beside_warm, p99_beside_cold];
            for (figures, figure) in figures.iter_mut().zip(round) {
                figures.push(figure);
            }
        }
        let [warm, cold, p99_alone, p99_beside_warm, p99_beside_cold] = figures.map(median);
        ColdFigures { warm, cold, p99_alone, p99_beside_warm, p99_beside_cold }
    }

    async fn reserves_alone(&self) -> f64 {
        let reserves = Reserves::start(&self.other, &self.clock);
        let _passed = tokio::time::timeout(ALONE, std::future::pending::<()>()).await;
        reserves.p99().await
    }

    /// Completes a second at one of them, and the p99 of the reserves there meanwhile.
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

/// Callers that reserve one after another until they are asked what they saw.
struct Reserves {
    stop: Arc<AtomicBool>,
    callers: JoinSet<Vec<f64>>,
}

impl Reserves {
    fn start(at: &Arc<TestedLimiter>, clock: &SystemClock) -> Self {
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

/// What a model has in production: one lease of it is four reservations.
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

fn request(clock: &SystemClock, model: usize) -> ReserveRequest {
    let needs = [("concurrency", 1), ("rpm", 1), ("tokens", 100), ("tpm", 100)];
    let needs = needs.map(|(dimension, amount)| (key(model, dimension), amount));
    ReserveRequest::new(LeaseId::generate(clock.now()), Requirements::of(needs).unwrap())
}
