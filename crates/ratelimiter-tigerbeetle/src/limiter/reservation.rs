//! What a lease has of one limit.

use ratelimiter::LimitKey;
use ratelimiter::clock::Timestamp;

use super::codes::{ReservationKind, TransferCode};
use super::periods::moment;
use crate::ids;
use crate::ledger::{AccountId, RowKind, TransferId, TransferRow, UserData};

/// A reservation or hold at one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub(super) account: AccountId,
    pub(super) transfer: TransferId,
    pub(super) amount: u64,
    pub(super) kind: ReservationKind,
    pub(super) expires_at: Timestamp,
}

impl Reservation {
    /// Whether it is of the limit `key`, whatever the limit's kind is by now. `lasting` is the key's
    /// account that lasts.
    pub(super) fn is_of(&self, key: &LimitKey, lasting: impl FnOnce() -> AccountId) -> bool {
        let account = match self.kind {
            ReservationKind::Calendar => ids::period_account(key, self.expires_at),
            ReservationKind::Reservation | ReservationKind::Hold => lasting(),
        };
        self.account == account
    }

    /// `None` if the row is another transfer of the lease.
    pub(super) fn from_row(row: &TransferRow) -> Option<Self> {
        let RowKind::Pending { .. } = row.kind else {
            return None;
        };
        if row.code != TransferCode::Reservation.number() {
            return None;
        }
        let UserData { data_64, data_32, .. } = row.user_data;
        let kind = ReservationKind::from_number(data_32)?;
        Some(Self {
            account: row.debit,
            transfer: row.id,
            amount: u64::try_from(row.amount).ok()?,
            kind,
            expires_at: match kind {
                ReservationKind::Calendar => moment(data_64)?,
                ReservationKind::Reservation | ReservationKind::Hold => row.expires_at()?,
            },
        })
    }
}
