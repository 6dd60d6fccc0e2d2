//! A lease, from its reserve or from its transfers.

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Decision, JobId, LeaseId, REQUIREMENTS_MAX, RenewNumber, Requirement, Requirements,
    ReserveError,
};
use smallvec::SmallVec;

use super::codes::{ReservationKind, TransferCode, may_return, withdrawn_by};
use super::renewed_lease::{Part, RenewedLease, first_parts};
use super::reservation::Reservation;
use super::table::ResolvedRequirement;
use crate::ids;
use crate::ledger::{TransferId, TransferRow};

/// At least the number of transfers of one lease that is not renewed: its reservations, a void and a
/// new reservation for each, a gate, a marker, and one that says that a caller has it. One that was
/// renewed may have any number; what is beyond this many is read in the largest pages.
pub(super) const LEASE_ROWS_MAX: usize = 4 * REQUIREMENTS_MAX;
/// More than an open lease usually has. The first query asks for this many: a message to the
/// cluster carries as many queries as there is room for their rows.
pub(super) const FEW_LEASE_ROWS_MAX: usize = 8;

/// A lease that was allowed and, as far as is known here, not completed.
///
/// It has account IDs instead of keys, so that a large cache does not contend on the limits' shared
/// keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    /// Known to the server that allowed it, if it was given.
    pub(super) job: Option<Box<JobId>>,
    pub(super) claim: Claim,
    /// What its reserve made, in the order of the chain; never empty. Up to four are stored inline.
    pub(super) reservations: SmallVec<[Reservation; 4]>,
    /// Set once it was renewed. Then this has what it holds.
    pub(super) renewed: Option<Box<RenewedLease>>,
}

/// Whether a lease may be returned because its callers have gone away (`TB-17`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// It is not returned: a caller has it, or will get it.
    Kept,
    /// By the server that admitted it, until somebody else creates the lease's transfer
    /// `xfer:read:<lease>`, or renews it. The gate has the number of that server; a first attempt has no gate.
    Returnable { by: Option<u64> },
}

/// A lease according to the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LeaseLookup {
    /// It was never allowed.
    Unknown,
    /// It was denied for good: its gate is closed, and it has nothing.
    Denied,
    /// It was completed.
    Completed,
    /// It was allowed and not completed; its reservations may have expired.
    Open(Box<Lease>),
}

impl Lease {
    /// The lease of an allowed chain.
    pub(super) fn allowed(
        id: LeaseId,
        requirements: &[ResolvedRequirement],
        transfers: impl Iterator<Item = (TransferId, Timestamp)>,
    ) -> Self {
        let mut first_created_at = None;
        let reservations =
            requirements.iter().zip(transfers).map(|(requirement, (transfer, created_at))| {
                first_created_at.get_or_insert(created_at);
                let (kind, account) =
                    (requirement.limit.registered.limit.kind, requirement.limit.account);
                Reservation {
                    account: account.id,
                    transfer,
                    amount: requirement.amount,
                    kind: ReservationKind::of(kind),
                    expires_at: account.ends_at.unwrap_or_else(|| kind.expires_at(created_at)),
                }
            });
        let reservations: SmallVec<_> = reservations.collect();
        let created_at = first_created_at.expect("a reserve has at least one requirement");
        let (reserved_at, claim) = (reserved_at(created_at, &reservations), Claim::Kept);
        Self { id, reserved_at, job: None, claim, reservations, renewed: None }
    }

    /// Answers a repeated reserve (`RES-04`, `RES-09`): allowed as before if it has the same
    /// requirements and all of them are still live.
    pub(super) fn replay(
        &self,
        requirements: &Requirements,
        now: Timestamp,
    ) -> Result<Decision, ReserveError> {
        let has_lapsed = match &self.renewed {
            Some(renewed) => renewed.parts.iter().any(|part| !part.is_live(now)),
            None => self.reservations.iter().any(|held| held.expires_at <= now),
        };
        if has_lapsed {
            return Err(ReserveError::LeaseEnded);
        }
        let held = |Requirement { key, amount }: &Requirement| {
            let is_same = |held: &Reservation| {
                held.amount == amount.get() && held.is_of(key, || ids::limit_account(key))
            };
            self.reservations.iter().any(is_same)
        };
        if self.reservations.len() != requirements.len() || !requirements.iter().all(held) {
            return Err(ReserveError::LeaseConflict);
        }
        Ok(Decision::allowed_at(self.reserved_at))
    }
}

impl Lease {
    /// The number of its last renew.
    pub(super) fn version(&self) -> Option<RenewNumber> {
        self.renewed.as_ref().map(|renewed| renewed.last.number)
    }

    /// Whether whatever renews or ends it, in its present state, creates its end marker. The void of its first
    /// hold may end a lease that was never renewed (`TB-16`).
    pub(super) fn ends_by_marker(&self) -> bool {
        self.renewed.as_ref().is_some_and(|renewed| renewed.is_renewed)
            || self.reservations.iter().all(|held| held.kind != ReservationKind::Hold)
    }

    /// As it is after a renew, which only somebody sends who was told of it.
    pub(super) fn renewed_as(self, renewed: RenewedLease) -> Self {
        Self { claim: Claim::Kept, renewed: Some(Box::new(renewed)), ..self }
    }

    /// A renewed lease as it is after these transfers, which are later than those that are known, oldest
    /// first. `None` if it has ended, or only all of its transfers can tell.
    pub(super) fn after(mut self, rows: &[TransferRow]) -> Option<Self> {
        let renewed = self.renewed.as_mut()?;
        for row in rows_that_count(rows) {
            renewed.add(row)?;
        }
        Some(self)
    }

    /// All that it has reserved and not given back, lapsed or not.
    pub(super) fn parts(&self) -> Vec<Part> {
        match &self.renewed {
            Some(renewed) => renewed.parts.clone(),
            None => first_parts(&self.reservations),
        }
    }

    /// The parts of one limit that have not lapsed, the one that lapses first first.
    pub(super) fn live_parts(&self, at: usize, now: Timestamp) -> Vec<Part> {
        let mut parts = self.parts();
        parts.retain(|part| part.at == at && part.is_live(now));
        parts.sort_by_key(|part| part.held.expires_at);
        parts
    }

    /// `REN-02`: until when it can be renewed.
    pub(super) fn renewable_until(&self) -> Timestamp {
        let parts = self.parts();
        let holds = parts.iter().filter(|part| part.held.kind == ReservationKind::Hold);
        let last = holds.map(|part| part.held.expires_at).max();
        let last = last.or_else(|| parts.iter().map(|part| part.held.expires_at).max());
        last.unwrap_or(self.reserved_at)
    }
}

impl LeaseLookup {
    /// Interprets the transfers of the lease, oldest first. Every complete leaves its marker, which
    /// is no reservation, so a completed lease is recognised permanently.
    pub(super) fn from_rows(id: LeaseId, rows: &[TransferRow]) -> Self {
        let Some(reserved_at) = reserved_at_of(rows) else {
            return if rows.is_empty() { Self::Unknown } else { Self::Denied };
        };
        let (mut reservations, mut later) = (SmallVec::new(), Vec::new());
        for row in rows_that_count(rows) {
            match Reservation::from_row(row) {
                Some(reservation) => reservations.push(reservation),
                None => later.push(row),
            }
        }
        let claim = Claim::from_rows(id, rows);
        let lease = Lease { id, reserved_at, job: None, claim, reservations, renewed: None };
        if later.is_empty() {
            return Self::Open(Box::new(lease));
        }
        match RenewedLease::from_rows(&lease.reservations, &later) {
            Some(renewed) => Self::Open(Box::new(lease.renewed_as(renewed))),
            None => Self::Completed,
        }
    }
}

impl Claim {
    /// The claim to a lease that was not renewed.
    fn from_rows(id: LeaseId, rows: &[TransferRow]) -> Self {
        let mut gates = rows.iter().filter(|row| is_gate(row));
        if gates.clone().any(|row| row.id == ids::reading(id)) {
            return Self::Kept;
        }
        match gates.next() {
            Some(gate) => Self::Returnable { by: Some(gate.user_data.data_64) },
            None if rows.iter().any(may_return) => Self::Returnable { by: None },
            None => Self::Kept,
        }
    }
}

/// When a lease was reserved, by its transfers, oldest first, those of its end included; `None` if
/// it was never allowed.
pub(super) fn reserved_at_of(rows: &[TransferRow]) -> Option<Timestamp> {
    let mut rows = rows_that_count(rows).peekable();
    let created_at = rows.peek()?.timestamp;
    let reservations: SmallVec<[_; 4]> = rows.map_while(Reservation::from_row).collect();
    Some(reserved_at(created_at, &reservations))
}

/// The transfers of a lease without its gates, and without reservations that were withdrawn.
fn rows_that_count(rows: &[TransferRow]) -> impl Iterator<Item = &TransferRow> {
    let withdrawn: SmallVec<[_; 4]> = rows.iter().filter_map(withdrawn_by).collect();
    let is_withdrawn =
        move |row: &TransferRow| withdrawn_by(row).is_some() || withdrawn.contains(&row.id);
    rows.iter().filter(move |row| !is_gate(row) && !is_withdrawn(row))
}

/// Whether a transfer of a lease is its gate, or says that a caller has it: neither reserves anything
/// (`TB-17`).
fn is_gate(row: &TransferRow) -> bool {
    row.code == TransferCode::Gate.number()
}

/// When a lease was reserved whose first transfer was created at `created_at`.
///
/// A server sends a reserve to the account of a period that has not ended as far as it knows, and the
/// cluster may execute it after the end. It was decided for that period then: the room was there
/// until the end, since nothing is admitted on the account of a period that has ended but such
/// requests, and the sum on it never exceeds the capacity. So the reserve counts as decided at the
/// last moment of the period, which lies between its request and its answer.
fn reserved_at(created_at: Timestamp, reservations: &[Reservation]) -> Timestamp {
    let calendar = reservations.iter().filter(|held| held.kind == ReservationKind::Calendar);
    let last_moments =
        calendar.map(|held| Timestamp::from_unix_ms(held.expires_at.unix_ms().saturating_sub(1)));
    last_moments.fold(created_at, Timestamp::min)
}

#[cfg(test)]
mod tests;
