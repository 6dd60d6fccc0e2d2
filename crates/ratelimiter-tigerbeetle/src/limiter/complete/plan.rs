//! The end of a lease as one chain (`TB-06`, `TB-16`).
//!
//! The chain begins with a *marker*, so the lease ends once and as a whole, or not at all. The
//! marker is the void of the lease's first hold. If the ledger reports that this hold expired
//! without having been voided, which is final, no complete has used that marker and none can. Then,
//! and for a lease without a hold, the marker is the transfer `xfer:end:<lease>`. So no two
//! completes of one lease succeed, at whichever servers and however late they arrive. A renew uses
//! these markers too, and leaves another one for the end of the renewed lease (`TB-18`).
//!
//! A transfer that the ledger refuses is dropped or replaced, and the chain is tried again; until
//! it succeeds nothing has changed.

use std::num::NonZeroU32;
use std::ops::Range;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, CompleteError, LeaseId, Limit, LimitKey, LimitKind, Overage, RenewNumber,
};

use crate::ids::{self, TransferRole};
use crate::ledger::{AccountId, Transfer, TransferId, TransferResult, TransferStatus, WorkItem};
use crate::limiter::capacity::{Attempt, Version, no_such_closing};
use crate::limiter::codes::{
    ReservationKind, TransferCode, marker, period_data, reading, user_data,
};
use crate::limiter::lease::Lease;
use crate::limiter::reservation::Reservation;
use crate::limiter::table::LimitTable;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CompletePlan {
    lease: LeaseId,
    /// The last renew of the lease. The end of the lease in each of its states has a marker of its own.
    version: Option<RenewNumber>,
    /// The lease is returned, so that it ends only if nobody else was told that it is allowed (`TB-17`).
    is_return: bool,
    /// The void of the first hold, unless there is none, it has expired, or the lease is returned or was
    /// renewed.
    first_hold: Option<Transfer>,
    pub(super) steps: Vec<CompleteStep>,
    /// Units without room, by key.
    uncovered: Vec<(LimitKey, u64)>,
}

/// One change at the end of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CompleteStep {
    /// Releases a hold, or a reservation with an actual of 0.
    Release(Transfer),
    /// Shrinks a reservation: a void, and a smaller reservation.
    Shrink { key: LimitKey, reservation: Reservation, actual: u64, account: AccountState },
    /// Reserves an overage if there is room; otherwise it becomes debt, if the policy says so.
    Cover { key: LimitKey, reservation: Reservation, excess: u64, overage: Overage, burned: bool },
    /// An overage without room.
    Debt { key: LimitKey, excess: u64 },
}

/// What is known about the account of a reservation to shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccountState {
    /// Nothing: assume that it is open.
    Untried,
    /// It was closed at an attempt of this or another server, which burned the ID of the smaller
    /// reservation.
    Burned,
    /// It is closed for a waiting decrease, at this version.
    Closed(Version),
}

/// The events of [`Version::reopen_around`] that concern the reservation; the others concern its
/// account.
const RESERVATION_EVENTS: Range<usize> = 3..5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChainReply {
    /// The lease is completed, with this many transfers.
    Done { created_count: u64 },
    /// It was completed or renewed before; nothing else changed.
    AlreadyDone,
    /// Nothing has changed; the refused transfer is now dropped or replaced.
    Retry,
    /// Nothing has changed: this account was closed, or its version changed. Read it and call
    /// [`CompletePlan::record_version`].
    ReadAccount(AccountId),
    /// A status that the rules do not allow for.
    Unexpected(TransferStatus),
}

/// Plans the end of a lease that was not renewed. All checks come first, so that a refused complete changes nothing.
/// Expired reservations stay as they are: there is nothing left to shrink or to grow; an excess of a
/// period that has ended is an overage without room. `None` if all have expired.
pub(super) fn plan(
    lease: &Lease,
    actuals: &Actuals,
    now: Timestamp,
    table: &LimitTable,
) -> Result<Option<CompletePlan>, CompleteError> {
    let is_live = |reservation: &Reservation| reservation.expires_at > now;
    if !lease.reservations.iter().any(is_live) {
        return Ok(None);
    }
    let used = used_of(lease, actuals, table)?;
    let mut plan = CompletePlan::new(lease);
    for (reservation, used) in lease.reservations.iter().zip(used) {
        match (reservation.kind, used) {
            (ReservationKind::Hold, _) => {
                let void = void(lease.id, reservation, table.key_of(reservation.account));
                // Whatever our clock says, only the ledger knows whether it was voided before.
                if plan.first_hold.is_none() {
                    plan.first_hold = Some(void);
                } else if is_live(reservation) {
                    plan.steps.push(CompleteStep::Release(void));
                }
            }
            (_, None) => {}
            (kind, Some((key, actual))) => {
                let definition = table.definition_of(key);
                if is_live(reservation) {
                    let overage = definition.map(|limit| limit.overage);
                    plan.steps.extend(reconcile(lease.id, reservation, key, actual, overage));
                } else if kind == ReservationKind::Calendar
                    && let Some(Limit { kind: LimitKind::Calendar { .. }, overage, .. }) =
                        definition
                {
                    plan.add_late_excess(key, actual.saturating_sub(reservation.amount), overage);
                }
            }
        }
    }
    Ok(Some(plan))
}

/// What was used of each of the lease's requirements, with its key.
pub(super) fn used_of<'a>(
    lease: &Lease,
    actuals: &'a Actuals,
    table: &LimitTable,
) -> Result<Vec<Option<(&'a LimitKey, u64)>>, CompleteError> {
    let mut used = vec![None; lease.reservations.len()];
    for actual in actuals.iter() {
        let key = &actual.key;
        let takes = |held: &Reservation| {
            held.kind != ReservationKind::Hold && held.is_of(key, || table.lasting_account_of(key))
        };
        let Some(at) = lease.reservations.iter().position(takes) else {
            return Err(CompleteError::InvalidActual { key: actual.key.clone() });
        };
        used[at] = Some((&actual.key, actual.amount));
    }
    Ok(used)
}

/// Plans to return all that a lease has, because nobody was told that it is allowed. `None` if all of it
/// has expired.
///
/// Its marker is `xfer:end:<lease>` even if there are holds: a renew has that ID, also one that was denied
/// and left them as they are, and only somebody who was told renews.
pub(super) fn plan_return(
    lease: &Lease,
    now: Timestamp,
    table: &LimitTable,
) -> Option<CompletePlan> {
    let is_live = |held: &Reservation| held.expires_at > now;
    if !lease.reservations.iter().any(is_live) {
        return None;
    }
    let mut plan = CompletePlan { is_return: true, ..CompletePlan::new(lease) };
    let is_hold = |held: &Reservation| held.kind == ReservationKind::Hold;
    let first_hold = lease.reservations.iter().position(is_hold);
    for (at, held) in lease.reservations.iter().enumerate() {
        // The first hold is the marker of a complete, whatever our clock says.
        if first_hold == Some(at) || is_live(held) {
            let void = void(lease.id, held, table.key_of(held.account));
            plan.steps.push(CompleteStep::Release(void));
        }
    }
    Some(plan)
}

fn reconcile(
    lease: LeaseId,
    reservation: &Reservation,
    key: &LimitKey,
    actual: u64,
    overage: Option<Overage>,
) -> Option<CompleteStep> {
    let (key, reserved, reservation) = (key.clone(), reservation.amount, *reservation);
    if actual == 0 {
        return Some(CompleteStep::Release(void(lease, &reservation, Some(&key))));
    }
    if actual < reserved {
        return Some(CompleteStep::Shrink {
            key,
            reservation,
            actual,
            account: AccountState::Untried,
        });
    }
    // A deleted limit has no policy, and its debt is not read.
    let overage = overage.filter(|_| actual > reserved)?;
    let excess = actual - reserved;
    Some(CompleteStep::Cover { key, reservation, excess, overage, burned: false })
}

impl CompletePlan {
    pub(super) fn new(lease: &Lease) -> Self {
        Self {
            lease: lease.id,
            version: lease.version(),
            is_return: false,
            first_hold: None,
            steps: Vec::new(),
            uncovered: Vec::new(),
        }
    }

    /// `CAL-04`: the period has ended and the lease is open, so an excess is an overage without room.
    pub(super) fn add_late_excess(&mut self, key: &LimitKey, excess: u64, overage: Overage) {
        if excess == 0 {
            return;
        }
        self.uncovered.push((key.clone(), excess));
        if overage == Overage::Debt {
            self.steps.push(CompleteStep::Debt { key: key.clone(), excess });
        }
    }

    /// The chain to try at `now`. `attempt` replaces burned IDs.
    pub(super) fn item(&self, now: Timestamp, mut attempt: impl FnMut() -> Attempt) -> WorkItem {
        let mut chain = Vec::with_capacity(2 + self.steps.len());
        if self.is_return {
            chain.push(reading(self.lease));
        }
        let end_marker = || end_marker(self.lease, self.version);
        chain.push(self.first_hold.unwrap_or_else(end_marker));
        for step in &self.steps {
            let start = chain.len();
            step.push_onto(&mut chain, self.lease, now, &mut attempt);
            assert_eq!(chain.len() - start, step.len(), "an answer is read by these lengths");
        }
        WorkItem::new().with_chain(chain)
    }

    /// Units without room, by key, to be counted once the lease is completed.
    pub(super) fn uncovered(&self) -> &[(LimitKey, u64)] {
        &self.uncovered
    }

    /// The limits to whose debt the lease adds.
    pub(super) fn debtors(&self) -> impl Iterator<Item = &LimitKey> {
        self.steps.iter().filter_map(|step| match step {
            CompleteStep::Debt { key, .. } => Some(key),
            CompleteStep::Release(_) | CompleteStep::Shrink { .. } | CompleteStep::Cover { .. } => {
                None
            }
        })
    }

    /// Interprets the reply to the chain, and drops or replaces what was refused.
    pub(super) fn read(&mut self, results: &[TransferResult]) -> ChainReply {
        let Some((at, status)) = TransferResult::first_refusal(results) else {
            return ChainReply::Done { created_count: results.len() as u64 };
        };
        let Some(at) = at.checked_sub(usize::from(self.is_return)) else {
            // Somebody has the lease, or it was returned before.
            return match status.exists() {
                true => ChainReply::AlreadyDone,
                false => ChainReply::Unexpected(status),
            };
        };
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

    fn read_marker(&mut self, status: TransferStatus) -> ChainReply {
        if already_done(status) {
            return ChainReply::AlreadyDone;
        }
        if status == TransferStatus::PendingTransferExpired && self.first_hold.take().is_some() {
            return ChainReply::Retry;
        }
        ChainReply::Unexpected(status)
    }

    /// Interprets the refusal of a step's event. If an ID exists, or a reservation was voided,
    /// without the marker, an older release that had no markers has completed the lease.
    fn read_step(&mut self, index: usize, event: usize, status: TransferStatus) -> ChainReply {
        let step = &mut self.steps[index];
        match step {
            CompleteStep::Shrink { account: AccountState::Closed(version), .. }
                if event == 0 && no_such_closing(status) =>
            {
                *version = version.closed_without_key();
                return ChainReply::Retry;
            }
            CompleteStep::Shrink { reservation, account: AccountState::Closed(_), .. }
                if !RESERVATION_EVENTS.contains(&event) && version_changed(status) =>
            {
                return ChainReply::ReadAccount(reservation.account);
            }
            CompleteStep::Shrink { account: known, .. }
                if status == TransferStatus::IdAlreadyFailed =>
            {
                *known = AccountState::Burned;
                return ChainReply::Retry;
            }
            // An earlier attempt had no room; there may be room now. A request that is sent again
            // after an eviction may also find a replacement ID burned.
            CompleteStep::Cover { burned, .. } if status == TransferStatus::IdAlreadyFailed => {
                *burned = true;
                return ChainReply::Retry;
            }
            CompleteStep::Shrink { reservation, .. }
                if status == TransferStatus::DebitAccountAlreadyClosed =>
            {
                return ChainReply::ReadAccount(reservation.account);
            }
            CompleteStep::Release(_) | CompleteStep::Shrink { .. }
                if status == TransferStatus::PendingTransferExpired =>
            {
                self.steps.remove(index);
                return ChainReply::Retry;
            }
            CompleteStep::Cover { key, excess, overage, .. } if has_no_room(status) => {
                let (key, excess) = (key.clone(), *excess);
                self.uncovered.push((key.clone(), excess));
                match overage {
                    Overage::Debt => *step = CompleteStep::Debt { key, excess },
                    Overage::Deny => drop(self.steps.remove(index)),
                }
                return ChainReply::Retry;
            }
            CompleteStep::Release(_)
            | CompleteStep::Shrink { .. }
            | CompleteStep::Cover { .. }
            | CompleteStep::Debt { .. } => {}
        }
        if already_done(status) { ChainReply::AlreadyDone } else { ChainReply::Unexpected(status) }
    }

    /// Records the account that [`ChainReply::ReadAccount`] asked for.
    pub(super) fn record_version(&mut self, account: AccountId, version: Version) {
        for step in &mut self.steps {
            if let CompleteStep::Shrink { reservation, account: known, .. } = step
                && reservation.account == account
            {
                *known = match version.is_closed() {
                    true => AccountState::Closed(version),
                    false => AccountState::Burned,
                };
            }
        }
    }
}

impl CompleteStep {
    /// The number of its events.
    fn len(&self) -> usize {
        match self {
            Self::Release(_) | Self::Cover { .. } | Self::Debt { .. } => 1,
            Self::Shrink { account: AccountState::Untried | AccountState::Burned, .. } => 2,
            Self::Shrink { account: AccountState::Closed(_), .. } => 6,
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
                    AccountState::Untried => {
                        let id = ids::transfer(TransferRole::Rereserve, lease, key);
                        chain.extend([void, smaller(id)]);
                    }
                    AccountState::Burned => {
                        let id = rereserve_id(lease, key, attempt());
                        chain.extend([void, smaller(id)]);
                    }
                    AccountState::Closed(version) => {
                        let attempt = attempt();
                        let smaller = smaller(rereserve_id(lease, key, attempt));
                        chain.extend(version.reopen_around(Some(key), void, smaller, attempt));
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

/// This or another server has done it.
pub(in crate::limiter) fn already_done(status: TransferStatus) -> bool {
    let resolved = [
        TransferStatus::PendingTransferAlreadyVoided,
        TransferStatus::PendingTransferAlreadyPosted,
    ];
    status.exists() || resolved.contains(&status)
}

/// Another server has left the version of the closed account.
pub(in crate::limiter) fn version_changed(status: TransferStatus) -> bool {
    let closed =
        [TransferStatus::DebitAccountAlreadyClosed, TransferStatus::CreditAccountAlreadyClosed];
    already_done(status) || closed.contains(&status)
}

fn has_no_room(status: TransferStatus) -> bool {
    matches!(status, TransferStatus::ExceedsCredits | TransferStatus::DebitAccountAlreadyClosed)
}

/// The whole seconds until `expires_at`, rounded up, so that nothing expires early.
pub(in crate::limiter) fn remaining_seconds(expires_at: Timestamp, now: Timestamp) -> NonZeroU32 {
    let seconds = expires_at.since(now).as_nanos().div_ceil(1_000_000_000);
    let seconds = u32::try_from(seconds).expect("no reservation lasts longer than its 32 bits");
    NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
}

/// Releases a reservation or hold. If its limit is not defined here, the ID is derived from its
/// account; if another server knows the key, the second of the two voids finds the first.
fn void(lease: LeaseId, reservation: &Reservation, key: Option<&LimitKey>) -> Transfer {
    let Reservation { account, transfer: pending, .. } = *reservation;
    let id = match key {
        Some(key) => ids::transfer(TransferRole::Void, lease, key),
        None => {
            let label = format!("xfer:void:{lease}:#{:032x}", account.get());
            ids::transfer_at(lease.timestamp_ms(), &label)
        }
    };
    Transfer::void(id, pending).with_user_data(user_data(lease, None))
}

/// A reservation on the account of an earlier one, for the rest of its lifetime.
fn rereserve(
    id: TransferId,
    lease: LeaseId,
    reservation: &Reservation,
    amount: u64,
    now: Timestamp,
) -> Transfer {
    let (account, operator) = (reservation.account, ids::operator_account());
    let movement = TransferCode::Rereservation.movement(account, operator, amount.into());
    let expires_at = reservation.expires_at;
    match reservation.kind {
        ReservationKind::Calendar => {
            Transfer::lasting(id, movement).with_user_data(period_data(lease, expires_at))
        }
        ReservationKind::Reservation | ReservationKind::Hold => {
            Transfer::pending(id, movement, remaining_seconds(expires_at, now))
                .with_user_data(user_data(lease, Some(ReservationKind::Reservation)))
        }
    }
}

/// Replaces a burned ID.
fn rereserve_id(lease: LeaseId, key: &LimitKey, attempt: Attempt) -> TransferId {
    let label = format!("xfer:rereserve:{lease}:{:032x}:{key}", attempt.nonce);
    ids::transfer_at(lease.timestamp_ms(), &label)
}

fn debt(lease: LeaseId, key: &LimitKey, excess: u64) -> Transfer {
    let id = ids::transfer(TransferRole::Debt, lease, key);
    let (account, operator) = (ids::debt_account(key), ids::operator_account());
    let movement = TransferCode::Debt.movement(account, operator, excess.into());
    Transfer::posted(id, movement).with_user_data(user_data(lease, None))
}

fn end_marker(lease: LeaseId, version: Option<RenewNumber>) -> Transfer {
    marker(end_marker_id(lease, version)).with_user_data(user_data(lease, None))
}

/// The ID of the marker that ends a lease which was last renewed with this number, and of the record
/// of its next renew (`TB-18`).
pub(in crate::limiter) fn end_marker_id(
    lease: LeaseId,
    version: Option<RenewNumber>,
) -> TransferId {
    let label = match version {
        None => format!("xfer:end:{lease}"),
        Some(number) => format!("xfer:end:{lease}:{}", number.get()),
    };
    ids::transfer_at(lease.timestamp_ms(), &label)
}

#[cfg(test)]
mod tests;
