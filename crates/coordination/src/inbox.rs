//! The inbox: messages that came in, each handled once however often it was sent.

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
    /// What it is about.
    pub topic: Topic,
    /// What it carries.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// The hash of its content, if the sender gives one.
    pub hash: Option<ContentHash>,
    /// When it may be claimed; none is at once.
    pub due_at: Option<Timestamp>,
}

/// A message as the inbox keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMessage {
    /// Its identity.
    pub key: InboxKey,
    /// What it is about.
    pub topic: Topic,
    /// What it carries.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// The hash of its content, if the sender gave one.
    pub hash: Option<ContentHash>,
    /// Where it stands.
    pub status: InboxStatus,
    /// When it became due: as asked for, as abandoned or revived, or when it was enqueued.
    pub due_at: Timestamp,
    /// How many attempts began ([`Inbox::begin`]) or were abandoned, over all its claims.
    pub attempts: u32,
    /// How many there had been when it was last revived; 0 if it never was.
    pub attempts_at_revival: u32,
    /// How many attempts since then began and had not ended when their claim ran out, as of the last
    /// claim: its process died, or could not say what came of it.
    pub lost_attempts: u32,
    /// What went wrong last, or why it was revived; empty if nothing did.
    pub last_error: ErrorText,
}

/// Where an inbox message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxStatus {
    /// Waits to be claimed, now or when it is due.
    Ready,
    /// Is being handled.
    Claimed {
        /// When the claim runs out.
        until: Timestamp,
    },
    /// Was handled.
    Done,
    /// Failed for good.
    Dead,
}

/// What enqueueing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// The message is new.
    Added,
    /// The message was here; nothing changed.
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
    /// It was handled with another content: the sender used one ID for two messages.
    WithOtherContent,
}

/// Why a message cannot be shown.
#[derive(Debug, Error)]
pub enum GetError {
    /// It was never enqueued, or was finished and has been purged.
    #[error("unknown_message: {key}")]
    Unknown {
        /// The identity asked for.
        key: InboxKey,
    },
    /// The provider gave no answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// Messages that came in: `Ready → Claimed → Done / Dead`, and from `Dead` back by
/// [`revive`](Inbox::revive).
///
/// One message per [`InboxKey`], for as long as it is not purged. For the shape of the methods and
/// what the counts mean see [`Outbox`](crate::Outbox).
pub trait Inbox: Send + Sync + 'static {
    /// Whether this message was handled before. Changes nothing.
    fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> impl Answer<Processed>;

    /// Adds a message, unless its key is known: then nothing changes, whatever its status.
    fn enqueue(&self, message: NewInboxMessage) -> impl Answer<Enqueued>;

    /// Claims up to `max` due messages of these topics for `lease`, in the order of their creation
    /// whatever their topics. What it costs does not grow with the messages of other topics.
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

    /// Says that work on a claimed message begins, and makes its claim last for `lease` from now,
    /// unless it lasts longer anyway. The answer is how many attempts there were, this one included;
    /// none if `owner` has not claimed it.
    ///
    /// Counted once a claim, so the call may be repeated; and counted before the work, so that a
    /// message that takes its workers down with it shows.
    fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> impl Answer<Option<u32>>;

    /// Ends the owner's claims on these messages as the settlement says. Says how many.
    fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> impl Answer<usize>;

    /// Finishes claimed messages. Says how many.
    fn ack(&self, owner: &OwnerToken, keys: &[InboxKey]) -> impl Answer<usize> {
        async move { self.settle(owner, keys, &Settlement::DONE).await }
    }

    /// Gives claimed messages back [untried](Settlement::PutOff). Says how many.
    fn postpone(&self, owner: &OwnerToken, keys: &[InboxKey], delay: Delay) -> impl Answer<usize> {
        async move { self.settle(owner, keys, &Settlement::put_off(delay)).await }
    }

    /// Gives claimed messages back after a [failed attempt](Settlement::Retry). Says how many.
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

    /// Ends claimed messages as dead. Says how many.
    fn fail(&self, owner: &OwnerToken, keys: &[InboxKey], error: &ErrorText) -> impl Answer<usize> {
        let settlement = Settlement::Fail { error: error.clone() };
        async move { self.settle(owner, keys, &settlement).await }
    }

    /// The message as it is kept.
    fn get(&self, key: &InboxKey) -> impl Answer<InboxMessage, GetError>;

    /// Makes dead messages ready after `delay`. Says how many. An empty `reason` keeps the last
    /// error.
    fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> impl Answer<usize>;

    /// Makes messages ready whose claim has run out. Says how many.
    fn reap(&self) -> impl Answer<usize>;

    /// Forgets finished messages of these topics that were kept for long enough. Says how many. What
    /// is left after very many is for the next call.
    ///
    /// A forgotten message is unknown again: the sender's next copy would be delivered.
    fn purge(&self, topics: &Topics, keep: Retention) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed message has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, to spare a worker its poll. May complete for no
    /// reason; the default never does.
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
    pub fn hashed(self, hash: ContentHash) -> NewInboxMessage {
        NewInboxMessage { hash: Some(hash), ..self }
    }

    /// The same, due at a moment.
    #[must_use]
    pub fn due_at(self, due_at: Timestamp) -> NewInboxMessage {
        NewInboxMessage { due_at: Some(due_at), ..self }
    }
}

impl InboxMessage {
    /// How many attempts there were since it was enqueued or last revived, so that a revived message
    /// has all its attempts again.
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
