//! Complete: what was used is checked against what was reserved before anything is changed.

use smallvec::SmallVec;

use super::locked_limits::LockedLimits;
use super::open_leases::Reservation;
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::Actuals;

/// Makes the reservations of a lease match its actuals, and releases its holds. The shards of the reservations' limits
/// are locked. What is not live any more, because it has expired or its limit was deleted, stays as it is.
pub(super) fn complete(
    now: Timestamp,
    reservations: &[Reservation],
    actuals: &Actuals,
    limits: &mut LockedLimits<'_>,
) -> Result<(), CompleteError> {
    let mut used: SmallVec<[Option<u64>; 4]> = SmallVec::from_elem(None, reservations.len());
    for actual in actuals.iter() {
        let takes = |held: &Reservation| takes(held, &actual.key, limits);
        match reservations.iter().position(takes) {
            Some(at) => used[at] = Some(actual.amount),
            None if is_live(now, reservations, limits) => {
                return Err(CompleteError::InvalidActual { key: actual.key.clone() });
            }
            // Nothing of the lease is left, so there is nothing that the actual could be wrong about.
            None => return Ok(()),
        }
    }
    for (held, used) in reservations.iter().zip(used) {
        if let Some(limit) = limits.limit_at(held.limit) {
            limit.expire(now);
            limit.end(held.number, used);
        }
    }
    Ok(())
}

fn is_live(now: Timestamp, reservations: &[Reservation], limits: &mut LockedLimits<'_>) -> bool {
    reservations.iter().any(|held| {
        let Some(limit) = limits.limit_at(held.limit) else {
            return false;
        };
        limit.expire(now);
        limit.amount_of(held.number).is_some()
    })
}

/// True if an actual for the key is about this reservation. Of a limit that was deleted only the key's tag is left.
fn takes(held: &Reservation, key: &LimitKey, limits: &mut LockedLimits<'_>) -> bool {
    if held.key_tag != key.place().tag() {
        return false;
    }
    match limits.limit_at(held.limit) {
        Some(limit) if limit.key() == key && !limit.is_concurrency() => true,
        Some(limit) => !limit.gave_out(held.number),
        None => true,
    }
}
