//! What became of a message: its state, to read back.

use crate::{CorrelationId, ErrorText, MessageId, Payload, Timestamp, Topic};

/// A message as the outbox keeps it, from its enqueueing until it is purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Its identity.
    pub id: MessageId,
    /// What it is about.
    pub topic: Topic,
    /// What it carries.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it is or was due.
    pub due_at: Timestamp,
    /// How often it was rescheduled.
    pub retry_count: u32,
    /// How many attempts began ([`Outbox::begin`](crate::Outbox::begin)) or were rescheduled.
    pub attempts: u32,
    /// What went wrong last; empty if nothing did.
    pub last_error: ErrorText,
    /// Where it is in its life.
    pub status: OutboxStatus,
}

/// Where an outbox message is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxStatus {
    /// It can be claimed when it is due.
    Ready,
    /// An owner has it.
    Claimed {
        /// When the claim runs out.
        until: Timestamp,
    },
    /// It was dispatched or finished.
    Done {
        /// What it was [finished](crate::Outbox::finish) with; none if it was dispatched.
        outcome: Option<Payload>,
    },
    /// It failed for good; `last_error` says why.
    Dead,
}
