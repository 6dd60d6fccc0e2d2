//! Two providers, one of them with far more work than it allows.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ratelimiter::Backend;
use ratelimiter_client::{Done, Job, JobError, JobHandle, Scheduler};
use tokio::time::{Instant, sleep_until};

use super::measures::{CallMetrics, Waits};
use super::provider::{Latency, ProviderLimits, SimulatedProvider};
use super::workload::Workload;

/// How many tenants make the calls.
const TENANTS: usize = 20;
/// How much of a saturated provider's tokens is to be used after the warm-up.
///
/// While a call runs, its upper bound is reserved and not what it will use. With bytes for tokens that is about three times
/// as much, so calls of a second each leave some 5 % of a minute's tokens unused even if every call is made at the
/// earliest moment; calls of half a second, as here, less than 4 %.
const UTILISATION_MIN: f64 = 0.95;

/// Two providers: a busy one that gets all its jobs at once, far more than it allows, and a quiet one that gets them one by
/// one. How much of the busy one is used, how often a provider says 429, and do the quiet one's jobs notice?
#[derive(Debug, Clone)]
pub struct TwoProviders {
    /// What the busy provider allows.
    pub busy: ProviderLimits,
    /// How many jobs the busy provider gets, all at once.
    pub busy_jobs: usize,
    /// What the quiet provider allows.
    pub quiet: ProviderLimits,
    /// How many jobs the quiet provider gets.
    pub quiet_jobs: usize,
    /// How often the quiet provider gets a job.
    pub quiet_every: Duration,
    /// How long a call takes.
    pub latency: Latency,
    /// Which part of what the providers allow the limiter is told, in percent. A request takes a while to arrive, so that
    /// a provider's window ends a little later than the limiter's; less than 100 leaves room for that.
    pub told_percent: u64,
    /// How many jobs ask or run at a time.
    pub workers: usize,
    /// What is not measured, at the beginning.
    pub warm_up: Duration,
}

/// How the jobs of one provider fared.
#[derive(Debug, Clone)]
pub struct ProviderResult {
    /// What the provider said.
    pub measures: CallMetrics,
    /// How long its jobs waited to be allowed.
    pub waits: Waits,
    /// Which part of its tokens was used, from the end of the warm-up until there was less left to do than fits one window.
    pub utilisation: f64,
}

/// How the jobs of both providers fared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The quiet provider, when there is no other.
    pub quiet_alone: ProviderResult,
    /// The quiet provider, beside the busy one.
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
            told_percent: 100,
            workers: 256,
            warm_up: Duration::from_secs(120),
        }
    }
}

impl TwoProviders {
    /// Runs the quiet provider's jobs alone, and then the jobs of both, each time on a limiter of its own.
    ///
    /// # Errors
    /// A limit could not be defined, or a job failed, which a 429 makes it do.
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

    /// Runs the jobs of both; how the quiet one and the busy one fared.
    ///
    /// # Errors
    /// As [`TwoProviders::compare`].
    pub async fn run<B: Backend + Clone + 'static>(
        &self,
        limiter: B,
    ) -> Result<(ProviderResult, ProviderResult), JobError> {
        for (name, limits) in [("busy", self.busy), ("quiet", self.quiet)] {
            for limit in limits.percent(self.told_percent).limits(name, "m")? {
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
        Ok((self.fared(&quiet, quiet_waits), self.fared(&busy, busy_waits)))
    }

    fn fared(&self, provider: &SimulatedProvider, waits: Waits) -> ProviderResult {
        let measures = provider.measures();
        let ProviderLimits { tokens, window, .. } = provider.limits();
        let to = measures.all_but(tokens);
        let utilisation = measures.utilisation(tokens, window, self.warm_up, to);
        ProviderResult { measures, waits, utilisation }
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
    /// What was not reached of what a scheduler is to reach: no 429, 95 % of the busy provider's tokens, and no longer waits
    /// for the quiet one's jobs than alone.
    pub fn faults(&self) -> Vec<String> {
        let Self { quiet_alone, quiet, busy } = self;
        let mut faults = Vec::new();
        let refused = [quiet_alone, quiet, busy].map(|fared| fared.measures.refused);
        if refused != [0, 0, 0] {
            faults.push(format!("there were 429s: {refused:?}"));
        }
        if busy.utilisation < UTILISATION_MIN {
            let percent = busy.utilisation * 100.0;
            faults.push(format!("only {percent:.1} % of the busy provider's tokens were used"));
        }
        if quiet.waits.max > quiet_alone.waits.max {
            let (beside, alone) = (quiet.waits.max, quiet_alone.waits.max);
            faults.push(format!(
                "the quiet provider's jobs wait up to {beside:?} beside the busy one, {alone:?} alone"
            ));
        }
        faults
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
        for (name, fared) in
            [("quiet, alone", quiet_alone), ("quiet, beside busy", quiet), ("busy", busy)]
        {
            let ProviderResult { measures, waits, utilisation } = fared;
            writeln!(
                f,
                "| {name:<18} | {:>5} | {:>4} | {:>8} | {:>16.1} % | {:>7.2} s | {:>7.2} s | {:>10.2} s |",
                waits.count,
                measures.refused,
                measures.tokens(),
                utilisation * 100.0,
                waits.mean.as_secs_f64(),
                waits.p99.as_secs_f64(),
                waits.max.as_secs_f64(),
            )?;
        }
        Ok(())
    }
}
