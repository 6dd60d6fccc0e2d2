//! A waiter and its state.

use std::sync::Arc;

use super::WaiterGates;
use super::denials::{Denials, Owner};
use super::gates::GateId;
use super::queues::QueueId;
use crate::LeaseId;
use crate::clock::Timestamp;

/// Work that waits or asks.
#[derive(Debug)]
pub struct Waiter<W> {
    pub(super) queue: QueueId,
    pub(super) lane: Arc<str>,
    pub(super) requirements: Box<[GateRequirement]>,
    /// How often it asked.
    pub attempts: u32,
    /// The lease of the last attempt, if its outcome is unknown.
    pub unanswered_lease: Option<LeaseId>,
    /// Attempts in a row without an answer.
    pub(super) unanswered_count: u32,
    pub(super) state: WaiterState,
    /// The gates that no other waiter may pass before this one.
    pub(super) first_at: Box<[GateId]>,
    pub(super) denials: Denials,
    /// The caller's data.
    pub work: W,
}

/// A waiter's requirement at one gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GateRequirement {
    pub(super) gate: GateId,
    pub(super) amount: u64,
    pub(super) owner: Owner,
}

#[derive(Debug)]
pub(super) enum WaiterState {
    /// It may ask as soon as its turn comes.
    Ready,
    /// It was denied or got no answer, and asks again later.
    Waiting(Wait),
    Asking {
        /// The number of releases when it began to ask.
        since: u64,
        begun_at: Timestamp,
    },
}

#[derive(Debug)]
pub(super) struct Wait {
    pub(super) until: Timestamp,
    /// The gates that denied it. When all of them got room back, the wait is over early.
    pub(super) denied: Box<[GateId]>,
    /// The number of releases when the waiter began to ask.
    pub(super) since: u64,
}

impl<W> Waiter<W> {
    pub(super) fn new(
        queue: QueueId,
        lane: Arc<str>,
        requirements: Box<[GateRequirement]>,
        work: W,
    ) -> Self {
        Self {
            queue,
            lane,
            requirements,
            attempts: 0,
            unanswered_lease: None,
            unanswered_count: 0,
            state: WaiterState::Ready,
            first_at: Box::default(),
            denials: Denials::default(),
            work,
        }
    }

    pub(super) fn gates(&self) -> impl Iterator<Item = GateId> {
        self.requirements.iter().map(|requirement| requirement.gate)
    }
}

impl Wait {
    pub(super) fn is_over(&self, now: Timestamp, gates: &WaiterGates) -> bool {
        let released = |gate: &GateId| gates.was_released_since(*gate, self.since);
        self.until <= now || (!self.denied.is_empty() && self.denied.iter().all(released))
    }
}
