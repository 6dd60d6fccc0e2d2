//! Reserve: all checks come before the first change, so that a denial leaves no trace.

use std::time::Duration;

use smallvec::SmallVec;

use super::lease_shard::{HashedId, Known, LeaseShard};
use super::locked_limits::{LockedLimits, LockedShard};
use super::open_leases::{LimitPlace, OpenLease, Reservation, Reservations};
use super::past_leases::Past;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial, DenialReason};
use crate::error::ReserveError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{Requirement, ReserveRequest};

/// What is suggested when a denied lease is repeated although there is room by now: a new lease ID may be tried at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// A requirement whose limit was found.
#[derive(Debug, Clone, Copy)]
struct Need<'a> {
    key: &'a LimitKey,
    amount: u64,
    limit: LimitPlace,
    shard: LockedShard,
}

type Needs<'a> = SmallVec<[Need<'a>; 4]>;

/// What stands in the way of a request, by the stages in which it is checked: the first requirement of each.
#[derive(Debug, Default)]
struct Obstacles<'a> {
    exceeding: Option<&'a LimitKey>,
    decreasing: Option<&'a LimitKey>,
    full: Option<LimitPlace>,
}

/// Reserves all that a request needs, or nothing. The shards of the lease and of the keys are locked.
#[inline]
pub(super) fn reserve(
    now: Timestamp,
    request: &ReserveRequest,
    id: HashedId,
    leases: &mut LeaseShard,
    limits: &mut LockedLimits<'_>,
    policy: &HintPolicy,
) -> Result<Decision, ReserveError> {
    limits.expire(now);
    let (needs, obstacles) = look_at_all(request, limits)?;
    match leases.known(now, id) {
        None => {}
        Some(Known::Open(lease)) => return replay(now, lease, &needs, limits),
        Some(Known::Past(Past::Ended)) => return Err(ReserveError::LeaseEnded),
        Some(Known::Past(Past::Denied(first))) => {
            let random = leases.random.f64();
            return Ok(deny_again(now, first, &needs, limits, policy, random));
        }
    }
    if let Some(key) = obstacles.exceeding {
        return Err(ReserveError::AmountExceedsCapacity { key: key.clone() });
    }
    if let Some(key) = obstacles.decreasing {
        let reason = DenialReason::Decreasing { key: key.clone() };
        return Ok(Decision::Denied(Denial { reason, retry_after: policy.decreasing }));
    }
    let Some(first) = obstacles.full else {
        return Ok(hold_all(now, id, &needs, leases, limits));
    };
    leases.deny(now, id, first);
    let full = without_room(&needs, limits);
    for need in &full {
        limits.shard_mut(need.shard).limit_mut(need.limit.slot()).note_denial();
    }
    let random = leases.random.f64();
    Ok(denied(now, &full, limits, policy, random))
}

/// Finds the limits of all requirements, and looks at what stands in the way.
#[inline]
fn look_at_all<'a>(
    request: &'a ReserveRequest,
    limits: &LockedLimits<'_>,
) -> Result<(Needs<'a>, Obstacles<'a>), ReserveError> {
    let mut needs = Needs::new();
    let mut obstacles = Obstacles::default();
    for Requirement { key, amount } in request.requirements.iter() {
        let number = key.place().shard();
        let shard = limits.find(number);
        let Some((slot, limit)) = limits.shard(shard).find(key) else {
            return Err(ReserveError::UnknownKey { key: key.clone() });
        };
        let place = LimitPlace::new(number, slot);
        let amount = amount.get();
        if amount > limit.capacity() {
            obstacles.exceeding.get_or_insert(key);
        }
        if limit.is_decreasing() {
            obstacles.decreasing.get_or_insert(key);
        }
        if amount > limit.available() {
            obstacles.full.get_or_insert(place);
        }
        needs.push(Need { key, amount, limit: place, shard });
    }
    Ok((needs, obstacles))
}

fn without_room<'a>(needs: &Needs<'a>, limits: &LockedLimits<'_>) -> Needs<'a> {
    let full = |need: &&Need<'a>| need.amount > limits.limit(need.limit).available();
    needs.iter().filter(full).copied().collect()
}

/// Allowed: one reservation per requirement, and the lease that has them.
#[inline]
fn hold_all(
    now: Timestamp,
    id: HashedId,
    needs: &Needs<'_>,
    leases: &mut LeaseShard,
    limits: &mut LockedLimits<'_>,
) -> Decision {
    let mut lifetime_seconds_max = 0;
    let mut reservations = Reservations::new();
    for need in needs {
        let shard = limits.shard_mut(need.shard);
        let made = shard.hold(need.limit.slot(), now, need.amount);
        lifetime_seconds_max = lifetime_seconds_max.max(made.lifetime.seconds());
        reservations.push(Reservation { limit: need.limit, key_tag: need.key.place().tag(), made });
    }
    let ends_at = now.after_seconds(lifetime_seconds_max);
    let open = OpenLease { id: id.id, reserved_at: now, reservations };
    leases.allow(id, open, ends_at);
    Decision::Allowed { reserved_at: now }
}

/// The same lease again: allowed as before if it asks for the same and all of it is still live.
fn replay(
    now: Timestamp,
    lease: &OpenLease,
    needs: &Needs<'_>,
    limits: &LockedLimits<'_>,
) -> Result<Decision, ReserveError> {
    if lease.reservations.iter().any(|held| !lease.is_live(held, now)) {
        return Err(ReserveError::LeaseEnded);
    }
    if lease.reservations.len() != needs.len() {
        return Err(ReserveError::LeaseConflict);
    }
    for need in needs {
        let tag = need.key.place().tag();
        let same = |held: &&Reservation| held.key_tag == tag;
        let Some(held) = lease.reservations.iter().find(same) else {
            return Err(ReserveError::LeaseConflict);
        };
        if held.limit != need.limit {
            // The limit was deleted and defined again, and the reservation is gone with it.
            return Err(ReserveError::LeaseEnded);
        }
        let shard = limits.shard(need.shard);
        if shard.amount_of(need.limit.slot(), held.made) != need.amount {
            return Err(ReserveError::LeaseConflict);
        }
    }
    Ok(Decision::Allowed { reserved_at: lease.reserved_at })
}

/// A denied lease again: it stays denied, and hears when a new lease might be allowed.
fn deny_again(
    now: Timestamp,
    first: LimitPlace,
    needs: &Needs<'_>,
    limits: &mut LockedLimits<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let full = without_room(needs, limits);
    if !full.is_empty() {
        return denied(now, &full, limits, policy, random);
    }
    let need = needs.iter().find(|need| need.limit == first).unwrap_or(&needs[0]);
    let reason = DenialReason::NoRoom { keys: vec![need.key.clone()] };
    Decision::Denied(Denial { reason, retry_after: AT_ONCE })
}

/// Denied for want of room in these limits: the hint is the longest that any of them gives.
fn denied(
    now: Timestamp,
    full: &Needs<'_>,
    limits: &mut LockedLimits<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let hint = |need: &Need<'_>| {
        let shard = limits.shard_mut(need.shard);
        shard.hint(need.limit.slot(), now, need.amount, policy, random)
    };
    let retry_after = full.iter().map(hint).max().expect("at least one limit had no room");
    let keys = full.iter().map(|need| need.key.clone()).collect();
    Decision::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after })
}
