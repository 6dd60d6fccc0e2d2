//! What the end of a lease asks of the ledger, and what the ledger's answer means (`TB-06`).
//!
//! All of it goes into one work item, which TigerBeetle carries out as a whole. So a lease of which
//! anything was completed was completed altogether, and any later complete changes nothing.

use std::num::NonZeroU32;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Actuals, CompleteError, LeaseId, LimitKey, Overage};

use crate::ids::{self, TransferRole};
use crate::ledger::{
    Action, Movement, Transfer, TransferId, TransferResult, TransferStatus, WorkItem,
};
use crate::limiter::codes::{Tenure, TransferCode, user_data};
use crate::limiter::lease::{Lease, Reservation};
use crate::limiter::table::Table;

/// The transfers that end a lease, and what each of them is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub(super) item: WorkItem,
    steps: Vec<Step>,
}

/// One thing that the end of a lease changes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// A hold is released, or a reservation of which nothing was used: one void.
    Release,
    /// A reservation becomes smaller: a void and a reservation in its place, linked.
    Shrink(Shrink),
    /// An overage: a reservation if there is room; else, as the policy says, debt.
    Cover { key: LimitKey, excess: u64, overage: Overage },
    /// Nothing else would show that the lease was completed: a marker.
    End,
}

/// A reservation that is to become smaller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shrink {
    pub(super) lease: LeaseId,
    pub(super) key: LimitKey,
    pub(super) reservation: Reservation,
    pub(super) actual: u64,
}

/// What a completed plan has come to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Outcome {
    /// How many transfers are new in the ledger.
    pub(super) created_count: u64,
    /// Units that were used without room, by key, counted now and not before.
    pub(super) uncovered: Vec<(LimitKey, u64)>,
    /// Reservations that could not shrink, because their account is closed, or was when this was
    /// tried before and the ID was burned.
    pub(super) unshrunk: Vec<Shrink>,
    /// A status that the rules do not foresee.
    pub(super) unexpected: Option<TransferStatus>,
}

/// Plans the end of a lease. All checks come first, so that a refused complete changes nothing.
/// What has expired stays as it is: there is nothing left to shrink or to grow.
pub(super) fn plan(
    lease: &Lease,
    actuals: &Actuals,
    now: Timestamp,
    table: &Table,
) -> Result<Plan, CompleteError> {
    let is_live = |reservation: &Reservation| reservation.expires_at > now;
    if !lease.reservations.iter().any(is_live) {
        return Ok(Plan::default());
    }
    let mut used = vec![None; lease.reservations.len()];
    for actual in actuals.iter() {
        let account = table.account_of(&actual.key);
        let takes = |r: &Reservation| r.tenure == Tenure::Reservation && r.account == account;
        let Some(at) = lease.reservations.iter().position(takes) else {
            return Err(CompleteError::InvalidActual { key: actual.key.clone() });
        };
        used[at] = Some((&actual.key, actual.amount));
    }
    let mut plan = Plan::default();
    for (reservation, used) in lease.reservations.iter().zip(used) {
        if !is_live(reservation) {
            continue;
        }
        match (reservation.tenure, used) {
            (Tenure::Hold, _) => {
                plan.release(lease.id, reservation, table.key_of(reservation.account));
            }
            (Tenure::Reservation, Some((key, actual))) => {
                let overage = table.get(key).map(|limit| limit.registered.limit.overage);
                plan.reconcile(lease.id, reservation, key, actual, now, overage);
            }
            (Tenure::Reservation, None) => {}
        }
    }
    if !plan.leaves_a_trace() {
        plan.item.push(end_marker(lease.id));
        plan.steps.push(Step::End);
    }
    Ok(plan)
}

impl Plan {
    fn reconcile(
        &mut self,
        lease: LeaseId,
        reservation: &Reservation,
        key: &LimitKey,
        actual: u64,
        now: Timestamp,
        overage: Option<Overage>,
    ) {
        let reserved = reservation.amount;
        if actual == 0 {
            return self.release(lease, reservation, Some(key));
        }
        let seconds = remaining_seconds(reservation.expires_at, now);
        let id = ids::transfer(TransferRole::Rereserve, lease, key);
        if actual < reserved {
            let void = void(lease, reservation, Some(key));
            self.item.push_chain([void, rereserve(id, lease, reservation, actual, seconds)]);
            let (key, reservation) = (key.clone(), *reservation);
            self.steps.push(Step::Shrink(Shrink { lease, key, reservation, actual }));
        }
        // A limit that was deleted has no policy, and nobody who would ask for its debt.
        if actual > reserved
            && let Some(overage) = overage
        {
            let excess = actual - reserved;
            let cover = rereserve(id, lease, reservation, excess, seconds);
            self.cover(lease, key, cover, excess, overage);
        }
    }

    fn release(&mut self, lease: LeaseId, reservation: &Reservation, key: Option<&LimitKey>) {
        self.item.push(void(lease, reservation, key));
        self.steps.push(Step::Release);
    }

    /// With `debt`, the reservation of the excess is linked to a marker that has the ID of the debt.
    /// So the debt, sent behind them, is new exactly when the excess was refused: one request
    /// decides, and no crash can come between the refusal and the debt.
    fn cover(
        &mut self,
        lease: LeaseId,
        key: &LimitKey,
        cover: Transfer,
        excess: u64,
        overage: Overage,
    ) {
        match overage {
            Overage::Deny => self.item.push(cover),
            Overage::Debt => {
                let id = ids::transfer(TransferRole::Debt, lease, key);
                let covered = marker(id, lease);
                let debt = Movement {
                    debit: ids::debt_account(key),
                    credit: ids::operator_account(),
                    amount: excess.into(),
                    code: TransferCode::Debt.number(),
                };
                let user_data = user_data(lease, None);
                self.item.push_chain([cover, covered]);
                self.item.push(Transfer { id, action: Action::Posted(debt), user_data });
            }
        }
        self.steps.push(Step::Cover { key: key.clone(), excess, overage });
    }

    /// Whether the ledger will show, whatever it answers, that the lease was completed.
    fn leaves_a_trace(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Release | Step::Shrink(_) | Step::End => true,
            Step::Cover { overage, .. } => *overage == Overage::Debt,
        })
    }

    /// Reads the answer, one result an event.
    pub(super) fn read(self, results: &[TransferResult]) -> Outcome {
        let (mut outcome, mut unshrunk, mut uncovered) = (Outcome::default(), vec![], vec![]);
        let mut results = results.iter().map(|result| result.status);
        let mut next = || {
            let status = results.next().expect("there is one result an event");
            outcome.created_count += u64::from(status == TransferStatus::Created);
            if !is_settled(status) && !is_refusal(status) {
                outcome.unexpected.get_or_insert(status);
            }
            status
        };
        for step in self.steps {
            match step {
                Step::Release | Step::End => {
                    next();
                }
                Step::Shrink(shrink) => {
                    next();
                    if needs_another_id(next()) {
                        unshrunk.push(shrink);
                    }
                }
                Step::Cover { key, excess, overage: Overage::Deny } => {
                    if is_refusal(next()) {
                        uncovered.push((key, excess));
                    }
                }
                Step::Cover { key, excess, overage: Overage::Debt } => {
                    next();
                    next();
                    if next() == TransferStatus::Created {
                        uncovered.push((key, excess));
                    }
                }
            }
        }
        Outcome { unshrunk, uncovered, ..outcome }
    }
}

/// Done now, or before, or no longer needed. An ID that has failed before belongs to an excess that
/// was refused when the lease was completed first.
fn is_settled(status: TransferStatus) -> bool {
    status.exists()
        || matches!(
            status,
            TransferStatus::Created
                | TransferStatus::LinkedEventFailed
                | TransferStatus::IdAlreadyFailed
                | TransferStatus::PendingTransferExpired
                | TransferStatus::PendingTransferAlreadyVoided
                | TransferStatus::PendingTransferAlreadyPosted
                | TransferStatus::PendingTransferNotFound
        )
}

/// A closed account takes no reservation, and burns the ID of one that is tried.
fn needs_another_id(status: TransferStatus) -> bool {
    let burned = [TransferStatus::DebitAccountAlreadyClosed, TransferStatus::IdAlreadyFailed];
    burned.contains(&status)
}

/// No room for more, as an overage may find.
fn is_refusal(status: TransferStatus) -> bool {
    matches!(status, TransferStatus::ExceedsCredits | TransferStatus::DebitAccountAlreadyClosed)
}

/// The whole seconds until `expires_at`, rounded up, so that nothing returns before its time.
pub(super) fn remaining_seconds(expires_at: Timestamp, now: Timestamp) -> NonZeroU32 {
    let seconds = expires_at.since(now).as_nanos().div_ceil(1_000_000_000);
    let seconds = u32::try_from(seconds).expect("no reservation lasts longer than its 32 bits");
    NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
}

/// The release of a reservation or hold. One of a limit that is not defined here goes by its
/// account; should another server know the key, one of the two voids finds the other's done.
pub(super) fn void(lease: LeaseId, reservation: &Reservation, key: Option<&LimitKey>) -> Transfer {
    let Reservation { account, transfer: pending, .. } = *reservation;
    let id = match key {
        Some(key) => ids::transfer(TransferRole::Void, lease, key),
        None => {
            let label = format!("xfer:void:{lease}:#{:032x}", account.get());
            ids::transfer_at(lease.timestamp_ms(), &label)
        }
    };
    let action = Action::VoidPending { pending };
    Transfer { id, action, user_data: user_data(lease, None) }
}

/// A reservation on the account of an earlier one.
pub(super) fn rereserve(
    id: TransferId,
    lease: LeaseId,
    reservation: &Reservation,
    amount: u64,
    seconds: NonZeroU32,
) -> Transfer {
    let movement = Movement {
        debit: reservation.account,
        credit: ids::operator_account(),
        amount: amount.into(),
        code: TransferCode::Rereservation.number(),
    };
    let action =
        Action::Pending { movement, timeout_seconds: Some(seconds), closes_debit_account: false };
    Transfer { id, action, user_data: user_data(lease, Some(Tenure::Reservation)) }
}

fn end_marker(lease: LeaseId) -> Transfer {
    let id = ids::transfer_at(lease.timestamp_ms(), &format!("xfer:end:{lease}"));
    marker(id, lease)
}

fn marker(id: TransferId, lease: LeaseId) -> Transfer {
    let movement = Movement {
        debit: ids::operator_account(),
        credit: ids::marker_account(),
        amount: 0,
        code: TransferCode::Marker.number(),
    };
    Transfer { id, action: Action::Posted(movement), user_data: user_data(lease, None) }
}

#[cfg(test)]
mod tests;
