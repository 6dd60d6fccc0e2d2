//! Every change of the state goes through here, so that a broken chain can be taken back.

use super::machine::Model;
use crate::ledger::{AccountRow, RowKind, Timestamp, TransferId, TransferRow};

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

impl Model {
    pub(super) fn set_account(&mut self, account: AccountRow) {
        let before = self.accounts.insert(account.id, account);
        let before = before.expect("accounts are only ever changed, by transfers");
        self.journal.push(Change::Account(before));
    }

    pub(super) fn insert(&mut self, row: TransferRow) {
        let pending = matches!(row.kind, RowKind::Pending { .. }).then_some(Pending::Open);
        let before = self.transfers.insert(row.id, Stored { row, pending });
        assert!(before.is_none(), "an ID that exists is answered before anything is inserted");
        if row.user_data.data_128 != 0 {
            self.by_user_data.insert(user_data_key(&row), row.id);
        }
        self.expiries.extend(expiry_key(&row));
        self.journal.push(Change::Inserted(row.id));
    }

    /// Ends a pending transfer: gives the amount back on both sides, and opens what it closed.
    pub(super) fn release(&mut self, id: TransferId, outcome: Pending) {
        let stored = self.transfers.get_mut(&id).expect("a pending transfer is stored");
        assert_eq!(stored.pending, Some(Pending::Open), "only what is open can be released");
        assert_ne!(outcome, Pending::Open);
        stored.pending = Some(outcome);
        let row = stored.row;
        if let Some(expiry) = expiry_key(&row) {
            self.expiries.remove(&expiry);
        }
        self.journal.push(Change::Resolved(id));

        let mut debit = self.accounts[&row.debit];
        debit.balances.debits_pending -= row.amount;
        if let RowKind::Pending { closes_debit_account: true, .. } = row.kind {
            assert!(debit.closed, "a closing transfer keeps its account closed while it is open");
            debit.closed = false;
        }
        self.set_account(debit);
        let mut credit = self.accounts[&row.credit];
        credit.balances.credits_pending -= row.amount;
        self.set_account(credit);
    }

    /// Undoes the chain under way, last change first.
    pub(super) fn roll_back(&mut self) {
        while let Some(change) = self.journal.pop() {
            match change {
                Change::Account(before) => {
                    self.accounts.insert(before.id, before);
                }
                Change::Inserted(id) => {
                    let stored = self.transfers.remove(&id).expect("it was inserted");
                    self.by_user_data.remove(&user_data_key(&stored.row));
                    if let Some(expiry) = expiry_key(&stored.row) {
                        self.expiries.remove(&expiry);
                    }
                }
                Change::Resolved(id) => {
                    let stored = self.transfers.get_mut(&id).expect("transfers never vanish");
                    stored.pending = Some(Pending::Open);
                    let expiry = expiry_key(&stored.row);
                    self.expiries.extend(expiry);
                }
            }
        }
    }
}

fn user_data_key(row: &TransferRow) -> (u128, Timestamp) {
    (row.user_data.data_128, row.timestamp)
}

fn expiry_key(row: &TransferRow) -> Option<(Timestamp, TransferId)> {
    row.expires_at().map(|expires_at| (expires_at, row.id))
}
