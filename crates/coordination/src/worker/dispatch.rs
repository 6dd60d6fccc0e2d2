//! What the outbox and the inbox dispatcher share: claim, handle within bounds, settle, keep up.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::backoff;
use super::handler::{BoxedHandler, HandlerError, TopicHandlers};
use super::metrics::{Counter, WorkerMetrics};
use super::settings::WorkerSettings;
use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, ProviderError,
    Retention, Topic, Topics,
};

/// How often a settlement is tried before the item is left to be reaped.
const SETTLE_ATTEMPTS_MAX: usize = 3;
const SETTLE_AGAIN_AFTER: Duration = Duration::from_millis(200);

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
    ) -> impl Future<Output = Result<Vec<Self::Item>, ProviderError>> + Send;
    fn settle(
        &self,
        owner: &OwnerToken,
        item: &Self::Item,
        settlement: &Settlement,
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;
    fn reap(&self) -> impl Future<Output = Result<usize, ProviderError>> + Send;
    fn purge(
        &self,
        topics: &Topics,
        keep: Retention,
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;
    fn oldest_ready_age(
        &self,
    ) -> impl Future<Output = Result<Option<Duration>, ProviderError>> + Send;
    fn work_added(&self) -> impl Future<Output = ()> + Send;
}

/// What a dispatcher must know of a claimed item.
pub(super) trait Work: Clone + Send + Sync + 'static {
    fn id(&self) -> String;
    fn topic(&self) -> &Topic;
    fn correlation_id(&self) -> Option<&CorrelationId>;
    /// Which attempt this is, from 1.
    fn attempt(&self) -> u32;
}

/// What becomes of an item after its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    Acknowledge,
    Retry { delay: Delay, error: ErrorText },
    Fail { error: ErrorText },
}

/// One claim. Each has an owner token of its own, so that a message that comes back to the same
/// worker after its claim ran out is not settled by the handler from before.
#[derive(Debug, Clone)]
struct Claim {
    owner: OwnerToken,
    /// Before the claim was asked for, which is never later than the provider's start of it.
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Dispatch<Q: Queue> {
    queue: Q,
    handlers: TopicHandlers<Q::Item>,
    settings: WorkerSettings,
    metrics: WorkerMetrics,
    /// One for each topic with a handler.
    permits: HashMap<Topic, Arc<Semaphore>>,
}

impl<Q: Queue> Dispatch<Q> {
    /// The settings must have been checked.
    pub(super) fn new(
        queue: Q,
        handlers: TopicHandlers<Q::Item>,
        settings: WorkerSettings,
    ) -> Dispatch<Q> {
        let permit = |topic: &Topic| {
            (topic.clone(), Arc::new(Semaphore::new(settings.topic_concurrency_max)))
        };
        let permits = handlers.topics().map(permit).collect();
        Dispatch { queue, handlers, settings, metrics: WorkerMetrics::default(), permits }
    }

    /// The topics with a handler.
    pub(super) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.handlers.topics()
    }

    pub(super) fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    pub(super) fn metrics(&self) -> WorkerMetrics {
        self.metrics.clone()
    }

    /// Works until `shutdown` fires, then finishes what it has claimed, for `drain_timeout` at
    /// most.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let worker = Arc::new(self);
        let mut tasks = JoinSet::new();
        let mut poll = interval(worker.settings.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = interval(worker.settings.upkeep_interval);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut may_have_more = true;
        while !shutdown.is_cancelled() {
            while let Some(ended) = tasks.try_join_next() {
                note_end(ended);
            }
            let room = worker.settings.in_flight_max - tasks.len();
            // Made before the claim, so that no work that comes after it is missed.
            let work_added = worker.queue.work_added();
            if may_have_more && room > 0 {
                may_have_more = worker.claim_and_spawn(room, &mut tasks).await;
            }
            let has_room = tasks.len() < worker.settings.in_flight_max;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                _ = upkeep.tick() => {
                    worker.keep_up().await;
                    may_have_more = true;
                }
                () = tokio::task::yield_now(), if may_have_more && has_room => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => note_end(ended),
                () = work_added => may_have_more = true,
                _ = poll.tick() => may_have_more = true,
            }
        }
        worker.drain(tasks).await;
    }

    /// Claims what there is room for. Says whether there may be more.
    async fn claim_and_spawn(self: &Arc<Self>, room: usize, tasks: &mut JoinSet<()>) -> bool {
        let room = u32::try_from(room).expect("what is in flight is bounded");
        let max = BatchSize::new(room.min(self.settings.batch.get())).expect("there is room");
        let claim = Claim { owner: OwnerToken::random(), at: Instant::now() };
        let items = match self.queue.claim(&claim.owner, self.settings.claim_for, max).await {
            Ok(items) => items,
            Err(error) => {
                self.note_no_answer(&error);
                return false;
            }
        };
        self.metrics.counters().claimed.add(items.len());
        let may_have_more = items.len() == max.as_usize();
        for item in items {
            let span = tracing::info_span!(
                "handle",
                queue = Q::NAME,
                id = %item.id(),
                topic = %item.topic(),
                correlation_id = item.correlation_id().map(tracing::field::display),
                attempt = item.attempt(),
            );
            tasks.spawn(Arc::clone(self).handle_and_settle(item, claim.clone()).instrument(span));
        }
        may_have_more
    }

    async fn handle_and_settle(self: Arc<Self>, item: Q::Item, claim: Claim) {
        let handler = self.handlers.for_topic(item.topic());
        let settlement = match (handler, self.permits.get(item.topic())) {
            (Some(_), _) if item.attempt() > self.settings.attempts_max => {
                // Claimed that often and never settled: it takes its workers down with it.
                let error = format!("gave up: claimed {} times without an outcome", item.attempt());
                Settlement::Fail { error: ErrorText::new(error) }
            }
            (Some(handler), Some(permits)) => {
                let _permit = permits.acquire().await.expect("the semaphore is never closed");
                let time_left = self.settings.claim_for.get().saturating_sub(claim.at.elapsed());
                if time_left < self.settings.handler_timeout {
                    // The claim could run out under the handler. Left alone, it is reaped and comes
                    // again.
                    tracing::debug!("claim too old to start its handler");
                    self.metrics.counters().too_late.add(1);
                    return;
                }
                self.handle(&*handler, item.clone()).await
            }
            (None, _) | (_, None) => {
                let error = ErrorText::new(format!("no handler for topic {}", item.topic()));
                Settlement::Fail { error }
            }
        };
        self.settle(&claim, &item, &settlement).await;
    }

    async fn handle(&self, handler: &dyn BoxedHandler<Q::Item>, item: Q::Item) -> Settlement {
        let attempt = item.attempt();
        let handling = catching_panics(|| handler.handle_boxed(item));
        let result = match timeout(self.settings.handler_timeout, handling).await {
            Ok(result) => result,
            Err(_) => {
                let after = self.settings.handler_timeout;
                Err(HandlerError::retry(format!("handler timed out after {after:?}")))
            }
        };
        match result {
            Ok(()) => Settlement::Acknowledge,
            Err(HandlerError::Permanent { reason }) => {
                Settlement::Fail { error: ErrorText::new(reason) }
            }
            Err(HandlerError::Retry { reason }) if attempt >= self.settings.attempts_max => {
                let error = format!("gave up after {attempt} attempts: {reason}");
                Settlement::Fail { error: ErrorText::new(error) }
            }
            Err(HandlerError::Retry { reason }) => Settlement::Retry {
                delay: backoff::retry_delay(attempt.saturating_sub(1), fastrand::f64()),
                error: ErrorText::new(reason),
            },
        }
    }

    async fn settle(&self, claim: &Claim, item: &Q::Item, settlement: &Settlement) {
        let counters = self.metrics.counters();
        let counter: &Counter = match settlement {
            Settlement::Acknowledge => &counters.acknowledged,
            Settlement::Retry { delay, error } => {
                tracing::info!(?delay, %error, "message will be retried");
                &counters.abandoned
            }
            Settlement::Fail { error } => {
                tracing::warn!(%error, "message failed");
                &counters.failed
            }
        };
        let mut again = interval(SETTLE_AGAIN_AFTER);
        for _ in 0..SETTLE_ATTEMPTS_MAX {
            again.tick().await;
            match self.queue.settle(&claim.owner, item, settlement).await {
                Ok(0) => {
                    tracing::warn!("message was not ours any more when it was settled");
                    counters.too_late.add(1);
                    return;
                }
                Ok(count) => {
                    counter.add(count);
                    return;
                }
                Err(error) => self.note_no_answer(&error),
            }
        }
    }

    async fn keep_up(&self) {
        let counters = self.metrics.counters();
        match self.queue.reap().await {
            Ok(count) => counters.reaped.add(count),
            Err(error) => self.note_no_answer(&error),
        }
        for (topics, keep) in self.settings.retentions(self.handlers.topics()) {
            match self.queue.purge(&topics, keep).await {
                Ok(count) => counters.purged.add(count),
                Err(error) => self.note_no_answer(&error),
            }
        }
        match self.queue.oldest_ready_age().await {
            Ok(age) => counters.set_oldest_ready_age(age),
            Err(error) => self.note_no_answer(&error),
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>) {
        let drained = timeout(self.settings.drain_timeout, async {
            while tasks.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tracing::warn!(
                left = tasks.len(),
                "handlers did not finish in time, their messages will be reaped"
            );
            tasks.shutdown().await;
        }
    }

    fn note_no_answer(&self, error: &ProviderError) {
        self.metrics.counters().provider_errors.add(1);
        tracing::warn!(queue = Q::NAME, %error, "provider gave no answer");
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a task of the worker itself broke, its message will be reaped");
    }
}

/// A handler's future, with a panic in it or in making it turned into a reason to retry.
async fn catching_panics<'a>(
    handle: impl FnOnce() -> super::handler::Handling<'a>,
) -> Result<(), HandlerError> {
    let handling = match catch_unwind(AssertUnwindSafe(handle)) {
        Ok(handling) => handling,
        Err(panic) => return Err(panicked(&*panic)),
    };
    let mut handling = pin!(handling);
    std::future::poll_fn(|context| {
        // Unwind-safe: a future that panicked is not polled again.
        match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    })
    .await
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    HandlerError::retry(format!("handler panicked: {}", text.as_deref().unwrap_or("no message")))
}
