//! `ratelimiterd bench`: load test of a server or an in-process backend.

mod load;
mod report;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{Backend, LeaseId, LimitKey, MemoryLimiter};
use ratelimiter_client::{Cleartext, HttpOptions};

use self::load::{Load, Worker};
use self::report::LoadResults;
use super::CliError;
use super::remote::Remote;

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
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    workers: u64,
    /// Number of models that the calls are spread over, each with its own limits
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    models: u64,
    /// Number of limits per call: 1 to 4
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=4))]
    requirements: u64,
    /// Capacity of each limit; a small one causes denials
    #[arg(long, default_value_t = 1_000_000_000)]
    capacity: u64,
    /// Do not complete allowed calls
    #[arg(long)]
    reserve_only: bool,
}

pub(super) async fn run(bench: Bench) -> Result<ExitCode, CliError> {
    if bench.in_process {
        return run_on(&bench, MemoryLimiter::new(), "in process").await;
    }
    let cleartext = if bench.http2 { Cleartext::Http2 } else { Cleartext::Http1 };
    let options = HttpOptions {
        cleartext,
        idle_connections_max: usize::try_from(bench.workers).unwrap_or(usize::MAX),
        repeat_for: Duration::ZERO,
        ..bench.remote.options()?
    };
    let server = bench.remote.limiter_with(options)?;
    run_on(&bench, server, &bench.remote.url).await
}

async fn run_on<B>(bench: &Bench, backend: B, target: &str) -> Result<ExitCode, CliError>
where
    B: Backend + Clone + 'static,
{
    let clock = Arc::new(MonotonicClock::new());
    // The keys are unique to this run, so that a test on a server in use touches no other limits.
    let run = LeaseId::generate(clock.now());
    let load = Load {
        prefix: format!("bench:{run}"),
        models: bench.models,
        requirements: bench.requirements,
        completes: !bench.reserve_only,
    };
    let limits = load.limits(bench.capacity)?;
    for limit in limits.clone() {
        backend.define(limit).await.map_err(CliError::of)?;
    }
    let results = run_load(bench, &backend, load, &clock).await;
    let keys: Vec<LimitKey> = limits.into_iter().map(|limit| limit.key).collect();
    for key in &keys {
        backend.delete(key).await.map_err(CliError::of)?;
    }
    let (results, elapsed) = results?;
    let text = results.report(target, elapsed);
    io::stdout().write_all(text.as_bytes()).map_err(CliError::of)?;
    Ok(if results.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_load<B>(
    bench: &Bench,
    backend: &B,
    load: Load,
    clock: &Arc<MonotonicClock>,
) -> Result<(LoadResults, Duration), CliError>
where
    B: Backend + Clone + 'static,
{
    let load = Arc::new(load);
    let started = clock.now();
    let end = started.after(Duration::from_secs(bench.seconds));
    let (progress, mut progressed) = tokio::sync::mpsc::unbounded_channel();
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..bench.workers {
        let worker = Worker {
            backend: backend.clone(),
            load: Arc::clone(&load),
            clock: Arc::clone(clock),
            number,
            progress: progress.clone(),
        };
        workers.spawn(worker.run_until(end));
    }
    drop(progress);
    let is_shown = io::stderr().is_terminal();
    let mut results = LoadResults::new();
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        tokio::select! {
            more = progressed.recv() => match more {
                Some(more) => results.add(&more),
                None => break,
            },
            _ = ticks.tick(), if is_shown => {
                let line = results.progress(clock.now().since(started));
                write!(io::stderr(), "\r{line}\x1b[K").map_err(CliError::of)?;
            }
        }
    }
    if is_shown {
        writeln!(io::stderr()).map_err(CliError::of)?;
    }
    let elapsed = clock.now().since(started);
    while let Some(ended) = workers.join_next().await {
        ended.map_err(CliError::of)?;
    }
    Ok((results, elapsed))
}
