//! The inbox: received messages, each handled once however often it was sent.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use thiserror::Error;

use crate::{
    Answer, BatchSize, ContentHash, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken,
    Payload, ProviderError, Retention, Settlement, Source, SourceMessageId, Timestamp, Topic,
    Topics,
};

/// The identity of an inbox message: who sent it, and what the sender calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboxKey {
    /// The system that it came from.
    pub source: Source,
    /// The sender's name for it.
    pub message_id: SourceMessageId,
}

/// A message to enqueue.
///
/// ```
/// use coordination::{InboxKey, NewInboxMessage, Payload, Source, SourceMessageId, Topic};
///
/// let key = InboxKey {
///     source: Source::new("shop").unwrap(),
///     message_id: SourceMessageId::new("order-42").unwrap(),
/// };
/// let message =
///     NewInboxMessage::new(key, Topic::new("order.placed").unwrap(), Payload::empty());
/// assert_eq!(message.key.to_string(), "shop/order-42");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInboxMessage {
    /// Its identity.
    pub key: InboxKey,
    /// Its topic.
    pub topic: Topic,
    /// Its payload.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// The hash of its content, if the sender gives one.
    pub hash: Option<ContentHash>,
    /// When it may be claimed; `None` means at once.
    pub due_at: Option<Timestamp>,
}

/// A message as the inbox stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    /// Its identity.
    pub key: InboxKey,
    /// Its topic.
    pub topic: Topic,
    /// Its payload.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// The hash of its content, if the sender gave one.
    pub hash: Option<ContentHash>,
    /// Its state.
    pub status: InboxStatus,
    /// When it became due: as asked for, as abandoned or revived, or when it was enqueued.
    pub due_at: Timestamp,
    /// How many attempts began ([`Inbox::begin`]) or were abandoned, over all its claims.
    pub attempts: u32,
    /// The value of `attempts` when it was last revived; 0 if it never was.
    pub attempts_at_revival: u32,
    /// How many attempts since then began and had no outcome when their claim expired, as of the
    /// last claim: the process died, or could not report the outcome.
    pub lost_attempts: u32,
    /// The last error, or the reason of the revival; empty if there was neither.
    pub last_error: ErrorText,
}

/// The state of an inbox message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxStatus {
    /// Waits to be claimed, now or when it is due.
    Ready,
    /// Is being handled.
    Claimed {
        /// When the claim expires.
        until: Timestamp,
    },
    /// Was handled.
    Done,
    /// Failed permanently.
    Dead,
}

/// The result of enqueueing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// The message is new.
    Added,
    /// The message was known; nothing changed.
    Duplicate,
}

/// Whether a message was handled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Processed {
    /// It is unknown, waits, is being handled, or failed.
    No,
    /// It was handled.
    Yes,
    /// It was handled with different content: the sender used one ID for two messages.
    WithOtherContent,
}

/// Why [`Inbox::get`] returned no message.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum GetError {
    /// It was never enqueued, or was finished and has been purged.
    #[error("unknown_message: {key}")]
    Unknown { key: InboxKey },
    /// The provider gave no answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// Received messages: `Ready → Claimed → Done / Dead`, and back from `Dead` with
/// [`revive`](Inbox::revive).
///
/// One message per [`InboxKey`], until it is purged. [`Outbox`](crate::Outbox) explains the
/// methods' return types and counts.
pub trait Inbox: Send + Sync + 'static {
    /// Whether this message was handled before. Changes nothing.
    fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> impl Answer<Processed>;

    /// Adds a message, unless its key is known: then nothing changes, whatever its status.
    fn enqueue(&self, message: NewInboxMessage) -> impl Answer<Enqueued>;

    /// Claims up to `max` due messages of these topics for `lease`, in creation order across
    /// topics. The cost does not grow with the number of messages of other topics.
    fn claim_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> impl Answer<Vec<InboxMessage>>;

    /// Claims up to `max` due messages of all topics.
    fn claim(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<InboxMessage>> {
        async move { self.claim_of(owner, lease, max, &Topics::All).await }
    }

    /// Records that an attempt begins on a claimed message, and extends the claim to `lease` from
    /// now; it never shortens it. Returns the number of attempts including this one, or `None` if
    /// `owner` has not claimed the message.
    ///
    /// Counted once per claim, so the call may be repeated; and counted before the work, so that a
    /// message that crashes its workers is noticed.
    fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> impl Answer<Option<u32>>;

    /// Ends the owner's claims on these messages. Returns how many.
    fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> impl Answer<usize>;

    /// Finishes claimed messages. Returns how many.
    fn ack(&self, owner: &OwnerToken, keys: &[InboxKey]) -> impl Answer<usize> {
        async move { self.settle(owner, keys, &Settlement::DONE).await }
    }

    /// Makes claimed messages ready again [without an attempt](Settlement::Postpone). Returns how
    /// many.
    fn postpone(&self, owner: &OwnerToken, keys: &[InboxKey], delay: Delay) -> impl Answer<usize> {
        async move { self.settle(owner, keys, &Settlement::postpone(delay)).await }
    }

    /// Makes claimed messages ready again after a [failed attempt](Settlement::Retry). Returns how
    /// many.
    fn abandon(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        error: &ErrorText,
        delay: Delay,
    ) -> impl Answer<usize> {
        let settlement = Settlement::Retry { delay, error: error.clone() };
        async move { self.settle(owner, keys, &settlement).await }
    }

    /// Fails claimed messages permanently. Returns how many.
    fn fail(&self, owner: &OwnerToken, keys: &[InboxKey], error: &ErrorText) -> impl Answer<usize> {
        let settlement = Settlement::Fail { error: error.clone() };
        async move { self.settle(owner, keys, &settlement).await }
    }

    /// The message as it is stored.
    fn get(&self, key: &InboxKey) -> impl Answer<InboxMessage, GetError>;

    /// Makes dead messages ready after `delay`. Returns how many. The reason is stored as the last
    /// error, unless it is empty.
    fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> impl Answer<usize>;

    /// Makes messages ready whose claim has expired. Returns how many.
    fn reap(&self) -> impl Answer<usize>;

    /// Deletes finished messages of these topics whose retention has passed. Returns how many. One
    /// call deletes a bounded number; the next call continues.
    ///
    /// A deleted message is unknown again: the sender's next copy would be delivered.
    fn purge(&self, topics: &Topics, keep: Retention) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed message has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, so that a worker need not poll. It may complete
    /// spuriously; the default never completes.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl NewInboxMessage {
    /// A message that is due at once.
    pub fn new(key: InboxKey, topic: Topic, payload: Payload) -> NewInboxMessage {
        NewInboxMessage { key, topic, payload, correlation_id: None, hash: None, due_at: None }
    }

    /// The same, tied to a request.
    #[must_use]
    pub fn correlated_with(self, correlation_id: CorrelationId) -> NewInboxMessage {
        NewInboxMessage { correlation_id: Some(correlation_id), ..self }
    }

    /// The same with a hash of its content.
    #[must_use]
    pub fn with_hash(self, hash: ContentHash) -> NewInboxMessage {
        NewInboxMessage { hash: Some(hash), ..self }
    }

    /// The same, due at a moment.
    #[must_use]
    pub fn due_at(self, due_at: Timestamp) -> NewInboxMessage {
        NewInboxMessage { due_at: Some(due_at), ..self }
    }
}

impl InboxMessage {
    /// How many attempts there were since it was enqueued or last revived, so that a revived
    /// message has all its attempts again.
    ///
    /// # Panics
    /// If there were more attempts at the last revival than there are, which no provider reports.
    pub fn attempts_since_revival(&self) -> u32 {
        assert!(self.attempts_at_revival <= self.attempts, "a revived message keeps its attempts");
        self.attempts - self.attempts_at_revival
    }
}

impl fmt::Display for InboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.message_id)
    }
}
