//! Complete: what was used is checked against what was reserved before anything is changed.

use smallvec::SmallVec;

use super::locked_limits::{LockedLimits, LockedShard};
use super::open_leases::{OpenLease, Reservation};
use crate::clock::Timestamp;
use crate::error::CompleteError;
use crate::key::LimitKey;
use crate::request::Actuals;

/// A live reservation that ends, and what was used of it, if that is known.
#[derive(Debug, Clone, Copy)]
struct Ending<'a> {
    held: &'a Reservation,
    shard: LockedShard,
    actual: Option<u64>,
}

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
    let mut endings: SmallVec<[Ending<'_>; 4]> = SmallVec::new();
    let mut taken_count = 0;
    for held in &lease.reservations {
        let shard = limits.find(held.limit.shard());
        let is_live = lease.is_live(held, now);
        let actual = actuals.iter().find(|actual| {
            // Once a reservation has expired, only the key's tag tells.
            held.key_tag == actual.key.place().tag()
                && !held.made.lifetime.is_hold()
                && (!is_live || *limits.shard(shard).limit(held.limit.slot()).key() == actual.key)
        });
        taken_count += usize::from(actual.is_some());
        if is_live {
            endings.push(Ending { held, shard, actual: actual.map(|actual| actual.amount) });
        }
    }
    if taken_count < actuals.len() {
        return check_untaken(&endings, lease, actuals, limits);
    }
    for Ending { held, shard, actual } in endings {
        limits.shard_mut(shard).end(held.limit.slot(), held.made, actual);
    }
    Ok(())
}

/// An actual is for none of the reservations, which is a mistake if anything is left that it could be wrong about.
#[cold]
fn check_untaken(
    endings: &[Ending<'_>],
    lease: &OpenLease,
    actuals: &Actuals,
    limits: &LockedLimits<'_>,
) -> Result<(), CompleteError> {
    let is_in_force = |ending: &Ending<'_>| !limits.limit(ending.held.limit).is_deleted();
    if !endings.iter().any(is_in_force) {
        return Ok(());
    }
    let is_taken = |key: &LimitKey| {
        lease.reservations.iter().any(|held| {
            let is_live = endings.iter().any(|ending| std::ptr::eq(ending.held, held));
            held.key_tag == key.place().tag()
                && !held.made.lifetime.is_hold()
                && (!is_live || limits.limit(held.limit).key() == key)
        })
    };
    let untaken = actuals.iter().find(|actual| !is_taken(&actual.key));
    let key = untaken.unwrap_or(&actuals[0]).key.clone();
    Err(CompleteError::InvalidActual { key })
}
