//! The worker of the inbox.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::dispatch::{ClaimedItem, Dispatch, Queue};
use super::handler::TopicHandlers;
use super::metrics::WorkerMetrics;
use super::settings::{InvalidSettings, WorkerSettings};
use crate::{
    BatchSize, CorrelationId, Inbox, InboxMessage, LeaseDuration, OwnerToken, Result, Retention,
    Settlement, Topic, Topics,
};

/// Claims due messages, calls the topic's handler, and acknowledges, abandons or fails them.
///
/// Used like [`OutboxDispatcher`](crate::OutboxDispatcher), with handlers of [`InboxMessage`].
#[derive(Debug)]
pub struct InboxDispatcher<I: Inbox + Clone> {
    dispatch: Dispatch<InboxQueue<I>>,
}

#[derive(Debug, Clone)]
struct InboxQueue<I>(I);

impl<I: Inbox + Clone> InboxDispatcher<I> {
    /// A dispatcher. Each of its claims has its own owner token.
    ///
    /// # Errors
    /// [`InvalidSettings`], which names the setting.
    pub fn new(
        inbox: I,
        handlers: TopicHandlers<InboxMessage>,
        settings: WorkerSettings,
    ) -> Result<InboxDispatcher<I>, InvalidSettings> {
        Ok(InboxDispatcher { dispatch: Dispatch::new(InboxQueue(inbox), handlers, settings)? })
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

impl<I: Inbox + Clone> Queue for InboxQueue<I> {
    type Item = InboxMessage;
    const NAME: &'static str = "inbox";

    async fn claim(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<InboxMessage>> {
        self.0.claim_of(owner, lease, max, topics).await
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        message: &InboxMessage,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        self.0.begin(owner, &message.key, lease).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        message: &InboxMessage,
        settlement: &Settlement,
    ) -> Result<usize> {
        self.0.settle(owner, std::slice::from_ref(&message.key), settlement).await
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

impl ClaimedItem for InboxMessage {
    fn id(&self) -> String {
        self.key.to_string()
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
        self.attempts_since_revival() - ClaimedItem::lost_attempts(self)
    }

    /// An older build that does not count lost attempts may revive a message during a rolling
    /// upgrade without resetting them, so they are capped by the attempts since the revival.
    fn lost_attempts(&self) -> u32 {
        self.lost_attempts.min(self.attempts_since_revival())
    }

    fn begun(self, attempts: u32) -> InboxMessage {
        InboxMessage { attempts, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorText, InboxKey, InboxStatus, Payload, Source, SourceMessageId, Timestamp};

    #[test]
    fn lost_attempts_that_an_older_build_left_at_a_revival_do_not_count() {
        let message = |attempts| InboxMessage {
            key: InboxKey {
                source: Source::new("shop").unwrap(),
                message_id: SourceMessageId::new("1").unwrap(),
            },
            topic: Topic::new("order").unwrap(),
            payload: Payload::empty(),
            correlation_id: None,
            hash: None,
            status: InboxStatus::Ready,
            due_at: Timestamp::MIN,
            attempts,
            attempts_at_revival: 7,
            lost_attempts: 3,
            last_error: ErrorText::default(),
        };
        let counts = |message: InboxMessage| {
            (message.failed_attempts(), ClaimedItem::lost_attempts(&message))
        };
        assert_eq!(counts(message(7)), (0, 0), "as the older build revived it");
        assert_eq!(counts(message(12)), (2, 3));
    }
}
