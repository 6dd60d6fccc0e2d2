//! Timers: one message at one time.

use crate::{CorrelationId, Payload, TimerId, Timestamp, Topic};

/// A timer to schedule. It has its ID already, so scheduling the same value again adds nothing.
///
/// ```
/// use coordination::{NewTimer, Payload, Timestamp, Topic};
///
/// let due_at: Timestamp = "2026-05-01T08:00:00Z".parse().unwrap();
/// let reminder = NewTimer::new(Topic::new("order.remind").unwrap(), Payload::empty(), due_at);
/// assert_eq!(reminder.due_at, due_at);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTimer {
    /// Its identity.
    pub id: TimerId,
    /// The topic of its message.
    pub topic: Topic,
    /// The payload of its message.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it is due.
    pub due_at: Timestamp,
}

/// A timer as its claimer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Its identity.
    pub id: TimerId,
    /// The topic of its message.
    pub topic: Topic,
    /// The payload of its message.
    pub payload: Payload,
    /// The request that caused it, if known.
    pub correlation_id: Option<CorrelationId>,
    /// When it became due: as scheduled, or as abandoned.
    pub due_at: Timestamp,
    /// How often it was claimed.
    pub attempts: u32,
}

impl NewTimer {
    /// A timer with a new ID.
    pub fn new(topic: Topic, payload: Payload, due_at: Timestamp) -> NewTimer {
        NewTimer { id: TimerId::random(), topic, payload, correlation_id: None, due_at }
    }

    /// The same, tied to a request.
    #[must_use]
    pub fn correlated_with(self, correlation_id: CorrelationId) -> NewTimer {
        NewTimer { correlation_id: Some(correlation_id), ..self }
    }
}
