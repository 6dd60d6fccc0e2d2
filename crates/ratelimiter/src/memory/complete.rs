//! Complete: all actuals are checked before the first change.

use super::groups::{LockedGroups, shard_of};
use super::instances::{Bounds, Instances};
use super::leases::{EarlierPart, LeaseExtras, OpenLease, RenewedLease, Reservation};
use super::live_limit::LiveLimit;
use super::renew::amount_of;
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::{Actual, Actuals, REQUIREMENTS_MAX};

/// Makes the reservations of a lease match its actuals, and releases its holds. The groups of the reservations' limits
/// are locked. Reservations that have expired, or whose limit was deleted, are left alone.
#[inline]
pub(super) fn complete(
    now: Timestamp,
    lease: &OpenLease,
    extras: LeaseExtras<'_>,
    actuals: &Actuals,
    groups: &mut LockedGroups<'_>,
    instances: &Instances,
) -> Result<(), CompleteError> {
    assert!(lease.reserved_at <= now, "time goes forward");
    // The actual of each reservation; an index beyond the last actual means none.
    let mut actual_of = [u8::MAX; REQUIREMENTS_MAX];
    let mut has_late_actuals = false;
    for (n, actual) in (0..).zip(actuals.iter()) {
        let key = &actual.key;
        let takes = |held: &Reservation| {
            let is_candidate = held.is_live(now) && held.may_take(key);
            is_candidate && groups.group(held.group).limit(held.slot).has_key(key)
        };
        match lease.reservations.iter().position(takes) {
            Some(at) => actual_of[at] = n,
            None => {
                check_expired(now, lease, key, groups)?;
                has_late_actuals = true;
            }
        }
    }
    if has_late_actuals {
        note_late_excess(now, lease, extras, actuals, groups, instances);
    }
    for (at, (held, n)) in lease.reservations.iter().zip(&actual_of).enumerate() {
        if held.is_live(now) {
            let mut actual = actuals.get(usize::from(*n)).map(|actual| actual.amount);
            if let Some(renewed) = extras.renewed {
                groups.group(held.group).expire(now);
                actual = end_earlier(now, held, renewed, at, actual, groups);
            }
            let group = groups.group(held.group);
            group.expire(now);
            group.end(held.slot, held.reference, actual);
        }
    }
    Ok(())
}

/// Ends the live parts of a reservation before the last one. What has lapsed covers the first units of the use; of too many live
/// units, those go that expire first. Returns the actual of the last part.
#[cold]
fn end_earlier(
    now: Timestamp,
    last: &Reservation,
    renewed: &RenewedLease,
    at: usize,
    actual: Option<u64>,
    groups: &mut LockedGroups<'_>,
) -> Option<u64> {
    let is_part = |one: &&EarlierPart| one.at == at && one.part.is_live(now);
    let earlier = || renewed.earlier.iter().filter(is_part).map(|one| &one.part);
    let in_last = amount_of(groups, last);
    let live: u64 = in_last + earlier().map(|part| amount_of(groups, part)).sum::<u64>();
    let lapsed = renewed.amounts[at].reserved - u128::from(live);
    let lapsed = u64::try_from(lapsed).unwrap_or(u64::MAX);
    let actual = actual.map(|actual| actual.saturating_sub(lapsed));
    let mut left = actual.map(|actual| actual.saturating_sub(in_last));
    let mut kept_sum = 0;
    for part in earlier().rev() {
        let amount = amount_of(groups, part);
        let kept = left.map(|left| left.min(amount));
        groups.group(part.group).end(part.slot, part.reference, kept);
        left = left.zip(kept).map(|(left, kept)| left - kept);
        kept_sum += kept.unwrap_or(0);
    }
    actual.map(|actual| actual - kept_sum)
}

/// A complete without actuals.
pub(super) fn release(
    now: Timestamp,
    lease: &OpenLease,
    extras: LeaseExtras<'_>,
    groups: &mut LockedGroups<'_>,
    instances: &Instances,
) {
    let completed = complete(now, lease, extras, &Actuals::none(), groups, instances);
    completed.expect("without actuals there is none to reject");
}

/// `CAL-04`: if the period of a calendar limit has ended and the lease is still open, use above the reservation counts as overage
/// without room. `REN-01`: so it does if a rolling reservation of a renewed lease has lapsed. An instance that has gone since then comes
/// back if it owes a debt.
#[cold]
fn note_late_excess(
    now: Timestamp,
    lease: &OpenLease,
    extras: LeaseExtras<'_>,
    actuals: &Actuals,
    groups: &mut LockedGroups<'_>,
    instances: &Instances,
) {
    if !lease.is_live(now) {
        return;
    }
    let LeaseExtras { details, renewed } = extras;
    let is_renewed = renewed.is_some_and(|renewed| renewed.is_renewed);
    let has_ended =
        |held: &Reservation| (held.reference.is_calendar() || is_renewed) && !held.is_live(now);
    for (at, held) in lease.reservations.iter().enumerate() {
        // Another key may have the same tag; its shard may not be locked.
        let is_about = |actual: &&Actual| {
            held.may_take(&actual.key) && shard_of(&actual.key) == held.group.shard()
        };
        let actual = actuals.iter().find(is_about).filter(|_| has_ended(held));
        let Some(Actual { key, amount }) = actual else { continue };
        let reserved = match renewed {
            Some(renewed) => renewed.amounts[at].reserved,
            None => lease.required(at, details).into(),
        };
        let excess = u128::from(*amount).saturating_sub(reserved);
        let Some(excess) = u64::try_from(excess).ok().filter(|excess| *excess > 0) else {
            continue;
        };
        if !groups.has(key)
            && let Ok(made) = instances.make(now, &[key], Bounds::Ignore)
        {
            made.instances.into_iter().for_each(|instance| groups.add_instance(now, instance));
        }
        let Some(place) = groups.find(key) else { continue };
        let group = groups.group(place);
        // Another limit may have been defined for the key since.
        let is_same = |limit: &LiveLimit| limit.takes_actuals_of(held.reference);
        if let Some((slot, _)) = group.find(key).filter(|(_, limit)| is_same(limit)) {
            group.limit(slot).note_uncovered(excess);
        }
        groups.drop_unused_instance(key);
    }
}

/// The actual matches no live reservation. It is invalid if it matches no expired one either, and the lease still has a live
/// reservation. Of an expired reservation only the key's tag is known; a wrong key with the same tag passes, and changes nothing.
#[cold]
fn check_expired(
    now: Timestamp,
    lease: &OpenLease,
    key: &LimitKey,
    groups: &mut LockedGroups<'_>,
) -> Result<(), CompleteError> {
    let is_about = |held: &Reservation| !held.is_live(now) && held.may_take(key);
    let is_left = |held: &Reservation| {
        held.is_live(now) && !groups.group(held.group).limit(held.slot).is_deleted
    };
    if !lease.reservations.iter().any(is_about) && lease.reservations.iter().any(is_left) {
        return Err(CompleteError::InvalidActual { key: key.clone() });
    }
    Ok(())
}
