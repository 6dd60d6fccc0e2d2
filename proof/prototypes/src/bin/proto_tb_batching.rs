//! Prototype 2: many callers share few requests to TigerBeetle; how fast, and nothing is lost or split.

#![allow(clippy::print_stdout, reason = "the figures are what the program is for")]

use std::process::ExitCode;
use std::sync::Arc;

use prototypes::latencies::Latencies;
use prototypes::semantics::new_lease;
use prototypes::{Error, Steps, cluster};
use ratelimiter_client::{
    Backend, CAPACITY_MAX, Capacity, Limit, LimitKey, LimitKind, Limiter, Requirements,
    ReserveRequest, Window,
};
use ratelimiter_tigerbeetle::ledger::cluster::{ClusterLedger, ClusterSettings};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use testkit::tigerbeetle::Mode;
use tokio::time::Instant;

const RESERVES: usize = 20_000;
/// A reserve of four limits is a chain of four transfers, which must not be split.
const LIMITS: usize = 4;

type TigerBeetle = TigerBeetleLimiter<ClusterLedger>;

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::begin("TigerBeetle: many callers share few requests");
    let cluster = cluster::start(Mode::Production)?;
    for (round, (callers, sessions, flush_interval_micros)) in
        [(1, 1, 200), (64, 1, 200), (512, 1, 200), (512, 1, 1_000), (512, 4, 200), (2_048, 1, 200)]
            .into_iter()
            .enumerate()
    {
        let settings = ClusterSettings { sessions, flush_interval_micros, ..cluster.settings() };
        let limiter = Arc::new(cluster::limiter(&settings).await?);
        let keys = keys(round)?;
        for key in &keys {
            let kind = LimitKind::Rolling { window: Window::from_seconds(3_600)? };
            limiter.define(Limit::new(key.clone(), kind, Capacity::new(CAPACITY_MAX)?)).await?;
        }
        let reserves = if callers == 1 { RESERVES / 20 } else { RESERVES };
        let begun = Instant::now();
        let latencies = reserve_all(&limiter, &keys, callers, reserves).await?;
        let per_second = reserves as u128 * 1_000_000 / begun.elapsed().as_micros().max(1);
        let what = format!(
            "{reserves} reserves of {LIMITS} limits: {callers} callers, {sessions} sessions, {flush_interval_micros} µs"
        );
        println!("   {per_second} reserves/s, {latencies}");
        let state = limiter.state(&keys[0]).await?.ok_or("the limit is defined")?;
        steps.equal(&what, &(reserves as u64), &state.usage.used);
    }
    Ok(steps.end())
}

fn keys(round: usize) -> Result<Vec<LimitKey>, Error> {
    let key = |number| LimitKey::new(format!("global:prototype:batching:{round}:{number}"));
    Ok((0..LIMITS).map(key).collect::<Result<_, _>>()?)
}

/// Lets the callers make the reserves, each one after another; all must be allowed.
async fn reserve_all(
    limiter: &Arc<TigerBeetle>,
    keys: &[LimitKey],
    callers: usize,
    reserves: usize,
) -> Result<Latencies, Error> {
    let mut tasks = Vec::with_capacity(callers);
    for caller in 0..callers {
        let limiter = limiter.clone();
        let pairs = keys.iter().map(|key| (key.clone(), 1));
        let requirements = Requirements::of(pairs)?;
        let count = reserves / callers + usize::from(caller < reserves % callers);
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                let begun = Instant::now();
                let request = ReserveRequest::new(new_lease(), requirements.clone());
                let decision = limiter.reserve(&request).await?;
                times.push(begun.elapsed());
                if !decision.is_allowed() {
                    return Err(Error::from("a limit without bounds denied"));
                }
            }
            Ok(times)
        }));
    }
    let mut times = Vec::with_capacity(reserves);
    for task in tasks {
        times.extend(task.await??);
    }
    Ok(Latencies::of(times))
}
