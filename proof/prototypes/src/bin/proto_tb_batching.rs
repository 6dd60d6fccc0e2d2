//! Prototype 2: many callers share few requests to TigerBeetle; no reserve is lost or split.

#![allow(clippy::print_stdout, reason = "the latencies are the program's output")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use prototypes::{Error, Steps, cluster};
use ratelimiter_client::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter_client::{Backend, CAPACITY_MAX, Capacity};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterLedger, ClusterSettings};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use ratelimiterd::load::{
    Caller, ClosedLoop, LIMITS_PER_CALL_MAX, LimiterCaller, Recorder, Workload,
};
use testkit::tigerbeetle::Mode;

const RESERVES: usize = 20_000;
/// Longer than the program runs, so that nothing expires.
const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a fixed number of reserves.
struct CountedCaller {
    caller: LimiterCaller<Arc<TigerBeetleLimiter<ClusterLedger>>>,
    left: usize,
}

impl Caller for CountedCaller {
    async fn call(&mut self, started_at: Timestamp, recorder: &Recorder) -> Option<Timestamp> {
        self.left = self.left.checked_sub(1)?;
        self.caller.call(started_at, recorder).await
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::start("TigerBeetle: many callers share few requests");
    let cluster = cluster::start(Mode::Production)?;
    let clock = MonotonicClock::new();
    for (round, (callers, sessions, flush_interval_micros)) in [
        (1, 1, 200),
        (64, 1, 200),
        (512, 1, 0),
        (512, 1, 200),
        (512, 1, 1_000),
        (512, 4, 200),
        (2_048, 1, 200),
    ]
    .into_iter()
    .enumerate()
    {
        let settings = ClusterSettings { sessions, flush_interval_micros, ..cluster.settings() };
        let limiter = Arc::new(cluster::limiter(&settings).await?);
        let workload = workload(round)?;
        for limit in workload.limits(0) {
            limiter.define(limit).await?;
        }
        let calls = workload.calls(1);
        let reserves = if callers == 1 { RESERVES / 20 } else { RESERVES };
        let caller = |number| CountedCaller {
            caller: LimiterCaller::new(Arc::clone(&limiter), &calls, number).reserve_only(),
            left: reserves / callers + usize::from(number < reserves % callers),
        };
        let started_at = clock.now();
        let callers_to_run = (0..callers).map(caller).collect();
        let mut running = ClosedLoop::start(callers_to_run, &clock, started_at.after(HOUR));
        running.join().await?;
        let micros = clock.now().since(started_at).as_micros().max(1);
        let results = running.results();
        println!("   {} reserves/s, {}", reserves as u128 * 1_000_000 / micros, results.reserves);
        let what = format!(
            "{reserves} reserves of {LIMITS_PER_CALL_MAX} limits: {callers} callers, {sessions} sessions, {flush_interval_micros} µs"
        );
        steps.equal(&what, &(reserves as u64), &results.allowed);
        let [key, ..] = &workload.keys(0)[..] else { return Err("there are four limits".into()) };
        let state = limiter.state(key).await?.ok_or("the limit is defined")?;
        steps.equal("usage of a limit", &(reserves as u64), &state.usage.used);
    }
    Ok(steps.end())
}

/// A reserve of four limits is a chain of four transfers, which must not be split.
fn workload(round: usize) -> Result<Workload, Error> {
    Ok(Workload {
        keys: [0, 1, 2, 3].map(|number| format!("global:prototype:batching:{round}:{number}")),
        limits_per_call: LIMITS_PER_CALL_MAX,
        capacity: Capacity::new(CAPACITY_MAX)?,
        window_seconds: HOUR.as_secs(),
        hold_seconds: HOUR.as_secs(),
        tokens_reserved: 1,
        tokens_used: 1,
    })
}
