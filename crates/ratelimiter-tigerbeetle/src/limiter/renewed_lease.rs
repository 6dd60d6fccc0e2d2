//! What a renewed lease holds, by the rows of its renews (`TB-18`).

use ratelimiter::RenewNumber;
use ratelimiter::clock::Timestamp;

use super::codes::{ReservationKind, TransferCode, read_renewal_data};
use super::periods::moment;
use super::reservation::Reservation;
use crate::ledger::{RowKind, TransferRow, UserData};

/// Renews of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RenewedLease {
    /// The last one.
    pub(super) last: RenewRecord,
    /// One of them was not denied.
    pub(super) is_renewed: bool,
    /// All that was reserved and not given back, lapsed or not.
    pub(super) parts: Vec<Part>,
}

/// A part of what a lease has of one limit. A hold has one that has not lapsed, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The place of the limit among the lease's requirements.
    pub(super) at: usize,
    pub(super) held: Reservation,
}

/// A renew that was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RenewRecord {
    pub(super) number: RenewNumber,
    pub(super) decided_at: Timestamp,
    pub(super) outcome: RenewOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RenewOutcome {
    Renewed,
    /// Because of the limit in this place among the lease's requirements.
    Denied {
        by: DeniedBy,
        at: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeniedBy {
    NoRoom = 1,
    Pause = 2,
    Decrease = 3,
}

impl RenewOutcome {
    /// As `user_data_32` of its record.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Renewed => 0,
            Self::Denied { by, at } => {
                by as u32 | u32::try_from(at).expect("a lease has few requirements") << 8
            }
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        let by = match number & 0xFF {
            0 => return Some(Self::Renewed),
            1 => DeniedBy::NoRoom,
            2 => DeniedBy::Pause,
            3 => DeniedBy::Decrease,
            _ => return None,
        };
        Some(Self::Denied { by, at: usize::try_from(number >> 8).ok()? })
    }
}

impl Part {
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.held.expires_at > now
    }

    /// `None` if the row is no reservation that a renew made.
    fn from_row(row: &TransferRow) -> Option<Self> {
        if row.code != TransferCode::Renewal.number() {
            return None;
        }
        let UserData { data_64, data_32, .. } = row.user_data;
        let (kind, at) = read_renewal_data(data_32)?;
        let expires_at = match (kind, data_64) {
            (ReservationKind::Calendar, ends_ms) => moment(ends_ms)?,
            (_, 0) => row.expires_at()?,
            (_, nanos) => Timestamp::from_unix_nanos(nanos),
        };
        let amount = u64::try_from(row.amount).ok()?;
        let (account, transfer) = (row.debit, row.id);
        Some(Self { at, held: Reservation { account, transfer, amount, kind, expires_at } })
    }
}

impl RenewRecord {
    /// `None` if the row is no record of a renew.
    fn from_row(row: &TransferRow) -> Option<Self> {
        if row.code != TransferCode::RenewRecord.number() {
            return None;
        }
        Some(Self {
            number: RenewNumber::new(row.user_data.data_64).ok()?,
            decided_at: row.timestamp,
            outcome: RenewOutcome::from_number(row.user_data.data_32)?,
        })
    }
}

impl RenewedLease {
    /// Interprets the transfers of a lease after its reservations, oldest first. Each renew begins with its
    /// record. `None` if another transfer shows that the lease was completed.
    pub(super) fn from_rows(reservations: &[Reservation], rows: &[TransferRow]) -> Option<Self> {
        let mut parts = first_parts(reservations);
        let (mut last, mut is_renewed): (Option<RenewRecord>, _) = (None, false);
        for row in rows {
            match row.kind {
                RowKind::Posted => {
                    let record = RenewRecord::from_row(row)?;
                    is_renewed |= record.outcome == RenewOutcome::Renewed;
                    last = Some(record);
                }
                // A denied renew voids nothing.
                RowKind::VoidPending { pending }
                    if last.is_some_and(|last| last.outcome == RenewOutcome::Renewed) =>
                {
                    let at = parts.iter().position(|part| part.held.transfer == pending)?;
                    parts.remove(at);
                }
                RowKind::Pending { .. } => parts.push(Part::from_row(row)?),
                RowKind::VoidPending { .. }
                | RowKind::PostPending { .. }
                | RowKind::BalancingCredit => return None,
            }
        }
        Some(Self { last: last?, is_renewed, parts })
    }

    /// Joins the parts of each limit that have lapsed, so that there are few.
    pub(super) fn join_lapsed(&mut self, now: Timestamp) {
        let mut joined: Vec<Part> = Vec::new();
        for part in &self.parts {
            let same = joined.iter_mut().find(|other| other.at == part.at && !other.is_live(now));
            match same.filter(|_| !part.is_live(now)) {
                Some(other) => {
                    other.held.amount = other.held.amount.saturating_add(part.held.amount);
                    other.held.expires_at = other.held.expires_at.max(part.held.expires_at);
                }
                None => joined.push(*part),
            }
        }
        self.parts = joined;
    }
}

/// The parts of a lease that was not renewed.
pub(super) fn first_parts(reservations: &[Reservation]) -> Vec<Part> {
    reservations.iter().enumerate().map(|(at, held)| Part { at, held: *held }).collect()
}
