//! Prototype 5: the memory backend decides like TigerBeetle, is exact with many threads, and fast; and with the scheduler no
//! provider waits for another.

#![allow(clippy::print_stdout, reason = "the table is the program's output")]

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
/// Any machine and any build is faster than this.
const PAIRS_PER_SECOND_MIN: u128 = 10_000;

fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::start("Memory: the same decisions, without TigerBeetle");
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let options = MemoryOptions::for_tests(TokioClock::new());
        let limiter = MemoryLimiter::with_options(options);
        semantics::run(&mut steps, &limiter).await?;
        reconcile::run(&mut steps, &limiter).await?;
        no_provider_waits_for_another(&mut steps).await
    })?;
    exact_with_many_threads(&mut steps)?;
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
    let [alone, together] =
        [&comparison.quiet_alone, &comparison.quiet].map(|result| result.waits.max);
    let what = "longest wait of a free provider's jobs, with a saturated provider";
    steps.check(
        what,
        &format!("at most as long as alone: {alone:?}"),
        &format!("{together:?}"),
        together <= alone,
    );
    let busy = comparison.busy.waits.max;
    let waits = "the saturated provider's longest wait";
    let passed = busy > Duration::from_secs(60);
    steps.check(waits, "more than a minute", &format!("{busy:?}"), passed);
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

fn exact_with_many_threads(steps: &mut Steps) -> Result<(), Error> {
    let key = LimitKey::new("global:prototype:threads")?;
    let capacity = (THREADS * RESERVES_PER_THREAD / 2) as u64;
    let limiter = limiter_of(&key, capacity)?;
    let requirements = Requirements::of([(key.clone(), 1)])?;
    let count_allowed = || {
        let reserve =
            |_| limiter.reserve_now(&ReserveRequest::new(new_lease(), requirements.clone()));
        (0..RESERVES_PER_THREAD)
            .map(reserve)
            .filter(|answer| matches!(answer, Ok(one) if one.is_allowed()))
            .count()
    };
    let allowed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count_allowed)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    let reserves = THREADS * RESERVES_PER_THREAD;
    let what = format!("{THREADS} threads reserve {reserves} times of {capacity} units");
    steps.equal(&what, &capacity, &(allowed as u64));
    let used = limiter.state_now(&key).map_or(0, |state| state.usage.used);
    steps.equal("usage of the limit", &capacity, &used);
    Ok(())
}

fn fast(steps: &mut Steps) -> Result<(), Error> {
    let key = LimitKey::new("global:prototype:speed")?;
    let limiter = limiter_of(&key, CAPACITY_MAX)?;
    let requirements = Requirements::of([(key.clone(), 100)])?;
    let actuals = Actuals::of([(key, 10)])?;
    let clock = MonotonicClock::new();
    let count = 50_000_u128;
    let started_at = clock.now();
    for _ in 0..count {
        let request = ReserveRequest::new(new_lease(), requirements.clone());
        let allowed = limiter.reserve_now(&request)?.is_allowed();
        limiter.complete_now(&CompleteRequest::new(request.lease, actuals.clone()))?;
        if !allowed {
            return Err("the limit never denies".into());
        }
    }
    let per_second = count * 1_000_000_000 / clock.now().since(started_at).as_nanos().max(1);
    let expected = format!("more than {PAIRS_PER_SECOND_MIN} per second");
    let actual = format!("{per_second} per second");
    let passed = per_second > PAIRS_PER_SECOND_MIN;
    steps.check("reserve and complete, one after another", &expected, &actual, passed);
    Ok(())
}
