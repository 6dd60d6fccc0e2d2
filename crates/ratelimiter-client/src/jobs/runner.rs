//! The runner: claims due jobs, and runs a task for each.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{
    BATCH_SIZE_MAX, BatchSize, CancellationToken, Delay, MessageId, Outbox, OutboxMessage,
    OwnerToken, Topic,
};
use ratelimiter::Limiter;
use ratelimiter::clock::{Clock, Timestamp};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::Instrument;

use super::admission::admission_turns;
use super::claim::Claim;
use super::context::RunnerContext;
use super::counters::JobCounters;
use super::handler::JobHandler;
use super::job::is_job;
use super::model_gates::{Claiming, ModelGates};
use super::running::InFlightJob;
use super::settings::{InvalidRunnerSettings, RunnerSettings};
use crate::llm::{TokenEstimator, Utf8Bytes};
use crate::tokio_clock::TokioClock;

/// The least time between two rounds of claims when the outbox reports due work that cannot be claimed.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How long a runner waits for the jobs that it drops after the drain timeout.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the jobs of an outbox as their limits have room. See [the module](super) for its guarantees and an example.
///
/// It needs a tokio runtime. Several runners, in one or many processes, can share an outbox and a limiter.
pub struct JobRunner<O, L, H> {
    outbox: O,
    limiter: L,
    handler: H,
    settings: RunnerSettings,
    estimator: Box<dyn TokenEstimator + Send + Sync>,
    counters: JobCounters,
}

/// The result of a round of claims.
#[derive(Debug)]
enum ClaimResult {
    /// More jobs may be due.
    MayHaveMore,
    /// No more jobs were due.
    Drained {
        claimed_at: Timestamp,
        /// When the next job is due, if known.
        due: Option<Instant>,
    },
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> JobRunner<O, L, H> {
    /// A runner, to be started with [`JobRunner::run`].
    ///
    /// # Errors
    /// [`InvalidRunnerSettings`], which names the setting.
    pub fn new(
        outbox: O,
        limiter: L,
        settings: RunnerSettings,
        handler: H,
    ) -> Result<JobRunner<O, L, H>, InvalidRunnerSettings> {
        settings.check()?;
        let (estimator, counters) = (Box::new(Utf8Bytes), JobCounters::default());
        Ok(JobRunner { outbox, limiter, handler, settings, estimator, counters })
    }

    /// Estimates the tokens of prompts with `estimator` instead of by their bytes. All runners of a queue should use the same.
    #[must_use]
    pub fn estimating(
        mut self,
        estimator: impl TokenEstimator + Send + Sync + 'static,
    ) -> JobRunner<O, L, H> {
        self.estimator = Box::new(estimator);
        self
    }

    /// Its counters, to read while it runs.
    pub fn counters(&self) -> JobCounters {
        self.counters.clone()
    }

    /// Runs jobs until `shutdown` is cancelled. Then jobs that were not allowed yet are given back at once; handlers may finish
    /// within [`drain_timeout`](RunnerSettings::drain_timeout), and after it they are dropped and their jobs given back.
    ///
    /// Dropping the future stops it at once, like a crash: its jobs are ready again when their claims expire.
    pub async fn run(self, shutdown: CancellationToken) {
        let JobRunner { outbox, limiter, handler, settings, estimator, counters } = self;
        let gates = Mutex::new(ModelGates::new(settings.models.clone(), settings.model_workers));
        let context = Arc::new(RunnerContext {
            outbox,
            limiter,
            handler,
            settings,
            estimator,
            counters,
            gates,
            clock: TokioClock::new(),
            claim_rounds: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
            shutdown,
            stop: CancellationToken::new(),
        });
        context.run().await;
    }
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> RunnerContext<O, L, H> {
    async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut upkeep = interval(self.settings.upkeep_interval);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claimed = ClaimResult::MayHaveMore;
        let mut work_added = pin!(self.outbox.work_added());
        while !self.shutdown.is_cancelled() {
            while let Some(ended) = tasks.try_join_next() {
                log_task_panic(ended);
            }
            if matches!(claimed, ClaimResult::MayHaveMore) && tasks.len() < self.settings.workers {
                // Subscribed before the claims, and kept until the next ones, so that no later notification is missed.
                work_added.set(self.outbox.work_added());
                claimed = self.claim_jobs(&mut tasks).await;
            }
            let wake_at = self.wake_at(&claimed);
            let may_claim =
                matches!(claimed, ClaimResult::MayHaveMore) && tasks.len() < self.settings.workers;
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                _ = upkeep.tick() => {
                    self.run_maintenance().await;
                    claimed = ClaimResult::MayHaveMore;
                }
                () = tokio::task::yield_now(), if may_claim => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => log_task_panic(ended),
                () = self.changed.notified() => claimed = ClaimResult::MayHaveMore,
                () = &mut work_added => {
                    work_added.set(self.outbox.work_added());
                    claimed = ClaimResult::MayHaveMore;
                }
                () = sleep_until(wake_at) => claimed = ClaimResult::MayHaveMore,
            }
        }
        self.drain(tasks).await;
    }

    /// When to claim again if nothing happens before.
    fn wake_at(&self, claimed: &ClaimResult) -> Instant {
        let polled = Instant::now() + self.settings.poll_interval;
        let ClaimResult::Drained { claimed_at, due } = claimed else {
            // All workers are busy: it claims when one is free, and not when a gate opens.
            return polled;
        };
        // A gate that opened after the claims counts too.
        let opens = self.gates().opens_at(*claimed_at);
        let opens = opens.map(|at| Instant::now() + at.since(self.clock.now()));
        due.iter().copied().chain(opens).fold(polled, Instant::min)
    }

    /// Claims jobs that may run, and starts them.
    async fn claim_jobs(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> ClaimResult {
        let claimed_at = self.clock.now();
        let mut claims = self.gates().claims(claimed_at);
        // In alternating order, so that neither gated models nor the others take all free workers.
        if self.claim_rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            claims.reverse();
        }
        let mut may_have_more = false;
        for Claiming { topics, max } in claims {
            let room = self.settings.workers.saturating_sub(tasks.len());
            let room = u32::try_from(room).expect("the workers are bounded");
            let Ok(batch) = BatchSize::new(max.min(room).min(BATCH_SIZE_MAX)) else {
                return ClaimResult::MayHaveMore;
            };
            let owner = OwnerToken::random();
            let claim_for = self.settings.claim_for;
            match self.outbox.claim_due_of(&owner, claim_for, batch, &topics).await {
                Ok(messages) => {
                    may_have_more |= messages.len() == batch.as_usize();
                    self.counts().claimed.add(messages.len());
                    self.start_jobs(&owner, messages, tasks).await;
                }
                Err(error) => {
                    self.counters.record_outbox_error(&error);
                    return ClaimResult::Drained { claimed_at, due: None };
                }
            }
        }
        if may_have_more {
            return ClaimResult::MayHaveMore;
        }
        ClaimResult::Drained { claimed_at, due: self.next_due().await }
    }

    async fn next_due(&self) -> Option<Instant> {
        let awaited = self.gates().awaited(self.clock.now());
        match self.outbox.next_due_after(&awaited).await {
            Ok(after) => after.map(|after| Instant::now() + after.max(CLAIM_AGAIN_AFTER)),
            Err(error) => {
                self.counters.record_outbox_error(&error);
                None
            }
        }
    }

    /// Starts a task for each job; the jobs of one model ask in turn. Gives back messages that are no jobs, and jobs of
    /// models with too many in flight.
    async fn start_jobs(
        self: &Arc<Self>,
        owner: &OwnerToken,
        messages: Vec<OutboxMessage>,
        tasks: &mut JoinSet<()>,
    ) {
        let mut given_back: Vec<MessageId> = Vec::new();
        let mut by_topic: BTreeMap<Topic, Vec<OutboxMessage>> = BTreeMap::new();
        for message in messages {
            let mut gates = self.gates();
            if !is_job(&message.topic) {
                gates.add_foreign(&message.topic);
                given_back.push(message.id);
                continue;
            }
            if gates.try_start(&message.topic) {
                by_topic.entry(message.topic.clone()).or_default().push(message);
            } else {
                self.counts().given_back.add(1);
                given_back.push(message.id);
            }
        }
        for messages in by_topic.into_values() {
            for (turn, message) in admission_turns(messages.len()).zip(messages) {
                let span = tracing::info_span!(
                    "job",
                    id = %message.id,
                    topic = %message.topic,
                    correlation_id = message.correlation_id.as_ref().map(tracing::field::display),
                    attempt = message.attempts.saturating_add(1),
                );
                let claim = Claim {
                    outbox: self.outbox.clone(),
                    owner: owner.clone(),
                    id: message.id,
                    claim_for: self.settings.claim_for,
                    counters: self.counters.clone(),
                };
                let in_flight = InFlightJob { context: self.clone(), message, is_asking: true };
                tasks.spawn(in_flight.run(claim, turn).instrument(span));
            }
        }
        if !given_back.is_empty()
            && let Err(error) = self.outbox.postpone(owner, &given_back, Delay::ZERO).await
        {
            // Their claims expire.
            self.counters.record_outbox_error(&error);
        }
    }

    /// Reaps expired claims, and purges old finished messages.
    async fn run_maintenance(&self) {
        match self.outbox.reap().await {
            Ok(count) => self.counts().reaped.add(count),
            Err(error) => self.counters.record_outbox_error(&error),
        }
        let own_topics = self.gates().own_topics();
        match self.outbox.purge(&own_topics, self.settings.keep).await {
            Ok(count) => self.counts().purged.add(count),
            Err(error) => self.counters.record_outbox_error(&error),
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>) {
        let all = async |tasks: &mut JoinSet<()>| {
            while let Some(ended) = tasks.join_next().await {
                log_task_panic(ended);
            }
        };
        if timeout(self.settings.drain_timeout, all(&mut tasks)).await.is_ok() {
            return;
        }
        tracing::warn!(
            left = tasks.len(),
            "handlers did not finish in time, their jobs are given back"
        );
        self.stop.cancel();
        if timeout(STOP_TIMEOUT, all(&mut tasks)).await.is_err() {
            tracing::warn!(
                left = tasks.len(),
                "jobs could not be given back, their claims will expire"
            );
        }
    }
}

fn log_task_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "runner task panicked, its claim will expire");
    }
}

impl<O: fmt::Debug, L, H> fmt::Debug for JobRunner<O, L, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRunner")
            .field("outbox", &self.outbox)
            .field("settings", &self.settings)
            .field("counters", &self.counters.snapshot())
            .finish_non_exhaustive()
    }
}
