//! Stored transfers and the undo log of a chain.

use ratelimiter_tigerbeetle::ledger::{AccountRow, TransferId, TransferRow};

/// A transfer and, if it was ever pending, its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) row: TransferRow,
    pub(super) pending: Option<PendingState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingState {
    Open,
    Posted,
    Voided,
    Expired,
}

/// How to undo one change of the current chain.
#[derive(Clone, Copy, Debug)]
pub(super) enum UndoRecord {
    /// The account as it was.
    Account(AccountRow),
    /// A transfer that did not exist.
    Inserted(TransferId),
    /// A pending transfer that was open.
    Resolved(TransferId),
}
