//! `ratelimiterd bench`: load test of a server or an in-process backend.

mod report;

use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{Backend, Capacity, LeaseId, MemoryLimiter};
use ratelimiter_client::{Cleartext, HttpOptions};

use super::CliError;
use super::remote::Remote;
use crate::load::{ClosedLoop, LimiterCaller, Results, Workload};

const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Load test: throughput, latencies, allowed and denied.
#[derive(Debug, Args)]
pub(super) struct Bench {
    #[command(flatten)]
    remote: Remote,
    /// Test the backend inside this process instead of a server
    #[arg(long)]
    in_process: bool,
    /// Speak HTTP/2 to an http:// server
    #[arg(long)]
    http2: bool,
    /// Duration in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Number of concurrent calls
    #[arg(long, default_value_t = 32, value_parser = count(1..=10_000))]
    workers: usize,
    /// Number of models that the calls are spread over, each with its own limits
    #[arg(long, default_value_t = 100, value_parser = count(1..=100_000))]
    models: usize,
    /// Number of limits per call: 1 to 4
    #[arg(long, default_value_t = 4, value_parser = count(1..=4))]
    requirements: usize,
    /// Capacity of each limit; a small one causes denials
    #[arg(long, default_value_t = 1_000_000_000)]
    capacity: u64,
    /// Do not complete allowed calls
    #[arg(long)]
    reserve_only: bool,
}

fn count(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

pub(super) async fn run(bench: Bench) -> Result<ExitCode, CliError> {
    if bench.in_process {
        return run_on(&bench, MemoryLimiter::new(), "in process").await;
    }
    let cleartext = if bench.http2 { Cleartext::Http2 } else { Cleartext::Http1 };
    let options = HttpOptions {
        cleartext,
        idle_connections_max: bench.workers,
        repeat_for: Duration::ZERO,
        ..bench.remote.options()?
    };
    let server = bench.remote.limiter_with(options)?;
    run_on(&bench, server, &bench.remote.url).await
}

impl Bench {
    /// The keys are unique to this run, so that a test on a server in use touches no other limits.
    fn workload(&self, run: LeaseId) -> Result<Workload, CliError> {
        let key = |dimension| format!("bench:{run}:{{model}}:{dimension}");
        Ok(Workload {
            keys: ["rpm", "tpm", "concurrency", "daily_tokens"].map(key),
            limits_per_call: self.requirements,
            capacity: Capacity::new(self.capacity).map_err(CliError::of)?,
            window_seconds: 60,
            hold_seconds: 60,
            tokens_reserved: 100,
            tokens_used: 40,
        })
    }
}

async fn run_on(
    bench: &Bench,
    backend: impl Backend + Clone + 'static,
    target: &str,
) -> Result<ExitCode, CliError> {
    let clock = MonotonicClock::new();
    let workload = bench.workload(LeaseId::generate(clock.now()))?;
    let limits = (0..bench.models).flat_map(|model| workload.limits(model));
    backend.define_all(limits.collect()).await.map_err(CliError::of)?;
    let results = run_load(bench, &backend, &workload, &clock).await;
    for key in (0..bench.models).flat_map(|model| workload.keys(model)) {
        backend.delete(&key).await.map_err(CliError::of)?;
    }
    let (results, elapsed) = results?;
    let text = report::report(&results, target, elapsed);
    io::stdout().write_all(text.as_bytes()).map_err(CliError::of)?;
    Ok(if results.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_load(
    bench: &Bench,
    backend: &(impl Backend + Clone + 'static),
    workload: &Workload,
    clock: &MonotonicClock,
) -> Result<(Results, Duration), CliError> {
    let calls = workload.calls(bench.models);
    let caller = |number| {
        let caller = LimiterCaller::new(backend.clone(), &calls, number);
        if bench.reserve_only { caller.reserve_only() } else { caller }
    };
    let callers = (0..bench.workers).map(caller).collect();
    let started_at = clock.now();
    let until = started_at.after(Duration::from_secs(bench.seconds));
    let mut running = ClosedLoop::start(callers, clock, until);
    let is_shown = io::stderr().is_terminal();
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        tokio::select! {
            ended = running.join() => {
                ended.map_err(CliError::of)?;
                break;
            }
            _ = ticks.tick(), if is_shown => {
                let line = report::progress(&running.results(), clock.now().since(started_at));
                write!(io::stderr(), "\r{line}\x1b[K").map_err(CliError::of)?;
            }
        }
    }
    if is_shown {
        writeln!(io::stderr()).map_err(CliError::of)?;
    }
    Ok((running.results(), clock.now().since(started_at)))
}
