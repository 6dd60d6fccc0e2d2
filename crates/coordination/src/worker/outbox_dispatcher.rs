//! The worker of the outbox.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::dispatch::{ClaimedItem, Dispatch, Queue};
use super::handler::TopicHandlers;
use super::metrics::WorkerMetrics;
use super::settings::{InvalidSettings, WorkerSettings};
use crate::{
    BatchSize, CorrelationId, LeaseDuration, Outbox, OutboxMessage, OwnerToken, Result, Retention,
    Settlement, Topic, Topics,
};

/// Claims due messages, calls the topic's handler, and marks them dispatched, reschedules or fails
/// them.
///
/// ```
/// use coordination::{
///     CancellationToken, MemoryProvider, NewOutboxMessage, Outbox, OutboxDispatcher, OutboxMessage, Payload, Topic,
///     TopicHandlers, WorkerSettings,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = MemoryProvider::new();
/// let topic = Topic::new("order.placed")?;
/// outbox.enqueue(NewOutboxMessage::new(topic.clone(), Payload::new("42")?)).await?;
///
/// let shutdown = CancellationToken::new();
/// let stop = shutdown.clone();
/// let handlers = TopicHandlers::new().on(topic, move |message: OutboxMessage| {
///     let stop = stop.clone();
///     async move {
///         assert_eq!(message.payload.as_text(), Some("42"));
///         stop.cancel();
///         Ok(())
///     }
/// });
/// let dispatcher = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default())?;
/// let metrics = dispatcher.metrics();
/// dispatcher.run(shutdown).await;
/// assert_eq!(metrics.snapshot().acknowledged, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutboxDispatcher<O: Outbox + Clone> {
    dispatch: Dispatch<OutboxQueue<O>>,
}

#[derive(Debug, Clone)]
struct OutboxQueue<O>(O);

impl<O: Outbox + Clone> OutboxDispatcher<O> {
    /// A dispatcher. Each of its claims has its own owner token.
    ///
    /// # Errors
    /// [`InvalidSettings`], which names the setting.
    pub fn new(
        outbox: O,
        handlers: TopicHandlers<OutboxMessage>,
        settings: WorkerSettings,
    ) -> Result<OutboxDispatcher<O>, InvalidSettings> {
        Ok(OutboxDispatcher { dispatch: Dispatch::new(OutboxQueue(outbox), handlers, settings)? })
    }

    /// Claims only topics with a handler, for outboxes that other workers share. Otherwise a
    /// message without a handler is failed.
    #[must_use]
    pub fn only_handled_topics(mut self) -> OutboxDispatcher<O> {
        self.dispatch.handled_topics_only();
        self
    }

    /// Its counters, which can be read while it runs.
    pub fn metrics(&self) -> WorkerMetrics {
        self.dispatch.metrics()
    }

    /// Works until `shutdown` fires. Then it starts nothing more, gives its handlers
    /// `drain_timeout` to finish, and returns unfinished messages to the queue. Dropping the future
    /// stops it at once; its claims expire and are reaped.
    pub async fn run(self, shutdown: CancellationToken) {
        self.dispatch.run(shutdown).await;
    }
}

impl<O: Outbox + Clone> Queue for OutboxQueue<O> {
    type Item = OutboxMessage;
    const NAME: &'static str = "outbox";

    async fn claim(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        self.0.claim_due_of(owner, lease, max, topics).await
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        message: &OutboxMessage,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        self.0.begin(owner, message.id, lease).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        message: &OutboxMessage,
        settlement: &Settlement,
    ) -> Result<usize> {
        self.0.settle(owner, &[message.id], settlement).await
    }

    async fn reap(&self) -> Result<usize> {
        self.0.reap().await
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        self.0.purge(topics, keep).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        self.0.oldest_ready_age().await
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.0.work_added()
    }
}

impl ClaimedItem for OutboxMessage {
    fn id(&self) -> String {
        self.id.to_string()
    }

    fn topic(&self) -> &Topic {
        &self.topic
    }

    fn correlation_id(&self) -> Option<&CorrelationId> {
        self.correlation_id.as_ref()
    }

    fn attempts(&self) -> u32 {
        self.attempts
    }

    fn failed_attempts(&self) -> u32 {
        self.retry_count
    }

    fn lost_attempts(&self) -> u32 {
        self.lost_attempts()
    }

    fn begun(self, attempts: u32) -> OutboxMessage {
        OutboxMessage { attempts, ..self }
    }
}
