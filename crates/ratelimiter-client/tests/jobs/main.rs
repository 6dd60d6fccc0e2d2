//! Durable jobs on the memory provider, in tokio's paused time.

#![allow(clippy::unwrap_used, reason = "in a test crate a failed unwrap is a failed test")]
#![allow(clippy::panic, reason = "and so is a panic")]

mod crashes;
mod crashing;
mod fairness;
mod outcomes;
mod sharing;
mod waiting;
#[allow(dead_code, reason = "the scheduler's tests use the rest")]
#[path = "../scheduler/world.rs"]
mod world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{CancellationToken, MemoryProvider, MessageId, MonotonicClock};
use ratelimiter_client::jobs::{
    HandlerError, JobCall, JobCounters, JobHandler, JobQueue, JobRecord, JobRunner, JobState,
    LlmJob, RunnerSettings,
};
use ratelimiter_client::{Done, Limiter, LlmRequest};
use testkit::pass;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// An outbox on tokio's time, and the calls of handlers.
#[derive(Debug, Clone)]
struct Jobs {
    outbox: MemoryProvider,
    started: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// One call of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    id: MessageId,
    attempt: u32,
    after: Duration,
}

/// A running runner.
struct Running {
    counters: JobCounters,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Jobs {
    fn new() -> Jobs {
        let start = "2026-03-01T12:00:00Z".parse().unwrap();
        let clock = Arc::new(MonotonicClock::starting_at(start));
        let outbox = MemoryProvider::with_clock(clock);
        Jobs { outbox, started: Instant::now(), calls: Arc::default() }
    }

    fn queue(&self) -> JobQueue<MemoryProvider> {
        JobQueue::new(self.outbox.clone())
    }

    async fn submit(&self, request: &LlmRequest) -> MessageId {
        self.queue().submit(&LlmJob::new(request.clone()).unwrap()).await.unwrap()
    }

    async fn submit_all(&self, request: &LlmRequest, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.submit(request).await);
        }
        ids
    }

    async fn job(&self, id: MessageId) -> JobRecord {
        self.queue().job(id).await.unwrap().unwrap()
    }

    /// Records a call of a handler. Returns the number of calls.
    fn note(&self, call: &JobCall) -> usize {
        let mut calls = self.calls.lock().unwrap();
        calls.push(Call { id: call.id, attempt: call.attempt, after: self.started.elapsed() });
        calls.len()
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// A handler that takes this long and uses all its tokens.
    fn lasting(&self, lasts: Duration) -> impl JobHandler + use<> {
        let jobs = self.clone();
        move |call: JobCall| {
            let jobs = jobs.clone();
            async move {
                jobs.note(&call);
                pass(lasts).await;
                let tokens = call.job.request().max_output_tokens;
                Ok(Done::using(tokens, format!("answer to {}", call.id)))
            }
        }
    }

    /// A handler whose answer depends on the number of the call.
    fn answering(
        &self,
        answer: fn(usize) -> Result<Done<String>, HandlerError>,
    ) -> impl JobHandler + use<> {
        let jobs = self.clone();
        move |call: JobCall| {
            let number = jobs.note(&call);
            async move { answer(number) }
        }
    }

    fn run<L: Limiter + Clone + 'static>(&self, limiter: &L, handler: impl JobHandler) -> Running {
        self.run_with(limiter, handler, RunnerSettings::default())
    }

    fn run_with<L: Limiter + Clone + 'static>(
        &self,
        limiter: &L,
        handler: impl JobHandler,
        settings: RunnerSettings,
    ) -> Running {
        let runner = JobRunner::new(self.outbox.clone(), limiter.clone(), settings, handler);
        let (runner, shutdown) = (runner.unwrap(), CancellationToken::new());
        let counters = runner.counters();
        Running { counters, shutdown: shutdown.clone(), task: tokio::spawn(runner.run(shutdown)) }
    }

    /// Waits until all these jobs are done or have failed.
    async fn ended(&self, ids: &[MessageId]) -> Vec<JobRecord> {
        let wait = async {
            let mut looks = 0;
            let mut ended = Vec::new();
            for id in ids {
                loop {
                    let job = self.job(*id).await;
                    match job.state {
                        JobState::Waiting { .. } | JobState::Claimed { .. } => {
                            // Closely at first, then once a second.
                            looks += 1;
                            pass(Duration::from_millis(if looks < 100 { 50 } else { 1_000 })).await;
                        }
                        JobState::Done(_) | JobState::Failed { .. } => {
                            ended.push(job);
                            break;
                        }
                    }
                }
            }
            ended
        };
        tokio::time::timeout(Duration::from_secs(24 * 3600), wait).await.expect("jobs end")
    }
}

impl Running {
    async fn stop(self) -> ratelimiter_client::jobs::JobCountersSnapshot {
        self.shutdown.cancel();
        self.task.await.unwrap();
        self.counters.snapshot()
    }

    /// Ends it like a crash.
    async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

fn is_done(job: &JobRecord) -> bool {
    matches!(job.state, JobState::Done(_))
}

fn reason(job: &JobRecord) -> &str {
    match &job.state {
        JobState::Failed { reason } => reason,
        JobState::Waiting { .. } | JobState::Claimed { .. } | JobState::Done(_) => {
            panic!("it has not failed: {job:?}")
        }
    }
}
