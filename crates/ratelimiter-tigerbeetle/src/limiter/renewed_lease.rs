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
    /// All its transfers up to this moment are known here, and its last record.
    pub(super) known_to: Timestamp,
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
    pub(super) fn from_rows(reservations: &[Reservation], rows: &[&TransferRow]) -> Option<Self> {
        let (first, later) = rows.split_first()?;
        let last = RenewRecord::from_row(first)?;
        let mut renewed = Self {
            last,
            is_renewed: last.outcome == RenewOutcome::Renewed,
            parts: first_parts(reservations),
            known_to: first.timestamp,
        };
        for row in later {
            renewed.add(row)?;
        }
        Some(renewed)
    }

    /// Adds the next transfer. `None` if it ends the lease, or cannot be interpreted without those before.
    pub(super) fn add(&mut self, row: &TransferRow) -> Option<()> {
        self.known_to = row.timestamp;
        match row.kind {
            RowKind::Posted => {
                self.last = RenewRecord::from_row(row)?;
                self.is_renewed |= self.last.outcome == RenewOutcome::Renewed;
            }
            // A denied renew voids nothing.
            RowKind::VoidPending { pending } if self.last.outcome == RenewOutcome::Renewed => {
                // Most of what is given back was made by one of the last renews.
                let at = self.parts.iter().rposition(|part| part.held.transfer == pending)?;
                self.parts.remove(at);
            }
            RowKind::Pending { .. } => self.parts.push(Part::from_row(row)?),
            RowKind::VoidPending { .. }
            | RowKind::PostPending { .. }
            | RowKind::BalancingCredit => return None,
        }
        Some(())
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::ids;
    use crate::ledger::{TransferId, UserData};

    const WINDOW: u64 = 60;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix_nanos(second * 1_000_000_000)
    }

    fn id(number: u128) -> TransferId {
        TransferId::new(number).unwrap()
    }

    /// Reservations of 10 units each, with the IDs 1 and 2.
    fn reservations() -> [Reservation; 2] {
        [1, 2].map(|number| Reservation {
            account: ids::operator_account(),
            transfer: id(number),
            amount: 10,
            kind: ReservationKind::Reservation,
            expires_at: at(WINDOW),
        })
    }

    fn row(number: u128, code: TransferCode, kind: RowKind, data: (u64, u32)) -> TransferRow {
        TransferRow {
            id: id(number),
            debit: ids::operator_account(),
            credit: ids::marker_account(),
            amount: 7,
            code: code.number(),
            kind,
            linked: true,
            user_data: UserData { data_128: 1, data_64: data.0, data_32: data.1 },
            timestamp: at(20),
        }
    }

    fn record(number: u64, outcome: RenewOutcome) -> TransferRow {
        let data = (number, outcome.number());
        row(50 + u128::from(number), TransferCode::RenewRecord, RowKind::Posted, data)
    }

    fn void(number: u128, pending: u128) -> TransferRow {
        let kind = RowKind::VoidPending { pending: id(pending) };
        row(number, TransferCode::Reservation, kind, (0, 1))
    }

    /// Of the second limit.
    fn renewal(number: u128, expires_at: u64) -> TransferRow {
        let timeout_seconds = NonZeroU32::new(41);
        let kind = RowKind::Pending { timeout_seconds, closes_debit_account: false };
        row(number, TransferCode::Renewal, kind, (expires_at, 1 | 1 << 8))
    }

    fn parts(rows: &[TransferRow]) -> Option<Vec<(usize, u128, Timestamp)>> {
        let rows: Vec<_> = rows.iter().collect();
        let renewed = RenewedLease::from_rows(&reservations(), &rows)?;
        let part = |part: &Part| (part.at, part.held.transfer.get(), part.held.expires_at);
        Some(renewed.parts.iter().map(part).collect())
    }

    const DENIED: RenewOutcome = RenewOutcome::Denied { by: DeniedBy::NoRoom, at: 1 };

    /// TB-18
    #[test]
    fn tb_18_a_renewed_lease_is_read_from_its_transfers() {
        let first = [(0, 1, at(WINDOW)), (1, 2, at(WINDOW))];
        let replaced = Some(vec![first[0], (1, 3, at(WINDOW))]);
        let exact = at(WINDOW).unix_nanos();
        let renewed = record(1, RenewOutcome::Renewed);
        assert_eq!(parts(&[renewed]), Some(first.to_vec()));
        assert_eq!(parts(&[record(1, DENIED)]), Some(first.to_vec()));
        assert_eq!(parts(&[renewed, void(9, 2), renewal(3, exact)]), replaced);
        let added = Some(vec![first[0], first[1], (1, 3, at(20 + 41))]);
        assert_eq!(parts(&[renewed, renewal(3, 0)]), added);
        let again = [renewed, void(9, 2), renewal(3, exact), record(2, DENIED)];
        assert_eq!(parts(&again), replaced);
    }

    /// TB-16, TB-18
    #[test]
    fn tb_18_a_completed_lease_is_told_from_a_renewed_one() {
        let end = row(9, TransferCode::Marker, RowKind::Posted, (0, 0));
        let renewed = record(1, RenewOutcome::Renewed);
        assert_eq!(parts(&[void(9, 1)]), None, "the void of a hold is a marker");
        assert_eq!(parts(&[end]), None);
        assert_eq!(parts(&[record(1, DENIED), void(9, 1)]), None, "a denied renew voids nothing");
        assert_eq!(parts(&[renewed, end]), None);
        assert_eq!(parts(&[renewed, void(9, 1), end, void(10, 2)]), None);
    }

    #[test]
    fn parts_that_have_lapsed_are_joined_by_limit() {
        let rows = [record(1, RenewOutcome::Renewed), renewal(3, at(30).unix_nanos())];
        let mut renewed = RenewedLease::from_rows(&reservations(), &rows.each_ref()).unwrap();
        renewed.join_lapsed(at(40));
        assert_eq!(renewed.parts.len(), 3);
        renewed.join_lapsed(at(WINDOW));
        let amounts: Vec<_> = renewed.parts.iter().map(|part| part.held.amount).collect();
        assert_eq!(amounts, [10, 17]);
        assert_eq!(renewed.parts[1].held.expires_at, at(WINDOW));
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        let denied = [DeniedBy::NoRoom, DeniedBy::Pause, DeniedBy::Decrease];
        let denied = denied.map(|by| RenewOutcome::Denied { by, at: 31 });
        for outcome in [RenewOutcome::Renewed].into_iter().chain(denied) {
            assert_eq!(RenewOutcome::from_number(outcome.number()), Some(outcome));
        }
        assert_eq!(RenewOutcome::from_number(4), None);
    }
}
