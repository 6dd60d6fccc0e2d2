//! The rules for one transfer, in TigerBeetle's order.
//!
//! All checks come before the first change.

use super::exists::{amount_to_post, compare, inherit};
use super::journal::{PendingState, Stored};
use super::machine::Model;
use ratelimiter_tigerbeetle::ledger::{
    AccountRow, Action, Balances, Event, Movement, PostAmount, RowKind, Timestamp, TransferId,
    TransferResult, TransferRow, TransferStatus,
};

impl Model {
    /// Applies one event, or changes nothing.
    pub(super) fn create_transfer(&mut self, at: Timestamp, event: &Event) -> TransferResult {
        let id = event.transfer.id;
        if let Some(existing) = self.transfers.get(&id) {
            let status = compare(event, &existing.row, |pending| self.transfers[&pending].row);
            let exists = status == TransferStatus::Exists;
            let timestamp = if exists { existing.row.timestamp } else { at };
            return TransferResult { status, timestamp };
        }
        let created = if self.failed.contains(&id) {
            Err(TransferStatus::IdAlreadyFailed)
        } else {
            match event.transfer.action {
                Action::Posted(movement) => self.move_amount(at, event, movement, RowKind::Posted),
                Action::BalancingCredit(movement) => {
                    self.move_amount(at, event, movement, RowKind::BalancingCredit)
                }
                Action::Pending { movement, timeout_seconds, closes_debit_account } => {
                    let kind = RowKind::Pending { timeout_seconds, closes_debit_account };
                    self.move_amount(at, event, movement, kind)
                }
                Action::PostPending { pending, amount } => {
                    self.post_pending(at, event, pending, amount)
                }
                Action::VoidPending { pending } => self.void_pending(at, event, pending),
            }
        };
        let status = created.err().unwrap_or(TransferStatus::Created);
        TransferResult { status, timestamp: at }
    }

    fn move_amount(
        &mut self,
        at: Timestamp,
        event: &Event,
        movement: Movement,
        kind: RowKind,
    ) -> Result<(), TransferStatus> {
        let Movement { debit, credit, mut amount, code } = movement;
        if debit == credit {
            return Err(TransferStatus::AccountsMustBeDifferent);
        }
        let mut debit = *self.accounts.get(&debit).ok_or(TransferStatus::DebitAccountNotFound)?;
        let mut credit =
            *self.accounts.get(&credit).ok_or(TransferStatus::CreditAccountNotFound)?;
        check_open(&debit, &credit)?;
        if kind == RowKind::BalancingCredit {
            let Balances { debits_posted, credits_pending, credits_posted, .. } = credit.balances;
            amount = amount.min(debits_posted.saturating_sub(credits_pending + credits_posted));
        }
        let pending = matches!(kind, RowKind::Pending { .. });
        check_overflows(&debit, &credit, amount, pending)?;
        if let RowKind::Pending { timeout_seconds: Some(_), .. } = kind {
            kind.expires_at(at).ok_or(TransferStatus::OverflowsTimeout)?;
        }
        let debits = debit.balances.debits_pending + debit.balances.debits_posted + amount;
        if debit.debits_must_not_exceed_credits && debits > debit.balances.credits_posted {
            return Err(TransferStatus::ExceedsCredits);
        }

        if pending {
            debit.balances.debits_pending += amount;
            credit.balances.credits_pending += amount;
        } else {
            debit.balances.debits_posted += amount;
            credit.balances.credits_posted += amount;
        }
        debit.closed = matches!(kind, RowKind::Pending { closes_debit_account: true, .. });
        self.set_account(debit);
        self.set_account(credit);
        self.insert(TransferRow {
            id: event.transfer.id,
            debit: debit.id,
            credit: credit.id,
            amount,
            code,
            kind,
            linked: event.linked,
            user_data: event.transfer.user_data,
            timestamp: at,
        });
        Ok(())
    }

    fn post_pending(
        &mut self,
        at: Timestamp,
        event: &Event,
        pending: TransferId,
        amount: PostAmount,
    ) -> Result<(), TransferStatus> {
        let stored = self.pending(event, pending)?;
        let amount = amount_to_post(amount, stored.row.amount);
        if amount > stored.row.amount {
            return Err(TransferStatus::ExceedsPendingTransferAmount);
        }
        check_unresolved(at, &stored)?;
        check_open(&self.accounts[&stored.row.debit], &self.accounts[&stored.row.credit])?;

        self.release(pending, PendingState::Posted);
        let mut debit = self.accounts[&stored.row.debit];
        debit.balances.debits_posted += amount;
        self.set_account(debit);
        let mut credit = self.accounts[&stored.row.credit];
        credit.balances.credits_posted += amount;
        self.set_account(credit);
        let kind = RowKind::PostPending { pending };
        self.insert(resolution(at, event, &stored.row, kind, amount));
        Ok(())
    }

    fn void_pending(
        &mut self,
        at: Timestamp,
        event: &Event,
        pending: TransferId,
    ) -> Result<(), TransferStatus> {
        let stored = self.pending(event, pending)?;
        check_unresolved(at, &stored)?;

        self.release(pending, PendingState::Voided);
        let kind = RowKind::VoidPending { pending };
        self.insert(resolution(at, event, &stored.row, kind, stored.row.amount));
        Ok(())
    }

    fn pending(&self, event: &Event, pending: TransferId) -> Result<Stored, TransferStatus> {
        if pending == event.transfer.id {
            return Err(TransferStatus::PendingIdMustBeDifferent);
        }
        let stored = self.transfers.get(&pending).ok_or(TransferStatus::PendingTransferNotFound)?;
        if stored.pending.is_none() {
            return Err(TransferStatus::PendingTransferNotPending);
        }
        Ok(*stored)
    }
}

fn check_open(debit: &AccountRow, credit: &AccountRow) -> Result<(), TransferStatus> {
    if debit.closed {
        return Err(TransferStatus::DebitAccountAlreadyClosed);
    }
    if credit.closed {
        return Err(TransferStatus::CreditAccountAlreadyClosed);
    }
    Ok(())
}

fn check_overflows(
    debit: &AccountRow,
    credit: &AccountRow,
    amount: u128,
    pending: bool,
) -> Result<(), TransferStatus> {
    let (debit, credit) = (&debit.balances, &credit.balances);
    let fits = |sum: u128| amount.checked_add(sum).is_some();
    if pending && !fits(debit.debits_pending) {
        return Err(TransferStatus::OverflowsDebitsPending);
    }
    if pending && !fits(credit.credits_pending) {
        return Err(TransferStatus::OverflowsCreditsPending);
    }
    if !fits(debit.debits_posted) {
        return Err(TransferStatus::OverflowsDebitsPosted);
    }
    if !fits(credit.credits_posted) {
        return Err(TransferStatus::OverflowsCreditsPosted);
    }
    if !fits(debit.debits_pending + debit.debits_posted) {
        return Err(TransferStatus::OverflowsDebits);
    }
    if !fits(credit.credits_pending + credit.credits_posted) {
        return Err(TransferStatus::OverflowsCredits);
    }
    Ok(())
}

/// A void or post treats a pending transfer as expired from its expiry on, even while its amount is
/// still reserved.
fn check_unresolved(at: Timestamp, stored: &Stored) -> Result<(), TransferStatus> {
    match stored.pending.expect("`Model::pending` returns only what was pending") {
        PendingState::Open => match stored.row.expires_at() {
            Some(expires_at) if expires_at <= at => Err(TransferStatus::PendingTransferExpired),
            Some(_) | None => Ok(()),
        },
        PendingState::Posted => Err(TransferStatus::PendingTransferAlreadyPosted),
        PendingState::Voided => Err(TransferStatus::PendingTransferAlreadyVoided),
        PendingState::Expired => Err(TransferStatus::PendingTransferExpired),
    }
}

/// The row of a void or post, which inherits from its pending transfer.
fn resolution(
    at: Timestamp,
    event: &Event,
    pending: &TransferRow,
    kind: RowKind,
    amount: u128,
) -> TransferRow {
    TransferRow {
        id: event.transfer.id,
        kind,
        amount,
        linked: event.linked,
        user_data: inherit(event.transfer.user_data, pending.user_data),
        timestamp: at,
        ..*pending
    }
}
