//! Complete: all actuals are checked before the first change.

use super::groups::LockedGroups;
use super::leases::{OpenLease, Reservation};
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::{Actuals, REQUIREMENTS_MAX};

/// Makes the reservations of a lease match its actuals, and releases its holds. The groups of the reservations' limits
/// are locked. Reservations that have expired, or whose limit was deleted, are left alone.
#[inline]
pub(super) fn complete(
    now: Timestamp,
    lease: &OpenLease,
    actuals: &Actuals,
    groups: &mut LockedGroups<'_>,
) -> Result<(), CompleteError> {
    assert!(lease.reserved_at <= now, "time goes forward");
    // The actual of each reservation; an index beyond the last actual means none.
    let mut actual_of = [u8::MAX; REQUIREMENTS_MAX];
    for (n, actual) in (0..).zip(actuals.iter()) {
        let key = &actual.key;
        let takes = |held: &Reservation| {
            let is_candidate = held.is_live(now) && held.may_take(key);
            is_candidate && groups.group(held.group).limit(held.slot).has_key(key)
        };
        match lease.reservations.iter().position(takes) {
            Some(at) => actual_of[at] = n,
            None => check_expired(now, lease, key, groups)?,
        }
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
