//! Prototype 5: the backend in memory does what TigerBeetle does, is exact under many threads, and fast; and the scheduler
//! lets no provider wait for another.

#![allow(clippy::print_stdout, reason = "the figures are what the program is for")]

use std::process::ExitCode;
use std::time::Duration;

use prototypes::semantics::new_lease;
use prototypes::{Error, Steps, reconcile, semantics};
use ratelimiter_client::clock::{Clock, MonotonicClock};
use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{
    Actuals, CAPACITY_MAX, Capacity, CompleteRequest, Limit, LimitKey, LimitKind, MemoryLimiter,
    Requirements, ReserveRequest, TokioClock, Window,
};
use simulated_provider::{ProviderLimits, TwoProviders};

const THREADS: usize = 8;
const RESERVES_PER_THREAD: usize = 2_000;
/// Slower than this, on any machine and in any build, something is wrong with it.
const PAIRS_PER_SECOND_MIN: u128 = 10_000;

fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::begin("Memory: the same decisions, without TigerBeetle");
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let options = MemoryOptions::for_tests(TokioClock::new());
        let limiter = MemoryLimiter::with_options(options);
        semantics::play(&mut steps, &limiter).await?;
        reconcile::play(&mut steps, &limiter).await?;
        no_provider_waits_for_another(&mut steps).await
    })?;
    exact_under_many_threads(&mut steps)?;
    fast(&mut steps)?;
    Ok(steps.end())
}

async fn no_provider_waits_for_another(steps: &mut Steps) -> Result<(), Error> {
    let scenario = TwoProviders {
        busy: ProviderLimits::per_minute(1_000, 50_000, 50),
        busy_jobs: 500,
        quiet_jobs: 200,
        ..TwoProviders::default()
    };
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = scenario.compare(in_process).await?;
    println!("{comparison}");
    let [alone, beside] =
        [&comparison.quiet_alone, &comparison.quiet].map(|result| result.waits.max);
    let what = "jobs of a free provider beside a saturated one: their longest wait";
    steps.judged(
        what,
        &format!("no longer than alone, which is {alone:?}"),
        &format!("{beside:?}"),
        beside <= alone,
    );
    let busy = comparison.busy.waits.max;
    let waits = "the saturated provider's longest wait";
    let holds = busy > Duration::from_secs(60);
    steps.judged(waits, "more than a minute", &format!("{busy:?}"), holds);
    let refused = comparison.quiet.metrics.refused + comparison.busy.metrics.refused;
    steps.equal("429s of both providers", &0, &refused);
    Ok(())
}

fn limiter_of(key: &LimitKey, capacity: u64) -> Result<MemoryLimiter, Error> {
    let limiter = MemoryLimiter::new();
    let kind = LimitKind::Rolling { window: Window::from_seconds(3_600)? };
    limiter.define_now(Limit::new(key.clone(), kind, Capacity::new(capacity)?))?;
    Ok(limiter)
}

fn exact_under_many_threads(steps: &mut Steps) -> Result<(), Error> {
    let key = LimitKey::new("global:prototype:threads")?;
    let capacity = (THREADS * RESERVES_PER_THREAD / 2) as u64;
    let limiter = limiter_of(&key, capacity)?;
    let requirements = Requirements::of([(key.clone(), 1)])?;
    let count_allowed = || {
        let ask = |_| limiter.reserve_now(&ReserveRequest::new(new_lease(), requirements.clone()));
        (0..RESERVES_PER_THREAD)
            .map(ask)
            .filter(|answer| matches!(answer, Ok(one) if one.is_allowed()))
            .count()
    };
    let allowed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count_allowed)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    let asked = THREADS * RESERVES_PER_THREAD;
    let what = format!("{THREADS} threads ask {asked} times for {capacity} units");
    steps.equal(&what, &capacity, &(allowed as u64));
    let used = limiter.state_now(&key).map_or(0, |state| state.usage.used);
    steps.equal("look at the limit", &capacity, &used);
    Ok(())
}

fn fast(steps: &mut Steps) -> Result<(), Error> {
    let key = LimitKey::new("global:prototype:speed")?;
    let limiter = limiter_of(&key, CAPACITY_MAX)?;
    let requirements = Requirements::of([(key.clone(), 100)])?;
    let actuals = Actuals::of([(key, 10)])?;
    let clock = MonotonicClock::new();
    let count = 50_000_u128;
    let begun = clock.now();
    for _ in 0..count {
        let request = ReserveRequest::new(new_lease(), requirements.clone());
        let allowed = limiter.reserve_now(&request)?.is_allowed();
        limiter.complete_now(&CompleteRequest::new(request.lease, actuals.clone()))?;
        if !allowed {
            return Err("a limit without bounds denied".into());
        }
    }
    let per_second = count * 1_000_000_000 / clock.now().since(begun).as_nanos().max(1);
    let expected = format!("more than {PAIRS_PER_SECOND_MIN} a second");
    let happened = format!("{per_second} a second");
    let holds = per_second > PAIRS_PER_SECOND_MIN;
    steps.judged("reserve and complete, one after another", &expected, &happened, holds);
    Ok(())
}
