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
    let (needs, all_fit) = look_at_all(request, limits)?;
    match leases.known(now, id) {
        None => {}
        Some(Known::Open(lease)) => return replay(now, lease, &needs, limits),
        Some(Known::Past(Past::Ended)) => return Err(ReserveError::LeaseEnded),
        Some(Known::Past(Past::Denied(first))) => {
            let random = leases.random.f64();
            return Ok(deny_again(now, first, &needs, limits, policy, random));
        }
    }
    if all_fit {
        return Ok(hold_all(now, id, &needs, leases, limits));
    }
    refuse(now, id, &needs, leases, limits, policy)
}

/// Finds the limits of all requirements, and tells whether all of them can be met.
#[inline]
fn look_at_all<'a>(
    request: &'a ReserveRequest,
    limits: &LockedLimits<'_>,
) -> Result<(Needs<'a>, bool), ReserveError> {
    let mut needs = Needs::new();
    let mut all_fit = true;
    for Requirement { key, amount } in request.requirements.iter() {
        let number = key.place().shard();
        let shard = limits.find(number);
        let Some((slot, limit)) = limits.shard(shard).find(key) else {
            return Err(ReserveError::UnknownKey { key: key.clone() });
        };
        let amount = amount.get();
        all_fit &= amount <= limit.available() && !limit.is_decreasing();
        needs.push(Need { key, amount, limit: LimitPlace::new(number, slot), shard });
    }
    Ok((needs, all_fit))
}

/// Not all can be met: the first stage of the checks that fails answers.
#[cold]
fn refuse(
    now: Timestamp,
    id: HashedId,
    needs: &Needs<'_>,
    leases: &mut LeaseShard,
    limits: &mut LockedLimits<'_>,
    policy: &HintPolicy,
) -> Result<Decision, ReserveError> {
    if let Some(need) = needs.iter().find(|n| n.amount > limits.limit(n.limit).capacity()) {
        return Err(ReserveError::AmountExceedsCapacity { key: need.key.clone() });
    }
    if let Some(need) = needs.iter().find(|n| limits.limit(n.limit).is_decreasing()) {
        let reason = DenialReason::Decreasing { key: need.key.clone() };
        return Ok(Decision::Denied(Denial { reason, retry_after: policy.decreasing }));
    }
    let full = without_room(needs, limits);
    leases.deny(now, id, full[0].limit);
    for need in &full {
        limits.shard_mut(need.shard).limit_mut(need.limit.slot()).note_denial();
    }
    let random = leases.random.f64();
    Ok(denied(now, &full, limits, policy, random))
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
    let hold = |need: &Need<'_>| {
        let made = limits.shard_mut(need.shard).hold(need.limit.slot(), now, need.amount);
        lifetime_seconds_max = lifetime_seconds_max.max(made.lifetime.seconds());
        Reservation { limit: need.limit, key_tag: need.key.place().tag(), made }
    };
    let reservations: Reservations = needs.iter().map(hold).collect();
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
