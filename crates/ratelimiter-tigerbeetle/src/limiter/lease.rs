//! A lease, from its reserve or from its transfers.

use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, JobId, LeaseId, REQUIREMENTS_MAX, ReserveError};
use smallvec::SmallVec;

use super::codes::{ReservationKind, TransferCode};
use super::table::ResolvedRequirement;
use crate::ledger::{AccountId, RowKind, TransferId, TransferRow};

/// At least the number of transfers of one lease: its reservations, a void and a new reservation
/// for each, and a marker.
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
    /// In the order of the chain; never empty. Up to four are stored inline.
    pub(super) reservations: SmallVec<[Reservation; 4]>,
}

/// A reservation or hold at one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub(super) account: AccountId,
    pub(super) transfer: TransferId,
    pub(super) amount: u64,
    pub(super) kind: ReservationKind,
    pub(super) expires_at: Timestamp,
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
        let mut reserved_at = None;
        let reservations =
            requirements.iter().zip(transfers).map(|(requirement, (transfer, created_at))| {
                reserved_at.get_or_insert(created_at);
                let kind = requirement.limit.registered.limit.kind;
                Reservation {
                    account: requirement.limit.account,
                    transfer,
                    amount: requirement.amount,
                    kind: ReservationKind::of(kind),
                    expires_at: kind.expires_at(created_at),
                }
            });
        let reservations = reservations.collect();
        let reserved_at = reserved_at.expect("a reserve has at least one requirement");
        Self { id, reserved_at, job: None, reservations }
    }

    /// Answers a repeated reserve (`RES-04`, `RES-09`): allowed as before if it has the same
    /// requirements and all of them are still live.
    pub(super) fn replay(
        &self,
        requirements: &[ResolvedRequirement],
        now: Timestamp,
    ) -> Result<Decision, ReserveError> {
        if self.reservations.iter().any(|reservation| reservation.expires_at <= now) {
            return Err(ReserveError::LeaseEnded);
        }
        let held = |requirement: &ResolvedRequirement| {
            let same = |r: &Reservation| {
                r.account == requirement.limit.account && r.amount == requirement.amount
            };
            self.reservations.iter().any(same)
        };
        if self.reservations.len() != requirements.len() || !requirements.iter().all(held) {
            return Err(ReserveError::LeaseConflict);
        }
        Ok(Decision::allowed_at(self.reserved_at))
    }
}

impl LeaseLookup {
    /// Interprets the transfers of the lease, oldest first. Every complete leaves its marker, which
    /// is no reservation, so a completed lease is recognised permanently.
    pub(super) fn from_rows(id: LeaseId, rows: &[TransferRow]) -> Self {
        let mut reserved_at = None;
        let mut reservations = SmallVec::new();
        for row in rows {
            let Some(reservation) = Reservation::from_row(row) else {
                return Self::Completed;
            };
            reserved_at.get_or_insert(row.timestamp);
            reservations.push(reservation);
        }
        match reserved_at {
            Some(reserved_at) => {
                Self::Open(Box::new(Lease { id, reserved_at, job: None, reservations }))
            }
            None => Self::Unknown,
        }
    }
}

impl Reservation {
    /// `None` if the row is another transfer of the lease.
    fn from_row(row: &TransferRow) -> Option<Self> {
        let RowKind::Pending { .. } = row.kind else {
            return None;
        };
        if row.code != TransferCode::Reservation.number() {
            return None;
        }
        Some(Self {
            account: row.debit,
            transfer: row.id,
            amount: u64::try_from(row.amount).ok()?,
            kind: ReservationKind::from_number(row.user_data.data_32)?,
            expires_at: row.expires_at()?,
        })
    }
}
