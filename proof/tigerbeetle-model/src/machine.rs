//! The state machine: batches, chains, expiry and queries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::journal::{PendingState, Stored, UndoRecord};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, AccountStatus, Balances, NewAccount, Order, RowKind,
    Timestamp, TransferId, TransferQuery, TransferResult, TransferRow, TransferStatus, WorkItem,
};

/// TigerBeetle's accounts and transfers as a state machine over plain data.
///
/// Expired amounts stay reserved until [`Model::expire`] is called: the real server also releases
/// them with a delay.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) accounts: HashMap<AccountId, AccountRow>,
    pub(super) transfers: HashMap<TransferId, Stored>,
    /// IDs that were refused for a transient reason; they are never accepted again.
    pub(super) failed: HashSet<TransferId>,
    /// The pending transfers with a timeout, by expiry.
    pub(super) expiries: BTreeSet<(Timestamp, TransferId)>,
    /// Transfers whose `data_128` is not 0; timestamps are unique.
    pub(super) by_user_data: BTreeMap<(u128, Timestamp), TransferId>,
    /// Undo log of the current chain; empty between chains.
    pub(super) journal: Vec<UndoRecord>,
    /// The last timestamp assigned, in nanoseconds.
    last_nanos: u64,
}

impl Model {
    /// Creates accounts independently, in one request that arrives at `now`.
    pub fn create_accounts(
        &mut self,
        now: Timestamp,
        accounts: &[NewAccount],
    ) -> Vec<AccountResult> {
        let timestamps = self.timestamps(now, accounts.len());
        accounts.iter().zip(timestamps).map(|(new, at)| self.create_account(at, new)).collect()
    }

    /// Creates the transfers of one request that arrives at `now`, chain by chain.
    #[expect(clippy::missing_panics_doc, reason = "the assertion is an invariant of `WorkItem`")]
    pub fn create_transfers(&mut self, now: Timestamp, item: &WorkItem) -> Vec<TransferResult> {
        let timestamps = self.timestamps(now, item.len());
        let mut results: Vec<TransferResult> = Vec::with_capacity(item.len());
        let mut chain_start = 0;
        let mut chain_broken = false;
        for (event, at) in item.events().iter().zip(timestamps) {
            let result = if chain_broken {
                TransferResult { status: TransferStatus::LinkedEventFailed, timestamp: at }
            } else {
                self.create_transfer(at, event)
            };
            if !chain_broken && result.status != TransferStatus::Created {
                chain_broken = true;
                self.roll_back();
                for earlier in &mut results[chain_start..] {
                    earlier.status = TransferStatus::LinkedEventFailed;
                }
                if burns_id(result.status) {
                    self.failed.insert(event.transfer.id);
                }
            }
            results.push(result);
            if !event.linked {
                self.journal.clear();
                chain_start = results.len();
                chain_broken = false;
            }
        }
        assert!(self.journal.is_empty(), "a work item ends with a closed chain");
        results
    }

    /// Releases every pending transfer that has expired by `now`; returns how many.
    pub fn expire(&mut self, now: Timestamp) -> usize {
        self.expire_at_most(now, usize::MAX)
    }

    /// As [`Model::expire`], but only the first `count_max`: a server releases a batch at a time.
    pub fn expire_at_most(&mut self, now: Timestamp, count_max: usize) -> usize {
        let mut expired_count = 0;
        while expired_count < count_max
            && let Some(&(expires_at, id)) = self.expiries.first()
            && expires_at <= now
        {
            self.release(id, PendingState::Expired);
            expired_count += 1;
        }
        self.journal.clear();
        expired_count
    }

    /// When the next pending transfer expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|&(expires_at, _)| expires_at)
    }

    /// One account.
    pub fn account(&self, id: AccountId) -> Option<&AccountRow> {
        self.accounts.get(&id)
    }

    /// One transfer.
    pub fn transfer(&self, id: TransferId) -> Option<&TransferRow> {
        self.transfers.get(&id).map(|stored| &stored.row)
    }

    /// The transfers with the query's user data.
    pub fn query_transfers(&self, query: &TransferQuery) -> Vec<TransferRow> {
        let (user_data, order, rows_max, since) = query.parts();
        let range =
            (user_data.get(), since)..=(user_data.get(), Timestamp::from_unix_nanos(u64::MAX));
        let ids = self.by_user_data.range(range).map(|(_, id)| self.transfers[id].row);
        let rows_max = rows_max as usize;
        match order {
            Order::OldestFirst => ids.take(rows_max).collect(),
            Order::NewestFirst => ids.rev().take(rows_max).collect(),
        }
    }

    /// The timestamps of a request's events: from `now` on, but never one that was assigned before.
    fn timestamps(
        &mut self,
        now: Timestamp,
        event_count: usize,
    ) -> impl Iterator<Item = Timestamp> + use<> {
        let first = now.unix_nanos().max(self.last_nanos + 1);
        let event_count = u64::try_from(event_count).expect("a count of events fits into 64 bits");
        if event_count > 0 {
            self.last_nanos = first + event_count - 1;
        }
        (first..first + event_count).map(Timestamp::from_unix_nanos)
    }

    fn create_account(&mut self, at: Timestamp, new: &NewAccount) -> AccountResult {
        if let Some(existing) = self.accounts.get(&new.id) {
            let status = compare_accounts(new, existing);
            let timestamp = if status == AccountStatus::Exists { existing.timestamp } else { at };
            return AccountResult { status, timestamp };
        }
        let &NewAccount { id, code, debits_must_not_exceed_credits, user_data } = new;
        self.accounts.insert(
            id,
            AccountRow {
                id,
                code,
                debits_must_not_exceed_credits,
                closed: false,
                balances: Balances::default(),
                user_data,
                timestamp: at,
            },
        );
        AccountResult { status: AccountStatus::Created, timestamp: at }
    }
}

/// All changes of the state, recorded so that a failed chain can be rolled back.
impl Model {
    pub(super) fn set_account(&mut self, account: AccountRow) {
        let before = self.accounts.insert(account.id, account);
        let before = before.expect("accounts are only ever changed, by transfers");
        self.journal.push(UndoRecord::Account(before));
    }

    pub(super) fn insert(&mut self, row: TransferRow) {
        let pending = matches!(row.kind, RowKind::Pending { .. }).then_some(PendingState::Open);
        let before = self.transfers.insert(row.id, Stored { row, pending });
        assert!(before.is_none(), "an ID that exists is answered before anything is inserted");
        if row.user_data.data_128 != 0 {
            self.by_user_data.insert(user_data_key(&row), row.id);
        }
        self.expiries.extend(expiry_key(&row));
        self.journal.push(UndoRecord::Inserted(row.id));
    }

    /// Ends a pending transfer: releases the amount on both sides, and reopens what it closed.
    pub(super) fn release(&mut self, id: TransferId, outcome: PendingState) {
        let stored = self.transfers.get_mut(&id).expect("a pending transfer is stored");
        assert_eq!(stored.pending, Some(PendingState::Open), "only what is open can be released");
        assert_ne!(outcome, PendingState::Open);
        stored.pending = Some(outcome);
        let row = stored.row;
        if let Some(expiry) = expiry_key(&row) {
            self.expiries.remove(&expiry);
        }
        self.journal.push(UndoRecord::Resolved(id));

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

    /// Undoes the current chain, last change first.
    pub(super) fn roll_back(&mut self) {
        while let Some(change) = self.journal.pop() {
            match change {
                UndoRecord::Account(before) => {
                    self.accounts.insert(before.id, before);
                }
                UndoRecord::Inserted(id) => {
                    let stored = self.transfers.remove(&id).expect("it was inserted");
                    self.by_user_data.remove(&user_data_key(&stored.row));
                    if let Some(expiry) = expiry_key(&stored.row) {
                        self.expiries.remove(&expiry);
                    }
                }
                UndoRecord::Resolved(id) => {
                    let stored = self.transfers.get_mut(&id).expect("transfers never vanish");
                    stored.pending = Some(PendingState::Open);
                    let expiry = expiry_key(&stored.row);
                    self.expiries.extend(expiry);
                }
            }
        }
    }
}

/// The first difference decides, in TigerBeetle's order. A closed account differs in its flags.
fn compare_accounts(new: &NewAccount, existing: &AccountRow) -> AccountStatus {
    let same_limit = new.debits_must_not_exceed_credits == existing.debits_must_not_exceed_credits;
    if !same_limit || existing.closed {
        AccountStatus::ExistsWithDifferentFlags
    } else if new.user_data.data_128 != existing.user_data.data_128 {
        AccountStatus::ExistsWithDifferentUserData128
    } else if new.user_data.data_64 != existing.user_data.data_64 {
        AccountStatus::ExistsWithDifferentUserData64
    } else if new.user_data.data_32 != existing.user_data.data_32 {
        AccountStatus::ExistsWithDifferentUserData32
    } else if new.code != existing.code {
        AccountStatus::ExistsWithDifferentCode
    } else {
        AccountStatus::Exists
    }
}

fn user_data_key(row: &TransferRow) -> (u128, Timestamp) {
    (row.user_data.data_128, row.timestamp)
}

fn expiry_key(row: &TransferRow) -> Option<(Timestamp, TransferId)> {
    row.expires_at().map(|expires_at| (expires_at, row.id))
}

/// Whether this refusal burns the ID: its reason is transient, so the same ID must not succeed
/// later.
fn burns_id(status: TransferStatus) -> bool {
    matches!(
        status,
        TransferStatus::DebitAccountNotFound
            | TransferStatus::CreditAccountNotFound
            | TransferStatus::PendingTransferNotFound
            | TransferStatus::ExceedsCredits
            | TransferStatus::DebitAccountAlreadyClosed
            | TransferStatus::CreditAccountAlreadyClosed
    )
}
