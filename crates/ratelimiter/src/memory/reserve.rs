//! Reserve: all checks come before the first change, so that a denial leaves no trace.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::groups::{GroupNumbers, Groups, LockedGroup, LockedGroups, group_hash};
use super::lease_index::HashedId;
use super::lease_shard::{Known, LeaseShard};
use super::live_limit::LiveLimit;
use super::open_leases::{LeasePlace, LimitPlace, OpenLease, Reservation};
use super::past_leases::Past;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial, DenialReason};
use crate::error::ReserveError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{REQUIREMENTS_MAX, Requirement, ReserveRequest};

/// What is suggested when a denied lease is repeated although there is room by now: a new lease ID may be tried at once.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// A requirement and where its limit is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    key: &'a LimitKey,
    amount: u64,
    /// The slot is known from [`look_at_all`] on.
    limit: LimitPlace,
    group: LockedGroup,
}

pub(super) type Needs<'a> = ArrayVec<Need<'a>, REQUIREMENTS_MAX>;

impl<'a> Need<'a> {
    /// A requirement whose limit belongs to the group with this number.
    #[inline]
    const fn new(requirement: &'a Requirement, number: u32) -> Self {
        let Requirement { key, amount } = requirement;
        let limit = LimitPlace { group: number, slot: 0 };
        Self { key, amount: amount.get(), limit, group: LockedGroup::FIRST }
    }

    /// True if a key is of the same group.
    #[inline]
    fn is_beside(&self, key: &LimitKey) -> bool {
        group_hash(self.key) == group_hash(key)
    }

    /// The number of the group.
    #[inline]
    pub(super) const fn number(&self) -> u32 {
        self.limit.group
    }
}

/// Finds the groups of all requirements, while none is locked.
#[inline]
pub(super) fn find_groups<'a>(
    request: &'a ReserveRequest,
    groups: &Groups,
    needs: &mut Needs<'a>,
    numbers: &mut GroupNumbers,
) -> Result<(), ReserveError> {
    for requirement in request.requirements.iter() {
        // Requirements that belong together mostly stand together.
        let number = match needs.last() {
            Some(last) if last.is_beside(&requirement.key) => last.number(),
            _ => {
                let Some(number) = groups.number_of(&requirement.key) else {
                    return Err(groups.first_unknown(request));
                };
                numbers.add(number);
                number
            }
        };
        needs.push(Need::new(requirement, number));
    }
    Ok(())
}

/// True if the group of a key that was not found is another than it was taken for.
#[cold]
pub(super) fn has_moved(key: &LimitKey, needs: &Needs<'_>, groups: &Groups) -> bool {
    needs.iter().any(|need| need.key == key && groups.is_elsewhere(key, need.number()))
}

/// Reserves all that is needed, or nothing. The lease's shard is locked, and so are the groups of the needs, and that of the lease if
/// it is known to be open.
#[inline]
pub(super) fn reserve(
    now: Timestamp,
    (id, known): (HashedId, Option<Known>),
    needs: &mut Needs<'_>,
    leases: &mut LeaseShard,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
) -> Result<Decision, ReserveError> {
    groups.expire(now);
    let all_fit = look_at_all(needs, groups)?;
    match known {
        None => {}
        Some(Known::Open(found)) => {
            let LeasePlace { group, slot } = found.place();
            let lease = groups.group(groups.find(group)).leases.at(slot);
            return replay(now, lease, needs, groups);
        }
        Some(Known::Past(at)) => match leases.past(now, at) {
            None => {}
            Some(Past::Ended) => return Err(ReserveError::LeaseEnded),
            Some(Past::Denied(first)) => {
                let random = leases.random.f64();
                return Ok(deny_again(now, first, needs, groups, policy, random));
            }
        },
    }
    if all_fit {
        return Ok(hold_all(now, id, needs, leases, groups));
    }
    refuse(now, id, needs, leases, groups, policy)
}

/// Finds the limits of all needs, and tells whether all of them can be met.
#[inline]
fn look_at_all(needs: &mut Needs<'_>, groups: &LockedGroups<'_>) -> Result<bool, ReserveError> {
    let mut all_fit = true;
    for Need { key, amount, limit: place, group } in needs {
        *group = groups.find(place.group);
        let Some((slot, limit)) = groups.group(*group).find(key) else {
            return Err(ReserveError::UnknownKey { key: key.clone() });
        };
        place.slot = slot;
        all_fit &= *amount <= limit.available() && !limit.is_decreasing();
    }
    Ok(all_fit)
}

impl Need<'_> {
    #[inline]
    fn limit<'a>(&self, groups: &'a LockedGroups<'_>) -> &'a LiveLimit {
        groups.group(self.group).limit(self.limit.slot)
    }

    #[inline]
    fn limit_mut<'a>(&self, groups: &'a mut LockedGroups<'_>) -> &'a mut LiveLimit {
        groups.group_mut(self.group).limit_mut(self.limit.slot)
    }
}

/// Not all can be met: the first stage of the checks that fails answers.
#[cold]
fn refuse(
    now: Timestamp,
    id: HashedId,
    needs: &Needs<'_>,
    leases: &mut LeaseShard,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
) -> Result<Decision, ReserveError> {
    let closed = |reason| Ok(Decision::Denied(Denial { reason, retry_after: policy.decreasing }));
    if let Some(need) = needs.iter().find(|n| n.limit(groups).is_paused()) {
        return closed(DenialReason::Paused { key: need.key.clone() });
    }
    if let Some(need) = needs.iter().find(|n| n.amount > n.limit(groups).capacity()) {
        return Err(ReserveError::AmountExceedsCapacity { key: need.key.clone() });
    }
    if let Some(need) = needs.iter().find(|n| n.limit(groups).is_decreasing()) {
        return closed(DenialReason::Decreasing { key: need.key.clone() });
    }
    let full = without_room(needs, groups);
    leases.deny(now, id, full[0].key.hashes().text);
    for need in &full {
        need.limit_mut(groups).note_denial();
    }
    let random = leases.random.f64();
    Ok(denied(now, &full, groups, policy, random))
}

fn without_room<'a>(needs: &Needs<'a>, groups: &LockedGroups<'_>) -> Needs<'a> {
    let full = |need: &&Need<'a>| need.amount > need.limit(groups).available();
    needs.iter().filter(full).copied().collect()
}

/// Allowed: one reservation per requirement, and the lease that has them.
#[inline]
fn hold_all(
    now: Timestamp,
    id: HashedId,
    needs: &Needs<'_>,
    leases: &mut LeaseShard,
    groups: &mut LockedGroups<'_>,
) -> Decision {
    let (number, first) = groups.first();
    let slot = first.leases.insert(id.id, now);
    let mut lifetime_seconds_max = 0;
    for need in needs {
        let group = groups.group_mut(need.group);
        let made = group.limit_mut(need.limit.slot).hold(now, need.amount);
        let lifetime_seconds = made.lifetime.seconds();
        group.note_expiry(now.after_seconds(lifetime_seconds));
        lifetime_seconds_max = lifetime_seconds_max.max(lifetime_seconds);
        // Straight into the lease: a list that is copied afterwards waits until what was written first has reached the cache.
        let held = Reservation { limit: need.limit, key_tag: need.key.hashes().text, made };
        groups.first().1.leases.reservations(slot).push(held);
    }
    groups.first().1.leases.set_end(slot, now.after_seconds(lifetime_seconds_max));
    leases.allow(id, LeasePlace { group: number, slot });
    Decision::Allowed { reserved_at: now }
}

/// The same lease again: allowed as before if it asks for the same and all of it is still live.
fn replay(
    now: Timestamp,
    lease: &OpenLease,
    needs: &Needs<'_>,
    groups: &LockedGroups<'_>,
) -> Result<Decision, ReserveError> {
    let age = lease.age(now);
    if lease.reservations.iter().any(|held| !age.is_live(held)) {
        return Err(ReserveError::LeaseEnded);
    }
    if lease.reservations.len() != needs.len() {
        return Err(ReserveError::LeaseConflict);
    }
    for need in needs {
        // All are live, so their limits stand where they stood, deleted ones too; and the groups of all needs are locked.
        let same = |held: &&Reservation| {
            held.limit.group == need.number() && groups.limit(held.limit).has_key(need.key)
        };
        let Some(held) = lease.reservations.iter().find(same) else {
            return Err(ReserveError::LeaseConflict);
        };
        if held.limit != need.limit {
            // The limit was deleted and defined again, and the reservation is gone with it.
            return Err(ReserveError::LeaseEnded);
        }
        if need.limit(groups).amount_of(held.made) != need.amount {
            return Err(ReserveError::LeaseConflict);
        }
    }
    Ok(Decision::Allowed { reserved_at: lease.reserved_at })
}

/// A denied lease again: it stays denied, and hears when a new lease might be allowed.
fn deny_again(
    now: Timestamp,
    first: u32,
    needs: &Needs<'_>,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let full = without_room(needs, groups);
    if !full.is_empty() {
        return denied(now, &full, groups, policy, random);
    }
    let need = needs.iter().find(|need| need.key.hashes().text == first).unwrap_or(&needs[0]);
    let reason = DenialReason::NoRoom { keys: vec![need.key.clone()] };
    Decision::Denied(Denial { reason, retry_after: AT_ONCE })
}

/// Denied for want of room in these limits: the hint is the longest that any of them gives.
fn denied(
    now: Timestamp,
    full: &Needs<'_>,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let hint = |need: &Need<'_>| need.limit_mut(groups).hint(now, need.amount, policy, random);
    let retry_after = full.iter().map(hint).max().expect("at least one limit had no room");
    let keys = full.iter().map(|need| need.key.clone()).collect();
    Decision::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after })
}
