//! The common part of the outbox and inbox dispatchers.

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
use super::lanes::{ClaimRequest, TopicLanes};
use super::metrics::{MetricsSnapshot, WorkerMetrics};
use super::settings::{InvalidSettings, WorkerSettings};
use crate::{
    Answer, BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, Result,
    Retention, Settlement, TOPICS_MAX, TooManyTopics, Topic, Topics,
};

/// How often `begin` and `settle` are called without an answer before the item is left to be
/// reaped.
const CALL_ATTEMPTS_MAX: usize = 3;
const CALL_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often `begin` is called until enough of the claim is left for the handler.
const BEGIN_ATTEMPTS_MAX: usize = 2;
/// The delay of a message whose `begin` was answered too late each time.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a worker that stops waits for its last messages to be returned.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue of a dispatcher: an outbox or an inbox.
pub(super) trait Queue: Clone + Send + Sync + 'static {
    type Item: ClaimedItem;
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

/// A claimed outbox or inbox message.
pub(super) trait ClaimedItem: Clone + Send + Sync + 'static {
    fn id(&self) -> String;
    fn topic(&self) -> &Topic;
    fn correlation_id(&self) -> Option<&CorrelationId>;
    /// The number of attempts, over all its claims.
    fn attempts(&self) -> u32;
    /// How many attempts failed, of those that count towards `attempts_max`.
    fn failed_attempts(&self) -> u32;
    /// How many attempts began and never ended, of those that count towards `lost_attempts_max`.
    fn lost_attempts(&self) -> u32;
    /// The message as its handler sees it, with the current attempt counted.
    fn begun(self, attempts: u32) -> Self;
}

/// Stop signals for a worker's tasks.
#[derive(Debug, Clone)]
struct StopSignals {
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

    pub(super) fn handled_topics_only(&mut self) {
        self.claims_others = false;
    }

    pub(super) fn metrics(&self) -> WorkerMetrics {
        self.metrics.clone()
    }

    /// Works until `shutdown` fires. Then it starts nothing more, gives its handlers
    /// `drain_timeout` to finish, and returns unfinished messages to the queue.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let worker = Arc::new(self);
        let settings = &worker.settings;
        let mut lanes = TopicLanes::new(worker.handlers.topics(), worker.claims_others, settings);
        let stop = StopSignals { shutdown, deadline: CancellationToken::new() };
        let mut tasks = JoinSet::new();
        let mut poll = interval(settings.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = interval(settings.upkeep_interval);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // At most one task: maintenance may take long, and must delay neither claims nor the stop.
        let mut maintenance = JoinSet::new();
        // Created before the first claim, and again before the claims that it causes, so that no
        // work added after a claim is missed.
        let mut work_added = pin!(worker.queue.work_added());
        while !stop.shutdown.is_cancelled() {
            while let Some(ended) = tasks.try_join_next() {
                log_task_panic(ended);
            }
            let request = lanes.next_claim(tasks.len());
            let may_have_more = request.is_some();
            if let Some(request) = request {
                worker.claim_and_spawn(&request, &mut lanes, &mut tasks, &stop).await;
            }
            tokio::select! {
                biased;
                () = stop.shutdown.cancelled() => break,
                _ = upkeep.tick(), if maintenance.is_empty() => {
                    let worker = Arc::clone(&worker);
                    maintenance.spawn(async move { worker.run_maintenance().await });
                }
                Some(ended) = maintenance.join_next(), if !maintenance.is_empty() => {
                    log_task_panic(ended);
                    lanes.wake();
                }
                () = &mut work_added => {
                    work_added.set(worker.queue.work_added());
                    lanes.wake();
                }
                () = tokio::task::yield_now(), if may_have_more => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => log_task_panic(ended),
                _ = poll.tick() => lanes.wake(),
            }
        }
        // Uncommitted maintenance is rolled back.
        maintenance.shutdown().await;
        worker.drain(tasks, &stop.deadline).await;
    }

    /// Claims messages and spawns their handlers.
    async fn claim_and_spawn(
        self: &Arc<Self>,
        request: &ClaimRequest,
        lanes: &mut TopicLanes,
        tasks: &mut JoinSet<()>,
        stop: &StopSignals,
    ) {
        // Each claim has its own owner token: if a message returns to this worker after its claim
        // expired, the earlier handler must not settle it.
        let owner = OwnerToken::random();
        let claim_for = self.settings.claim_for;
        let claimed = self.queue.claim(&owner, claim_for, request.max, &request.topics).await;
        let Some(items) = self.answered(claimed) else {
            lanes.mark_all_empty();
            return;
        };
        self.metrics.add(|counters| &mut counters.claimed, items.len());
        if items.len() < request.max.as_usize() {
            lanes.mark_empty(request);
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
        stop: &StopSignals,
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
            // The provider returned more messages than requested.
            (Some(_), None) => Some(Settlement::postpone(Delay::ZERO)),
        };
        if let Some(settlement) = settlement {
            self.settle(owner, &item, &settlement).await;
        }
    }

    /// Begins the attempt and calls the handler. Returns `None` if the claim was lost.
    async fn start(
        &self,
        handler: &dyn BoxedHandler<Q::Item>,
        item: &Q::Item,
        owner: &OwnerToken,
        stop: &StopSignals,
    ) -> Option<Settlement> {
        let attempts = match self.begin(item, owner, stop).await {
            Ok(attempts) => attempts,
            Err(settlement) => return settlement,
        };
        let handling = self.handle(handler, item.clone().begun(attempts), item.failed_attempts());
        tokio::select! {
            biased;
            settlement = handling => Some(settlement),
            () = stop.deadline.cancelled() => Some(Settlement::postpone(Delay::ZERO)),
        }
    }

    /// Begins the attempt, which extends the claim. Returns the number of attempts, or how to
    /// settle an item that must not be started.
    async fn begin(
        &self,
        item: &Q::Item,
        owner: &OwnerToken,
        stop: &StopSignals,
    ) -> Result<u32, Option<Settlement>> {
        let WorkerSettings { claim_for, handler_timeout, .. } = self.settings;
        for _ in 0..BEGIN_ATTEMPTS_MAX {
            if stop.shutdown.is_cancelled() {
                return Err(Some(Settlement::postpone(Delay::ZERO)));
            }
            // Read before each call, so never later than the provider's start of the claim.
            let mut begun_at = Instant::now();
            let begin = || {
                begun_at = Instant::now();
                self.queue.begin(owner, item, claim_for)
            };
            match self.call_until_answered(begin).await {
                Some(Some(_)) if stop.shutdown.is_cancelled() => {
                    return Err(Some(Settlement::postpone(Delay::ZERO)));
                }
                Some(Some(attempts)) if begun_at.elapsed() + handler_timeout <= claim_for.get() => {
                    return Ok(attempts);
                }
                Some(Some(_)) => tracing::warn!(
                    after = ?begun_at.elapsed(),
                    "too little of the claim is left for the handler"
                ),
                Some(None) => {
                    tracing::warn!("claim lost before the handler started");
                    self.metrics.add(|counters| &mut counters.too_late, 1);
                    return Err(None);
                }
                // Unknown whether the attempt was counted; postponing uncounts it.
                None => return Err(Some(Settlement::postpone(Delay::ZERO))),
            }
        }
        let delay = Delay::new(BEGIN_AGAIN_AFTER).expect("it is within the bounds");
        Err(Some(Settlement::postpone(delay)))
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
        let counter: fn(&mut MetricsSnapshot) -> &mut u64 = match settlement {
            Settlement::Finish { .. } => |counters| &mut counters.acknowledged,
            Settlement::Retry { delay, error } => {
                tracing::info!(?delay, %error, "message will be retried");
                |counters| &mut counters.abandoned
            }
            Settlement::Fail { error } => {
                tracing::warn!(%error, "message failed");
                |counters| &mut counters.failed
            }
            Settlement::Postpone { delay, .. } => {
                tracing::info!(?delay, "message returned without an attempt");
                |counters| &mut counters.given_back
            }
        };
        match self.call_until_answered(|| self.queue.settle(owner, item, settlement)).await {
            Some(0) => {
                tracing::warn!("claim lost before the outcome was stored");
                self.metrics.add(|counters| &mut counters.too_late, 1);
            }
            Some(count) => self.metrics.add(counter, count),
            None => {}
        }
    }

    /// Repeats a call until the provider answers. Returns `None` if it does not.
    async fn call_until_answered<T, F>(&self, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let mut again = interval(CALL_AGAIN_AFTER);
        for _ in 0..CALL_ATTEMPTS_MAX {
            again.tick().await;
            let answer = self.answered(call().await);
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    async fn run_maintenance(&self) {
        if let Some(count) = self.answered(self.queue.reap().await) {
            self.metrics.add(|counters| &mut counters.reaped, count);
        }
        for (topics, keep) in self.settings.retentions(self.handlers.topics()) {
            if let Some(count) = self.answered(self.queue.purge(&topics, keep).await) {
                self.metrics.add(|counters| &mut counters.purged, count);
            }
        }
        if let Some(age) = self.answered(self.queue.oldest_ready_age().await) {
            self.metrics.set(|counters| counters.oldest_ready_age = age);
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>, deadline: &CancellationToken) {
        if wait_for_tasks(self.settings.drain_timeout, &mut tasks).await {
            return;
        }
        let left = tasks.len();
        tracing::warn!(left, "handlers did not finish in time, returning their messages");
        deadline.cancel();
        if !wait_for_tasks(GIVE_BACK_TIMEOUT, &mut tasks).await {
            tracing::warn!(left = tasks.len(), "messages not returned, they will be reaped");
            tasks.shutdown().await;
        }
    }

    fn answered<T>(&self, answer: Result<T>) -> Option<T> {
        self.metrics.answered(Q::NAME, answer)
    }
}

/// Returns whether all tasks ended within `span`.
async fn wait_for_tasks(span: Duration, tasks: &mut JoinSet<()>) -> bool {
    let end = async {
        while let Some(ended) = tasks.join_next().await {
            log_task_panic(ended);
        }
    };
    timeout(span, end).await.is_ok()
}

fn log_task_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "worker task panicked, its claim will expire");
    }
}
