//! A renew of a lease as one chain (`TB-18`).
//!
//! The chain begins with the *record* of the renew. The record's ID is that of the marker with which a
//! complete would end the lease in its present state, so of all that renew or end it, one succeeds. A
//! lease that was never renewed may also end by the void of its first hold; a renew voids all holds.

use std::num::NonZeroU32;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    LimitKey, LimitKind, NewAmounts, PARTS_MAX, REQUIREMENTS_MAX, RenewError, RenewNumber,
};

use crate::ids;
use crate::ledger::{AccountId, Transfer, TransferId, TransferResult, TransferStatus, WorkItem};
use crate::limiter::capacity::{Attempt, Version, no_such_closing};
use crate::limiter::codes::{ReservationKind, TransferCode, period_data, renewal_data, user_data};
use crate::limiter::complete::{already_done, end_marker_id, remaining_seconds, version_changed};
use crate::limiter::lease::Lease;
use crate::limiter::renewed_lease::{Part, RenewOutcome, RenewRecord, RenewedLease};
use crate::limiter::reservation::Reservation;
use crate::limiter::table::{LimitTable, ResolvedRequirement};

/// The most events of a chain: every cluster takes requests of this size (`TB-13`).
const CHAIN_EVENTS_MAX: usize = 253;

/// The transfers of a limit, besides a void for each part, in the longest chain: it reopens a closed account
/// for a smaller part.
const REOPENING_EVENTS: usize = 5;

/// The most parts of a lease with so many limits: the chain that ends it must fit into a request, and so must
/// one that renews it.
const fn lease_parts_max(limits: usize) -> usize {
    // Two leases with one ID may have more limits than a request.
    (CHAIN_EVENTS_MAX - 1).saturating_sub(REOPENING_EVENTS * limits)
}
const _: () = assert!(lease_parts_max(REQUIREMENTS_MAX) >= REQUIREMENTS_MAX);

/// The new amounts, and what the lease holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changes {
    pub(super) now: Timestamp,
    pub(super) each: Vec<Change>,
}

/// A new amount of one of the lease's limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) key: LimitKey,
    /// The place of the limit among the lease's requirements.
    pub(super) at: usize,
    held: u64,
    pub(super) amount: u64,
}

/// A change that needs room.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) at: usize,
    /// The limit, and the whole new amount.
    pub(super) requirement: ResolvedRequirement,
}

#[derive(Debug)]
pub(super) struct RenewPlan<'a> {
    lease: &'a Lease,
    number: RenewNumber,
    now: Timestamp,
    steps: Vec<Step>,
}

/// Gives parts back, makes a new one, or replaces some by one.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    /// The limit's key, if it is defined here.
    key: Option<LimitKey>,
    voided: Vec<Part>,
    new: Option<NewPart>,
    /// The index of the growth, if it needs room.
    growth: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NewPart {
    at: usize,
    account: AccountId,
    kind: ReservationKind,
    amount: u64,
    end: PartEnd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartEnd {
    /// So long after it is made.
    After(NonZeroU32),
    /// At this moment, or up to a second later.
    At(Timestamp),
    /// With the period of a calendar limit.
    OfPeriod(Timestamp),
}

/// What an event of the chain is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventRole {
    Record,
    Void(Part),
    /// The new part of this step.
    New(usize),
    /// Reopens or closes the account of this step.
    Account(usize),
}

/// The chain, and what its events are for.
#[derive(Debug)]
pub(super) struct RenewChain {
    events: Vec<(EventRole, Transfer)>,
}

/// The account of a step that makes a part and needs no room. It may be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StepAccount {
    pub(super) id: AccountId,
    has_key: bool,
}

/// What earlier attempts have found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// IDs of new parts may have been refused before.
    pub(super) is_burned: bool,
    /// Accounts that were closed by a server that does not know the key.
    pub(super) closed_without_key: Vec<AccountId>,
    /// The closed accounts.
    closed: Vec<Version>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RenewReply {
    Done,
    /// Nothing has changed: another renew or a complete was first. Read the lease back.
    ReadLease,
    /// Nothing has changed: this part has lapsed.
    Lapsed(Part),
    /// Nothing has changed: an ID was refused before, and must be replaced.
    Burned,
    /// Nothing has changed: this growth has no room.
    NoRoom {
        growth: usize,
    },
    /// Nothing has changed: the account of this growth is closed.
    Decreasing {
        growth: usize,
    },
    /// Nothing has changed: this account was closed, or its version changed. Read it.
    ReadAccount(AccountId),
    /// Nothing has changed: the ID of this account's closing transfer does not depend on the key. Read that, too.
    ReadClosing(AccountId),
    /// A status that the rules do not allow for.
    Unexpected(TransferStatus),
}

/// The limits that the amounts are of, and what the lease holds of them.
pub(super) fn changes(
    lease: &Lease,
    amounts: &NewAmounts,
    now: Timestamp,
    table: &LimitTable,
) -> Result<Changes, RenewError> {
    let mut each = Vec::new();
    for new in amounts.iter() {
        let key = &new.key;
        let is_of = |held: &Reservation| held.is_of(key, || table.lasting_account_of(key));
        let Some(at) = lease.reservations.iter().position(is_of) else {
            return Err(RenewError::InvalidAmount { key: key.clone() });
        };
        let held = lease.live_parts(at, now).iter().map(|part| part.held.amount).sum();
        each.push(Change { key: key.clone(), at, held, amount: new.amount });
    }
    Ok(Changes { now, each })
}

impl Change {
    pub(super) const fn grows(&self) -> bool {
        self.amount > self.held
    }

    pub(super) const fn shrinks(&self) -> bool {
        self.amount < self.held
    }
}

/// Plans a renew. All limits of `growths` can be reserved on.
pub(super) fn plan<'a>(
    lease: &'a Lease,
    number: RenewNumber,
    changes: &Changes,
    growths: &[Growth],
    table: &LimitTable,
) -> RenewPlan<'a> {
    let now = changes.now;
    let mut steps = Vec::new();
    let places = 0..lease.reservations.len();
    let live: Vec<_> = places.map(|at| lease.live_parts(at, now)).collect();
    // A limit without a part may get one.
    let parts: usize = live.iter().map(|parts| parts.len().max(1)).sum();
    let mut spare_parts = lease_parts_max(live.len()).saturating_sub(parts);
    for (at, (first, live)) in lease.reservations.iter().zip(live).enumerate() {
        let change = changes.each.iter().find(|change| change.at == at);
        let growth = growths.iter().enumerate().find(|(_, growth)| growth.at == at);
        if let Some((growth, Growth { requirement, .. })) = growth {
            let joins = live.len() >= PARTS_MAX || spare_parts == 0;
            let mut step = grow(at, requirement, live, joins, now);
            step.growth = Some(growth);
            spare_parts = spare_parts.saturating_sub(usize::from(step.voided.is_empty()));
            steps.push(step);
            continue;
        }
        let latest = live.last().map_or(*first, |part| part.held);
        let key = change.map(|change| &change.key).or_else(|| table.key_of(latest.account));
        let key = key.cloned();
        if first.kind == ReservationKind::Hold {
            let timeout = timeout_of(lease, first, key.as_ref(), table);
            steps.extend(live.into_iter().map(|part| {
                let amount = change.map_or(part.held.amount, |change| change.amount);
                replacement(key.clone(), part, amount, PartEnd::After(timeout))
            }));
        } else if let Some(change) = change {
            shrink(&mut steps, key.as_ref(), change, live);
        }
    }
    RenewPlan { lease, number, now, steps }
}

/// A part, or all of them as one, for a full window, period or timeout.
fn grow(
    at: usize,
    requirement: &ResolvedRequirement,
    live: Vec<Part>,
    joins: bool,
    now: Timestamp,
) -> Step {
    let ResolvedRequirement { limit, amount } = requirement;
    let kind = ReservationKind::of(limit.registered.limit.kind);
    let held: u64 = live.iter().map(|part| part.held.amount).sum();
    let latest = live.iter().map(|part| part.held.expires_at).max();
    let end = match (limit.account.ends_at, limit.registered.limit.kind.lifetime_seconds()) {
        (Some(ends_at), _) => PartEnd::OfPeriod(ends_at),
        (None, seconds) => {
            let seconds = seconds.and_then(NonZeroU32::new);
            PartEnd::After(seconds.expect("a window or timeout is at least a second"))
        }
    };
    let end = match (end, latest) {
        // A window may have become shorter.
        (PartEnd::After(seconds), Some(latest))
            if joins
                && kind == ReservationKind::Reservation
                && latest > now.after_seconds(seconds.get()) =>
        {
            PartEnd::At(latest)
        }
        (end, _) => end,
    };
    let replaces = kind == ReservationKind::Hold || held == 0 || joins;
    let (amount, voided) = if replaces { (*amount, live) } else { (*amount - held, Vec::new()) };
    let new = NewPart { at, account: limit.account.id, kind, amount, end };
    Step { key: Some(limit.key().clone()), voided, new: Some(new), growth: None }
}

/// Gives back what would lapse first. The last part stays, even of 0 units.
fn shrink(steps: &mut Vec<Step>, key: Option<&LimitKey>, change: &Change, live: Vec<Part>) {
    let mut surplus = change.held - change.amount;
    let last = live.len().saturating_sub(1);
    for (index, part) in live.into_iter().enumerate() {
        if surplus == 0 {
            return;
        }
        let freed = surplus.min(part.held.amount);
        surplus -= freed;
        let rest = part.held.amount - freed;
        if rest == 0 && index < last {
            let key = key.cloned();
            steps.push(Step { key, voided: vec![part], new: None, growth: None });
            continue;
        }
        let end = match part.held.kind {
            ReservationKind::Calendar => PartEnd::OfPeriod(part.held.expires_at),
            ReservationKind::Reservation | ReservationKind::Hold => {
                PartEnd::At(part.held.expires_at)
            }
        };
        steps.push(replacement(key.cloned(), part, rest, end));
    }
}

fn replacement(key: Option<LimitKey>, part: Part, amount: u64, end: PartEnd) -> Step {
    let Part { at, held: Reservation { account, kind, .. } } = part;
    let new = NewPart { at, account, kind, amount, end };
    Step { key, voided: vec![part], new: Some(new), growth: None }
}

/// The timeout of a hold by its definition, or else the one that it was reserved with.
fn timeout_of(
    lease: &Lease,
    hold: &Reservation,
    key: Option<&LimitKey>,
    table: &LimitTable,
) -> NonZeroU32 {
    let definition = key.and_then(|key| table.definition_of(key));
    let kind = definition.map(|limit| limit.kind).filter(|kind| kind.is_concurrency());
    let defined = kind.and_then(LimitKind::lifetime_seconds).and_then(NonZeroU32::new);
    // The events of a chain are nanoseconds apart.
    let first = hold.expires_at.since(lease.reserved_at).as_secs();
    let first = u32::try_from(first).ok().and_then(NonZeroU32::new);
    defined.or(first).unwrap_or(NonZeroU32::MIN)
}

impl Findings {
    /// Whether the ID of the closing transfer in force depends on the key, as far as is known.
    pub(super) fn is_closed_with_key(&self, account: &StepAccount) -> bool {
        account.has_key && !self.closed_without_key.contains(&account.id)
    }

    /// Records all accounts that are closed.
    pub(super) fn record_closed(&mut self, closed: Vec<Version>) {
        self.is_burned = true;
        self.closed = closed;
    }
}

impl RenewPlan<'_> {
    /// The accounts that may be closed.
    pub(super) fn step_accounts(&self) -> Vec<StepAccount> {
        let steps = self.steps.iter().filter(|step| step.growth.is_none());
        let accounts = steps.filter_map(|step| {
            Some(StepAccount { id: step.new?.account, has_key: step.key.is_some() })
        });
        accounts.collect()
    }

    /// The chain to try. `attempt` replaces burned IDs.
    pub(super) fn chain(
        &self,
        findings: &Findings,
        mut attempt: impl FnMut() -> Attempt,
    ) -> RenewChain {
        let mut events =
            vec![(EventRole::Record, record(self.lease, self.number, RenewOutcome::Renewed))];
        for (index, step) in self.steps.iter().enumerate() {
            let voids = step.voided.iter().map(|part| (EventRole::Void(*part), self.void(part)));
            let Some(new) = &step.new else {
                events.extend(voids);
                continue;
            };
            let closed = findings.closed.iter().find(|version| version.account() == new.account);
            match (closed, step.voided.as_slice()) {
                (Some(version), [part]) if step.growth.is_none() => {
                    let (key, attempt) = (step.key.as_ref(), attempt());
                    let new = self.new_part(step, new, Some(attempt));
                    let reopened = version.reopen_around(key, self.void(part), new, attempt);
                    let account = EventRole::Account(index);
                    let roles = [
                        account,
                        account,
                        account,
                        EventRole::Void(*part),
                        EventRole::New(index),
                        account,
                    ];
                    events.extend(roles.into_iter().zip(reopened));
                }
                _ => {
                    events.extend(voids);
                    let attempt = findings.is_burned.then(&mut attempt);
                    events.push((EventRole::New(index), self.new_part(step, new, attempt)));
                }
            }
        }
        RenewChain { events }
    }

    fn void(&self, part: &Part) -> Transfer {
        let (lease, pending) = (self.lease.id, part.held.transfer);
        let label = format!("xfer:renew-void:{lease}:{}:{:032x}", self.number.get(), pending.get());
        let id = ids::transfer_at(lease.timestamp_ms(), &label);
        Transfer::void(id, pending).with_user_data(user_data(lease, None))
    }

    fn new_part(&self, step: &Step, new: &NewPart, attempt: Option<Attempt>) -> Transfer {
        let NewPart { at, account, kind, amount, end } = *new;
        let (lease, number) = (self.lease.id, self.number.get());
        let key = match &step.key {
            Some(key) => key.to_string(),
            None => format!("#{:032x}", account.get()),
        };
        let label = match attempt {
            Some(Attempt { nonce, .. }) => {
                format!("xfer:renew:{lease}:{number}:{nonce:032x}:{key}")
            }
            None => format!("xfer:renew:{lease}:{number}:{key}"),
        };
        let id = ids::transfer_at(lease.timestamp_ms(), &label);
        let operator = ids::operator_account();
        let movement = TransferCode::Renewal.movement(account, operator, amount.into());
        let data = |data_64| renewal_data(lease, kind, at, data_64);
        match end {
            PartEnd::After(seconds) => {
                Transfer::pending(id, movement, seconds).with_user_data(data(0))
            }
            PartEnd::At(expires_at) => {
                let seconds = remaining_seconds(expires_at, self.now);
                let data = data(expires_at.unix_nanos());
                Transfer::pending(id, movement, seconds).with_user_data(data)
            }
            PartEnd::OfPeriod(ends_at) => {
                let data = data(period_data(lease, ends_at).data_64);
                Transfer::lasting(id, movement).with_user_data(data)
            }
        }
    }

    /// The lease as it is after the chain was created.
    pub(super) fn renewed_lease(&self, chain: &RenewChain, results: &[TransferResult]) -> Lease {
        let mut parts = self.lease.parts();
        for ((role, transfer), result) in chain.events.iter().zip(results) {
            match role {
                EventRole::Void(voided) => {
                    parts.retain(|part| part.held.transfer != voided.held.transfer);
                }
                EventRole::New(step) => {
                    let new = self.steps[*step].new.expect("the step makes a part");
                    parts.push(new.made(transfer.id, result.timestamp));
                }
                EventRole::Record | EventRole::Account(_) => {}
            }
        }
        let last = RenewRecord {
            number: self.number,
            decided_at: results[0].timestamp,
            outcome: RenewOutcome::Renewed,
        };
        let known_to = results.last().map_or(last.decided_at, |result| result.timestamp);
        let mut renewed = RenewedLease { last, is_renewed: true, parts, known_to };
        renewed.join_lapsed(self.now);
        self.lease.clone().renewed_as(renewed)
    }
}

impl NewPart {
    fn made(&self, transfer: TransferId, created_at: Timestamp) -> Part {
        let Self { at, account, kind, amount, end } = *self;
        let expires_at = match end {
            PartEnd::After(seconds) => created_at.after_seconds(seconds.get()),
            PartEnd::At(moment) | PartEnd::OfPeriod(moment) => moment,
        };
        Part { at, held: Reservation { account, transfer, amount, kind, expires_at } }
    }
}

impl RenewChain {
    pub(super) fn item(&self) -> WorkItem {
        WorkItem::new().with_chain(self.events.iter().map(|(_, transfer)| *transfer))
    }

    /// Interprets the reply.
    pub(super) fn read(&self, plan: &RenewPlan<'_>, results: &[TransferResult]) -> RenewReply {
        let Some((event, status)) = TransferResult::first_refusal(results) else {
            return RenewReply::Done;
        };
        match self.events[event].0 {
            EventRole::Void(part) if status == TransferStatus::PendingTransferExpired => {
                RenewReply::Lapsed(part)
            }
            EventRole::New(step) => plan.read_new_part(step, status),
            EventRole::Account(step) if version_changed(status) => {
                RenewReply::ReadAccount(plan.account_of(step))
            }
            EventRole::Account(step) if no_such_closing(status) => {
                RenewReply::ReadClosing(plan.account_of(step))
            }
            EventRole::Record | EventRole::Void(_) if already_done(status) => RenewReply::ReadLease,
            EventRole::Record | EventRole::Void(_) | EventRole::Account(_) => {
                RenewReply::Unexpected(status)
            }
        }
    }
}

impl RenewPlan<'_> {
    fn read_new_part(&self, step: usize, status: TransferStatus) -> RenewReply {
        match (status, self.steps[step].growth) {
            (TransferStatus::IdAlreadyFailed, _) => RenewReply::Burned,
            (TransferStatus::ExceedsCredits, Some(growth)) => RenewReply::NoRoom { growth },
            (TransferStatus::DebitAccountAlreadyClosed, Some(growth)) => {
                RenewReply::Decreasing { growth }
            }
            (TransferStatus::DebitAccountAlreadyClosed, None) => {
                RenewReply::ReadAccount(self.account_of(step))
            }
            (status, _) if already_done(status) => RenewReply::ReadLease,
            (status, _) => RenewReply::Unexpected(status),
        }
    }

    fn account_of(&self, step: usize) -> AccountId {
        self.steps[step].new.expect("the step makes a part").account
    }
}

/// The record of a renew of the lease in its present state.
pub(super) fn record(lease: &Lease, number: RenewNumber, outcome: RenewOutcome) -> Transfer {
    let id = end_marker_id(lease.id, lease.version());
    let operator = ids::operator_account();
    let movement = TransferCode::RenewRecord.movement(operator, ids::marker_account(), 0);
    let mut data = user_data(lease.id, None);
    (data.data_64, data.data_32) = (number.get(), outcome.number());
    Transfer::posted(id, movement).with_user_data(data)
}

/// The lease as it is after a denied renew.
pub(super) fn denied_lease(lease: &Lease, last: RenewRecord, now: Timestamp) -> Lease {
    let before = lease.renewed.as_ref();
    let is_renewed = before.is_some_and(|renewed| renewed.is_renewed);
    let known_to = match lease.ends_by_marker() {
        true => last.decided_at,
        // The void of its first hold may have ended it before the record was created.
        false => before.map_or(lease.reserved_at, |renewed| renewed.known_to),
    };
    let parts = lease.parts();
    let mut renewed = RenewedLease { last, is_renewed, parts, known_to };
    renewed.join_lapsed(now);
    lease.clone().renewed_as(renewed)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::limiter::lease::Claim;
    use crate::limiter::renewed_lease::DeniedBy;
    use ratelimiter::LeaseId;

    /// TB-18: what has lapsed takes no more room in the cache with each denial.
    #[test]
    fn tb_18_a_lease_whose_renew_is_denied_has_one_lapsed_part_a_limit() {
        let at = |second: u64| Timestamp::from_unix_ms(second * 1_000);
        let part = |place, number| Part {
            at: place,
            held: Reservation {
                account: ids::operator_account(),
                transfer: TransferId::new(number).unwrap(),
                amount: 3,
                kind: ReservationKind::Reservation,
                expires_at: at(number.try_into().unwrap()),
            },
        };
        let first = [part(0, 1), part(1, 2)];
        let outcome = RenewOutcome::Denied { by: DeniedBy::NoRoom, at: 0 };
        let record = |number| RenewRecord {
            number: RenewNumber::new(number).unwrap(),
            decided_at: at(number),
            outcome,
        };
        let parts = (1..=9).map(|number: u128| part(usize::from(number > 5), number)).collect();
        let lease = Lease {
            id: LeaseId::from_u128(1),
            reserved_at: at(0),
            job: None,
            claim: Claim::Kept,
            reservations: first.iter().map(|part| part.held).collect::<SmallVec<_>>(),
            renewed: Some(Box::new(RenewedLease {
                last: record(1),
                is_renewed: true,
                parts,
                known_to: at(1),
            })),
        };
        let denied = denied_lease(&lease, record(2), at(7)).renewed.unwrap();
        let amounts: Vec<_> = denied.parts.iter().map(|part| (part.at, part.held.amount)).collect();
        assert_eq!(amounts, [(0, 15), (1, 6), (1, 3), (1, 3)]);
        assert_eq!((denied.last, denied.is_renewed), (record(2), true));
    }
}
