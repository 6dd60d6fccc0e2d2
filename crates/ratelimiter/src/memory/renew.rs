//! Renew: all checks come before the first change, so that a denial changes no amount.
//!
//! What a lease holds of a limit consists of parts, each with its own expiry. The last part is the lease's reservation; the earlier ones
//! are in a table of renewed leases, since few have any. A hold always has one part.

use arrayvec::ArrayVec;

use super::groups::{GroupPlace, LockedGroups, shard_of};
use super::instances::{Bounds, Instances};
use super::leases::{
    EarlierPart, LeaseDetails, LeaseTable, OpenLease, RenewedAmount, RenewedLease, Reservation,
};
use super::live_limit::LiveLimit;
use super::past_leases::HashedId;
use crate::clock::Timestamp;
use crate::decision::{Denial, DenialReason, Renewal};
use crate::error::RenewError;
use crate::hint::HintPolicy;
use crate::key::LimitKey;
use crate::request::{NEW_AMOUNTS_MAX, NewAmounts, PARTS_MAX, REQUIREMENTS_MAX, RenewRequest};
use crate::template::NoInstance;

/// One request under way.
pub(super) struct RenewAttempt<'a, 'g> {
    pub(super) now: Timestamp,
    pub(super) id: HashedId,
    pub(super) lease: &'a mut OpenLease,
    /// What the leases of the shard have besides.
    pub(super) details: &'a LeaseTable<LeaseDetails>,
    pub(super) renewed: &'a mut LeaseTable<RenewedLease>,
    /// The shards of the groups of the lease's reservations.
    pub(super) groups: &'a mut LockedGroups<'g>,
    pub(super) instances: &'a Instances,
    pub(super) policy: &'a HintPolicy,
    /// In 0..1, for the jitter of hints.
    pub(super) random: f64,
    /// The parts of its reservations that expire before the last part and are live, in the order of expiry.
    pub(super) earlier: Vec<EarlierPart>,
}

/// A new amount of one of the lease's reservations.
#[derive(Debug, Clone, Copy)]
struct Change<'r> {
    key: &'r LimitKey,
    /// The index of the reservation.
    at: usize,
    held: u64,
    amount: u64,
    /// Its reservation has lapsed, or its limit was deleted: what is added is reserved anew.
    is_over: bool,
}

/// A change that needs room.
#[derive(Debug, Clone, Copy)]
struct Growth<'r> {
    change: Change<'r>,
    group: GroupPlace,
    slot: u32,
}

type Changes<'r> = ArrayVec<Change<'r>, NEW_AMOUNTS_MAX>;
type Growths<'r> = ArrayVec<Growth<'r>, NEW_AMOUNTS_MAX>;

impl Change<'_> {
    const fn grows(&self) -> bool {
        self.amount > self.held
    }
}

impl Growth<'_> {
    /// What is reserved in addition.
    const fn extra(&self) -> u64 {
        self.change.amount - if self.change.is_over { 0 } else { self.change.held }
    }

    fn limit<'a>(&self, groups: &'a mut LockedGroups<'_>) -> &'a mut LiveLimit {
        groups.group(self.group).limit(self.slot)
    }
}

impl<'r> RenewAttempt<'_, '_> {
    /// Sets the amounts, all or none, and begins the timeouts of holds again. Also returns the limits of which something returned.
    pub(super) fn renew(
        &mut self,
        request: &'r RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        if self.lease.renewable_until() <= self.now {
            return Err(RenewError::LeaseEnded);
        }
        let last = self.renewed.of(self.id);
        match last {
            Some(last) if request.number < last.number => return Err(RenewError::Superseded),
            Some(last) if request.number == last.number => {
                return Ok((repeated(&last.answer), Vec::new()));
            }
            Some(_) | None => {}
        }
        let earlier = last.map_or(&[][..], |last| &last.earlier);
        self.earlier.extend(earlier.iter().filter(|one| one.part.is_live(self.now)));
        let mut has_lapsed = self.earlier.len() < earlier.len();
        for held in &self.lease.reservations {
            match held.is_live(self.now) {
                true => self.groups.group(held.group).expire(self.now),
                false => has_lapsed = true,
            }
        }
        let mut amounts = self.amounts();
        let changes = self.resolve(&request.amounts)?;
        let renewal = self.renew_with_instances(&changes)?;
        let mut freed = Vec::new();
        if renewal.is_renewed() {
            let shrunk = changes.iter().filter(|change| change.amount < change.held);
            freed.extend(shrunk.map(|change| change.key.clone()));
            has_lapsed |= changes.iter().any(|change| change.is_over && change.grows());
            for change in &changes {
                let reserved = &mut amounts[change.at].reserved;
                *reserved = *reserved - u128::from(change.held) + u128::from(change.amount);
            }
        }
        let before = self.renewed.remove(self.id);
        let was_renewed = before.as_ref().is_some_and(|before| before.is_renewed);
        has_lapsed |= before.is_some_and(|before| before.has_lapsed);
        let HashedId { id, hash } = self.id;
        let renewed = RenewedLease {
            id,
            number: request.number,
            answer: renewal.clone(),
            is_renewed: was_renewed || renewal.is_renewed(),
            has_lapsed,
            amounts,
            earlier: std::mem::take(&mut self.earlier),
        };
        self.renewed.insert(hash, renewed);
        Ok((renewal, freed))
    }

    /// What the lease has had of each limit.
    fn amounts(&self) -> Box<[RenewedAmount]> {
        if let Some(renewed) = self.renewed.of(self.id) {
            return renewed.amounts.clone();
        }
        let (lease, details) = (&self.lease, self.details.of(self.id));
        let required = (0..lease.reservations.len()).map(|at| lease.required(at, details));
        let amount = |required| RenewedAmount { required, reserved: required.into() };
        required.map(amount).collect()
    }

    /// The reservations that the amounts are of.
    fn resolve(&mut self, amounts: &'r NewAmounts) -> Result<Changes<'r>, RenewError> {
        let Self { now, lease, groups, .. } = self;
        let mut changes = Changes::new();
        for amount in amounts.iter() {
            let (key, amount) = (&amount.key, amount.amount);
            // The shard of another key may not be locked.
            let has_tag = |held: &Reservation| {
                held.key_tag == key.hashes().text && held.group.shard() == shard_of(key)
            };
            let is_of_key = |held: &Reservation| {
                let is_candidate = held.is_live(*now) && has_tag(held);
                is_candidate && groups.group(held.group).limit(held.slot).has_key(key)
            };
            // Of a reservation that has lapsed only the key's tag is known, so the live ones come first.
            let has_lapsed = |held: &Reservation| !held.is_live(*now) && has_tag(held);
            let live = lease.reservations.iter().position(is_of_key);
            let at = live.or_else(|| lease.reservations.iter().position(has_lapsed));
            let at = at.ok_or_else(|| RenewError::InvalidAmount { key: key.clone() })?;
            let held = lease.reservations[at];
            let is_over =
                !held.is_live(*now) || groups.group(held.group).limit(held.slot).is_deleted;
            changes.push(Change { key, at, held: 0, amount, is_over });
        }
        for change in &mut changes {
            change.held = self.held(change.at);
        }
        Ok(changes)
    }

    /// What the lease holds now.
    fn held(&mut self, at: usize) -> u64 {
        let parts = self.parts(at);
        parts.iter().map(|part| amount_of(self.groups, part)).sum()
    }

    /// The live parts of a reservation, in the order of expiry.
    fn parts(&self, at: usize) -> ArrayVec<Reservation, PARTS_MAX> {
        let earlier = self.earlier.iter().filter(|one| one.at == at).map(|one| one.part);
        let parts = earlier.chain([self.lease.reservations[at]]);
        parts.filter(|part| part.is_live(self.now)).collect()
    }

    /// Makes the limits that growing needs, and renews; those that do not come into use go at once.
    fn renew_with_instances(&mut self, changes: &Changes<'r>) -> Result<Renewal, RenewError> {
        let keys = changes.iter().filter(|change| change.grows()).map(|change| change.key);
        let missing: Vec<_> = keys.filter(|key| !self.groups.has(key)).collect();
        if missing.is_empty() {
            return self.renew_resolved(changes);
        }
        let made = match self.instances.make(self.now, &missing, Bounds::Apply) {
            Ok(made) => made,
            Err(NoInstance::Unknown { key }) => return Err(RenewError::UnknownKey { key }),
            Err(NoInstance::TooMany { template }) => {
                let reason = DenialReason::TooManyInstances { template };
                let retry_after = self.policy.decreasing;
                return Ok(Renewal::Denied(Denial { reason, retry_after }));
            }
        };
        for instance in made.instances {
            self.groups.add_instance(self.now, instance);
        }
        let renewal = self.renew_resolved(changes);
        let unused = missing.iter().filter(|key| self.groups.drop_unused_instance(key)).count();
        if unused > 0 {
            self.instances.take_back(made.counted_since, unused);
        }
        renewal
    }

    /// All limits that growing needs exist.
    fn renew_resolved(&mut self, changes: &Changes<'r>) -> Result<Renewal, RenewError> {
        let Self { now, lease, groups, .. } = self;
        let mut growths = Growths::new();
        for change in changes.iter().filter(|change| change.grows()) {
            let held = &lease.reservations[change.at];
            let (group, slot) = match change.is_over {
                false => (held.group, held.slot),
                true => {
                    let place = groups.find(change.key).expect("its limit exists");
                    let group = groups.group(place);
                    group.expire(*now);
                    let (slot, _) = group.find(change.key).expect("its limit exists");
                    (place, slot)
                }
            };
            growths.push(Growth { change: *change, group, slot });
        }
        if growths.iter().any(|growth| !growth.limit(groups).fits(growth.extra())) {
            return self.refuse(growths);
        }
        let would_deny = |growth: &&Growth<'_>| growth.limit(groups).shadow_denies(growth.extra());
        let shadow_denied = growths.iter().filter(would_deny).map(|one| one.change.key.clone());
        let shadow_denied = shadow_denied.collect();
        self.apply(changes, &growths);
        let (renewed_at, lapses_at) = (self.now, self.lease.renewable_until());
        Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied })
    }

    /// Not all that is asked for in addition fits: the first failing stage of the checks answers, in the order of a reserve's.
    fn refuse(&mut self, mut growths: Growths<'r>) -> Result<Renewal, RenewError> {
        let Self { now, groups, policy, random, .. } = self;
        growths.retain(|growth| !growth.limit(groups).fits(growth.extra()));
        let mut first = |is_so: fn(&LiveLimit, u64) -> bool| {
            let mut growths = growths.iter();
            let growth = growths.find(|one| is_so(one.limit(groups), one.change.amount));
            growth.map(|growth| growth.change.key.clone())
        };
        let retry_after = policy.decreasing;
        if let Some(key) = first(|limit, _| limit.is_paused()) {
            let reason = DenialReason::Paused { key };
            return Ok(Renewal::Denied(Denial { reason, retry_after }));
        }
        if let Some(key) = first(|limit, amount| amount > limit.ceiling()) {
            return Err(RenewError::AmountExceedsCapacity { key });
        }
        if let Some(key) = first(|limit, _| limit.is_decreasing()) {
            let reason = DenialReason::Decreasing { key };
            return Ok(Renewal::Denied(Denial { reason, retry_after }));
        }
        growths.iter().for_each(|growth| growth.limit(groups).note_denial());
        let hint =
            |growth: &Growth<'_>| growth.limit(groups).hint(*now, growth.extra(), policy, *random);
        let retry_after = growths.iter().map(hint).max().expect("a limit had no room");
        let keys = growths.iter().map(|growth| growth.change.key.clone()).collect();
        Ok(Renewal::Denied(Denial { reason: DenialReason::NoRoom { keys }, retry_after }))
    }

    /// Everything fits.
    fn apply(&mut self, changes: &Changes<'r>, growths: &Growths<'r>) {
        // The holds whose timeouts begin again, with their amounts.
        let mut holds = [None; REQUIREMENTS_MAX];
        for (hold, held) in holds.iter_mut().zip(&self.lease.reservations) {
            if held.reference.is_hold() && held.is_live(self.now) {
                *hold = Some(amount_of(self.groups, held));
            }
        }
        for change in changes.iter().filter(|change| !change.grows()) {
            match &mut holds[change.at] {
                Some(hold) => *hold = change.amount,
                None => self.give_back(change),
            }
        }
        for growth in growths {
            let Change { at, amount, is_over, .. } = growth.change;
            match &mut holds[at] {
                Some(hold) if !is_over => *hold = amount,
                hold => {
                    *hold = None;
                    self.reserve_more(growth);
                }
            }
        }
        for (at, hold) in holds.into_iter().enumerate() {
            if let Some(amount) = hold {
                self.restart(at, amount);
            }
        }
        self.lease.update_lapse();
    }

    /// Gives back what a reservation has too much, first what expires first. The last part stays, even of 0 units.
    fn give_back(&mut self, change: &Change<'_>) {
        let mut surplus = change.held - change.amount;
        let last = self.lease.reservations[change.at];
        let Self { earlier, groups, .. } = self;
        earlier.retain(|one| {
            if one.at != change.at || surplus == 0 {
                return true;
            }
            let amount = amount_of(groups, &one.part);
            let freed = surplus.min(amount);
            surplus -= freed;
            if freed == amount {
                end(groups, &one.part);
                return false;
            }
            resize(groups, &one.part, amount - freed);
            true
        });
        if surplus > 0 {
            let amount = amount_of(groups, &last) - surplus;
            resize(groups, &last, amount);
        }
    }

    /// Adds a part to a reservation that is not a hold, or begins it again.
    fn reserve_more(&mut self, growth: &Growth<'_>) {
        let Change { at, key, is_over, .. } = growth.change;
        let before = self.lease.reservations[at];
        let replaces = is_over || amount_of(self.groups, &before) == 0;
        let (group, slot, key_tag) = (growth.group, growth.slot, key.hashes().text);
        let (reference, expires_at) = self.groups.group(group).hold(self.now, slot, growth.extra());
        self.schedule_sweep(group);
        let new = Reservation { group, slot, key_tag, reference, expires_at, ..before };
        if replaces {
            for part in self.parts(at) {
                end(self.groups, &part);
            }
            self.earlier.retain(|one| one.at != at);
            self.lease.reservations[at] = new;
            return;
        }
        let last = &mut self.lease.reservations[at];
        // A window may have become shorter, so the new part is not always the last.
        let part = match new.expires_at >= last.expires_at {
            true => std::mem::replace(last, new),
            false => new,
        };
        let place = self.earlier.partition_point(|one| one.part.expires_at <= part.expires_at);
        self.earlier.insert(place, EarlierPart { at, part });
        if self.earlier.iter().filter(|one| one.at == at).count() == PARTS_MAX {
            self.join(growth.change);
        }
    }

    /// Makes the last part of a reservation the only one.
    fn join(&mut self, change: Change<'_>) {
        let Self { earlier, groups, lease, .. } = self;
        for one in earlier.iter().filter(|one| one.at == change.at) {
            end(groups, &one.part);
        }
        earlier.retain(|one| one.at != change.at);
        resize(groups, &lease.reservations[change.at], change.amount);
    }

    /// Begins the timeout of a hold again.
    fn restart(&mut self, at: usize, amount: u64) {
        let held = &mut self.lease.reservations[at];
        let group = self.groups.group(held.group);
        (held.reference, held.expires_at) =
            group.restart(self.now, held.slot, held.reference, amount);
        let place = held.group;
        self.schedule_sweep(place);
    }

    fn schedule_sweep(&mut self, place: GroupPlace) {
        let group = self.groups.group(place);
        if group.next_expiry < group.swept_at {
            self.groups.schedule_sweep(self.now, place);
        }
    }
}

/// The amount of a live part.
pub(super) fn amount_of(groups: &mut LockedGroups<'_>, part: &Reservation) -> u64 {
    groups.group(part.group).limit(part.slot).amount_of(part.reference)
}

/// Gives back all of a live part.
fn end(groups: &mut LockedGroups<'_>, part: &Reservation) {
    groups.group(part.group).end(part.slot, part.reference, Some(0));
}

/// Changes the amount of a live part.
fn resize(groups: &mut LockedGroups<'_>, part: &Reservation, amount: u64) {
    groups.group(part.group).limit(part.slot).resize(part.reference, amount);
}

/// The answer to a repeated renew: limits in shadow mode are named once.
fn repeated(answer: &Renewal) -> Renewal {
    match answer {
        Renewal::Renewed { renewed_at, lapses_at, .. } => Renewal::Renewed {
            renewed_at: *renewed_at,
            lapses_at: *lapses_at,
            shadow_denied: Vec::new(),
        },
        Renewal::Denied(denial) => Renewal::Denied(denial.clone()),
    }
}
