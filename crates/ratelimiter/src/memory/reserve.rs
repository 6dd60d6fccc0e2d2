//! Reserve: all checks come before the first change, so that a denial leaves no trace.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::group::GroupId;
use super::groups::{GroupPlace, LockedGroups};
use super::instances::{Bounds, Instances};
use super::leases::{LeaseDetails, LeaseShard, OpenLease, RenewedLease, Reservation, ShortAmount};
use super::live_limit::LiveLimit;
use super::past_leases::{HashedId, PastOutcome};
use crate::admission::Turn;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial, DenialReason};
use crate::error::ReserveError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{JobId, REQUIREMENTS_MAX, Requirement, ReserveRequest};
use crate::template::NoInstance;

/// Hint for a repeated denied lease when there is room by now: retry at once with a new lease ID.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// A requirement and where its limit is.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResolvedRequirement<'a> {
    key: &'a LimitKey,
    amount: u64,
    group: GroupPlace,
    slot: u32,
    /// There is room for it.
    fits: bool,
    /// Its limit is in shadow mode and would have denied it.
    is_shadow_denied: bool,
}

pub(super) type ResolvedRequirements<'a> = ArrayVec<ResolvedRequirement<'a>, REQUIREMENTS_MAX>;

/// Whether all limits of a request were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolved {
    All,
    SomeMissing,
}

/// One request under way.
pub(super) struct Attempt<'a, 'g> {
    pub(super) now: Timestamp,
    pub(super) id: HashedId,
    /// The requirements whose limits were found; in a denial, those that do not fit.
    pub(super) needs: ResolvedRequirements<'a>,
    /// The shard of the lease.
    pub(super) leases: &'a mut LeaseShard,
    /// The shards of the requirements' groups.
    pub(super) groups: &'a mut LockedGroups<'g>,
    pub(super) instances: &'a Instances,
    pub(super) policy: &'a HintPolicy,
    pub(super) turn: Turn<'a>,
    /// Set by a denial of a caller that may ask again with the same lease.
    pub(super) ask_again_after: Option<Duration>,
    /// Set when the lease is admitted.
    pub(super) is_new: bool,
}

impl ResolvedRequirement<'_> {
    fn limit<'a>(&self, groups: &'a mut LockedGroups<'_>) -> &'a mut LiveLimit {
        groups.group(self.group).limit(self.slot)
    }
}

impl<'a> Attempt<'a, '_> {
    /// Reserves all requirements, or nothing.
    #[inline]
    pub(super) fn reserve(
        &mut self,
        request: &'a ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        if self.resolve(request) == Resolved::SomeMissing {
            return self.reserve_with_instances(request);
        }
        if let Some(lease) = self.leases.find_open(self.id) {
            let renewed = self.leases.renewed.of(self.id);
            return replay(self.now, lease, renewed, &self.needs, self.groups);
        }
        match self.leases.past.find(self.now, self.id) {
            Some(PastOutcome::Ended { .. }) => Err(ReserveError::LeaseEnded),
            Some(PastOutcome::Denied { key_tag }) => Ok(self.deny_again(key_tag)),
            None => {
                if let Some(key) = self.turn.behind {
                    self.needs.iter_mut().for_each(|need| need.fits &= need.key != key);
                }
                match self.needs.iter().all(|need| need.fits) {
                    true => Ok(self.hold_all(request.job.as_ref())),
                    false => self.refuse(),
                }
            }
        }
    }

    /// Finds the limits of all requirements.
    #[inline]
    fn resolve(&mut self, request: &'a ReserveRequest) -> Resolved {
        // Requirements of one group are usually adjacent.
        for run in request.requirements.chunk_by(|a, b| GroupId::of(&a.key) == GroupId::of(&b.key))
        {
            let Some(place) = self.groups.find(&run[0].key) else {
                return Resolved::SomeMissing;
            };
            let group = self.groups.group(place);
            group.expire(self.now);
            for Requirement { key, amount } in run {
                let Some((slot, limit)) = group.find(key) else {
                    return Resolved::SomeMissing;
                };
                let amount = amount.get();
                self.needs.push(ResolvedRequirement {
                    key,
                    amount,
                    group: place,
                    slot,
                    fits: limit.fits(amount),
                    is_shadow_denied: limit.shadow_denies(amount),
                });
            }
        }
        Resolved::All
    }

    /// Some keys have no limit. If templates match them, makes their limits and reserves; those that do not come into use go at once, so
    /// that a denial leaves no trace.
    #[cold]
    fn reserve_with_instances(
        &mut self,
        request: &'a ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        let keys = request.requirements.iter().map(|need| &need.key);
        let missing: Vec<_> = keys.filter(|key| !self.groups.has(key)).collect();
        // A known lease is answered before the bounds are looked at.
        let is_known = self.leases.find_open(self.id).is_some()
            || self.leases.past.find(self.now, self.id).is_some();
        let bounds = if is_known { Bounds::Ignore } else { Bounds::Apply };
        let made = match self.instances.make(self.now, &missing, bounds) {
            Ok(made) => made,
            Err(NoInstance::Unknown { key }) => return Err(ReserveError::UnknownKey { key }),
            Err(NoInstance::TooMany { template }) => {
                let reason = DenialReason::TooManyInstances { template };
                let retry_after = self.policy.decreasing;
                return Ok(Decision::Denied(Denial { reason, retry_after }));
            }
        };
        for instance in made.instances {
            self.groups.add_instance(self.now, instance);
        }
        self.needs.clear();
        let answer = self.reserve(request);
        let unused = missing.iter().filter(|key| self.groups.drop_unused_instance(key)).count();
        if unused > 0 {
            self.instances.take_back(made.counted_since, unused);
        }
        answer
    }

    /// Allowed: one reservation per requirement, and the lease that has them.
    #[inline]
    fn hold_all(&mut self, job: Option<&JobId>) -> Decision {
        let Self { now, id, needs, leases, groups, is_new, .. } = self;
        let mut has_large = false;
        let hold = |need: &ResolvedRequirement<'_>| {
            let group = groups.group(need.group);
            let (reference, expires_at) = group.hold(*now, need.slot, need.amount);
            if group.next_expiry < group.swept_at {
                groups.schedule_sweep(*now, need.group);
            }
            let required = ShortAmount::new(need.amount);
            has_large |= required.is_too_large();
            let (group, slot, key_tag) = (need.group, need.slot, need.key.hashes().text);
            Reservation { group, slot, key_tag, reference, required, expires_at }
        };
        let reservations = needs.iter().map(hold).collect();
        let amounts = || needs.iter().map(|need| need.amount).collect();
        let details = (has_large || job.is_some()).then(|| LeaseDetails {
            id: id.id,
            job: job.cloned(),
            amounts: has_large.then(amounts),
        });
        leases.allow(*now, *id, reservations, details);
        *is_new = true;
        let denied = needs.iter().filter(|need| need.is_shadow_denied);
        let shadow_denied = denied.map(|need| need.key.clone()).collect();
        Decision::Allowed { reserved_at: *now, shadow_denied }
    }

    /// Not all requirements fit: the first failing stage of the checks answers.
    #[cold]
    fn refuse(&mut self) -> Result<Decision, ReserveError> {
        let Self { needs, groups, .. } = self;
        needs.retain(|need| !need.fits);
        let mut first = |is_so: fn(&LiveLimit, u64) -> bool| {
            let need = needs.iter().find(|need| is_so(need.limit(groups), need.amount));
            need.map(|need| need.key.clone())
        };
        let retry_after = self.policy.decreasing;
        let paused = first(|limit, _| limit.is_paused());
        let over_capacity = first(|limit, amount| amount > limit.ceiling());
        let decreasing = first(|limit, _| limit.is_decreasing());
        if let Some(key) = over_capacity.filter(|_| paused.is_none()) {
            return Err(ReserveError::AmountExceedsCapacity { key });
        }
        if self.turn.attempt.is_some() {
            self.ask_again_after = Some(self.lapse());
        }
        let reason = match (paused, decreasing) {
            (Some(key), _) => DenialReason::Paused { key },
            (None, Some(key)) => DenialReason::Decreasing { key },
            (None, None) => {
                if self.turn.attempt.is_none() {
                    self.remember_denial();
                }
                return Ok(self.denied());
            }
        };
        Ok(Decision::Denied(Denial { reason, retry_after }))
    }

    fn remember_denial(&mut self) {
        let Self { needs, groups, .. } = self;
        needs.iter().for_each(|need| need.limit(groups).note_denial());
        let key_tag = needs[0].key.hashes().text;
        self.leases.past.push(self.now, self.id.id, PastOutcome::Denied { key_tag });
    }

    /// When a waiter of these limits may fit, if no lease completes before. A denial holds up all that need more than half of its
    /// amounts, so the earliest that one of these fits is what counts; if such a one fits already, then when this one does.
    fn lapse(&mut self) -> Duration {
        let Self { now, needs, groups, policy, .. } = self;
        let lapses = needs.iter().map(|need| {
            let limit = need.limit(groups);
            limit.lapse(*now, need.amount / 2 + 1).or_else(|| limit.lapse(*now, need.amount))
        });
        lapses.map(|lapse| lapse.unwrap_or(policy.decreasing)).min().unwrap_or_default()
    }

    /// A repeated denied lease: it stays denied, with a hint for a new lease.
    fn deny_again(&mut self, first_tag: u32) -> Decision {
        let Self { needs, groups, .. } = self;
        let first = needs.iter().find(|need| need.key.hashes().text == first_tag);
        let first = first.unwrap_or(&needs[0]).key;
        needs.retain(|need| need.amount > need.limit(groups).available);
        if !needs.is_empty() {
            return self.denied();
        }
        let reason = DenialReason::NoRoom { keys: vec![first.clone()] };
        Decision::Denied(Denial { reason, retry_after: AT_ONCE })
    }

    /// Denied because the limits of `needs` are full: the hint is the longest of theirs.
    fn denied(&mut self) -> Decision {
        let Self { now, needs, leases, groups, policy, .. } = self;
        let random = leases.random.f64();
        let hints =
            needs.iter().map(|need| need.limit(groups).hint(*now, need.amount, policy, random));
        let retry_after = hints.max().expect("at least one limit had no room");
        let keys = needs.iter().map(|need| need.key.clone()).collect();
        Decision::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after })
    }
}

/// A repeated open lease: allowed again if its requirements are the same and all its reservations are still live. Renews do not count.
fn replay(
    now: Timestamp,
    lease: &OpenLease,
    renewed: Option<&RenewedLease>,
    needs: &ResolvedRequirements<'_>,
    groups: &mut LockedGroups<'_>,
) -> Result<Decision, ReserveError> {
    let earlier = renewed.map_or(&[][..], |renewed| &renewed.earlier);
    let mut parts = lease.reservations.iter().chain(earlier.iter().map(|earlier| &earlier.part));
    let has_lapsed = renewed.is_some_and(|renewed| renewed.has_lapsed);
    if has_lapsed || parts.any(|held| !held.is_live(now)) {
        return Err(ReserveError::LeaseEnded);
    }
    if lease.reservations.len() != needs.len() {
        return Err(ReserveError::LeaseConflict);
    }
    for need in needs {
        // All are live, so their limits are still in their slots, deleted ones too; and the groups of all requirements are locked.
        let group = groups.group(need.group);
        let same = |held: &Reservation| {
            held.group == need.group && group.limit(held.slot).has_key(need.key)
        };
        let Some(at) = lease.reservations.iter().position(same) else {
            return Err(ReserveError::LeaseConflict);
        };
        let held = &lease.reservations[at];
        if held.slot != need.slot {
            // The limit was deleted and defined again, so the reservation no longer counts.
            return Err(ReserveError::LeaseEnded);
        }
        let amount = match renewed {
            Some(renewed) => renewed.amounts[at].required,
            None => need.limit(groups).amount_of(held.reference),
        };
        if amount != need.amount {
            return Err(ReserveError::LeaseConflict);
        }
    }
    Ok(Decision::allowed_at(lease.reserved_at))
}
