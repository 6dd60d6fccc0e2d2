//! Work that waits or asks.

use std::sync::Arc;

use super::WaiterGates;
use super::denials::{Denials, Owner};
use super::gates::GateNumber;
use super::queues::QueueNumber;
use crate::LeaseId;
use crate::clock::Timestamp;

/// Work that waits or asks.
#[derive(Debug)]
pub struct Waiter<W> {
    pub(super) queue: QueueNumber,
    pub(super) lane: Arc<str>,
    pub(super) needs: Box<[Need]>,
    /// How often it has asked.
    pub attempts: u32,
    /// The lease of the last attempt, if nobody knows what became of it.
    pub unanswered_lease: Option<LeaseId>,
    /// How often in a row nobody answered.
    pub(super) unanswered_count: u32,
    pub(super) standing: Standing,
    /// The gates that nobody may pass before this waiter.
    pub(super) first_at: Box<[GateNumber]>,
    pub(super) denials: Denials,
    /// What the caller keeps with it.
    pub work: W,
}

/// What a waiter needs of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) gate: GateNumber,
    pub(super) amount: u64,
    pub(super) owner: Owner,
}

/// What a waiter does at present.
#[derive(Debug)]
pub(super) enum Standing {
    /// It may ask as soon as its turn comes.
    Ready,
    /// It asked, and asks again later.
    Waiting(Wait),
    /// It asks.
    Asking {
        /// How many releases there had been when it began to.
        since: u64,
        begun_at: Timestamp,
    },
}

/// Until when a waiter waits.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) until: Timestamp,
    /// The gates that stood in its way. When all of them got room back, the wait is over early.
    pub(super) denied: Box<[GateNumber]>,
    /// How many releases there had been when the waiter asked.
    pub(super) since: u64,
}

impl<W> Waiter<W> {
    pub(super) fn new(queue: QueueNumber, lane: Arc<str>, needs: Box<[Need]>, work: W) -> Self {
        Self {
            queue,
            lane,
            needs,
            attempts: 0,
            unanswered_lease: None,
            unanswered_count: 0,
            standing: Standing::Ready,
            first_at: Box::default(),
            denials: Denials::default(),
            work,
        }
    }
}

impl Wait {
    pub(super) fn is_over(&self, now: Timestamp, gates: &WaiterGates) -> bool {
        let released = |gate: &GateNumber| gates.was_released_since(*gate, self.since);
        self.until <= now || (!self.denied.is_empty() && self.denied.iter().all(released))
    }
}
