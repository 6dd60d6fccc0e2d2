//! A lease as TigerBeetle has it: remembered from its reserve, or read back from its transfers.

use ratelimiter::clock::Timestamp;
use ratelimiter::{Decision, LeaseId, REQUIREMENTS_MAX, ReserveError};
use smallvec::SmallVec;

use super::codes::{Tenure, TransferCode};
use super::table::Need;
use crate::ledger::{AccountId, RowKind, TransferId, TransferRow};

/// At least as many as one lease has transfers: its reservations, for each of them a void and a
/// reservation in its place, and a marker.
pub(super) const LEASE_ROWS_MAX: usize = 4 * REQUIREMENTS_MAX;
/// More than an open lease usually has. It is asked for first: a message to the cluster carries as
/// many queries as there is room for the rows that they ask for.
pub(super) const FEW_LEASE_ROWS_MAX: usize = 8;

/// A lease that was allowed and, as far as is known here, not completed.
///
/// It names accounts and not keys, so that many of them can be kept without touching what all leases
/// of a limit share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    /// In the order of the chain; never empty. Four stand in the lease itself.
    pub(super) reservations: SmallVec<[Reservation; 4]>,
}

/// What a lease has at one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub(super) account: AccountId,
    pub(super) transfer: TransferId,
    pub(super) amount: u64,
    pub(super) tenure: Tenure,
    pub(super) expires_at: Timestamp,
}

/// What the ledger says about a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ReadBack {
    /// It was never allowed.
    Unknown,
    /// It was completed.
    Completed,
    /// It was allowed and not completed; what it has may have expired.
    Open(Box<Lease>),
}

impl Lease {
    /// What an allowed chain has made.
    pub(super) fn allowed(
        id: LeaseId,
        needs: &[Need],
        transfers: impl Iterator<Item = (TransferId, Timestamp)>,
    ) -> Self {
        let mut reserved_at = None;
        let reservations = needs.iter().zip(transfers).map(|(need, (transfer, created_at))| {
            reserved_at.get_or_insert(created_at);
            let kind = need.limit.registered.limit.kind;
            Reservation {
                account: need.limit.account,
                transfer,
                amount: need.amount,
                tenure: Tenure::of(kind),
                expires_at: created_at.after_seconds(kind.lifetime_seconds()),
            }
        });
        let reservations = reservations.collect();
        let reserved_at = reserved_at.expect("a reserve has at least one requirement");
        Self { id, reserved_at, reservations }
    }

    /// The same lease again (`RES-04`, `RES-09`): allowed as before if it asks for the same and all
    /// of it is still live.
    pub(super) fn replay(&self, needs: &[Need], now: Timestamp) -> Result<Decision, ReserveError> {
        if self.reservations.iter().any(|reservation| reservation.expires_at <= now) {
            return Err(ReserveError::LeaseEnded);
        }
        let held = |need: &Need| {
            let same = |r: &Reservation| r.account == need.limit.account && r.amount == need.amount;
            self.reservations.iter().any(same)
        };
        if self.reservations.len() != needs.len() || !needs.iter().all(held) {
            return Err(ReserveError::LeaseConflict);
        }
        Ok(Decision::Allowed { reserved_at: self.reserved_at })
    }
}

impl ReadBack {
    /// Reads the transfers that carry the lease, oldest first. Every complete leaves its marker, which
    /// is no reservation, so that a lease is known to be completed for ever.
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
            Some(reserved_at) => Self::Open(Box::new(Lease { id, reserved_at, reservations })),
            None => Self::Unknown,
        }
    }
}

impl Reservation {
    /// `None` if the row is something else that a lease leaves behind.
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
            tenure: Tenure::from_number(row.user_data.data_32)?,
            expires_at: row.expires_at()?,
        })
    }
}
