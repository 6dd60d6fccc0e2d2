//! The stored state of an outbox message.

use crate::{CorrelationId, ErrorText, MessageId, Payload, Timestamp, Topic};

/// A message as the outbox stores it, until it is purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Its identity.
    pub id: MessageId,
    /// Its topic.
    pub topic: Topic,
    /// Its payload.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it is or was due.
    pub due_at: Timestamp,
    /// How often it was rescheduled.
    pub retry_count: u32,
    /// How many attempts began ([`Outbox::begin`](crate::Outbox::begin)) or were rescheduled.
    pub attempts: u32,
    /// The last error; empty if there was none.
    pub last_error: ErrorText,
    /// Its state.
    pub status: OutboxStatus,
}

/// The state of an outbox message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxStatus {
    /// It can be claimed when it is due.
    Ready,
    /// An owner has it.
    Claimed {
        /// When the claim expires.
        until: Timestamp,
    },
    /// It was dispatched or finished.
    Done {
        /// Set by [`finish`](crate::Outbox::finish); `None` if it was dispatched.
        outcome: Option<Payload>,
    },
    /// It failed permanently; `last_error` says why.
    Dead,
}
