//! Reserve: all checks come before the first change, so that a denial leaves no trace.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::groups::{GroupNumbers, Groups, LockedGroup, LockedGroups, group_hash};
use super::lease_index::HashedId;
use super::lease_shard::{LeaseLookup, LeaseShard};
use super::live_limit::LiveLimit;
use super::open_leases::{LeasePlace, LimitPlace, OpenLease, Reservation};
use super::past_leases::PastOutcome;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial, DenialReason};
use crate::error::ReserveError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{REQUIREMENTS_MAX, Requirement, ReserveRequest};

/// Hint for a repeated denied lease when there is room by now: retry at once with a new lease ID.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// A requirement and where its limit is.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolvedRequirement<'a> {
    key: &'a LimitKey,
    amount: u64,
    /// The slot is known from [`check_all`] on.
    limit: LimitPlace,
    group: LockedGroup,
}

pub(super) type ResolvedRequirements<'a> = ArrayVec<ResolvedRequirement<'a>, REQUIREMENTS_MAX>;

impl<'a> ResolvedRequirement<'a> {
    /// A requirement whose limit belongs to the group with this number.
    #[inline]
    const fn new(requirement: &'a Requirement, number: u32) -> Self {
        let Requirement { key, amount } = requirement;
        let limit = LimitPlace { group: number, slot: 0 };
        Self { key, amount: amount.get(), limit, group: LockedGroup::FIRST }
    }

    /// True if the key belongs to the same group.
    #[inline]
    fn is_same_group(&self, key: &LimitKey) -> bool {
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
    needs: &mut ResolvedRequirements<'a>,
    numbers: &mut GroupNumbers,
) -> Result<(), ReserveError> {
    for requirement in request.requirements.iter() {
        // Requirements of one group are usually adjacent.
        let number = match needs.last() {
            Some(last) if last.is_same_group(&requirement.key) => last.number(),
            _ => {
                let Some(number) = groups.number_of(&requirement.key) else {
                    return Err(groups.first_unknown(request));
                };
                numbers.add(number);
                number
            }
        };
        needs.push(ResolvedRequirement::new(requirement, number));
    }
    Ok(())
}

/// True if the key, which was not found, belongs to another group by now.
#[cold]
pub(super) fn group_changed(
    key: &LimitKey,
    needs: &ResolvedRequirements<'_>,
    groups: &Groups,
) -> bool {
    needs.iter().any(|need| need.key == key && groups.group_changed(key, need.number()))
}

/// Reserves all requirements, or nothing. The lease's shard is locked, the groups of the requirements are, and that of the lease if it
/// is open.
#[inline]
pub(super) fn reserve(
    now: Timestamp,
    (id, known): (HashedId, Option<LeaseLookup>),
    needs: &mut ResolvedRequirements<'_>,
    leases: &mut LeaseShard,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
) -> Result<Decision, ReserveError> {
    groups.expire(now);
    let all_fit = check_all(needs, groups)?;
    match known {
        None => {}
        Some(LeaseLookup::Open(found)) => {
            let LeasePlace { group, slot } = found.place();
            let lease = groups.group(groups.find(group)).leases.at(slot);
            return replay(now, lease, needs, groups);
        }
        Some(LeaseLookup::Past(at)) => match leases.past(now, at) {
            None => {}
            Some(PastOutcome::Ended) => return Err(ReserveError::LeaseEnded),
            Some(PastOutcome::Denied(first)) => {
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

/// Finds the limits of all requirements; true if all of them fit.
#[inline]
fn check_all(
    needs: &mut ResolvedRequirements<'_>,
    groups: &LockedGroups<'_>,
) -> Result<bool, ReserveError> {
    let mut all_fit = true;
    for ResolvedRequirement { key, amount, limit: place, group } in needs {
        *group = groups.find(place.group);
        let Some((slot, limit)) = groups.group(*group).find(key) else {
            return Err(ReserveError::UnknownKey { key: key.clone() });
        };
        place.slot = slot;
        all_fit &= *amount <= limit.available() && !limit.is_decreasing();
    }
    Ok(all_fit)
}

impl ResolvedRequirement<'_> {
    #[inline]
    fn limit<'a>(&self, groups: &'a LockedGroups<'_>) -> &'a LiveLimit {
        groups.group(self.group).limit(self.limit.slot)
    }

    #[inline]
    fn limit_mut<'a>(&self, groups: &'a mut LockedGroups<'_>) -> &'a mut LiveLimit {
        groups.group_mut(self.group).limit_mut(self.limit.slot)
    }
}

/// Not all requirements fit: the first failing stage of the checks answers.
#[cold]
fn refuse(
    now: Timestamp,
    id: HashedId,
    needs: &ResolvedRequirements<'_>,
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
    let full = full_limits(needs, groups);
    leases.deny(now, id, full[0].key.hashes().text);
    for need in &full {
        need.limit_mut(groups).note_denial();
    }
    let random = leases.random.f64();
    Ok(denied(now, &full, groups, policy, random))
}

fn full_limits<'a>(
    needs: &ResolvedRequirements<'a>,
    groups: &LockedGroups<'_>,
) -> ResolvedRequirements<'a> {
    let full = |need: &&ResolvedRequirement<'a>| need.amount > need.limit(groups).available();
    needs.iter().filter(full).copied().collect()
}

/// Allowed: one reservation per requirement, and the lease that has them.
#[inline]
fn hold_all(
    now: Timestamp,
    id: HashedId,
    needs: &ResolvedRequirements<'_>,
    leases: &mut LeaseShard,
    groups: &mut LockedGroups<'_>,
) -> Decision {
    let (number, first) = groups.first();
    let slot = first.leases.insert(id.id, now);
    let mut lifetime_seconds_max = 0;
    for need in needs {
        let group = groups.group_mut(need.group);
        let reference = group.limit_mut(need.limit.slot).hold(now, need.amount);
        let lifetime_seconds = reference.lifetime.seconds();
        group.note_expiry(now.after_seconds(lifetime_seconds));
        lifetime_seconds_max = lifetime_seconds_max.max(lifetime_seconds);
        // Write in place: copying a list afterwards stalls on store forwarding.
        let held = Reservation { limit: need.limit, key_tag: need.key.hashes().text, reference };
        groups.first().1.leases.reservations(slot).push(held);
    }
    groups.first().1.leases.set_end(slot, now.after_seconds(lifetime_seconds_max));
    leases.allow(id, LeasePlace { group: number, slot });
    Decision::Allowed { reserved_at: now }
}

/// A repeated open lease: allowed again if its requirements are the same and all its reservations are still live.
fn replay(
    now: Timestamp,
    lease: &OpenLease,
    needs: &ResolvedRequirements<'_>,
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
        // All are live, so their limits are still in their slots, deleted ones too; and the groups of all requirements are locked.
        let same = |held: &&Reservation| {
            held.limit.group == need.number() && groups.limit(held.limit).has_key(need.key)
        };
        let Some(held) = lease.reservations.iter().find(same) else {
            return Err(ReserveError::LeaseConflict);
        };
        if held.limit != need.limit {
            // The limit was deleted and defined again, so the reservation no longer counts.
            return Err(ReserveError::LeaseEnded);
        }
        if need.limit(groups).amount_of(held.reference) != need.amount {
            return Err(ReserveError::LeaseConflict);
        }
    }
    Ok(Decision::Allowed { reserved_at: lease.reserved_at })
}

/// A repeated denied lease: it stays denied, with a hint for a new lease.
fn deny_again(
    now: Timestamp,
    first: u32,
    needs: &ResolvedRequirements<'_>,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let full = full_limits(needs, groups);
    if !full.is_empty() {
        return denied(now, &full, groups, policy, random);
    }
    let need = needs.iter().find(|need| need.key.hashes().text == first).unwrap_or(&needs[0]);
    let reason = DenialReason::NoRoom { keys: vec![need.key.clone()] };
    Decision::Denied(Denial { reason, retry_after: AT_ONCE })
}

/// Denied because these limits are full: the hint is the longest of theirs.
fn denied(
    now: Timestamp,
    full: &ResolvedRequirements<'_>,
    groups: &mut LockedGroups<'_>,
    policy: &HintPolicy,
    random: f64,
) -> Decision {
    let hint = |need: &ResolvedRequirement<'_>| {
        need.limit_mut(groups).hint(now, need.amount, policy, random)
    };
    let retry_after = full.iter().map(hint).max().expect("at least one limit had no room");
    let keys = full.iter().map(|need| need.key.clone()).collect();
    Decision::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after })
}
