//! The outbox: messages that must leave this system, kept until they have.

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
    /// How many attempts began ([`Outbox::begin`]) or were rescheduled, over all its claims.
    pub attempts: u32,
    /// What went wrong last; empty if nothing did.
    pub last_error: ErrorText,
    /// When this claim runs out.
    pub claimed_until: Timestamp,
}

/// Messages that must leave this system: `Ready → Claimed → Done / Dead`.
///
/// The methods return [`impl Answer`](Answer) and are not boxed: a provider writes `async fn`, a
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
    fn enqueue(&self, message: NewOutboxMessage) -> impl Answer<MessageId>;

    /// Claims up to `max` due messages of these topics for `lease`, in the order of their creation
    /// whatever their topics. What it costs does not grow with the messages of other topics.
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

    /// Says that work on a claimed message begins, and extends the claim like
    /// [`extend`](Outbox::extend). The answer is how many attempts began, this one included; none
    /// if `owner` has not claimed it.
    ///
    /// Counted once a claim, so the call may be repeated; and counted before the work, so that a
    /// message that takes its workers down with it shows.
    fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> impl Answer<Option<u32>>;

    /// Makes claims last for `lease` from now, unless they last longer anyway. Says how many were
    /// still the owner's.
    fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> impl Answer<usize>;

    /// Ends the owner's claims on these messages as the settlement says. Says how many.
    fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> impl Answer<usize>;

    /// Finishes claimed messages. Says how many.
    fn mark_dispatched(&self, owner: &OwnerToken, ids: &[MessageId]) -> impl Answer<usize> {
        async move { self.settle(owner, ids, &Settlement::DONE).await }
    }

    /// Finishes one claimed message, and keeps what came of it. Says how many, 0 or 1.
    fn finish(&self, owner: &OwnerToken, id: MessageId, outcome: &Payload) -> impl Answer<usize> {
        let settlement = Settlement::Finish { outcome: Some(outcome.clone()) };
        async move { self.settle(owner, &[id], &settlement).await }
    }

    /// Gives claimed messages back [untried](Settlement::PutOff). Says how many.
    fn postpone(&self, owner: &OwnerToken, ids: &[MessageId], delay: Delay) -> impl Answer<usize> {
        async move { self.settle(owner, ids, &Settlement::put_off(delay)).await }
    }

    /// The same, and keeps the reason as the last error.
    fn postpone_because(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        reason: &ErrorText,
    ) -> impl Answer<usize> {
        let settlement = Settlement::PutOff { delay, reason: reason.clone() };
        async move { self.settle(owner, ids, &settlement).await }
    }

    /// Gives claimed messages back after a [failed attempt](Settlement::Retry). Says how many.
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

    /// Ends claimed messages as failed, for good. Says how many.
    fn fail(&self, owner: &OwnerToken, ids: &[MessageId], error: &ErrorText) -> impl Answer<usize> {
        let settlement = Settlement::Fail { error: error.clone() };
        async move { self.settle(owner, ids, &settlement).await }
    }

    /// Up to `max` failed messages whose ID is greater than `after`, in the order of their IDs. For people
    /// who look after the system: it may look at every message that is kept.
    fn dead(&self, after: Option<MessageId>, max: BatchSize) -> impl Answer<Vec<OutboxRecord>>;

    /// Makes failed messages ready again, due after `delay`, with all their attempts: retries and
    /// attempts count from 0. Others are left as they are. Says how many.
    ///
    /// The reason is kept as the last error; an empty one keeps the one before. For a join the message
    /// stays failed: the first outcome counts.
    fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> impl Answer<usize>;

    /// The message with this ID; none if it is unknown or was purged.
    fn record(&self, id: MessageId) -> impl Answer<Option<OutboxRecord>>;

    /// Makes messages ready whose claim has run out. Says how many.
    fn reap(&self) -> impl Answer<usize>;

    /// Forgets finished messages of these topics that were kept for long enough, and joins with the
    /// last of their messages. Says how many messages. What is left after very many is for the next
    /// call.
    ///
    /// A worker names its own topics, so that none forgets what others keep (`CRD-07`). A forgotten
    /// ID is unknown again: enqueueing it would deliver it again.
    fn purge(&self, topics: &Topics, keep: Retention) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed message has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// How long until the next ready message of these topics is due, by the provider's clock: zero
    /// if one is, none if there is none. Claimed messages do not count.
    fn next_due_after(&self, topics: &Topics) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, to spare a worker its poll. May complete for no
    /// reason; the default never does.
    ///
    /// A worker calls this, then claims, and if there was nothing awaits the future: a provider
    /// that tells of work tells of all that came after the call, to every future made before.
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

impl OutboxMessage {
    /// How many attempts began and had not ended when their claim ran out: its process died, or
    /// could not say what came of it. Of a claimed message whose present attempt has not begun.
    pub fn lost_attempts(&self) -> u32 {
        // There may be more retries: earlier releases rescheduled what they had not begun.
        self.attempts.saturating_sub(self.retry_count)
    }
}
