//! Reserve: all checks come before the first change, so that a denial leaves no trace.

use std::time::Duration;

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::group::GroupId;
use super::groups::{GroupPlace, LockedGroups};
use super::leases::{LeaseShard, OpenLease, Reservation};
use super::live_limit::LiveLimit;
use super::past_leases::{HashedId, PastOutcome};
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial, DenialReason};
use crate::error::ReserveError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{REQUIREMENTS_MAX, ReserveRequest};

/// Hint for a repeated denied lease when there is room by now: retry at once with a new lease ID.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// A requirement and where its limit is.
#[derive(Debug, Clone, Copy)]
struct ResolvedRequirement<'a> {
    key: &'a LimitKey,
    amount: u64,
    group: GroupPlace,
    slot: u32,
}

type ResolvedRequirements<'a> = ArrayVec<ResolvedRequirement<'a>, REQUIREMENTS_MAX>;

/// One request under way. The shards of its lease and of its groups are locked.
struct Attempt<'a, 'g> {
    now: Timestamp,
    id: HashedId,
    needs: ResolvedRequirements<'a>,
    leases: &'a mut LeaseShard,
    groups: &'a mut LockedGroups<'g>,
    policy: &'a HintPolicy,
}

/// Reserves all requirements, or nothing. The shards of the lease and of the requirements' groups are locked.
#[inline]
pub(super) fn reserve<'a>(
    now: Timestamp,
    id: HashedId,
    request: &'a ReserveRequest,
    leases: &'a mut LeaseShard,
    groups: &'a mut LockedGroups<'_>,
    policy: &'a HintPolicy,
) -> Result<Decision, ReserveError> {
    let needs = ResolvedRequirements::new();
    let mut attempt = Attempt { now, id, needs, leases, groups, policy };
    let all_fit = attempt.resolve(request)?;
    if let Some(lease) = attempt.leases.find_open(id) {
        return replay(now, lease, &attempt.needs, attempt.groups);
    }
    match attempt.leases.past.find(now, id) {
        Some(PastOutcome::Ended) => Err(ReserveError::LeaseEnded),
        Some(PastOutcome::Denied { key_tag }) => Ok(attempt.deny_again(key_tag)),
        None if all_fit => Ok(attempt.hold_all()),
        None => attempt.refuse(),
    }
}

impl ResolvedRequirement<'_> {
    fn limit<'a>(&self, groups: &'a LockedGroups<'_>) -> &'a LiveLimit {
        groups.group(self.group).limit(self.slot)
    }

    fn limit_mut<'a>(&self, groups: &'a mut LockedGroups<'_>) -> &'a mut LiveLimit {
        groups.group_mut(self.group).limit_mut(self.slot)
    }
}

impl<'a> Attempt<'a, '_> {
    /// Finds the limits of all requirements; true if all of them fit.
    #[inline]
    fn resolve(&mut self, request: &'a ReserveRequest) -> Result<bool, ReserveError> {
        let mut all_fit = true;
        // Requirements of one group are usually adjacent.
        for run in request.requirements.chunk_by(|a, b| GroupId::of(&a.key) == GroupId::of(&b.key))
        {
            let Some(place) = self.groups.find(&run[0].key) else {
                return Err(ReserveError::UnknownKey { key: run[0].key.clone() });
            };
            let group = self.groups.group_mut(place);
            group.expire(self.now);
            for requirement in run {
                let (key, amount) = (&requirement.key, requirement.amount.get());
                let Some((slot, limit)) = group.find(key) else {
                    return Err(ReserveError::UnknownKey { key: key.clone() });
                };
                all_fit &= limit.fits(amount);
                self.needs.push(ResolvedRequirement { key, amount, group: place, slot });
            }
        }
        Ok(all_fit)
    }

    /// Allowed: one reservation per requirement, and the lease that has them.
    #[inline]
    fn hold_all(&mut self) -> Decision {
        let Self { now, id, needs, leases, groups, .. } = self;
        let reservations = SmallVec::with_capacity(needs.len());
        let mut lease = Box::new(OpenLease { reserved_at: *now, reservations });
        let mut lapses_at = *now;
        for run in needs.chunk_by(|a, b| a.group == b.group) {
            let place = run[0].group;
            let group = groups.group_mut(place);
            for ResolvedRequirement { key, amount, slot, .. } in run {
                let (reference, expires_at) = group.hold(*now, *slot, *amount);
                lapses_at = lapses_at.max(expires_at);
                let (slot, key_tag) = (*slot, key.hashes().text);
                let held = Reservation { group: place, slot, key_tag, reference, expires_at };
                lease.reservations.push(held);
            }
            if group.next_expiry() < group.swept_at {
                groups.schedule_sweep(*now, place);
            }
        }
        leases.allow(*id, lapses_at, lease);
        Decision::Allowed { reserved_at: *now }
    }

    /// Not all requirements fit: the first failing stage of the checks answers.
    #[cold]
    fn refuse(&mut self) -> Result<Decision, ReserveError> {
        let full = self.filtered(|limit, amount| !limit.fits(amount));
        let first = |is_so: &dyn Fn(&LiveLimit, u64) -> bool| {
            let need = full.iter().find(|need| is_so(need.limit(self.groups), need.amount));
            need.map(|need| need.key.clone())
        };
        let retry_after = self.policy.decreasing;
        if let Some(key) = first(&|limit, _| limit.is_paused()) {
            let reason = DenialReason::Paused { key };
            return Ok(Decision::Denied(Denial { reason, retry_after }));
        }
        if let Some(key) = first(&|limit, amount| amount > limit.capacity()) {
            return Err(ReserveError::AmountExceedsCapacity { key });
        }
        if let Some(key) = first(&|limit, _| limit.is_decreasing()) {
            let reason = DenialReason::Decreasing { key };
            return Ok(Decision::Denied(Denial { reason, retry_after }));
        }
        self.leases.deny(self.now, self.id.id, full[0].key.hashes().text);
        for need in &full {
            need.limit_mut(self.groups).note_denial();
        }
        Ok(self.denied(&full))
    }

    /// A repeated denied lease: it stays denied, with a hint for a new lease.
    fn deny_again(&mut self, first_tag: u32) -> Decision {
        let full = self.filtered(|limit, amount| amount > limit.available());
        if !full.is_empty() {
            return self.denied(&full);
        }
        let mut needs = self.needs.iter();
        let first = needs.find(|need| need.key.hashes().text == first_tag);
        let key = first.unwrap_or(&self.needs[0]).key.clone();
        let reason = DenialReason::NoRoom { keys: vec![key] };
        Decision::Denied(Denial { reason, retry_after: AT_ONCE })
    }

    /// Denied because these limits are full: the hint is the longest of theirs.
    fn denied(&mut self, full: &ResolvedRequirements<'_>) -> Decision {
        let random = self.leases.random.f64();
        let hint = |need: &ResolvedRequirement<'_>| {
            need.limit(self.groups).hint(self.now, need.amount, self.policy, random)
        };
        let retry_after = full.iter().map(hint).max().expect("at least one limit had no room");
        let keys = full.iter().map(|need| need.key.clone()).collect();
        Decision::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after })
    }

    fn filtered(&self, is_so: impl Fn(&LiveLimit, u64) -> bool) -> ResolvedRequirements<'a> {
        let is_so = |need: &&ResolvedRequirement<'_>| is_so(need.limit(self.groups), need.amount);
        self.needs.iter().filter(is_so).copied().collect()
    }
}

/// A repeated open lease: allowed again if its requirements are the same and all its reservations are still live.
fn replay(
    now: Timestamp,
    lease: &OpenLease,
    needs: &ResolvedRequirements<'_>,
    groups: &mut LockedGroups<'_>,
) -> Result<Decision, ReserveError> {
    if lease.reservations.iter().any(|held| !held.is_live(now)) {
        return Err(ReserveError::LeaseEnded);
    }
    if lease.reservations.len() != needs.len() {
        return Err(ReserveError::LeaseConflict);
    }
    for need in needs {
        // All are live, so their limits are still in their slots, deleted ones too; and the groups of all requirements are locked.
        let same = |held: &&Reservation| {
            held.group == need.group && groups.group(held.group).limit(held.slot).has_key(need.key)
        };
        let Some(held) = lease.reservations.iter().find(same) else {
            return Err(ReserveError::LeaseConflict);
        };
        if held.slot != need.slot {
            // The limit was deleted and defined again, so the reservation no longer counts.
            return Err(ReserveError::LeaseEnded);
        }
        if need.limit_mut(groups).amount_of(held.reference) != need.amount {
            return Err(ReserveError::LeaseConflict);
        }
    }
    Ok(Decision::Allowed { reserved_at: lease.reserved_at })
}
