//! The outbox: messages to send, stored until they are sent.

pub(crate) mod join;
pub(crate) mod record;
pub(crate) mod topics;

use std::future::Future;
use std::time::Duration;

use self::record::OutboxRecord;
use self::topics::Topics;
use crate::{
    Answer, BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, MessageId, OwnerToken,
    Payload, Retention, Settlement, Timestamp, Topic,
};

/// A message to enqueue. It has its ID already, so enqueueing the same value again adds nothing.
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
    /// Its topic.
    pub topic: Topic,
    /// Its payload.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it may be claimed; `None` means at once.
    pub due_at: Option<Timestamp>,
}

/// A message as its claimer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Its identity.
    pub id: MessageId,
    /// Its topic.
    pub topic: Topic,
    /// Its payload.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it became due: as asked for, as rescheduled, or when it was enqueued.
    pub due_at: Timestamp,
    /// How often it was rescheduled.
    pub retry_count: u32,
    /// How many attempts began ([`Outbox::begin`]) or were rescheduled, over all its claims.
    pub attempts: u32,
    /// The last error; empty if there was none.
    pub last_error: ErrorText,
    /// When this claim expires.
    pub claimed_until: Timestamp,
}

/// Messages to send: `Ready → Claimed → Done / Dead`.
///
/// The methods return [`impl Answer`](Answer) and are not boxed: a provider writes `async fn`, a
/// worker is generic over it, and no call allocates for dispatch. There is no `dyn Outbox`.
///
/// A message has its ID before it is stored, so an SQL provider can add an inherent
/// `enqueue_in(&mut transaction, message)` and the application enqueues **inside its own
/// transaction**.
///
/// Calls that settle or extend claims act only on messages that `owner` has claimed, tolerate
/// unknown and repeated IDs, and return how many messages they changed (`PRIM-GEN-B`).
pub trait Outbox: Send + Sync + 'static {
    /// Adds a message. A message whose ID is known stays as it is, whatever its state.
    fn enqueue(&self, message: NewOutboxMessage) -> impl Answer<MessageId>;

    /// Claims up to `max` due messages of these topics for `lease`, in creation order across
    /// topics. The cost does not grow with the number of messages of other topics.
    fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> impl Answer<Vec<OutboxMessage>>;

    /// Claims up to `max` due messages of all topics.
    fn claim_due(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<OutboxMessage>> {
        async move { self.claim_due_of(owner, lease, max, &Topics::All).await }
    }

    /// Records that an attempt begins on a claimed message, and extends the claim like
    /// [`extend`](Outbox::extend). Returns the number of attempts including this one, or `None` if
    /// `owner` has not claimed the message.
    ///
    /// Counted once per claim, so the call may be repeated; and counted before the work, so that a
    /// message that crashes its workers is noticed.
    fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> impl Answer<Option<u32>>;

    /// Extends claims to `lease` from now, and never shortens them. Returns how many were still the
    /// owner's.
    fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> impl Answer<usize>;

    /// Ends the owner's claims on these messages. Returns how many.
    fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> impl Answer<usize>;

    /// Finishes claimed messages. Returns how many.
    fn mark_dispatched(&self, owner: &OwnerToken, ids: &[MessageId]) -> impl Answer<usize> {
        async move { self.settle(owner, ids, &Settlement::DONE).await }
    }

    /// Finishes one claimed message and stores its outcome. Returns 1, or 0 if it was not claimed.
    fn finish(&self, owner: &OwnerToken, id: MessageId, outcome: &Payload) -> impl Answer<usize> {
        let settlement = Settlement::Finish { outcome: Some(outcome.clone()) };
        async move { self.settle(owner, &[id], &settlement).await }
    }

    /// Makes claimed messages ready again [without an attempt](Settlement::Postpone). Returns how
    /// many.
    fn postpone(&self, owner: &OwnerToken, ids: &[MessageId], delay: Delay) -> impl Answer<usize> {
        async move { self.settle(owner, ids, &Settlement::postpone(delay)).await }
    }

    /// The same, and stores the reason as the last error.
    fn postpone_because(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        reason: &ErrorText,
    ) -> impl Answer<usize> {
        let settlement = Settlement::Postpone { delay, reason: reason.clone() };
        async move { self.settle(owner, ids, &settlement).await }
    }

    /// Makes claimed messages ready again after a [failed attempt](Settlement::Retry). Returns how
    /// many.
    fn reschedule(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        error: &ErrorText,
    ) -> impl Answer<usize> {
        let settlement = Settlement::Retry { delay, error: error.clone() };
        async move { self.settle(owner, ids, &settlement).await }
    }

    /// Fails claimed messages permanently. Returns how many.
    fn fail(&self, owner: &OwnerToken, ids: &[MessageId], error: &ErrorText) -> impl Answer<usize> {
        let settlement = Settlement::Fail { error: error.clone() };
        async move { self.settle(owner, ids, &settlement).await }
    }

    /// Up to `max` failed messages with an ID greater than `after`, by ID. For operators: it may
    /// read every stored message.
    fn dead(&self, after: Option<MessageId>, max: BatchSize) -> impl Answer<Vec<OutboxRecord>>;

    /// Makes failed messages ready again, due after `delay`, with retries and attempts reset to 0.
    /// Other messages stay as they are. Returns how many.
    ///
    /// The reason is stored as the last error, unless it is empty. For a join the message stays
    /// failed: the first outcome counts.
    fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> impl Answer<usize>;

    /// The message with this ID, or `None` if it is unknown or was purged.
    fn record(&self, id: MessageId) -> impl Answer<Option<OutboxRecord>>;

    /// Makes messages ready whose claim has expired. Returns how many.
    fn reap(&self) -> impl Answer<usize>;

    /// Deletes finished messages of these topics whose retention has passed, and a join with the
    /// last of its messages. Returns how many messages. One call deletes a bounded number; the next
    /// call continues.
    ///
    /// A worker names its own topics, so that it does not delete what others keep (`CRD-07`). The
    /// ID of a deleted message is unknown again: enqueueing it would deliver it again.
    fn purge(&self, topics: &Topics, keep: Retention) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed message has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// How long until the next ready message of these topics is due, by the provider's clock: zero
    /// if one is due, `None` if there is none. Claimed messages do not count.
    fn next_due_after(&self, topics: &Topics) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, so that a worker need not poll. It may complete
    /// spuriously; the default never completes.
    ///
    /// A worker calls this, then claims, and awaits the future if there was nothing: a provider
    /// completes every future that was created before the work was added.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl NewOutboxMessage {
    /// A message with a new ID, due at once.
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

impl OutboxMessage {
    /// How many attempts began and had no outcome when their claim expired: the process died, or
    /// could not report the outcome. Valid while the current attempt has not begun.
    pub fn lost_attempts(&self) -> u32 {
        // There may be more retries than attempts: earlier releases rescheduled messages they had
        // not begun.
        self.attempts.saturating_sub(self.retry_count)
    }
}
