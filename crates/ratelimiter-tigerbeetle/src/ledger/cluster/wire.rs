//! Conversions between our types and TigerBeetle's.
//!
//! The only place that knows its flags.

use std::num::{NonZeroU16, NonZeroU32};

use tigerbeetle as tb;

use crate::ledger::{
    AccountId, AccountResult, AccountRow, AccountStatus, Action, Balances, Event, LEDGER_LIMITS,
    Movement, NewAccount, Order, PostAmount, RowKind, Timestamp, TransferId, TransferQuery,
    TransferResult, TransferRow, TransferStatus, UserData,
};

pub(super) fn account(new: &NewAccount) -> tb::Account {
    let &NewAccount { id, code, debits_must_not_exceed_credits, user_data } = new;
    let flags = if debits_must_not_exceed_credits {
        tb::AccountFlags::DebitsMustNotExceedCredits
    } else {
        tb::AccountFlags::empty()
    };
    tb::Account {
        id: id.get(),
        user_data_128: user_data.data_128,
        user_data_64: user_data.data_64,
        user_data_32: user_data.data_32,
        ledger: LEDGER_LIMITS,
        code: code.get(),
        flags,
        ..tb::Account::default()
    }
}

pub(super) fn transfer(event: &Event) -> tb::Transfer {
    let UserData { data_128, data_64, data_32 } = event.transfer.user_data;
    let linked = if event.linked { tb::TransferFlags::Linked } else { tb::TransferFlags::empty() };
    let base = tb::Transfer {
        id: event.transfer.id.get(),
        user_data_128: data_128,
        user_data_64: data_64,
        user_data_32: data_32,
        flags: linked,
        ..tb::Transfer::default()
    };
    let moves = |movement: Movement| tb::Transfer {
        debit_account_id: movement.debit.get(),
        credit_account_id: movement.credit.get(),
        amount: movement.amount,
        ledger: LEDGER_LIMITS,
        code: movement.code.get(),
        ..base
    };
    match event.transfer.action {
        Action::Posted(movement) => moves(movement),
        Action::BalancingCredit(movement) => {
            tb::Transfer { flags: linked | tb::TransferFlags::BalancingCredit, ..moves(movement) }
        }
        Action::Pending { movement, timeout_seconds, closes_debit_account } => {
            let closing = if closes_debit_account {
                tb::TransferFlags::ClosingDebit
            } else {
                tb::TransferFlags::empty()
            };
            tb::Transfer {
                timeout: timeout_seconds.map_or(0, NonZeroU32::get),
                flags: linked | tb::TransferFlags::Pending | closing,
                ..moves(movement)
            }
        }
        Action::PostPending { pending, amount } => tb::Transfer {
            pending_id: pending.get(),
            amount: match amount {
                PostAmount::Full => u128::MAX,
                PostAmount::Exactly(amount) => amount,
            },
            flags: linked | tb::TransferFlags::PostPendingTransfer,
            ..base
        },
        Action::VoidPending { pending } => tb::Transfer {
            pending_id: pending.get(),
            flags: linked | tb::TransferFlags::VoidPendingTransfer,
            ..base
        },
    }
}

pub(super) fn query(query: &TransferQuery) -> tb::QueryFilter {
    let (user_data_128, order, rows_max, since) = query.parts();
    tb::QueryFilter {
        user_data_128: user_data_128.get(),
        timestamp_min: since.unix_nanos(),
        limit: rows_max,
        flags: match order {
            Order::OldestFirst => tb::QueryFilterFlags::empty(),
            Order::NewestFirst => tb::QueryFilterFlags::Reversed,
        },
        ..tb::QueryFilter::default()
    }
}

pub(super) fn account_result(result: &tb::CreateAccountResult) -> AccountResult {
    AccountResult {
        status: AccountStatus::from_number(result.status as u32),
        timestamp: Timestamp::from_unix_nanos(result.timestamp),
    }
}

pub(super) fn transfer_result(result: &tb::CreateTransferResult) -> TransferResult {
    TransferResult {
        status: TransferStatus::from_number(result.status as u32),
        timestamp: Timestamp::from_unix_nanos(result.timestamp),
    }
}

pub(super) fn account_row(account: &tb::Account) -> AccountRow {
    let has = |flag: tb::AccountFlags| account.flags.0 & flag.0 != 0;
    AccountRow {
        id: account_id(account.id),
        code: code(account.code),
        debits_must_not_exceed_credits: has(tb::AccountFlags::DebitsMustNotExceedCredits),
        closed: has(tb::AccountFlags::Closed),
        balances: Balances {
            debits_pending: account.debits_pending,
            debits_posted: account.debits_posted,
            credits_pending: account.credits_pending,
            credits_posted: account.credits_posted,
        },
        user_data: UserData {
            data_128: account.user_data_128,
            data_64: account.user_data_64,
            data_32: account.user_data_32,
        },
        timestamp: Timestamp::from_unix_nanos(account.timestamp),
    }
}

pub(super) fn transfer_row(transfer: &tb::Transfer) -> TransferRow {
    let has = |flag: tb::TransferFlags| transfer.flags.0 & flag.0 != 0;
    let kind = if has(tb::TransferFlags::Pending) {
        RowKind::Pending {
            timeout_seconds: NonZeroU32::new(transfer.timeout),
            closes_debit_account: has(tb::TransferFlags::ClosingDebit),
        }
    } else if has(tb::TransferFlags::PostPendingTransfer) {
        RowKind::PostPending { pending: transfer_id(transfer.pending_id) }
    } else if has(tb::TransferFlags::VoidPendingTransfer) {
        RowKind::VoidPending { pending: transfer_id(transfer.pending_id) }
    } else if has(tb::TransferFlags::BalancingCredit) {
        RowKind::BalancingCredit
    } else {
        RowKind::Posted
    };
    TransferRow {
        id: transfer_id(transfer.id),
        debit: account_id(transfer.debit_account_id),
        credit: account_id(transfer.credit_account_id),
        amount: transfer.amount,
        code: code(transfer.code),
        kind,
        linked: has(tb::TransferFlags::Linked),
        user_data: UserData {
            data_128: transfer.user_data_128,
            data_64: transfer.user_data_64,
            data_32: transfer.user_data_32,
        },
        timestamp: Timestamp::from_unix_nanos(transfer.timestamp),
    }
}

fn account_id(id: u128) -> AccountId {
    AccountId::new(id).expect("TigerBeetle stores no account with an ID that it refuses")
}

fn transfer_id(id: u128) -> TransferId {
    TransferId::new(id).expect("TigerBeetle stores no transfer with an ID that it refuses")
}

fn code(code: u16) -> NonZeroU16 {
    NonZeroU16::new(code).expect("TigerBeetle stores nothing with a code of 0")
}
