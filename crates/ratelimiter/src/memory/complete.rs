//! Complete: all actuals are checked before the first change.

use super::groups::{LockedGroups, shard_of};
use super::instances::{Bounds, Instances};
use super::leases::{LeaseDetails, OpenLease, Reservation};
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
    details: Option<&LeaseDetails>,
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
        note_late_excess(now, lease, details, actuals, groups, instances);
    }
    for (held, n) in lease.reservations.iter().zip(&actual_of) {
        if held.is_live(now) {
            let actual = actuals.get(usize::from(*n)).map(|actual| actual.amount);
            let group = groups.group(held.group);
            group.expire(now);
            group.end(held.slot, held.reference, actual);
        }
    }
    Ok(())
}

/// A complete without actuals.
pub(super) fn release(
    now: Timestamp,
    lease: &OpenLease,
    groups: &mut LockedGroups<'_>,
    instances: &Instances,
) {
    let completed = complete(now, lease, None, &Actuals::none(), groups, instances);
    completed.expect("without actuals there is none to reject");
}

/// `CAL-04`: if the period of a calendar limit has ended and the lease is still open, use above the reservation counts as overage
/// without room. An instance that has gone since then comes back if it owes a debt.
#[cold]
fn note_late_excess(
    now: Timestamp,
    lease: &OpenLease,
    details: Option<&LeaseDetails>,
    actuals: &Actuals,
    groups: &mut LockedGroups<'_>,
    instances: &Instances,
) {
    let is_open = lease.reservations.iter().any(|held| held.is_live(now));
    let amounts = details.and_then(|details| details.amounts.as_ref());
    let Some(amounts) = amounts.filter(|_| is_open) else { return };
    let has_ended = |held: &Reservation| held.reference.is_calendar() && !held.is_live(now);
    for (held, reserved) in lease.reservations.iter().zip(amounts) {
        // Another key may have the same tag; its shard may not be locked.
        let is_about = |actual: &&Actual| {
            held.may_take(&actual.key) && shard_of(&actual.key) == held.group.shard()
        };
        let actual = actuals.iter().find(is_about).filter(|_| has_ended(held));
        let Some(Actual { key, amount }) = actual else { continue };
        let excess = amount.saturating_sub(*reserved);
        if excess == 0 {
            continue;
        }
        if !groups.has(key)
            && let Ok(made) = instances.make(now, &[key], Bounds::Ignore)
        {
            made.instances.into_iter().for_each(|instance| groups.add_instance(now, instance));
        }
        let Some(place) = groups.find(key) else { continue };
        let group = groups.group(place);
        // Another limit may have been defined for the key since.
        if let Some((slot, _)) = group.find(key).filter(|(_, limit)| limit.is_calendar()) {
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
