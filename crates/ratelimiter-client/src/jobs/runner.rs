//! The runner: claims jobs that may have room, and lets each go its way.

use std::collections::BTreeMap;
use std::fmt;
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

use super::asking::turns;
use super::claim::Claim;
use super::context::RunnerContext;
use super::counters::JobCounters;
use super::handler::JobHandler;
use super::job::is_job;
use super::model_gates::{Claiming, ModelGates};
use super::running::InHand;
use super::settings::{InvalidRunnerSettings, RunnerSettings};
use crate::llm::{TokenEstimator, Utf8Bytes};
use crate::tokio_clock::TokioClock;

/// The least time between two looks for work that is said to be there and is not.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How long a runner whose time to stop is over waits for what it drops.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs the jobs of an outbox as their limits have room. See [the module](super) for what it promises, and for an example.
///
/// Runs on tokio; several in one process or in many share an outbox and a limiter.
pub struct JobRunner<O, L, H> {
    outbox: O,
    limiter: L,
    handler: H,
    settings: RunnerSettings,
    estimator: Box<dyn TokenEstimator + Send + Sync>,
    counters: JobCounters,
}

/// What a look for work says about the next one.
#[derive(Debug)]
enum Look {
    /// There may be more.
    Again,
    /// There was no more.
    At {
        looked_at: Timestamp,
        /// When the next is due, as far as is known.
        due: Option<Instant>,
    },
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> JobRunner<O, L, H> {
    /// A runner that has yet to [run](JobRunner::run).
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

    /// The same with another estimate of a prompt's tokens than its bytes. All runners of a queue should have the same.
    #[must_use]
    pub fn estimating(
        mut self,
        estimator: impl TokenEstimator + Send + Sync + 'static,
    ) -> JobRunner<O, L, H> {
        self.estimator = Box::new(estimator);
        self
    }

    /// Its counters, to look at while it runs.
    pub fn counters(&self) -> JobCounters {
        self.counters.clone()
    }

    /// Works until `shutdown` fires. Then jobs that were not allowed yet go back at once, handlers may finish within
    /// [`drain_timeout`](RunnerSettings::drain_timeout), and what is left of them is dropped and goes back too.
    ///
    /// Dropping the future stops it at once, as a crash would: what it had claimed is ready again when the claims run out.
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
            looks: AtomicUsize::new(0),
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
        let mut look = Look::Again;
        while !self.shutdown.is_cancelled() {
            while let Some(ended) = tasks.try_join_next() {
                note_end(ended);
            }
            // Made before the claims, so that no work that comes after them is missed.
            let work_added = self.outbox.work_added();
            if matches!(look, Look::Again) && tasks.len() < self.settings.workers {
                look = self.look(&mut tasks).await;
            }
            let wake_at = self.wake_at(&look);
            let may_look = matches!(look, Look::Again) && tasks.len() < self.settings.workers;
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                _ = upkeep.tick() => {
                    self.keep_up().await;
                    look = Look::Again;
                }
                () = tokio::task::yield_now(), if may_look => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => note_end(ended),
                () = self.changed.notified() => look = Look::Again,
                () = work_added => look = Look::Again,
                () = sleep_until(wake_at) => look = Look::Again,
            }
        }
        self.drain(tasks).await;
    }

    /// When to look for work if nothing happens before.
    fn wake_at(&self, look: &Look) -> Instant {
        let polled = Instant::now() + self.settings.poll_interval;
        let Look::At { looked_at, due } = look else {
            // It looks as soon as a worker is free, and not before, whichever gate opens.
            return polled;
        };
        // A gate that has opened since was not looked at.
        let opens = self.gates().opens_at(*looked_at);
        let opens = opens.map(|at| Instant::now() + at.since(self.clock.now()));
        due.iter().copied().chain(opens).fold(polled, Instant::min)
    }

    /// Claims what may go ahead, and lets it.
    async fn look(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Look {
        let looked_at = self.clock.now();
        let mut claims = self.gates().claims(looked_at);
        // By turns, so that neither the models with a gate nor those without take all the room there is.
        if self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            claims.reverse();
        }
        let mut may_have_more = false;
        for Claiming { topics, max } in claims {
            let room = self.settings.workers.saturating_sub(tasks.len());
            let room = u32::try_from(room).expect("the workers are bounded");
            let Ok(batch) = BatchSize::new(max.min(room).min(BATCH_SIZE_MAX)) else {
                return Look::Again;
            };
            let owner = OwnerToken::random();
            let claim_for = self.settings.claim_for;
            match self.outbox.claim_due_of(&owner, claim_for, batch, &topics).await {
                Ok(messages) => {
                    may_have_more |= messages.len() == batch.as_usize();
                    self.counts().claimed.add(messages.len());
                    self.let_go(&owner, messages, tasks).await;
                }
                Err(error) => {
                    self.counters.note_no_answer(&error);
                    return Look::At { looked_at, due: None };
                }
            }
        }
        if may_have_more {
            return Look::Again;
        }
        Look::At { looked_at, due: self.next_due().await }
    }

    async fn next_due(&self) -> Option<Instant> {
        let awaited = self.gates().awaited(self.clock.now());
        match self.outbox.next_due_after(&awaited).await {
            Ok(after) => after.map(|after| Instant::now() + after.max(LOOK_AGAIN_AFTER)),
            Err(error) => {
                self.counters.note_no_answer(&error);
                None
            }
        }
    }

    /// Starts a task for each job, those of one model in turn; gives back what is no job or has no room.
    async fn let_go(
        self: &Arc<Self>,
        owner: &OwnerToken,
        messages: Vec<OutboxMessage>,
        tasks: &mut JoinSet<()>,
    ) {
        let mut left: Vec<MessageId> = Vec::new();
        let mut by_topic: BTreeMap<Topic, Vec<OutboxMessage>> = BTreeMap::new();
        for message in messages {
            let mut gates = self.gates();
            if !is_job(&message.topic) {
                gates.is_foreign(&message.topic);
                left.push(message.id);
                continue;
            }
            if gates.take(&message.topic) {
                by_topic.entry(message.topic.clone()).or_default().push(message);
            } else {
                self.counts().given_back.add(1);
                left.push(message.id);
            }
        }
        for messages in by_topic.into_values() {
            for (turn, message) in turns(messages.len()).zip(messages) {
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
                let in_hand = InHand { context: self.clone(), message, is_asking: true };
                tasks.spawn(in_hand.work(claim, turn).instrument(span));
            }
        }
        if !left.is_empty()
            && let Err(error) = self.outbox.postpone(owner, &left, Delay::ZERO).await
        {
            // Then the claims run out.
            self.counters.note_no_answer(&error);
        }
    }

    /// Makes lost claims ready, and forgets what was finished long ago.
    async fn keep_up(&self) {
        match self.outbox.reap().await {
            Ok(count) => self.counts().reaped.add(count),
            Err(error) => self.counters.note_no_answer(&error),
        }
        let own_topics = self.gates().own_topics();
        match self.outbox.purge(&own_topics, self.settings.keep).await {
            Ok(count) => self.counts().purged.add(count),
            Err(error) => self.counters.note_no_answer(&error),
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>) {
        let all = async |tasks: &mut JoinSet<()>| {
            while let Some(ended) = tasks.join_next().await {
                note_end(ended);
            }
        };
        if timeout(self.settings.drain_timeout, all(&mut tasks)).await.is_ok() {
            return;
        }
        tracing::warn!(left = tasks.len(), "handlers did not finish in time, their jobs go back");
        self.stop.cancel();
        if timeout(LAST_WORDS, all(&mut tasks)).await.is_err() {
            tracing::warn!(
                left = tasks.len(),
                "jobs could not be given back, their claims run out"
            );
        }
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a task of the runner itself broke, its claim will run out");
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
