//! A scenario with two providers, one of them overloaded.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ratelimiter::Backend;
use ratelimiter_client::{Done, Job, JobError, JobHandle, Scheduler};
use tokio::time::{Instant, sleep_until};

use super::metrics::{CallMetrics, Waits};
use super::provider::{Latency, ProviderLimits, SimulatedProvider};
use super::workload::Workload;

/// The number of tenants.
const TENANTS: usize = 20;
/// The least utilisation of a saturated provider's tokens after the warm-up.
///
/// While a call runs, its upper bound is reserved instead of its actual use. With bytes for tokens that is about three times as
/// much, so calls of a second leave some 5 % of a minute's tokens unused even if every call is made as early as possible; calls
/// of half a second, as here, less than 4 %.
pub const UTILISATION_MIN: f64 = 0.95;

/// Two providers: a busy one that gets all its jobs at once, far more than it allows, and a quiet one that gets them one by
/// one. Measures how much of the busy one is used, how often a provider returns 429, and whether the quiet one's jobs are
/// delayed.
#[derive(Debug, Clone)]
pub struct TwoProviders {
    /// The limits of the busy provider.
    pub busy: ProviderLimits,
    /// The number of jobs for the busy provider, all at once.
    pub busy_jobs: usize,
    /// The limits of the quiet provider.
    pub quiet: ProviderLimits,
    /// The number of jobs for the quiet provider.
    pub quiet_jobs: usize,
    /// The time between two jobs for the quiet provider.
    pub quiet_every: Duration,
    /// How long a call takes.
    pub latency: Latency,
    /// The limiter's capacities, in percent of the providers'. A request takes a while to arrive, so a provider's window ends a
    /// little later than the limiter's; less than 100 leaves room for that.
    pub limiter_percent: u64,
    /// The workers of the scheduler.
    pub workers: usize,
    /// The time at the start that is not measured.
    pub warm_up: Duration,
}

/// The results of one provider.
#[derive(Debug, Clone)]
pub struct ProviderResult {
    /// The metrics of its calls.
    pub metrics: CallMetrics,
    /// How long its jobs waited to be allowed.
    pub waits: Waits,
    /// The used part of its tokens, from the end of the warm-up until the remaining work fits into one window.
    pub utilisation: f64,
}

/// The results of both providers.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The quiet provider, alone.
    pub quiet_alone: ProviderResult,
    /// The quiet provider, together with the busy one.
    pub quiet: ProviderResult,
    /// The busy provider.
    pub busy: ProviderResult,
}

impl Default for TwoProviders {
    /// Ten thousand jobs, 25 minutes of provider time.
    fn default() -> Self {
        Self {
            busy: ProviderLimits::per_minute(1_000, 200_000, 100),
            busy_jobs: 8_000,
            quiet: ProviderLimits::per_minute(1_000, 400_000, 100),
            quiet_jobs: 2_000,
            quiet_every: Duration::from_millis(400),
            latency: Latency::default(),
            limiter_percent: 100,
            workers: 256,
            warm_up: Duration::from_secs(120),
        }
    }
}

impl TwoProviders {
    /// Runs the quiet provider's jobs alone, and then the jobs of both, each time on a new limiter.
    ///
    /// # Errors
    /// A limit could not be defined, or a job failed, for example with a 429.
    pub async fn compare<B, F>(&self, limiter: impl Fn() -> F) -> Result<Comparison, JobError>
    where
        B: Backend + Clone + 'static,
        F: Future<Output = Result<B, JobError>>,
    {
        let alone = Self { busy_jobs: 0, ..self.clone() };
        let (quiet_alone, _) = alone.run(limiter().await?).await?;
        let (quiet, busy) = self.run(limiter().await?).await?;
        Ok(Comparison { quiet_alone, quiet, busy })
    }

    /// Runs the jobs of both. Returns the results of the quiet and of the busy provider.
    ///
    /// # Errors
    /// As [`TwoProviders::compare`].
    pub async fn run<B: Backend + Clone + 'static>(
        &self,
        limiter: B,
    ) -> Result<(ProviderResult, ProviderResult), JobError> {
        for (name, limits) in [("busy", self.busy), ("quiet", self.quiet)] {
            for limit in limits.percent(self.limiter_percent).limits(name, "m")? {
                limiter.define(limit).await?;
            }
        }
        let scheduler = Scheduler::new(limiter, self.workers);
        let busy = SimulatedProvider::with_latency(self.busy, self.latency);
        let quiet = SimulatedProvider::with_latency(self.quiet, self.latency);
        let mut busy_handles = Vec::new();
        for job in jobs("busy", &busy, 1).take(self.busy_jobs) {
            busy_handles.push(scheduler.submit(job?).await?);
        }
        let mut quiet_handles = Vec::new();
        let begun = Instant::now();
        for (count, job) in (0..).zip(jobs("quiet", &quiet, 2).take(self.quiet_jobs)) {
            sleep_until(begun + self.quiet_every * count).await;
            quiet_handles.push(scheduler.submit(job?).await?);
        }
        let quiet_waits = waits(quiet_handles).await?;
        let busy_waits = waits(busy_handles).await?;
        Ok((self.result(&quiet, quiet_waits), self.result(&busy, busy_waits)))
    }

    fn result(&self, provider: &SimulatedProvider, waits: Waits) -> ProviderResult {
        let metrics = provider.metrics();
        let ProviderLimits { tokens, window, .. } = provider.limits();
        let to = metrics.all_but(tokens);
        let utilisation = metrics.utilisation(tokens, window, self.warm_up, to);
        ProviderResult { metrics, waits, utilisation }
    }
}

fn jobs(
    name: &str,
    provider: &SimulatedProvider,
    seed: u64,
) -> impl Iterator<Item = Result<Job<()>, JobError>> {
    Workload::new(name, TENANTS, seed).map(move |(request, call)| {
        let provider = provider.clone();
        let job = Job::new(&request, move |_permit| async move {
            provider.call(call).await.map(|tokens| Done::using(tokens, ()))
        });
        Ok(job?)
    })
}

async fn waits(handles: Vec<JobHandle<()>>) -> Result<Waits, JobError> {
    let mut waits = Vec::with_capacity(handles.len());
    for handle in handles {
        let report = handle.await;
        report.result?;
        waits.push(report.waited);
    }
    Ok(Waits::of(waits))
}

impl Comparison {
    /// The goals that were not reached: no 429, 95 % of the busy provider's tokens used, and for the quiet one's jobs no longer
    /// waits than alone.
    pub fn unmet_goals(&self) -> Vec<String> {
        let Self { quiet_alone, quiet, busy } = self;
        let mut unmet = Vec::new();
        let refused = [quiet_alone, quiet, busy].map(|result| result.metrics.refused);
        if refused != [0, 0, 0] {
            unmet.push(format!("there were 429s: {refused:?}"));
        }
        if busy.utilisation < UTILISATION_MIN {
            let percent = busy.utilisation * 100.0;
            unmet.push(format!("only {percent:.1} % of the busy provider's tokens were used"));
        }
        if quiet.waits.max > quiet_alone.waits.max {
            let (together, alone) = (quiet.waits.max, quiet_alone.waits.max);
            unmet.push(format!(
                "the quiet provider's jobs wait up to {together:?} next to the busy one, {alone:?} alone"
            ));
        }
        unmet
    }
}

impl fmt::Display for Comparison {
    /// A Markdown table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| provider           | jobs  | 429s | tokens   | of its tokens used | mean wait | p99 wait  | longest wait |"
        )?;
        writeln!(f, "|{}", " --- |".repeat(8))?;
        let Self { quiet_alone, quiet, busy } = self;
        for (name, result) in
            [("quiet, alone", quiet_alone), ("quiet, with busy", quiet), ("busy", busy)]
        {
            let ProviderResult { metrics, waits, utilisation } = result;
            writeln!(
                f,
                "| {name:<18} | {:>5} | {:>4} | {:>8} | {:>16.1} % | {:>7.2} s | {:>7.2} s | {:>10.2} s |",
                waits.count,
                metrics.refused,
                metrics.tokens(),
                utilisation * 100.0,
                waits.mean.as_secs_f64(),
                waits.p99.as_secs_f64(),
                waits.max.as_secs_f64(),
            )?;
        }
        Ok(())
    }
}
