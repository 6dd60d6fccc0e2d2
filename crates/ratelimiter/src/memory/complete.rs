//! Complete: what was used is checked against what was reserved before anything is changed.

use super::locked_limits::LockedLimits;
use super::open_leases::{OpenLease, Reservation};
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::{Actuals, REQUIREMENTS_MAX};

/// Makes the reservations of a lease match its actuals, and releases its holds. The shards of the reservations' limits
/// are locked. What is not live any more, because it has expired or its limit was deleted, stays as it is.
#[inline]
pub(super) fn complete(
    now: Timestamp,
    lease: &OpenLease,
    actuals: &Actuals,
    limits: &mut LockedLimits<'_>,
) -> Result<(), CompleteError> {
    limits.expire(now);
    // Which actual is for which reservation; a number beyond the last actual's means none.
    let mut actual_of = [u8::MAX; REQUIREMENTS_MAX];
    for (n, actual) in (0..).zip(actuals.iter()) {
        let takes = |held: &Reservation| takes(now, lease, held, &actual.key, limits);
        match lease.reservations.iter().position(takes) {
            Some(at) => actual_of[at] = n,
            None => return refuse(now, lease, &actual.key, limits),
        }
    }
    for (held, n) in lease.reservations.iter().zip(actual_of) {
        if lease.is_live(held, now) {
            let actual = actuals.get(usize::from(n)).map(|actual| actual.amount);
            let shard = limits.find(held.limit.shard());
            limits.shard_mut(shard).end(held.limit.slot(), held.made, actual);
        }
    }
    Ok(())
}

/// True if an actual for the key is about this reservation. Once it has expired, only the key's tag tells.
#[inline]
fn takes(
    now: Timestamp,
    lease: &OpenLease,
    held: &Reservation,
    key: &LimitKey,
    limits: &LockedLimits<'_>,
) -> bool {
    held.key_tag == key.place().tag()
        && !held.made.lifetime.is_hold()
        && (!lease.is_live(held, now) || limits.limit(held.limit).key() == key)
}

/// An actual is about none of the reservations, which is a mistake if anything is left that it could be wrong about.
#[cold]
fn refuse(
    now: Timestamp,
    lease: &OpenLease,
    key: &LimitKey,
    limits: &LockedLimits<'_>,
) -> Result<(), CompleteError> {
    let is_left =
        |held: &Reservation| lease.is_live(held, now) && !limits.limit(held.limit).is_deleted();
    if lease.reservations.iter().any(is_left) {
        return Err(CompleteError::InvalidActual { key: key.clone() });
    }
    Ok(())
}
