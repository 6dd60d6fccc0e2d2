//! Deterministic account and transfer IDs.
//!
//! They are derived from labels, so that any server finds what another one created. A transfer's ID
//! starts with its lease's time: TigerBeetle inserts ordered IDs five times as fast as random ones
//! (`TB-01`).

use std::num::NonZeroU32;
use std::sync::LazyLock;

use ratelimiter::{LeaseId, LimitKey};
use sha2::{Digest, Sha256};

use crate::ledger::{AccountId, Timestamp, TransferId};

/// The bits of a transfer ID, and of a ULID, below the 48 bits of the millisecond timestamp.
const HASH_BITS: u32 = 80;

/// A transfer's role in its lease. It is part of the ID, so a lease can have one transfer of each
/// role per key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferRole {
    /// The reservation or hold itself.
    Reserve,
    /// The release of a hold, or of a reservation that is about to shrink.
    Void,
    /// The reservation that replaces a voided one, or that covers an overage.
    Rereserve,
    /// The overage that no reservation could cover.
    Debt,
}

/// The IDs of a lease's transfers in one role. The hash of the common prefix is computed once.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTransfers {
    unix_ms: u64,
    /// Has consumed the label up to the key.
    hash: Sha256,
}

/// The account that every capacity comes from and every reservation goes to.
pub fn operator_account() -> AccountId {
    // Every reserve needs it.
    static OPERATOR: LazyLock<AccountId> = LazyLock::new(|| account("acct:operator"));
    *OPERATOR
}

/// The account whose free credit is the free capacity of the limit `key`.
pub fn limit_account(key: &LimitKey) -> AccountId {
    account(&format!("acct:limit:{key}"))
}

/// The account of one period of the calendar limit `key`. The end comes first, so that no label of
/// one key is that of another.
pub fn period_account(key: &LimitKey, ends_at: Timestamp) -> AccountId {
    account(&format!("acct:period:{}:{key}", ends_at.unix_ms()))
}

/// The account whose posted credits are the end of the latest period of the calendar limit `key`, in
/// milliseconds since the Unix epoch.
pub fn period_end_account(key: &LimitKey) -> AccountId {
    account(&format!("acct:period-end:{key}"))
}

/// The ID of the transfer that announces the period after the one that ended at `before_ms`. It does
/// not depend on when the new one ends, so that one announcement succeeds.
pub fn announcement(key: &LimitKey, before_ms: u64) -> TransferId {
    transfer_at(before_ms, &format!("xfer:period:{before_ms}:{key}"))
}

/// The account that records the debt of the limit `key`.
pub fn debt_account(key: &LimitKey) -> AccountId {
    account(&format!("acct:debt:{key}"))
}

/// The account that markers go to: transfers of 0 units whose ID alone matters.
pub fn marker_account() -> AccountId {
    account("acct:marker")
}

/// The account on which one server measures the expiry lag.
pub fn probe_account(server: u128) -> AccountId {
    account(&format!("acct:probe:{server:032x}"))
}

/// `TB-01`: the ID of the transfer in `role` for `lease` on the limit `key`.
pub fn transfer(role: TransferRole, lease: LeaseId, key: &LimitKey) -> TransferId {
    LeaseTransfers::new(role, lease).on(key)
}

/// `TB-17`: the ID of the gate of `lease`, the transfer without which no attempt after the first is
/// admitted.
pub fn gate(lease: LeaseId) -> TransferId {
    transfer_at(lease.timestamp_ms(), &format!("xfer:admit:{lease}"))
}

/// `TB-17`: the ID of the transfer that decides whether the server that admitted `lease` may return it,
/// or somebody else is told that it is allowed.
pub fn reading(lease: LeaseId) -> TransferId {
    transfer_at(lease.timestamp_ms(), &format!("xfer:read:{lease}"))
}

/// `TB-17`: the ID of the reservation for `lease` on the limit `key` at this attempt, which is not the
/// first.
pub fn reservation_at(attempt: NonZeroU32, lease: LeaseId, key: &LimitKey) -> TransferId {
    LeaseTransfers::at(attempt, lease).on(key)
}

/// An ID for `lease` that no transfer ever has.
pub(crate) fn never_created(lease: LeaseId) -> TransferId {
    transfer_at(lease.timestamp_ms(), &format!("xfer:none:{lease}"))
}

impl LeaseTransfers {
    pub(crate) fn new(role: TransferRole, lease: LeaseId) -> Self {
        Self::labelled(lease, format!("xfer:{}:{lease}:", role.label()))
    }

    /// The reservations of an attempt that is not the first. One of them may have the label of another
    /// key at another attempt, as `1:k` at the first and `k` at the next: no two attempts are admitted,
    /// so that at worst an ID is burned.
    pub(crate) fn at(attempt: NonZeroU32, lease: LeaseId) -> Self {
        Self::labelled(lease, format!("xfer:reserve:{lease}:{attempt}:"))
    }

    fn labelled(lease: LeaseId, label: String) -> Self {
        Self { unix_ms: lease.timestamp_ms(), hash: Sha256::new_with_prefix(label) }
    }

    pub(crate) fn on(&self, key: &LimitKey) -> TransferId {
        let hash = self.hash.clone().chain_update(key.as_str());
        transfer_of(self.unix_ms, hash)
    }
}

/// The ID of a transfer that belongs to no lease, created at `unix_ms`; it has the same layout.
/// Only the low 48 bits of `unix_ms` are used, which last until the year 10889.
pub fn transfer_at(unix_ms: u64, label: &str) -> TransferId {
    transfer_of(unix_ms, Sha256::new_with_prefix(label))
}

fn transfer_of(unix_ms: u64, label: Sha256) -> TransferId {
    let digest = label.finalize();
    let mut first_80_bits = [0; 16];
    first_80_bits[6..].copy_from_slice(&digest[..10]);
    let time = u128::from(unix_ms) << HASH_BITS;
    TransferId::nearest(time | u128::from_be_bytes(first_80_bits))
}

fn account(label: &str) -> AccountId {
    let digest = Sha256::digest(label);
    let first_16_bytes = digest[..16].try_into().expect("a SHA-256 digest has 32 bytes");
    AccountId::nearest(u128::from_le_bytes(first_16_bytes))
}

impl TransferRole {
    fn label(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Void => "void",
            Self::Rereserve => "rereserve",
            Self::Debt => "debt",
        }
    }
}

#[cfg(test)]
mod tests;
