//! Submits the jobs, starts the runners, kills one of them twice, and checks the results.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use coordination_sql::SqliteProvider;
use ratelimiter_client::jobs::{JobQueue, JobState, LlmJob, MessageId};
use ratelimiter_client::{
    Backend, HoldTimeout, HttpLimiter, JobError, Limit, LimitKind, LlmRequest, MemoryLimiter,
    Window,
};
use ratelimiterd::Server;
use ratelimiterd::config::{Config, ListenAddr};
use simulated_provider::{Latency, ProviderLimits, SimulatedProvider};
use tokio::time::{Instant, interval};

use crate::provider::Providers;
use crate::runner::{RUNNER, RunnerProcess, run};

const PROVIDERS: [&str; 2] = ["alpha", "beta"];
const MODEL: &str = "m";
const RUNNERS: usize = 3;
const SEED: u64 = 7;
/// The limits of each provider.
const ALLOWED: ProviderLimits =
    ProviderLimits { requests: 250, tokens: 40_000, slots: 60, window: Duration::from_secs(2) };
/// The limiter's capacities, in percent of the provider's.
const LIMITER_PERCENT: u64 = 80;
/// The limiter's window. It is longer because a call reaches its provider some time after it was allowed.
const LIMITER_WINDOW_SECONDS: u64 = 4;
/// Longer than any call, so that the hold of a killed runner outlasts its call.
const HOLD_SECONDS: u64 = 5;
/// Far longer than the scenario takes.
const GIVE_UP_AFTER: Duration = Duration::from_secs(240);

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcomes {
    done: usize,
    failed: usize,
    lost: usize,
    wrong: usize,
    retried: usize,
}

/// The program: the scenario, or one of its runners.
pub(crate) fn main(job_count: usize) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == RUNNER => run(rest).map(|()| true),
        _ => scenario(job_count),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn scenario(job_count: usize) -> Result<bool, JobError> {
    let folder = tempfile::tempdir()?;
    let server = limiter_with_limits(folder.path()).await?;
    let url = format!("http://{}", server.local_addr());
    let latency =
        Latency { base: Duration::from_millis(10), per_token: Duration::from_micros(200) };
    let providers = PROVIDERS.into_iter().fold(Providers::default(), |providers, name| {
        providers.with(name, SimulatedProvider::with_latency(ALLOWED, latency))
    });
    let provider = providers.serve().await?;
    let path = folder.path().join("jobs.sqlite");
    let outbox = SqliteProvider::open(&path).await?;
    let (begun, queue) = (Instant::now(), JobQueue::new(outbox.clone()));
    let ids = submit(&outbox, job_count).await?;
    println!("{job_count} jobs submitted in {:.1} s (seed {SEED})", begun.elapsed().as_secs_f64());

    let start = || RunnerProcess::start(&path, &url, provider);
    let mut runners = (0..RUNNERS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    for part in [4, 2] {
        until(|| async { providers.call_count() >= (job_count / part) as u64 }).await?;
        runners[0].kill()?;
        println!("runner 1 killed after {} calls, another takes its place", providers.call_count());
        runners[0] = start()?;
    }
    let mut ended = 0;
    let mut tick = interval(Duration::from_millis(50));
    while ended < ids.len() {
        match queue.job(ids[ended]).await?.map(|job| job.state) {
            Some(JobState::Waiting { .. } | JobState::Claimed { .. }) => {
                if begun.elapsed() > GIVE_UP_AFTER {
                    return Err(format!("{} of {job_count} jobs do not end", ids[ended]).into());
                }
                tick.tick().await;
            }
            Some(JobState::Done(_) | JobState::Failed { .. }) | None => ended += 1,
        }
    }
    let took = begun.elapsed();
    for (number, runner) in (1..).zip(runners) {
        println!("runner {number}: {}", runner.stop()?);
    }
    let outcomes = outcomes(&queue, &ids).await?;
    Ok(report(job_count, took, &outcomes, &providers))
}

async fn limiter_with_limits(folder: &Path) -> Result<Server, JobError> {
    let mut config = Config::default();
    config.server.listen_addr = ListenAddr::free_port();
    config.registry.path = folder.join("limits.json");
    let server = Server::bind(&config, MemoryLimiter::new()).await?;
    let limiter = HttpLimiter::new(&format!("http://{}", server.local_addr()))?;
    for provider in PROVIDERS {
        for limit in ALLOWED.percent(LIMITER_PERCENT).limits(provider, MODEL)? {
            let kind = match limit.kind {
                LimitKind::Rolling { .. } => {
                    LimitKind::Rolling { window: Window::from_seconds(LIMITER_WINDOW_SECONDS)? }
                }
                LimitKind::Concurrency { .. } => {
                    LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(HOLD_SECONDS)? }
                }
                LimitKind::Calendar { .. } => limit.kind,
            };
            limiter.define(Limit { kind, ..limit }).await?;
        }
    }
    Ok(server)
}

/// Submits the jobs, all of the first provider before all of the second.
async fn submit(outbox: &SqliteProvider, job_count: usize) -> Result<Vec<MessageId>, JobError> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut messages = Vec::new();
    for number in 0..job_count {
        let max_output_tokens = random.u64(20..150);
        let request = LlmRequest {
            tenant: "acme".to_owned(),
            provider: PROVIDERS[number * PROVIDERS.len() / job_count].to_owned(),
            model: MODEL.to_owned(),
            prompt: format!("Question {number}: why is the sky blue?"),
            max_output_tokens,
            want_daily_budget: false,
        };
        // The simulated provider needs the length of its answer.
        let output_tokens = random.u64(10..=max_output_tokens);
        let job = LlmJob::new(request)?.with_context(output_tokens.to_string())?;
        messages.push(job.message());
    }
    for batch in messages.chunks(500) {
        outbox.enqueue_all(batch).await?;
    }
    Ok(messages.into_iter().map(|message| message.id).collect())
}

/// Waits until `holds` returns true.
async fn until<F: Future<Output = bool>>(holds: impl Fn() -> F) -> Result<(), JobError> {
    let mut tick = interval(Duration::from_millis(10));
    let wait = async {
        while !holds().await {
            tick.tick().await;
        }
    };
    Ok(tokio::time::timeout(GIVE_UP_AFTER, wait).await?)
}

async fn outcomes(
    queue: &JobQueue<SqliteProvider>,
    ids: &[MessageId],
) -> Result<Outcomes, JobError> {
    let mut outcomes = Outcomes::default();
    for id in ids {
        let Some(job) = queue.job(*id).await? else {
            outcomes.lost += 1;
            continue;
        };
        outcomes.retried += usize::from(job.attempts > 1);
        match job.state {
            JobState::Done(result) if result.output == format!("answer to {id}") => {
                outcomes.done += 1;
            }
            JobState::Done(_) => outcomes.wrong += 1,
            JobState::Failed { .. } => outcomes.failed += 1,
            JobState::Waiting { .. } | JobState::Claimed { .. } => outcomes.lost += 1,
        }
    }
    Ok(outcomes)
}

/// Prints the table. True if every claim holds.
fn report(job_count: usize, took: Duration, outcomes: &Outcomes, providers: &Providers) -> bool {
    let Outcomes { done, failed, lost, wrong, retried } = *outcomes;
    println!();
    println!("{:<10} {:>8} {:>8} {:>10}", "provider", "calls", "429s", "tokens");
    let mut refused = 0;
    for name in PROVIDERS {
        let metrics = providers.get(name).metrics();
        refused += metrics.refused;
        println!("{name:<10} {:>8} {:>8} {:>10}", metrics.calls, metrics.refused, metrics.tokens());
    }
    println!();
    println!("{:<34} {:>8}  expected", "what", "count");
    let rows = [
        ("jobs done with their own answer", done, Some(job_count)),
        ("jobs lost", lost, Some(0)),
        ("jobs failed", failed, Some(0)),
        ("jobs with another's answer", wrong, Some(0)),
        ("429s", usize::try_from(refused).unwrap_or(usize::MAX), Some(0)),
        ("jobs tried again after a crash", retried, None),
        ("jobs that called more than once", providers.repeated_count(), None),
    ];
    let mut all_hold = true;
    for (what, count, expected) in rows {
        let holds = expected.is_none_or(|expected| count == expected);
        all_hold &= holds;
        let expected = expected.map_or("any".to_owned(), |expected| expected.to_string());
        println!("{what:<34} {count:>8}  {expected}{}", if holds { "" } else { "  DOES NOT HOLD" });
    }
    println!(
        "in {:.1} s, with {RUNNERS} processes of which one was killed twice",
        took.as_secs_f64()
    );
    all_hold
}
