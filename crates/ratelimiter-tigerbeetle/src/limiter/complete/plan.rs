//! What the end of a lease asks of the ledger, and what the ledger's answer means (`TB-06`, `TB-16`).
//!
//! All of it is one chain that begins with a *marker*, so it happens once and altogether, or not at
//! all. The marker is the void of the lease's first hold. Once the ledger has said that this hold
//! expired without having been voided, which is final, nobody can use that marker, nor has anybody
//! used it: then, and for a lease without a hold, it is the transfer `xfer:end:<lease>`. So no two
//! completes of one lease succeed, whoever sends them and however late they arrive.
//!
//! A member of the chain that the ledger refuses is left out, or replaced, and the chain is tried
//! again; until it succeeds nothing has happened.

use std::num::NonZeroU32;
use std::ops::Range;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Actuals, CompleteError, LeaseId, LimitKey, Overage};

use crate::ids::{self, TransferRole};
use crate::ledger::{
    AccountId, Action, Movement, Transfer, TransferId, TransferResult, TransferStatus, WorkItem,
};
use crate::limiter::capacity::{Attempt, Version};
use crate::limiter::codes::{Tenure, TransferCode, user_data};
use crate::limiter::lease::{Lease, Reservation};
use crate::limiter::table::Table;

/// The end of a lease, as it is to be tried next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    lease: LeaseId,
    /// The void of the first hold, unless there is none or it has expired.
    first_hold: Option<Transfer>,
    steps: Vec<Step>,
    /// Units without room, by key.
    uncovered: Vec<(LimitKey, u64)>,
}

/// One thing that the end of a lease changes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// A hold is released, or a reservation of which nothing was used.
    Release(Transfer),
    /// A reservation becomes smaller: a void, and a reservation in its place.
    Shrink { key: LimitKey, reservation: Reservation, actual: u64, account: Account },
    /// An overage: a reservation if there is room; else, as the policy says, debt.
    Cover { key: LimitKey, reservation: Reservation, excess: u64, overage: Overage, burned: bool },
    /// An overage without room.
    Debt { key: LimitKey, excess: u64 },
}

/// What is known of the account of a reservation that is to become smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Account {
    /// Nothing: it is taken to be open.
    Untried,
    /// It was closed when it was tried, or when another server did, which has burned the ID of the
    /// smaller reservation.
    Burned,
    /// It is closed, for a decrease that waits, and has this version.
    Closed(Version),
}

/// Which of the six events of [`Version::while_open`] are about the reservation; the others are about
/// its account.
const RESERVATION_WHILE_OPEN: Range<usize> = 3..5;

/// What the ledger's answer means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The lease is completed, by as many transfers.
    Done { created_count: u64 },
    /// It was completed before, and nothing else happened.
    DoneBefore,
    /// Nothing has happened; what was refused is left out or replaced now.
    Again,
    /// Nothing has happened: this account was closed, or changed. [`Plan::found`] is to be told how
    /// it is.
    Look(AccountId),
    /// A status that the rules do not foresee.
    Unexpected(TransferStatus),
}

/// Plans the end of a lease. All checks come first, so that a refused complete changes nothing.
/// What has expired stays as it is: there is nothing left to shrink or to grow. `None` if that is
/// everything.
pub(super) fn plan(
    lease: &Lease,
    actuals: &Actuals,
    now: Timestamp,
    table: &Table,
) -> Result<Option<Plan>, CompleteError> {
    let is_live = |reservation: &Reservation| reservation.expires_at > now;
    if !lease.reservations.iter().any(is_live) {
        return Ok(None);
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
    let mut plan =
        Plan { lease: lease.id, first_hold: None, steps: Vec::new(), uncovered: Vec::new() };
    for (reservation, used) in lease.reservations.iter().zip(used) {
        match (reservation.tenure, used) {
            (Tenure::Hold, _) => {
                let void = void(lease.id, reservation, table.key_of(reservation.account));
                // Whatever our clock says: only the ledger knows whether it was voided before.
                if plan.first_hold.is_none() {
                    plan.first_hold = Some(void);
                } else if is_live(reservation) {
                    plan.steps.push(Step::Release(void));
                }
            }
            (Tenure::Reservation, Some((key, actual))) if is_live(reservation) => {
                let overage = table.get(key).map(|limit| limit.registered.limit.overage);
                plan.steps.extend(reconcile(lease.id, reservation, key, actual, overage));
            }
            (Tenure::Reservation, _) => {}
        }
    }
    Ok(Some(plan))
}

fn reconcile(
    lease: LeaseId,
    reservation: &Reservation,
    key: &LimitKey,
    actual: u64,
    overage: Option<Overage>,
) -> Option<Step> {
    let (key, reserved, reservation) = (key.clone(), reservation.amount, *reservation);
    if actual == 0 {
        return Some(Step::Release(void(lease, &reservation, Some(&key))));
    }
    if actual < reserved {
        return Some(Step::Shrink { key, reservation, actual, account: Account::Untried });
    }
    // A limit that was deleted has no policy, and nobody who would ask for its debt.
    let overage = overage.filter(|_| actual > reserved)?;
    let excess = actual - reserved;
    Some(Step::Cover { key, reservation, excess, overage, burned: false })
}

impl Plan {
    /// The chain to try at `now`. `attempt` makes the IDs whose first form is burned.
    pub(super) fn item(&self, now: Timestamp, mut attempt: impl FnMut() -> Attempt) -> WorkItem {
        let mut chain = vec![self.first_hold.unwrap_or_else(|| end_marker(self.lease))];
        for step in &self.steps {
            let start = chain.len();
            step.push_onto(&mut chain, self.lease, now, &mut attempt);
            assert_eq!(chain.len() - start, step.len(), "an answer is read by these lengths");
        }
        WorkItem::new().with_chain(chain)
    }

    /// Units without room, by key, that count once the lease is completed.
    pub(super) fn uncovered(&self) -> &[(LimitKey, u64)] {
        &self.uncovered
    }

    /// Reads the answer to the chain, and leaves out or replaces what was refused.
    pub(super) fn read(&mut self, results: &[TransferResult]) -> Reply {
        let quiet = [TransferStatus::Created, TransferStatus::LinkedEventFailed];
        let Some(at) = results.iter().position(|result| !quiet.contains(&result.status)) else {
            let created = results.iter().all(|result| result.status == TransferStatus::Created);
            let unsaid = Reply::Unexpected(TransferStatus::LinkedEventFailed);
            return if created {
                Reply::Done { created_count: results.len() as u64 }
            } else {
                unsaid
            };
        };
        let status = results[at].status;
        let Some(mut at) = at.checked_sub(1) else {
            return self.read_marker(status);
        };
        for (index, step) in self.steps.iter().enumerate() {
            if at < step.len() {
                return self.read_step(index, at, status);
            }
            at -= step.len();
        }
        unreachable!("there is one result an event");
    }

    fn read_marker(&mut self, status: TransferStatus) -> Reply {
        if was_done(status) {
            return Reply::DoneBefore;
        }
        if status == TransferStatus::PendingTransferExpired && self.first_hold.take().is_some() {
            return Reply::Again;
        }
        Reply::Unexpected(status)
    }

    /// What the refusal of a step's event means. An ID that exists, or a reservation that was voided,
    /// though the marker is not there: a release that knew no markers has completed the lease.
    fn read_step(&mut self, index: usize, event: usize, status: TransferStatus) -> Reply {
        let step = &mut self.steps[index];
        match step {
            Step::Shrink { reservation, account: Account::Closed(_), .. }
                if !RESERVATION_WHILE_OPEN.contains(&event) && has_moved(status) =>
            {
                return Reply::Look(reservation.account);
            }
            Step::Shrink { account: known, .. } if status == TransferStatus::IdAlreadyFailed => {
                *known = Account::Burned;
                return Reply::Again;
            }
            // It had no room when it was tried before, in vain; it may have some now. A request that is
            // sent again after an eviction may find an ID burned that replaced one.
            Step::Cover { burned, .. } if status == TransferStatus::IdAlreadyFailed => {
                *burned = true;
                return Reply::Again;
            }
            Step::Shrink { reservation, .. }
                if status == TransferStatus::DebitAccountAlreadyClosed =>
            {
                return Reply::Look(reservation.account);
            }
            Step::Release(_) | Step::Shrink { .. }
                if status == TransferStatus::PendingTransferExpired =>
            {
                self.steps.remove(index);
                return Reply::Again;
            }
            Step::Cover { key, excess, overage, .. } if has_no_room(status) => {
                let (key, excess) = (key.clone(), *excess);
                self.uncovered.push((key.clone(), excess));
                match overage {
                    Overage::Debt => *step = Step::Debt { key, excess },
                    Overage::Deny => drop(self.steps.remove(index)),
                }
                return Reply::Again;
            }
            Step::Release(_) | Step::Shrink { .. } | Step::Cover { .. } | Step::Debt { .. } => {}
        }
        if was_done(status) { Reply::DoneBefore } else { Reply::Unexpected(status) }
    }

    /// How the account is that [`Reply::Look`] has named.
    pub(super) fn found(&mut self, account: AccountId, version: Version) {
        for step in &mut self.steps {
            if let Step::Shrink { reservation, account: known, .. } = step
                && reservation.account == account
            {
                *known = match version.is_closed() {
                    true => Account::Closed(version),
                    false => Account::Burned,
                };
            }
        }
    }
}

impl Step {
    /// How many events it is.
    fn len(&self) -> usize {
        match self {
            Self::Release(_) | Self::Cover { .. } | Self::Debt { .. } => 1,
            Self::Shrink { account: Account::Untried | Account::Burned, .. } => 2,
            Self::Shrink { account: Account::Closed(_), .. } => 6,
        }
    }

    fn push_onto(
        &self,
        chain: &mut Vec<Transfer>,
        lease: LeaseId,
        now: Timestamp,
        mut attempt: impl FnMut() -> Attempt,
    ) {
        match self {
            Self::Release(void) => chain.push(*void),
            Self::Shrink { key, reservation, actual, account } => {
                let void = void(lease, reservation, Some(key));
                let smaller = |id| rereserve(id, lease, reservation, *actual, now);
                match account {
                    Account::Untried => {
                        let id = ids::transfer(TransferRole::Rereserve, lease, key);
                        chain.extend([void, smaller(id)]);
                    }
                    Account::Burned => {
                        let id = rereserve_id(lease, key, attempt());
                        chain.extend([void, smaller(id)]);
                    }
                    Account::Closed(version) => {
                        let attempt = attempt();
                        let smaller = smaller(rereserve_id(lease, key, attempt));
                        chain.extend(version.while_open(key, void, smaller, attempt));
                    }
                }
            }
            Self::Cover { key, reservation, excess, burned, .. } => {
                let id = match burned {
                    true => rereserve_id(lease, key, attempt()),
                    false => ids::transfer(TransferRole::Rereserve, lease, key),
                };
                chain.push(rereserve(id, lease, reservation, *excess, now));
            }
            Self::Debt { key, excess } => chain.push(debt(lease, key, *excess)),
        }
    }
}

/// Somebody has done it.
fn was_done(status: TransferStatus) -> bool {
    let resolved = [
        TransferStatus::PendingTransferAlreadyVoided,
        TransferStatus::PendingTransferAlreadyPosted,
    ];
    status.exists() || resolved.contains(&status)
}

/// The version of a closed account was left by somebody else.
fn has_moved(status: TransferStatus) -> bool {
    let closed =
        [TransferStatus::DebitAccountAlreadyClosed, TransferStatus::CreditAccountAlreadyClosed];
    was_done(status) || closed.contains(&status)
}

/// No room for an excess.
fn has_no_room(status: TransferStatus) -> bool {
    matches!(status, TransferStatus::ExceedsCredits | TransferStatus::DebitAccountAlreadyClosed)
}

/// The whole seconds until `expires_at`, rounded up, so that nothing returns before its time.
fn remaining_seconds(expires_at: Timestamp, now: Timestamp) -> NonZeroU32 {
    let seconds = expires_at.since(now).as_nanos().div_ceil(1_000_000_000);
    let seconds = u32::try_from(seconds).expect("no reservation lasts longer than its 32 bits");
    NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
}

/// The release of a reservation or hold. One of a limit that is not defined here goes by its
/// account; should another server know the key, one of the two voids finds the other's done.
fn void(lease: LeaseId, reservation: &Reservation, key: Option<&LimitKey>) -> Transfer {
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

/// A reservation on the account of an earlier one, for the rest of its time.
fn rereserve(
    id: TransferId,
    lease: LeaseId,
    reservation: &Reservation,
    amount: u64,
    now: Timestamp,
) -> Transfer {
    let movement = Movement {
        debit: reservation.account,
        credit: ids::operator_account(),
        amount: amount.into(),
        code: TransferCode::Rereservation.number(),
    };
    let timeout_seconds = Some(remaining_seconds(reservation.expires_at, now));
    let action = Action::Pending { movement, timeout_seconds, closes_debit_account: false };
    Transfer { id, action, user_data: user_data(lease, Some(Tenure::Reservation)) }
}

/// In the place of an ID that is burned.
fn rereserve_id(lease: LeaseId, key: &LimitKey, attempt: Attempt) -> TransferId {
    let label = format!("xfer:rereserve:{lease}:{:032x}:{key}", attempt.nonce);
    ids::transfer_at(lease.timestamp_ms(), &label)
}

fn debt(lease: LeaseId, key: &LimitKey, excess: u64) -> Transfer {
    let id = ids::transfer(TransferRole::Debt, lease, key);
    let movement = Movement {
        debit: ids::debt_account(key),
        credit: ids::operator_account(),
        amount: excess.into(),
        code: TransferCode::Debt.number(),
    };
    Transfer { id, action: Action::Posted(movement), user_data: user_data(lease, None) }
}

fn end_marker(lease: LeaseId) -> Transfer {
    let id = ids::transfer_at(lease.timestamp_ms(), &format!("xfer:end:{lease}"));
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
