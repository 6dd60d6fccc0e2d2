//! Accounts: new ones, stored ones, and balances.

use std::num::NonZeroU16;

use super::{AccountId, AccountStatus, Timestamp, UserData};

/// An account to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAccount {
    /// Its ID.
    pub id: AccountId,
    /// What the account is for.
    pub code: NonZeroU16,
    /// Refuse every transfer after which pending and posted debits would exceed posted credits.
    pub debits_must_not_exceed_credits: bool,
    /// Stored with the account.
    pub user_data: UserData,
}

/// The answer to one [`NewAccount`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountResult {
    /// `Created`, or the rule that was broken.
    pub status: AccountStatus,
    /// When the account was created (for `Exists` too), or when it was refused.
    pub timestamp: Timestamp,
}

/// The four balances of an account; the posted ones only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Balances {
    /// Debits that may still be voided or expire.
    pub debits_pending: u128,
    /// Final debits.
    pub debits_posted: u128,
    /// Credits that may still be voided or expire.
    pub credits_pending: u128,
    /// Final credits.
    pub credits_posted: u128,
}

impl NewAccount {
    /// The account as it is when it was created at `timestamp`.
    pub fn row(&self, timestamp: Timestamp) -> AccountRow {
        let Self { id, code, debits_must_not_exceed_credits, user_data } = *self;
        AccountRow {
            id,
            code,
            debits_must_not_exceed_credits,
            closed: false,
            balances: Balances::default(),
            user_data,
            timestamp,
        }
    }
}

/// An account as the ledger stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountRow {
    /// Its ID.
    pub id: AccountId,
    /// What the account is for.
    pub code: NonZeroU16,
    /// See [`NewAccount::debits_must_not_exceed_credits`].
    pub debits_must_not_exceed_credits: bool,
    /// Closed by a pending transfer: until that is voided or expires, only voids are accepted.
    pub closed: bool,
    /// The current balances.
    pub balances: Balances,
    /// Stored with the account.
    pub user_data: UserData,
    /// When it was created.
    pub timestamp: Timestamp,
}
