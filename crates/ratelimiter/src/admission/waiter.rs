//! A waiter and its state.

use std::sync::Arc;

use super::denials::{Denials, Owner};
use super::gates::GateId;
use super::rooms::{Guest, Place, RoomId, TurnNumber};
use super::{WaiterGates, WaiterId};
use crate::clock::Timestamp;
use crate::{LeaseId, LimitKey};

/// Work that waits or asks.
#[derive(Debug)]
pub struct Waiter<W> {
    /// Where it waits as long as nothing holds it up.
    pub(super) queue: Place,
    pub(super) lane: Arc<str>,
    pub(super) requirements: Box<[GateRequirement]>,
    /// How often it asked.
    pub attempts: u32,
    /// The lease of the last attempt, if its outcome is unknown.
    pub unanswered_lease: Option<LeaseId>,
    /// Attempts in a row without an answer.
    pub(super) unanswered_count: u32,
    pub(super) state: WaiterState,
    /// Its last answer was a denial.
    pub(super) wait: Option<Wait>,
    /// The gates that no other waiter may pass before this one.
    pub(super) first_at: Box<[GateId]>,
    /// The gates at whose limits its request waits for room.
    pub(super) attends: Box<[GateId]>,
    pub(super) denials: Denials,
    /// The turn of its lane that it asks in.
    pub(super) turn: Option<TurnNumber>,
    /// How often another passed it since its last denial.
    pub(super) passes: u32,
    /// It moved to the room of a gate that does not hold it up, since it asked last.
    pub(super) has_followed: bool,
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
    /// In the room of its queue, or of the gate that holds it up.
    InRoom { room: RoomId, held_up_by: Option<GateRequirement> },
    /// In no room until this time, whatever happens.
    Resting(Timestamp),
    Asking {
        /// The number of releases when it began to ask.
        since: u64,
        begun_at: Timestamp,
    },
}

/// What a denied waiter waits for: the time of its hint, or that all limits that denied it get room back.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) until: Timestamp,
    /// The limits that denied it.
    pub(super) denied: Box<[GateRequirement]>,
    /// The number of releases when the waiter began to ask.
    pub(super) since: u64,
}

impl<W> Waiter<W> {
    pub(super) fn new(
        queue: &str,
        lane: &str,
        requirements: Box<[GateRequirement]>,
        work: W,
    ) -> Self {
        Self {
            queue: Place::Queue(queue.into()),
            lane: lane.into(),
            requirements,
            attempts: 0,
            unanswered_lease: None,
            unanswered_count: 0,
            state: WaiterState::Resting(Timestamp::NEVER),
            wait: None,
            first_at: Box::default(),
            attends: Box::default(),
            denials: Denials::default(),
            turn: None,
            passes: 0,
            has_followed: false,
            work,
        }
    }

    pub(super) fn gates(&self) -> impl Iterator<Item = GateId> {
        self.requirements.iter().map(|requirement| requirement.gate)
    }

    pub(super) fn goes_first(&self) -> bool {
        !self.first_at.is_empty()
    }

    /// As the room of its queue knows it, or that of a gate.
    pub(super) fn guest(&self, id: WaiterId, gate: Option<GateRequirement>) -> Guest<'_> {
        let amount = gate.map_or(0, |requirement| requirement.amount);
        let denied = self.wait.iter().flat_map(|wait| &wait.denied);
        let was_denied = denied.map(Some).any(|denied| denied == gate.as_ref());
        let goes_first = self.goes_first();
        Guest { id, lane: &self.lane, amount, goes_first, was_denied, turn: self.turn }
    }

    /// The requirements that these limits denied, and those of them that count: only the tenant's, if one is the tenant's.
    pub(super) fn blamed(
        &self,
        keys: &[LimitKey],
        gates: &WaiterGates,
    ) -> (Box<[GateRequirement]>, Box<[GateRequirement]>) {
        let is_denied = |requirement: &&GateRequirement| keys.contains(gates.key(requirement.gate));
        let denied: Box<[_]> = self.requirements.iter().filter(is_denied).copied().collect();
        let owner = Owner::of_denial(denied.iter().map(|requirement| requirement.owner));
        let blamed = denied.iter().filter(|requirement| requirement.owner == owner).copied();
        let blamed = blamed.collect();
        (denied, blamed)
    }

    /// The requirements whose limits denied it and got no room back since.
    pub(super) fn all_denied_by<'a>(
        &'a self,
        gates: &'a WaiterGates,
    ) -> impl Iterator<Item = &'a GateRequirement> {
        let denied = self.wait.iter().flat_map(|Wait { denied, since, .. }| {
            denied.iter().map(|requirement| (requirement, *since))
        });
        let is_denied = move |(denied, since): &(&GateRequirement, u64)| {
            !gates.was_released_since(denied.gate, *since)
        };
        denied.filter(is_denied).map(|(denied, _)| denied)
    }

    /// The requirement whose limit denied it and got no room back since, until its hint is over. None if all of them did.
    pub(super) fn denied_by(
        &self,
        now: Timestamp,
        gates: &WaiterGates,
    ) -> Option<(GateRequirement, Timestamp)> {
        let until = self.wait.as_ref()?.until;
        let held_up_by = self.all_denied_by(gates).next()?;
        (until > now).then_some((*held_up_by, until))
    }
}
