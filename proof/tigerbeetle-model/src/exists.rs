//! Statuses of events whose ID exists.
//!
//! The same transfer again, or the first difference.

use ratelimiter_tigerbeetle::ledger::{
    Action, Event, Movement, PostAmount, RowKind, TransferId, TransferRow, TransferStatus, UserData,
};

/// Compares in TigerBeetle's order. `row` finds the pending transfer of an existing void or post.
pub(super) fn compare(
    event: &Event,
    existing: &TransferRow,
    row: impl Fn(TransferId) -> TransferRow,
) -> TransferStatus {
    if event.linked != existing.linked {
        return TransferStatus::ExistsWithDifferentFlags;
    }
    let user_data = event.transfer.user_data;
    match (event.transfer.action, existing.kind) {
        (Action::Posted(movement), RowKind::Posted) => {
            compare_movement(&movement, user_data, existing)
        }
        // Less than the amount may have been moved.
        (Action::BalancingCredit(movement), RowKind::BalancingCredit) => {
            let moved = movement.amount.min(existing.amount);
            compare_movement(&Movement { amount: moved, ..movement }, user_data, existing)
        }
        (
            Action::Pending { movement, timeout_seconds, closes_debit_account },
            RowKind::Pending { timeout_seconds: timeout, closes_debit_account: closes },
        ) if closes_debit_account == closes => {
            if timeout_seconds != timeout {
                return TransferStatus::ExistsWithDifferentTimeout;
            }
            compare_movement(&movement, user_data, existing)
        }
        (Action::PostPending { pending, amount }, RowKind::PostPending { pending: other }) => {
            if pending != other {
                return TransferStatus::ExistsWithDifferentPendingId;
            }
            let pending = row(pending);
            if amount_to_post(amount, pending.amount) != existing.amount {
                return TransferStatus::ExistsWithDifferentAmount;
            }
            compare_user_data(inherit(user_data, pending.user_data), existing)
                .unwrap_or(TransferStatus::Exists)
        }
        (Action::VoidPending { pending }, RowKind::VoidPending { pending: other }) => {
            if pending != other {
                return TransferStatus::ExistsWithDifferentPendingId;
            }
            compare_user_data(inherit(user_data, row(pending).user_data), existing)
                .unwrap_or(TransferStatus::Exists)
        }
        _ => TransferStatus::ExistsWithDifferentFlags,
    }
}

fn compare_movement(
    movement: &Movement,
    user_data: UserData,
    existing: &TransferRow,
) -> TransferStatus {
    if movement.debit != existing.debit {
        TransferStatus::ExistsWithDifferentDebitAccountId
    } else if movement.credit != existing.credit {
        TransferStatus::ExistsWithDifferentCreditAccountId
    } else if movement.amount != existing.amount {
        TransferStatus::ExistsWithDifferentAmount
    } else if let Some(different) = compare_user_data(user_data, existing) {
        different
    } else if movement.code != existing.code {
        TransferStatus::ExistsWithDifferentCode
    } else {
        TransferStatus::Exists
    }
}

fn compare_user_data(user_data: UserData, existing: &TransferRow) -> Option<TransferStatus> {
    if user_data.data_128 != existing.user_data.data_128 {
        Some(TransferStatus::ExistsWithDifferentUserData128)
    } else if user_data.data_64 != existing.user_data.data_64 {
        Some(TransferStatus::ExistsWithDifferentUserData64)
    } else if user_data.data_32 != existing.user_data.data_32 {
        Some(TransferStatus::ExistsWithDifferentUserData32)
    } else {
        None
    }
}

/// The amount to post of a pending transfer of `pending`.
pub(super) fn amount_to_post(amount: PostAmount, pending: u128) -> u128 {
    match amount {
        PostAmount::Full | PostAmount::Exactly(u128::MAX) => pending,
        PostAmount::Exactly(amount) => amount,
    }
}

/// Each part, or that of the pending transfer if it is 0.
pub(super) fn inherit(own: UserData, pending: UserData) -> UserData {
    fn part<T: Default + PartialEq>(own: T, inherited: T) -> T {
        if own == T::default() { inherited } else { own }
    }
    UserData {
        data_128: part(own.data_128, pending.data_128),
        data_64: part(own.data_64, pending.data_64),
        data_32: part(own.data_32, pending.data_32),
    }
}
