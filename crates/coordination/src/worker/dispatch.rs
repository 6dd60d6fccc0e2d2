//! What the outbox and the inbox dispatcher share: claim, handle within bounds, settle, keep up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::backoff;
use super::handler::{BoxedHandler, HandlerError, TopicHandlers, catching_panics};
use super::lanes::{Ask, Lanes};
use super::metrics::{Counter, WorkerMetrics};
use super::settings::{InvalidSettings, WorkerSettings};
use crate::{
    Answer, BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, Result,
    Retention, Settlement, TOPICS_MAX, TooManyTopics, Topic, Topics,
};

/// How often the provider is told of a beginning or an end before the item is left to be reaped.
const TELL_ATTEMPTS_MAX: usize = 3;
const TELL_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often an attempt is said to begin until enough of its claim is left for the handler.
const BEGIN_ATTEMPTS_MAX: usize = 2;
/// How long a message waits whose beginning was told too late each time.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a worker that stops waits for its last messages to be given back.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(5);

/// A queue that a dispatcher works on: the outbox or the inbox behind one face.
pub(super) trait Queue: Clone + Send + Sync + 'static {
    type Item: Work;
    /// For logs and spans.
    const NAME: &'static str;

    fn claim(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> impl Answer<Vec<Self::Item>>;
    fn begin(
        &self,
        owner: &OwnerToken,
        item: &Self::Item,
        lease: LeaseDuration,
    ) -> impl Answer<Option<u32>>;
    fn settle(
        &self,
        owner: &OwnerToken,
        item: &Self::Item,
        settlement: &Settlement,
    ) -> impl Answer<usize>;
    fn reap(&self) -> impl Answer<usize>;
    fn purge(&self, topics: &Topics, keep: Retention) -> impl Answer<usize>;
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;
    fn work_added(&self) -> impl Future<Output = ()> + Send;
}

/// What a dispatcher must know of a claimed item.
pub(super) trait Work: Clone + Send + Sync + 'static {
    fn id(&self) -> String;
    fn topic(&self) -> &Topic;
    fn correlation_id(&self) -> Option<&CorrelationId>;
    /// How many attempts there were, over all its claims.
    fn attempts(&self) -> u32;
    /// How many of those that count against its bounds ended, without success.
    fn failed_attempts(&self) -> u32;
    /// How many of those that count against its bounds began and never ended.
    fn lost_attempts(&self) -> u32;
    /// The same as its handler sees it, whose attempt is counted.
    fn begun(self, attempts: u32) -> Self;
}

/// What tells a worker's tasks to stop.
#[derive(Debug, Clone)]
struct Stop {
    /// Nothing more is started.
    shutdown: CancellationToken,
    /// Handlers that still run are dropped.
    deadline: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Dispatch<Q: Queue> {
    queue: Q,
    handlers: TopicHandlers<Q::Item>,
    settings: WorkerSettings,
    metrics: WorkerMetrics,
    /// Whether messages without a handler are claimed, to fail them.
    claims_others: bool,
}

impl<Q: Queue> Dispatch<Q> {
    pub(super) fn new(
        queue: Q,
        handlers: TopicHandlers<Q::Item>,
        settings: WorkerSettings,
    ) -> Result<Dispatch<Q>, InvalidSettings> {
        settings.check()?;
        let count = handlers.topics().count();
        if count > TOPICS_MAX {
            return Err(TooManyTopics { count }.into());
        }
        let metrics = WorkerMetrics::default();
        Ok(Dispatch { queue, handlers, settings, metrics, claims_others: true })
    }

    pub(super) fn leave_others_alone(&mut self) {
        self.claims_others = false;
    }

    pub(super) fn metrics(&self) -> WorkerMetrics {
        self.metrics.clone()
    }

    /// Works until `shutdown` fires. Then it starts nothing more, gives its handlers `drain_timeout`
    /// to finish, and gives back what they have not finished.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let worker = Arc::new(self);
        let settings = &worker.settings;
        let mut lanes = Lanes::new(worker.handlers.topics(), worker.claims_others, settings);
        let stop = Stop { shutdown, deadline: CancellationToken::new() };
        let mut tasks = JoinSet::new();
        let mut poll = interval(settings.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = interval(settings.upkeep_interval);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // At most one: what there is to reap and purge may take long, and holds up neither claims nor
        // the stop.
        let mut keeping_up = JoinSet::new();
        // Made before the first claim, and made anew before the claims that it causes, so that no
        // work that comes after a claim is missed.
        let mut work_added = pin!(worker.queue.work_added());
        while !stop.shutdown.is_cancelled() {
            while let Some(ended) = tasks.try_join_next() {
                note_end(ended);
            }
            let ask = lanes.next_ask(tasks.len());
            let may_have_more = ask.is_some();
            if let Some(ask) = ask {
                worker.claim_and_spawn(&ask, &mut lanes, &mut tasks, &stop).await;
            }
            tokio::select! {
                biased;
                () = stop.shutdown.cancelled() => break,
                _ = upkeep.tick(), if keeping_up.is_empty() => {
                    let worker = Arc::clone(&worker);
                    keeping_up.spawn(async move { worker.keep_up().await });
                }
                Some(ended) = keeping_up.join_next(), if !keeping_up.is_empty() => {
                    note_end(ended);
                    lanes.wake();
                }
                () = &mut work_added => {
                    work_added.set(worker.queue.work_added());
                    lanes.wake();
                }
                () = tokio::task::yield_now(), if may_have_more => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => note_end(ended),
                _ = poll.tick() => lanes.wake(),
            }
        }
        // What it had not committed is undone.
        keeping_up.shutdown().await;
        worker.drain(tasks, &stop.deadline).await;
    }

    /// Claims what is asked for, and starts it.
    async fn claim_and_spawn(
        self: &Arc<Self>,
        ask: &Ask,
        lanes: &mut Lanes,
        tasks: &mut JoinSet<()>,
        stop: &Stop,
    ) {
        // Each claim has an owner token of its own, so that a message that comes back to the same
        // worker after its claim ran out is not settled by the handler from before.
        let owner = OwnerToken::random();
        let claim_for = self.settings.claim_for;
        let claimed = self.queue.claim(&owner, claim_for, ask.max, &ask.topics).await;
        let Some(items) = self.answered(claimed) else {
            lanes.rest();
            return;
        };
        self.metrics.counters().claimed.add(items.len());
        if items.len() < ask.max.as_usize() {
            lanes.dry(ask);
        }
        for item in items {
            let span = tracing::info_span!(
                "handle",
                queue = Q::NAME,
                id = %item.id(),
                topic = %item.topic(),
                correlation_id = item.correlation_id().map(tracing::field::display),
                attempt = item.attempts().saturating_add(1),
            );
            let permit = lanes.start(item.topic());
            let (worker, owner, stop) = (Arc::clone(self), owner.clone(), stop.clone());
            let handling =
                async move { worker.handle_and_settle(item, &owner, permit, &stop).await };
            tasks.spawn(handling.instrument(span));
        }
    }

    async fn handle_and_settle(
        &self,
        item: Q::Item,
        owner: &OwnerToken,
        permit: Option<OwnedSemaphorePermit>,
        stop: &Stop,
    ) {
        let lost = item.lost_attempts();
        let settlement = match (self.handlers.for_topic(item.topic()), &permit) {
            (None, _) => {
                let error = ErrorText::new(format!("no handler for topic {}", item.topic()));
                Some(Settlement::Fail { error })
            }
            (Some(_), _) if lost >= self.settings.lost_attempts_max => {
                let error = format!("gave up: {lost} attempts began and never ended");
                Some(Settlement::Fail { error: ErrorText::new(error) })
            }
            (Some(handler), Some(_)) => self.start(&*handler, &item, owner, stop).await,
            // The provider has handed out more than it was asked for.
            (Some(_), None) => Some(Settlement::put_off(Delay::ZERO)),
        };
        if let Some(settlement) = settlement {
            self.settle(owner, &item, &settlement).await;
        }
    }

    /// Says that the attempt begins, and calls the handler. None if the item is not ours any more.
    async fn start(
        &self,
        handler: &dyn BoxedHandler<Q::Item>,
        item: &Q::Item,
        owner: &OwnerToken,
        stop: &Stop,
    ) -> Option<Settlement> {
        let attempts = match self.begin(item, owner, stop).await {
            Ok(attempts) => attempts,
            Err(settlement) => return settlement,
        };
        let handling = self.handle(handler, item.clone().begun(attempts), item.failed_attempts());
        tokio::select! {
            biased;
            settlement = handling => Some(settlement),
            () = stop.deadline.cancelled() => Some(Settlement::put_off(Delay::ZERO)),
        }
    }

    /// Says that the attempt begins, which extends the claim. The answer is the attempts, or what
    /// becomes of an item that is not to be started.
    async fn begin(
        &self,
        item: &Q::Item,
        owner: &OwnerToken,
        stop: &Stop,
    ) -> Result<u32, Option<Settlement>> {
        let WorkerSettings { claim_for, handler_timeout, .. } = self.settings;
        for _ in 0..BEGIN_ATTEMPTS_MAX {
            if stop.shutdown.is_cancelled() {
                return Err(Some(Settlement::put_off(Delay::ZERO)));
            }
            // Before it is asked for, which is never later than the provider's start of the claim.
            let mut begun_at = Instant::now();
            let begin = || {
                begun_at = Instant::now();
                self.queue.begin(owner, item, claim_for)
            };
            match self.tell(begin).await {
                Some(Some(_)) if stop.shutdown.is_cancelled() => {
                    return Err(Some(Settlement::put_off(Delay::ZERO)));
                }
                Some(Some(attempts)) if begun_at.elapsed() + handler_timeout <= claim_for.get() => {
                    return Ok(attempts);
                }
                Some(Some(_)) => tracing::warn!(
                    after = ?begun_at.elapsed(),
                    "too little of the claim is left for the handler"
                ),
                Some(None) => {
                    tracing::warn!("message was not ours any more when it was started");
                    self.metrics.counters().too_late.add(1);
                    return Err(None);
                }
                // Whether it was counted is not known; what is given back is not.
                None => return Err(Some(Settlement::put_off(Delay::ZERO))),
            }
        }
        let delay = Delay::new(BEGIN_AGAIN_AFTER).expect("it is within the bounds");
        Err(Some(Settlement::put_off(delay)))
    }

    async fn handle(
        &self,
        handler: &dyn BoxedHandler<Q::Item>,
        item: Q::Item,
        failed_before: u32,
    ) -> Settlement {
        let handling = catching_panics(async { handler.handle_boxed(item).await });
        let result = match timeout(self.settings.handler_timeout, handling).await {
            Ok(result) => result,
            Err(_) => {
                let after = self.settings.handler_timeout;
                Err(HandlerError::retry(format!("handler timed out after {after:?}")))
            }
        };
        let attempts = failed_before.saturating_add(1);
        match result {
            Ok(()) => Settlement::DONE,
            Err(HandlerError::Permanent { reason }) => {
                Settlement::Fail { error: ErrorText::new(reason) }
            }
            Err(HandlerError::Retry { reason }) if attempts >= self.settings.attempts_max => {
                let error = format!("gave up after {attempts} attempts: {reason}");
                Settlement::Fail { error: ErrorText::new(error) }
            }
            Err(HandlerError::Retry { reason }) => Settlement::Retry {
                delay: backoff::retry_delay(failed_before, fastrand::f64()),
                error: ErrorText::new(reason),
            },
        }
    }

    async fn settle(&self, owner: &OwnerToken, item: &Q::Item, settlement: &Settlement) {
        let counters = self.metrics.counters();
        let counter: &Counter = match settlement {
            Settlement::Finish { .. } => &counters.acknowledged,
            Settlement::Retry { delay, error } => {
                tracing::info!(?delay, %error, "message will be retried");
                &counters.abandoned
            }
            Settlement::Fail { error } => {
                tracing::warn!(%error, "message failed");
                &counters.failed
            }
            Settlement::PutOff { delay, .. } => {
                tracing::info!(?delay, "message given back untried");
                &counters.given_back
            }
        };
        match self.tell(|| self.queue.settle(owner, item, settlement)).await {
            Some(0) => {
                tracing::warn!("message was not ours any more when it was settled");
                counters.too_late.add(1);
            }
            Some(count) => counter.add(count),
            None => {}
        }
    }

    /// Tells the provider until it answers. None if it does not.
    async fn tell<T, F>(&self, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let mut again = interval(TELL_AGAIN_AFTER);
        for _ in 0..TELL_ATTEMPTS_MAX {
            again.tick().await;
            let answer = self.answered(call().await);
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    async fn keep_up(&self) {
        let counters = self.metrics.counters();
        if let Some(count) = self.answered(self.queue.reap().await) {
            counters.reaped.add(count);
        }
        for (topics, keep) in self.settings.retentions(self.handlers.topics()) {
            if let Some(count) = self.answered(self.queue.purge(&topics, keep).await) {
                counters.purged.add(count);
            }
        }
        if let Some(age) = self.answered(self.queue.oldest_ready_age().await) {
            counters.set_oldest_ready_age(age);
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>, deadline: &CancellationToken) {
        if end_within(self.settings.drain_timeout, &mut tasks).await {
            return;
        }
        let left = tasks.len();
        tracing::warn!(left, "handlers did not finish in time, their messages go back");
        deadline.cancel();
        if !end_within(GIVE_BACK_TIMEOUT, &mut tasks).await {
            tracing::warn!(left = tasks.len(), "messages not given back, they will be reaped");
            tasks.shutdown().await;
        }
    }

    fn answered<T>(&self, answer: Result<T>) -> Option<T> {
        self.metrics.answered(Q::NAME, answer)
    }
}

/// Whether all tasks end within a time.
async fn end_within(span: Duration, tasks: &mut JoinSet<()>) -> bool {
    let end = async {
        while let Some(ended) = tasks.join_next().await {
            note_end(ended);
        }
    };
    timeout(span, end).await.is_ok()
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a task of the worker itself broke, a message that it had will be reaped");
    }
}
