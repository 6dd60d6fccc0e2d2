//! A lease, from its reserve or from its transfers.

use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, JobId, LeaseId, REQUIREMENTS_MAX, RenewNumber, ReserveError};
use smallvec::SmallVec;

use super::codes::ReservationKind;
use super::renewed_lease::{Part, RenewedLease, first_parts};
use super::reservation::Reservation;
use super::table::ResolvedRequirement;
use crate::ids;
use crate::ledger::{TransferId, TransferRow};

/// At least the number of transfers of one lease that is not renewed: its reservations, a void and a
/// new reservation for each, and a marker. Those of one that is are read in pages of this size.
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
    /// What its reserve made, in the order of the chain; never empty. Up to four are stored inline.
    pub(super) reservations: SmallVec<[Reservation; 4]>,
    /// Set once it was renewed. Then this has what it holds.
    pub(super) renewed: Option<Box<RenewedLease>>,
}

/// A lease according to the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LeaseLookup {
    /// It was never allowed.
    Unknown,
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
        let reserved_at = reserved_at(created_at, &reservations);
        Self { id, reserved_at, job: None, reservations, renewed: None }
    }

    /// Answers a repeated reserve (`RES-04`, `RES-09`): allowed as before if it has the same
    /// requirements and all of them are still live.
    pub(super) fn replay(
        &self,
        requirements: &[ResolvedRequirement],
        now: Timestamp,
    ) -> Result<Decision, ReserveError> {
        let has_lapsed = match &self.renewed {
            Some(renewed) => renewed.parts.iter().any(|part| !part.is_live(now)),
            None => self.reservations.iter().any(|held| held.expires_at <= now),
        };
        if has_lapsed {
            return Err(ReserveError::LeaseEnded);
        }
        let held = |requirement: &ResolvedRequirement| {
            let key = requirement.limit.key();
            let is_same = |held: &Reservation| {
                held.amount == requirement.amount && held.is_of(key, || ids::limit_account(key))
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
            return Self::Unknown;
        };
        let reservations: SmallVec<_> = rows.iter().map_while(Reservation::from_row).collect();
        let renewed = match &rows[reservations.len()..] {
            [] => None,
            later => match RenewedLease::from_rows(&reservations, later) {
                Some(renewed) => Some(Box::new(renewed)),
                None => return Self::Completed,
            },
        };
        Self::Open(Box::new(Lease { id, reserved_at, job: None, reservations, renewed }))
    }
}

/// When a lease was reserved, by its transfers, oldest first, those of its end included; `None` if
/// it was never allowed.
pub(super) fn reserved_at_of(rows: &[TransferRow]) -> Option<Timestamp> {
    let reservations: SmallVec<[_; 4]> = rows.iter().map_while(Reservation::from_row).collect();
    rows.first().map(|first| reserved_at(first.timestamp, &reservations))
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
