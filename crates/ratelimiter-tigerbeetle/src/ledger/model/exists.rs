//! What an event with an ID that exists is told: the same again, or the first difference.

use crate::ledger::{
    Action, Event, Movement, RowKind, TransferId, TransferRow, TransferStatus, UserData,
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
            if amount.of(pending.amount) != existing.amount {
                return TransferStatus::ExistsWithDifferentAmount;
            }
            compare_user_data(user_data.or(pending.user_data), existing)
                .unwrap_or(TransferStatus::Exists)
        }
        (Action::VoidPending { pending }, RowKind::VoidPending { pending: other }) => {
            if pending != other {
                return TransferStatus::ExistsWithDifferentPendingId;
            }
            compare_user_data(user_data.or(row(pending).user_data), existing)
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
