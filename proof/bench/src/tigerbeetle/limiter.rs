//! The limiter on TigerBeetle without HTTP, compared with the client crate alone; and completes of another limiter's leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{Backend, CompleteRequest, LeaseId, Limiter, ReserveRequest};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, NoObserver,
};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use ratelimiterd::load::{Call, Caller, ClosedLoop, LimiterCaller, Recorder, Results, Workload};
use testkit::tigerbeetle::{Mode, TestCluster};
use tokio::runtime::Runtime;

use super::direct::Direct;
use super::servers::SECONDS_MIN;
use super::{DIRECT, skip_without_server};
use crate::progress::Progress;
use crate::report::{Section, SkipReason};
use crate::rounds::{Comparison, Rounds, float, itself};
use crate::scale::Scale;
use crate::summary::count;
use crate::table::Table;
use crate::threshold::Threshold;
use crate::workload::{LIMITS_PER_CALL, workload};

const LIMITER: &str = "limiter";
const RESERVES_ALONE: &str = "reserves alone";
const WARM: &str = "completes at the limiter that made the leases";
const COLD: &str = "completes at another limiter";
const BATCH_EVENTS: u32 = 8_000;

pub(crate) const THRESHOLDS: [Threshold; 5] = [
    Threshold::at_least(
        "TigerBeetle without HTTP, 4 096 callers, × the chains per second of the client crate alone",
        0.8,
    ),
    Threshold::at_least(
        "the same, batching on, × the throughput with batching off, 256 callers",
        5.0,
    ),
    Threshold::at_most("the same, one caller, p50, × that of the client crate alone", 1.5),
    Threshold::at_least(
        "TigerBeetle, completes of another limiter's leases, × completes of a limiter's own (`TB-23`)",
        0.5,
    ),
    Threshold::at_most("the same, p99 of concurrent reserves, × that with its own", 3.0),
];

type TestedLimiter = Arc<TigerBeetleLimiter<ClusterLedger>>;

#[derive(Debug, Clone, Copy)]
struct Sizes {
    mode: Mode,
    models: usize,
    /// Most callers, and those of the comparison with batching off.
    callers: [usize; 2],
    duration: Duration,
    /// Leases completed in one measurement, the callers that complete them, and those that reserve meanwhile.
    leases: usize,
    completers: usize,
    reservers: usize,
    rounds: usize,
}

/// Three limiters on one cluster.
struct Limiters {
    sizes: Sizes,
    clock: MonotonicClock,
    runtime: Runtime,
    calls: Arc<[Call]>,
    batched: TestedLimiter,
    unbatched: TestedLimiter,
    /// Completes the leases that `batched` made.
    other: TestedLimiter,
}

/// Completes per second, and the p99 of concurrent reserves in microseconds.
#[derive(Debug)]
struct Completes {
    rate: f64,
    reserve_p99: f64,
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, SkipReason> {
    skip_without_server()?;
    let full = Sizes {
        mode: Mode::Production,
        models: 250,
        callers: [4_096, 256],
        duration: Duration::from_secs(1),
        leases: 40_000,
        completers: 1_024,
        reservers: 16,
        rounds: 7,
    };
    let quick = Sizes {
        mode: Mode::Development,
        models: 2,
        callers: [16, 8],
        duration: Duration::from_millis(50),
        leases: 50,
        completers: 8,
        reservers: 2,
        rounds: 1,
    };
    let sizes = scale.pick(full, quick);
    progress.step("TigerBeetle without HTTP: starting");
    let cluster = TestCluster::start(sizes.mode);
    let limiters = Limiters::open(&cluster, sizes);
    let direct = Direct::open(&cluster, sizes.mode, sizes.models);
    let rates = rates(&limiters, &direct, progress);
    let latencies = lone_callers(&limiters, &direct, progress);
    let completes = completes(&limiters, direct.chains_per_request, progress);
    Ok(section(sizes, &rates, &latencies, &completes))
}

fn callers_name(callers: usize) -> String {
    format!("{LIMITER}, {} callers", count(callers))
}

fn unbatched_name(callers: usize) -> String {
    format!("{}, batching off", callers_name(callers))
}

/// Leases per second.
fn rates(limiters: &Limiters, direct: &Direct, progress: &Progress) -> Rounds {
    let Sizes { callers: [most, usual], duration, rounds, .. } = limiters.sizes;
    let mut comparison = Comparison::new();
    comparison.add(DIRECT, || direct.flat_out(duration));
    for (name, limiter, callers) in [
        (callers_name(most), &limiters.batched, most),
        (callers_name(usual), &limiters.batched, usual),
        (unbatched_name(usual), &limiters.unbatched, usual),
    ] {
        comparison.add(name, move || {
            let (results, took) = limiters.reserves(limiter, callers);
            per_second(results.reserves.count(), took)
        });
    }
    comparison.run(rounds, progress, "TigerBeetle without HTTP")
}

/// Median latency in microseconds.
fn lone_callers(limiters: &Limiters, direct: &Direct, progress: &Progress) -> Rounds {
    let Sizes { duration, rounds, .. } = limiters.sizes;
    let mut comparison = Comparison::new();
    comparison.add(DIRECT, || direct.lone_p50(duration));
    comparison.add(LIMITER, || {
        let (results, _) = limiters.reserves(&limiters.batched, 1);
        micros(&results, 50.0)
    });
    comparison.run(rounds, progress, "TigerBeetle without HTTP, one caller")
}

fn completes(limiters: &Limiters, batch: usize, progress: &Progress) -> Rounds<Completes> {
    let mut comparison = Comparison::new();
    comparison.add(RESERVES_ALONE, || {
        let (results, _) = limiters.reserves(&limiters.other, limiters.sizes.reservers);
        Completes { rate: 0.0, reserve_p99: micros(&results, 99.0) }
    });
    comparison.add(WARM, || limiters.completes(&limiters.batched, batch));
    comparison.add(COLD, || limiters.completes(&limiters.other, batch));
    comparison.run(limiters.sizes.rounds, progress, "TigerBeetle without HTTP, completes")
}

impl Limiters {
    fn open(cluster: &TestCluster, sizes: Sizes) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let workload = workload(SECONDS_MIN);
        let open = |max_batch_events| {
            let settings = ClusterSettings {
                max_batch_events,
                request_timeout_ms: 30_000,
                ..cluster.settings()
            };
            runtime.block_on(open(&settings, &workload, sizes.models))
        };
        let unbatched = open(u32::try_from(LIMITS_PER_CALL).expect("four"));
        let (batched, other) = (open(BATCH_EVENTS), open(BATCH_EVENTS));
        let (clock, calls) = (MonotonicClock::new(), workload.calls(sizes.models));
        Self { sizes, clock, runtime, calls, batched, unbatched, other }
    }

    fn start_reserves(
        &self,
        limiter: &TestedLimiter,
        callers: usize,
        duration: Duration,
    ) -> ClosedLoop<LimiterCaller<TestedLimiter>> {
        let caller =
            |number| LimiterCaller::new(Arc::clone(limiter), &self.calls, number).reserve_only();
        let until = self.clock.now().after(duration);
        ClosedLoop::start((0..callers).map(caller).collect(), &self.clock, until)
    }

    /// Reserves in a closed loop; also returns how long that took.
    fn reserves(&self, limiter: &TestedLimiter, callers: usize) -> (Results, Duration) {
        let started_at = self.clock.now();
        let results = self.runtime.block_on(async {
            let mut running = self.start_reserves(limiter, callers, self.sizes.duration);
            running.join().await.expect("a caller does not panic");
            allowed(running.results())
        });
        (results, self.clock.now().since(started_at))
    }

    /// Completes leases of `batched` at a limiter that also reserves meanwhile.
    fn completes(&self, at: &TestedLimiter, batch: usize) -> Completes {
        self.runtime.block_on(async {
            let leases = Arc::new(self.make_leases(batch).await);
            let next = Arc::new(AtomicUsize::new(0));
            let completer = |_| Completer {
                limiter: Arc::clone(at),
                leases: Arc::clone(&leases),
                next: Arc::clone(&next),
            };
            let completers = (0..self.sizes.completers).map(completer).collect();
            let until_stopped = Duration::from_secs(SECONDS_MIN);
            let reserving = self.start_reserves(at, self.sizes.reservers, until_stopped);
            let started_at = self.clock.now();
            let until = started_at.after(until_stopped);
            let mut completing = ClosedLoop::start(completers, &self.clock, until);
            completing.join().await.expect("a caller does not panic");
            let took = self.clock.now().since(started_at);
            let reserve_p99 = micros(&allowed(reserving.results()), 99.0);
            let completed = allowed(completing.results()).completes.count();
            Completes { rate: per_second(completed, took), reserve_p99 }
        })
    }

    async fn make_leases(&self, batch: usize) -> Vec<CompleteRequest> {
        let mut leases = Vec::with_capacity(self.sizes.leases);
        while leases.len() < self.sizes.leases {
            let requests: Vec<_> = (self.calls.iter().cycle().take(batch))
                .map(|call| {
                    let lease = LeaseId::generate(self.clock.now());
                    leases.push(CompleteRequest::new(lease, call.actuals.clone()));
                    ReserveRequest::new(lease, call.requirements.clone())
                })
                .collect();
            for decision in self.batched.reserve_batch(&requests).await {
                assert!(decision.expect("the cluster answers").is_allowed());
            }
        }
        leases.truncate(self.sizes.leases);
        leases
    }
}

async fn open(settings: &ClusterSettings, workload: &Workload, models: usize) -> TestedLimiter {
    let config = ClusterConfig::new(settings).expect("the settings are valid");
    let ledger = ClusterLedger::open(config, NoObserver).expect("the client starts");
    ledger.warm_up().await.expect("the cluster answers");
    let limiter = TigerBeetleLimiter::new(ledger, LimiterOptions::default());
    for limit in (0..models).flat_map(|model| workload.limits(model)) {
        limiter.define(limit).await.expect("the cluster answers");
    }
    Arc::new(limiter)
}

/// Completes one lease of a shared list after another.
struct Completer {
    limiter: TestedLimiter,
    leases: Arc<Vec<CompleteRequest>>,
    next: Arc<AtomicUsize>,
}

impl Caller for Completer {
    async fn call(&mut self, started_at: Timestamp, recorder: &Recorder) -> Option<Timestamp> {
        let request = self.leases.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        let answer = self.limiter.complete(request).await;
        Some(recorder.completed(started_at, &answer))
    }
}

fn allowed(results: Results) -> Results {
    assert_eq!(results.first_failure, None, "the cluster answers");
    assert_eq!(results.denied, 0, "the limits never deny");
    results
}

fn micros(results: &Results, percent: f64) -> f64 {
    results.reserves.percentile(percent).as_secs_f64() * 1e6
}

fn per_second(count: u64, took: Duration) -> f64 {
    float(usize::try_from(count).expect("it fits memory")) / took.as_secs_f64()
}

fn section(
    sizes: Sizes,
    rates: &Rounds,
    latencies: &Rounds,
    completes: &Rounds<Completes>,
) -> Section {
    let Sizes { callers: [most, usual], leases, completers, reservers, .. } = sizes;
    let mut section = Section::default();
    section.text(format!(
        "The limiter in this process, one session, one replica on the same machine; {} rounds of {} ms for each row. The client crate alone \
         sends 2 000 prepared chains of four per request; with batching off the limiter sends one chain per request.",
        sizes.rounds,
        sizes.duration.as_millis()
    ));
    section.table(&rates.table("", "leases/s", DIRECT));
    section.table(&latencies.table("One caller:", "p50 µs", DIRECT));
    let caption = format!(
        "{} leases of four limits, completed by {} callers while {reservers} others reserve:",
        count(leases),
        count(completers)
    );
    let mut table = Table::new(caption, ["what", "completes/s", "p99 of the reserves, µs"]);
    for name in completes.names() {
        let rate = completes.summary(name, |measured| measured.rate);
        let rate = if name == RESERVES_ALONE { "—".to_owned() } else { rate.to_string() };
        let p99 = completes.summary(name, |measured| measured.reserve_p99);
        table.row([name.to_owned(), rate, p99.to_string()]);
    }
    section.table(&table);
    let measured = [
        rates.ratio(&callers_name(most), DIRECT, itself),
        rates.ratio(&callers_name(usual), &unbatched_name(usual), itself),
        latencies.ratio(LIMITER, DIRECT, itself),
        completes.ratio(COLD, WARM, |measured| measured.rate),
        completes.ratio(COLD, WARM, |measured| measured.reserve_p99),
    ];
    section.thresholds = Threshold::measured(THRESHOLDS, measured);
    section
}
