//! A server that is killed and started again while a thousand jobs are scheduled on it: every job ends exactly once, and no
//! lease is left over. CLI-01, SCH-02, SCH-03
//!
//! The server is this program, started with other arguments in another process, so that it can be killed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed unwrap or a panic is a failed test, and this one is its own harness"
)]

mod process;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratelimiter_client::{
    Backend, Batcher, CompleteError, CompleteRequest, Decision, Done, HttpLimiter, HttpOptions,
    Job, Limiter, LlmRequest, Page, ReserveError, ReserveRequest, Scheduler,
};
use simulated_provider::ProviderLimits;
use testkit::{PATIENCE, eventually, run};
use tokio::sync::{Semaphore, mpsc};

use self::process::ServerProcess;

const NAME: &str = "every_job_ends_exactly_once_while_the_server_is_killed_and_restarted";
const JOBS: usize = 1_000;
const WORKERS: usize = 32;
/// After how many jobs the server is killed.
const KILLED_AFTER: [usize; 3] = [100, 400, 700];
const LIMITS: ProviderLimits = ProviderLimits::per_minute(1_000_000, 1_000_000_000, 16);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => return ratelimiterd::cli::run(),
        Some("--list") => {
            println!("{NAME}: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let filters = arguments.iter().filter(|argument| !argument.starts_with('-'));
    if filters.clone().next().is_some() && !filters.clone().any(|filter| NAME.contains(filter)) {
        return ExitCode::SUCCESS;
    }
    run(every_job_ends_exactly_once(|limiter| limiter));
    run(every_job_ends_exactly_once(Batcher::new));
    println!("test {NAME} ... ok");
    ExitCode::SUCCESS
}

async fn every_job_ends_exactly_once<L: Limiter + 'static>(wrap: impl FnOnce(HttpLimiter) -> L) {
    let mut server = ServerProcess::start();
    let options =
        HttpOptions { repeat_for: Duration::ZERO, timeout: PATIENCE, ..HttpOptions::default() };
    let admin = HttpLimiter::with_options(&server.url(), options).unwrap();
    for limit in LIMITS.limits("p", "m").unwrap() {
        admin.define(limit).await.unwrap();
    }
    let unanswered = Arc::new(AtomicU32::new(0));
    let watched = Watched { inner: wrap(admin.clone()), unanswered: Arc::clone(&unanswered) };
    let scheduler = Scheduler::new(watched, WORKERS);
    let runs: Arc<[AtomicU32]> = (0..JOBS).map(|_| AtomicU32::new(0)).collect();
    let (started, mut starts) = mpsc::unbounded_channel();
    // Permits for the jobs that run before the next kill; the others wait, with or without leases.
    let turns = Arc::new(Semaphore::new(KILLED_AFTER[0]));
    let mut handles = Vec::new();
    for number in 0..JOBS {
        let (runs, started, turns) = (runs.clone(), started.clone(), Arc::clone(&turns));
        let job = Job::new(&request(), move |_permit| async move {
            turns.acquire().await.unwrap().forget();
            runs[number].fetch_add(1, Ordering::SeqCst);
            started.send(()).unwrap();
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(Done::using(5, number))
        });
        handles.push(scheduler.submit(job.unwrap()).await.unwrap());
    }
    let mut started_count = 0;
    let next_kills = KILLED_AFTER.into_iter().skip(1).chain([JOBS]);
    for (killed_after, next) in KILLED_AFTER.into_iter().zip(next_kills) {
        while started_count < killed_after {
            starts.recv().await.unwrap();
            started_count += 1;
        }
        server.kill();
        unanswered.store(0, Ordering::SeqCst);
        turns.add_permits(next - killed_after);
        let is_noticed = async || unanswered.load(Ordering::SeqCst) > 0;
        eventually("the server's absence is noticed", is_noticed).await;
        server.restart();
    }
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.await.result.unwrap(), number);
    }
    assert!(scheduler.shutdown(PATIENCE).await.is_empty());
    assert!(runs.iter().all(|runs| runs.load(Ordering::SeqCst) == 1), "each ran once");
    let counters = scheduler.counters();
    assert_eq!((counters.succeeded, counters.completes_given_up), (JOBS as u64, 0));
    let slots = admin.states(&Page::default()).await.unwrap();
    let slots = slots.iter().find(|state| state.limit.kind.is_concurrency()).unwrap();
    assert_eq!(slots.usage.used, 0, "no lease is left over");
}

/// A limiter that counts its calls without an answer.
#[derive(Debug)]
struct Watched<L> {
    inner: L,
    unanswered: Arc<AtomicU32>,
}

impl<L: Limiter> Limiter for Watched<L> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let answer = self.inner.reserve(request).await;
        let is_unanswered = matches!(answer, Err(ReserveError::Unanswered(_)));
        self.unanswered.fetch_add(u32::from(is_unanswered), Ordering::SeqCst);
        answer
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let answer = self.inner.complete(request).await;
        let is_unanswered = matches!(answer, Err(CompleteError::Unanswered(_)));
        self.unanswered.fetch_add(u32::from(is_unanswered), Ordering::SeqCst);
        answer
    }
}

fn request() -> LlmRequest {
    LlmRequest {
        tenant: "t".to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        prompt: "Why is the sky blue?".to_owned(),
        max_output_tokens: 100,
        want_daily_budget: false,
    }
}
