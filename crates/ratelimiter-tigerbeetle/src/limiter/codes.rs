//! What accounts and transfers are for: the numbers that TigerBeetle keeps beside them, fixed for
//! ever, since they are on disk in every cluster.

use std::num::{NonZeroU16, NonZeroU128};

use ratelimiter::{LeaseId, LimitKind};

use crate::ids;
use crate::ledger::UserData;

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferCode {
    /// What a lease has at one limit.
    Reservation = 1,
    /// What replaces a reservation, or covers an overage.
    Rereservation = 2,
    /// Overage without room.
    Debt = 3,
    /// A capacity going up or down.
    Capacity = 4,
    /// Keeps an account closed while a decrease waits.
    Closing = 5,
    /// Nothing is moved: the ID alone says that something was done.
    Marker = 6,
    /// Shows how late reservations lapse.
    Probe = 7,
}

/// What an account is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccountCode {
    /// Its free credit is a limit's free capacity.
    Limit = 1,
    /// Its debits are a limit's debt.
    Debt = 2,
    /// Where capacity comes from and reservations go to.
    Operator = 3,
    /// Where markers go to.
    Marker = 4,
    /// Where one server's probes come from.
    Probe = 5,
}

/// What a lease has at one limit, by how it ends. It is kept beside the transfer, because the limit
/// may be deleted, and defined anew as the other kind, while the lease is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tenure {
    /// A rolling limit's reservation, which outlives its lease.
    Reservation = 1,
    /// A concurrency limit's hold, which ends with its lease.
    Hold = 2,
}

impl TransferCode {
    pub(super) const fn number(self) -> NonZeroU16 {
        NonZeroU16::new(self as u16).expect("no code is 0")
    }
}

impl AccountCode {
    pub(super) const fn number(self) -> NonZeroU16 {
        NonZeroU16::new(self as u16).expect("no code is 0")
    }
}

impl Tenure {
    pub(super) const fn of(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Rolling { .. } => Self::Reservation,
            LimitKind::Concurrency { .. } => Self::Hold,
        }
    }

    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Reservation),
            2 => Some(Self::Hold),
            _ => None,
        }
    }
}

/// What a lease's transfers are found by: the lease itself. TigerBeetle does not index 0, so the one
/// lease with that number borrows another that no lease has by chance.
pub(super) fn lease_data(lease: LeaseId) -> NonZeroU128 {
    NonZeroU128::new(lease.as_u128()).unwrap_or_else(|| {
        NonZeroU128::new(ids::marker_account().get()).expect("no account has the ID 0")
    })
}

/// What is kept beside every transfer of a lease.
pub(super) fn user_data(lease: LeaseId, tenure: Option<Tenure>) -> UserData {
    let data_32 = tenure.map_or(0, |tenure| tenure as u32);
    UserData { data_128: lease_data(lease).get(), data_64: 0, data_32 }
}
