//! Codes and user data of accounts and transfers.
//!
//! They are on disk in every cluster, so they never change.

use std::num::{NonZeroU16, NonZeroU128};

use ratelimiter::clock::Timestamp;
use ratelimiter::{LeaseId, LimitKind};

use crate::ids;
use crate::ledger::{AccountId, Movement, RowKind, Transfer, TransferId, TransferRow, UserData};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransferCode {
    /// A reservation or hold of a lease.
    Reservation = 1,
    /// Replaces a reservation, or covers an overage.
    Rereservation = 2,
    /// Overage without room.
    Debt = 3,
    /// Raises or lowers a capacity.
    Capacity = 4,
    /// Keeps an account closed while a decrease waits.
    Closing = 5,
    /// Moves nothing: its ID records that something was done.
    Marker = 6,
    /// Measures the expiry lag.
    Probe = 7,
    /// Takes a debt back.
    Forgiveness = 8,
    /// Announces a period of a calendar limit.
    Announcement = 9,
    /// Moves nothing: whoever creates it decides whether a lease that waits is admitted, or whether one
    /// that was admitted is returned.
    Gate = 10,
    /// A reservation or hold of a lease, made by a renew.
    Renewal = 11,
    /// Moves nothing: records a renew of a lease, or its denial.
    RenewRecord = 12,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccountCode {
    /// Its free credit is a limit's free capacity.
    Limit = 1,
    /// Its debits less its credits are a limit's debt.
    Debt = 2,
    /// Where capacity comes from and reservations go to.
    Operator = 3,
    /// Where markers go to.
    Marker = 4,
    /// Where one server's probes come from.
    Probe = 5,
    /// As `Limit`, for one period of a calendar limit.
    Period = 6,
    /// Its posted credits are the end of a calendar limit's latest period.
    PeriodEnd = 7,
}

/// How a lease's amount at one limit ends. It is stored with the transfer, because the limit may be
/// deleted and redefined as the other kind while the lease is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReservationKind {
    /// A rolling limit's reservation, which outlives its lease.
    Reservation = 1,
    /// A concurrency limit's hold, which ends with its lease.
    Hold = 2,
    /// A calendar limit's reservation, which ends with its period.
    Calendar = 3,
}

/// Marks the reservations of a first attempt that its server may return (`TB-17`).
const MAY_RETURN: u32 = 1 << 8;
/// Marks the voids of reservations that another attempt of the lease, with other requirements, made
/// void from the beginning.
const WITHDRAWAL: u32 = 1 << 9;

impl TransferCode {
    pub(super) const fn number(self) -> NonZeroU16 {
        NonZeroU16::new(self as u16).expect("no code is 0")
    }

    pub(super) const fn movement(
        self,
        debit: AccountId,
        credit: AccountId,
        amount: u128,
    ) -> Movement {
        Movement { debit, credit, amount, code: self.number() }
    }
}

/// A transfer that moves nothing: its ID records that something was done.
pub(super) fn marker(id: TransferId) -> Transfer {
    let (operator, markers) = (ids::operator_account(), ids::marker_account());
    Transfer::posted(id, TransferCode::Marker.movement(operator, markers, 0))
}

/// The gate of a lease, created by the server with this number (`TB-17`).
pub(super) fn gate(lease: LeaseId, server: u64) -> Transfer {
    let user_data = UserData { data_64: server, ..user_data(lease, None) };
    deciding(ids::gate(lease)).with_user_data(user_data)
}

/// Of the server that returns a lease and of those that say that it is allowed, the first creates this
/// one (`TB-17`).
pub(super) fn reading(lease: LeaseId) -> Transfer {
    deciding(ids::reading(lease)).with_user_data(user_data(lease, None))
}

fn deciding(id: TransferId) -> Transfer {
    let (operator, markers) = (ids::operator_account(), ids::marker_account());
    Transfer::posted(id, TransferCode::Gate.movement(operator, markers, 0))
}

impl AccountCode {
    pub(super) const fn number(self) -> NonZeroU16 {
        NonZeroU16::new(self as u16).expect("no code is 0")
    }
}

impl ReservationKind {
    pub(super) const fn of(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Rolling { .. } => Self::Reservation,
            LimitKind::Concurrency { .. } => Self::Hold,
            LimitKind::Calendar { .. } => Self::Calendar,
        }
    }

    /// From the user data of a reservation.
    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number & !MAY_RETURN {
            1 => Some(Self::Reservation),
            2 => Some(Self::Hold),
            3 => Some(Self::Calendar),
            _ => None,
        }
    }
}

/// The user data that finds a lease's transfers: the lease ID. TigerBeetle does not index 0, so
/// lease 0 uses a number that no other lease has by chance.
pub(super) fn lease_data(lease: LeaseId) -> NonZeroU128 {
    NonZeroU128::new(lease.as_u128()).unwrap_or_else(|| {
        NonZeroU128::new(ids::marker_account().get()).expect("no account has the ID 0")
    })
}

/// The user data of a reservation in a calendar limit's period. It has the end of the period, so that
/// any server knows when the reservation ends (`TB-19`).
pub(super) fn period_data(lease: LeaseId, ends_at: Timestamp) -> UserData {
    let data = user_data(lease, Some(ReservationKind::Calendar));
    UserData { data_64: ends_at.unix_ms(), ..data }
}

/// The bits of `user_data_32` below the place of a renewal's limit among the lease's requirements.
const KIND_BITS: u32 = 8;

/// The user data of a reservation or hold that a renew makes (`TB-18`). `data_64` has its end: that of
/// the period of a calendar limit, as [`period_data`] has it; of a replacement the exact expiry in
/// nanoseconds; otherwise 0.
pub(super) fn renewal_data(
    lease: LeaseId,
    kind: ReservationKind,
    at: usize,
    data_64: u64,
) -> UserData {
    let at = u32::try_from(at).expect("a lease has few requirements");
    let data_32 = kind as u32 | at << KIND_BITS;
    UserData { data_128: lease_data(lease).get(), data_64, data_32 }
}

/// The kind of a renewal, and the place of its limit.
pub(super) fn read_renewal_data(data_32: u32) -> Option<(ReservationKind, usize)> {
    let kind = ReservationKind::from_number(data_32 & ((1 << KIND_BITS) - 1))?;
    Some((kind, usize::try_from(data_32 >> KIND_BITS).ok()?))
}

/// The user data of every other transfer of a lease.
pub(super) fn user_data(lease: LeaseId, kind: Option<ReservationKind>) -> UserData {
    let data_32 = kind.map_or(0, |kind| kind as u32);
    UserData { data_128: lease_data(lease).get(), data_64: 0, data_32 }
}

/// The user data of a reservation that its server may return before its caller is told.
pub(super) const fn returnable_data(data: UserData) -> UserData {
    UserData { data_32: data.data_32 | MAY_RETURN, ..data }
}

/// Whether a transfer of a lease is such a reservation. In those of renews the bit is part of a place.
pub(super) fn may_return(row: &TransferRow) -> bool {
    row.code == TransferCode::Reservation.number() && row.user_data.data_32 & MAY_RETURN != 0
}

/// Voids a reservation of a lease as if it had never been.
pub(super) fn withdrawal(lease: LeaseId, pending: TransferId) -> Transfer {
    let label = format!("xfer:withdraw:{lease}:{:032x}", pending.get());
    let user_data = UserData { data_32: WITHDRAWAL, ..user_data(lease, None) };
    Transfer::void(ids::transfer_at(lease.timestamp_ms(), &label), pending)
        .with_user_data(user_data)
}

/// The reservation that a transfer of a lease withdraws. A void has the code of what it voids, and
/// unless it has user data of its own, that too: in a renewal's the bit is part of a place.
pub(super) fn withdrawn_by(row: &TransferRow) -> Option<TransferId> {
    match row.kind {
        RowKind::VoidPending { pending }
            if row.code == TransferCode::Reservation.number()
                && row.user_data.data_32 & WITHDRAWAL != 0 =>
        {
            Some(pending)
        }
        RowKind::VoidPending { .. }
        | RowKind::Posted
        | RowKind::BalancingCredit
        | RowKind::Pending { .. }
        | RowKind::PostPending { .. } => None,
    }
}
