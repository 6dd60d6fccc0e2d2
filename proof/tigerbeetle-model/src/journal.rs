//! What is stored of a transfer, and the changes that a broken chain takes back.

use ratelimiter_tigerbeetle::ledger::{AccountRow, TransferId, TransferRow};

/// A transfer and, if it was ever pending, what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) row: TransferRow,
    pub(super) pending: Option<Pending>,
}

/// What became of a pending transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    Open,
    Posted,
    Voided,
    Expired,
}

/// One step of the chain under way, with what it takes to undo it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The account as it was.
    Account(AccountRow),
    /// A transfer that was not there.
    Inserted(TransferId),
    /// A pending transfer that was open.
    Resolved(TransferId),
}
