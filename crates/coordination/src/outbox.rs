//! The outbox: messages that must leave this system, kept until they have.

pub(crate) mod join;

use std::future::Future;
use std::time::Duration;

use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, MessageId, OwnerToken, Payload,
    ProviderError, Timestamp, Topic,
};

/// A message to enqueue. Its identity is made here, so enqueueing the same value again adds
/// nothing.
///
/// ```
/// use coordination::{CorrelationId, NewOutboxMessage, Payload, Topic};
///
/// let message = NewOutboxMessage::new(
///     Topic::new("order.placed").unwrap(),
///     Payload::new(r#"{"order":42}"#).unwrap(),
/// )
/// .correlated_with(CorrelationId::new("request-7").unwrap());
/// assert_eq!(message.topic.as_str(), "order.placed");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOutboxMessage {
    /// Its identity.
    pub id: MessageId,
    /// What it is about.
    pub topic: Topic,
    /// What it carries.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it may be claimed; none is at once.
    pub due_at: Option<Timestamp>,
}

/// A message as its claimer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Its identity.
    pub id: MessageId,
    /// What it is about.
    pub topic: Topic,
    /// What it carries.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it became due: as asked for, as rescheduled, or when it was enqueued.
    pub due_at: Timestamp,
    /// How often it was rescheduled.
    pub retry_count: u32,
    /// What went wrong last; empty if nothing did.
    pub last_error: ErrorText,
    /// When this claim runs out.
    pub claimed_until: Timestamp,
}

/// Messages that must leave this system: `Ready → Claimed → Done / Dead`.
///
/// The methods return `impl Future + Send` and are not boxed: a provider writes `async fn`, a
/// worker is generic over it, and no call allocates for dispatch. There is no `dyn Outbox`.
///
/// A message is a value that knows its identity before it is stored, so an SQL provider adds an
/// inherent `enqueue_in(&mut transaction, message)` beside this trait and the application enqueues
/// **inside its own transaction**; nothing here depends on when the provider sees the message
/// first.
///
/// Calls that finish or give back items act only on those that `owner` has claimed, tolerate
/// unknown and repeated IDs, and say how many items they changed (`PRIM-GEN-B`).
pub trait Outbox: Send + Sync + 'static {
    /// Adds a message. One whose ID is known is left as it is, whatever its state.
    fn enqueue(
        &self,
        message: NewOutboxMessage,
    ) -> impl Future<Output = Result<MessageId, ProviderError>> + Send;

    /// Claims up to `max` due messages for `lease`, in the order of their creation.
    fn claim_due(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Future<Output = Result<Vec<OutboxMessage>, ProviderError>> + Send;

    /// Finishes claimed messages. Says how many.
    fn mark_dispatched(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;

    /// Gives claimed messages back, due after `delay`, with one more retry. Says how many.
    ///
    /// An empty `error` keeps the last one.
    fn reschedule(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        error: &ErrorText,
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;

    /// Ends claimed messages as failed, for good. Says how many.
    fn fail(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        error: &ErrorText,
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;

    /// Makes messages ready whose claim has run out. Says how many.
    fn reap(&self) -> impl Future<Output = Result<usize, ProviderError>> + Send;

    /// Forgets messages, and complete joins, that were finished `older_than` ago or before. Says
    /// how many messages.
    ///
    /// A forgotten ID is unknown again: enqueueing it would deliver it again.
    fn purge(
        &self,
        older_than: Duration,
    ) -> impl Future<Output = Result<usize, ProviderError>> + Send;

    /// How long the oldest due and unclaimed message has been due, by the provider's clock.
    fn oldest_ready_age(
        &self,
    ) -> impl Future<Output = Result<Option<Duration>, ProviderError>> + Send;

    /// Completes when there may be new work, to spare a worker its poll. May complete for no
    /// reason; the default never does.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl NewOutboxMessage {
    /// A message with an identity of its own, due at once.
    pub fn new(topic: Topic, payload: Payload) -> NewOutboxMessage {
        let id = MessageId::random();
        NewOutboxMessage { id, topic, payload, correlation_id: None, due_at: None }
    }

    /// The same with another identity.
    #[must_use]
    pub fn with_id(self, id: MessageId) -> NewOutboxMessage {
        NewOutboxMessage { id, ..self }
    }

    /// The same, tied to a request.
    #[must_use]
    pub fn correlated_with(self, correlation_id: CorrelationId) -> NewOutboxMessage {
        NewOutboxMessage { correlation_id: Some(correlation_id), ..self }
    }

    /// The same, due at a moment.
    #[must_use]
    pub fn due_at(self, due_at: Timestamp) -> NewOutboxMessage {
        NewOutboxMessage { due_at: Some(due_at), ..self }
    }
}
