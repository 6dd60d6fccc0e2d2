//! Two providers, one of them with far more work than it allows: how much of its capacity is used, how often it says 429,
//! and whether the other one's jobs notice.
//!
//! `cargo run --release -p ratelimiter-client --features simulation --example utilisation`
//!
//! Ten thousand jobs take the better part of an hour of provider time; on tokio's paused clock that is seconds. Exits
//! with 1 when a figure is not reached.

#![allow(clippy::print_stdout, reason = "the table is what the program is for")]

use std::process::ExitCode;
use std::time::Duration;

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::simulation::{
    Measures, ProviderLimits, SimulatedProvider, Waits, Workload,
};
use ratelimiter_client::{Done, Job, JobHandle, MemoryLimiter, Scheduler, TokioClock};
use tokio::time::{Instant, sleep_until};

const BUSY: ProviderLimits = ProviderLimits::per_minute(1_000, 200_000, 100);
const QUIET: ProviderLimits = ProviderLimits::per_minute(1_000, 400_000, 100);
const BUSY_JOBS: usize = 8_000;
const QUIET_JOBS: usize = 2_000;
const QUIET_EVERY: Duration = Duration::from_millis(400);
const WORKERS: usize = 256;
const WARM_UP: Duration = Duration::from_secs(120);
const UTILISATION_MIN: f64 = 0.95;

type Error = Box<dyn std::error::Error>;

/// How the jobs of one provider fared.
struct Fared {
    name: &'static str,
    measures: Measures,
    waits: Waits,
    limits: ProviderLimits,
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<ExitCode, Error> {
    let alone = run(0).await?;
    let together = run(BUSY_JOBS).await?;
    let mut faults = Vec::new();
    println!(
        "{:<16}{:>7}{:>6}{:>12}{:>13}{:>11}{:>11}{:>11}",
        "provider", "jobs", "429s", "tokens", "utilisation", "mean wait", "p99 wait", "max wait"
    );
    for fared in alone.iter().chain(&together) {
        fared.print();
        if fared.measures.refused > 0 {
            faults.push(format!("{} said 429 {} times", fared.name, fared.measures.refused));
        }
    }
    let [Some(quiet_alone), _, Some(quiet), Some(busy)] =
        [alone.first(), alone.get(1), together.first(), together.get(1)]
    else {
        return Err("two runs, and two providers in the second".into());
    };
    if busy.utilisation() < UTILISATION_MIN {
        faults.push(format!(
            "only {:.1} % of the busy provider was used",
            busy.utilisation() * 100.0
        ));
    }
    if quiet.waits.max > quiet_alone.waits.max {
        faults.push(format!(
            "the quiet provider's jobs wait {:?} beside the busy one, and {:?} alone",
            quiet.waits.max, quiet_alone.waits.max
        ));
    }
    for fault in &faults {
        println!("NOT REACHED: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the quiet provider's jobs, beside so many of the busy one.
async fn run(busy_jobs: usize) -> Result<Vec<Fared>, Error> {
    let limiter = MemoryLimiter::with_options(MemoryOptions {
        sweep_every: None,
        ..MemoryOptions::for_tests(TokioClock::new())
    });
    for limit in BUSY.limits("busy", "m")?.into_iter().chain(QUIET.limits("quiet", "m")?) {
        limiter.define_now(limit)?;
    }
    let scheduler = Scheduler::new(limiter, WORKERS);
    let (busy, quiet) = (SimulatedProvider::new(BUSY), SimulatedProvider::new(QUIET));
    let mut busy_handles = Vec::new();
    for job in jobs("busy", &busy, 1).take(busy_jobs) {
        busy_handles.push(scheduler.submit(job?).await?);
    }
    let mut quiet_handles = Vec::new();
    let begun = Instant::now();
    for (count, job) in (0..).zip(jobs("quiet", &quiet, 2).take(QUIET_JOBS)) {
        sleep_until(begun + QUIET_EVERY * count).await;
        quiet_handles.push(scheduler.submit(job?).await?);
    }
    let name = if busy_jobs == 0 { "quiet, alone" } else { "quiet" };
    let mut fared = vec![Fared {
        name,
        waits: waits(quiet_handles).await?,
        measures: quiet.measures(),
        limits: QUIET,
    }];
    if busy_jobs > 0 {
        fared.push(Fared {
            name: "busy",
            waits: waits(busy_handles).await?,
            measures: busy.measures(),
            limits: BUSY,
        });
    }
    Ok(fared)
}

fn jobs(
    name: &str,
    provider: &SimulatedProvider,
    seed: u64,
) -> impl Iterator<Item = Result<Job<()>, Error>> {
    Workload::new(name, 20, seed).map(move |(request, call)| {
        let provider = provider.clone();
        let job = Job::new(&request, move |_permit| async move {
            provider.call(call).await.map(|tokens| Done::using(tokens, ()))
        });
        Ok(job?)
    })
}

async fn waits(handles: Vec<JobHandle<()>>) -> Result<Waits, Error> {
    let mut waits = Vec::with_capacity(handles.len());
    for handle in handles {
        let report = handle.await;
        waits.push(report.waited);
        report.result?;
    }
    Ok(Waits::of(waits))
}

impl Fared {
    /// After the warm-up, and before the queue runs empty.
    fn utilisation(&self) -> f64 {
        let ProviderLimits { tokens, window, .. } = self.limits;
        let to = self.measures.lasted().saturating_sub(window);
        self.measures.utilisation(tokens, window, WARM_UP, to)
    }

    fn print(&self) {
        let Self { name, measures, waits, .. } = self;
        println!(
            "{name:<16}{:>7}{:>6}{:>12}{:>11.1} %{:>9.1} s{:>9.1} s{:>9.1} s",
            waits.count,
            measures.refused,
            measures.tokens(),
            self.utilisation() * 100.0,
            waits.mean.as_secs_f64(),
            waits.p99.as_secs_f64(),
            waits.max.as_secs_f64(),
        );
    }
}
