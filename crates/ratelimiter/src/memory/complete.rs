//! Complete: what was used is checked against what was reserved before anything is changed.

use super::groups::LockedGroups;
use super::open_leases::{Age, OpenLease, Reservation};
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::{Actuals, REQUIREMENTS_MAX};

/// Makes the reservations of a lease match its actuals, and releases its holds. The groups of the reservations' limits
/// are locked. What is not live any more, because it has expired or its limit was deleted, stays as it is.
#[inline]
pub(super) fn complete(
    now: Timestamp,
    lease: &OpenLease,
    actuals: &Actuals,
    groups: &mut LockedGroups<'_>,
) -> Result<(), CompleteError> {
    groups.expire(now);
    let age = lease.age(now);
    // Which actual is for which reservation; a number beyond the last actual's means none.
    let mut actual_of = [u8::MAX; REQUIREMENTS_MAX];
    for (n, actual) in (0..).zip(actuals.iter()) {
        let takes = |held: &Reservation| takes(age, held, &actual.key, groups);
        match lease.reservations.iter().position(takes) {
            Some(at) => actual_of[at] = n,
            None => check_expired(age, lease, &actual.key, groups)?,
        }
    }
    for (held, n) in lease.reservations.iter().zip(&actual_of) {
        if age.is_live(held) {
            let actual = actuals.get(usize::from(*n)).map(|actual| actual.amount);
            let group = groups.find(held.limit.group);
            groups.group_mut(group).end(held.limit.slot, held.made, actual);
        }
    }
    Ok(())
}

/// True if an actual for the key is about this live reservation.
#[inline]
fn takes(age: Age, held: &Reservation, key: &LimitKey, groups: &LockedGroups<'_>) -> bool {
    held.key_tag == key.hashes().text
        && !held.made.lifetime.is_hold()
        && age.is_live(held)
        && groups.limit(held.limit).has_key(key)
}

/// An actual is about no live reservation. It is a mistake if it is about no expired one either, and anything is left that it could be
/// wrong about. Of a key whose reservation has expired only the tag is known; a mistake that passes for another key changes nothing.
#[cold]
fn check_expired(
    age: Age,
    lease: &OpenLease,
    key: &LimitKey,
    groups: &LockedGroups<'_>,
) -> Result<(), CompleteError> {
    let is_about = |held: &Reservation| {
        !age.is_live(held) && held.key_tag == key.hashes().text && !held.made.lifetime.is_hold()
    };
    let is_left = |held: &Reservation| age.is_live(held) && !groups.limit(held.limit).is_deleted();
    let reservations = &lease.reservations;
    if !reservations.iter().any(is_about) && reservations.iter().any(is_left) {
        return Err(CompleteError::InvalidActual { key: key.clone() });
    }
    Ok(())
}
