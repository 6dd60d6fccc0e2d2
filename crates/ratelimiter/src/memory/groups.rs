//! All groups of limits, in shards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::MutexGuard;
use std::time::Duration;

use arrayvec::ArrayVec;
use slab::Slab;

use super::group::{Group, GroupId};
use super::shards::Shards;
use crate::clock::Timestamp;
use crate::error::DefineError;
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::request::REQUIREMENTS_MAX;
use crate::template::{self, CountedTemplates, NewInstance};

/// Enough that threads rarely meet in a shard without sharing a model.
const SHARDS: u32 = 256;
const LOCKED: &str = "a request locks the shards of its groups";
/// A group with live reservations is swept at least this often, so that it releases unused memory.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Groups {
    pub(super) shards: Shards<GroupShard>,
}

/// The groups of some keys.
#[derive(Debug, Default)]
pub(super) struct GroupShard {
    groups: Slab<Group>,
    /// The slots of all groups, sorted by their IDs.
    slots: Vec<(GroupId, u32)>,
    /// When the sweep looks at which slot, the soonest first. An entry counts only if the group says the same.
    sweeps: BinaryHeap<Reverse<(Timestamp, u32)>>,
}

/// Where a group is while it has limits: its slot, and in the lowest bits its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlace(u32);

impl GroupPlace {
    #[inline]
    const fn slot(self) -> u32 {
        self.0 / SHARDS
    }

    #[inline]
    pub(super) const fn shard(self) -> u32 {
        self.0 % SHARDS
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self { shards: Shards::new((0..SHARDS).map(|_| GroupShard::default())) }
    }
}

/// The number of the shard that has a key's group.
#[inline]
pub(super) const fn shard_of(key: &LimitKey) -> u32 {
    GroupId::of(key).number() % SHARDS
}

impl Groups {
    /// Locks the shard of a key.
    pub(super) fn lock_one(&self, key: &LimitKey) -> MutexGuard<'_, GroupShard> {
        self.shards.lock(shard_of(key) as usize)
    }

    /// Locks these shards in a fixed order, so that threads cannot deadlock.
    #[inline]
    pub(super) fn lock<'a>(
        &'a self,
        locked: &mut LockedGroups<'a>,
        shards: impl Iterator<Item = u32>,
    ) {
        let mut wanted = [0_u64; SHARDS as usize / 64];
        for number in shards {
            wanted[number as usize / 64] |= 1 << (number % 64);
        }
        for (first, mut bits) in (0..).step_by(64).zip(wanted) {
            while bits != 0 {
                let number = first + bits.trailing_zeros();
                locked.0.push((number, self.shards.lock(number as usize)));
                bits &= bits - 1;
            }
        }
    }
}

impl GroupShard {
    /// The position of a group in `slots`, or where it belongs.
    #[inline]
    fn position(&self, id: GroupId) -> Result<usize, usize> {
        self.slots.binary_search_by_key(&id, |(other, _)| *other)
    }

    #[inline]
    fn find(&self, id: GroupId) -> Option<u32> {
        self.position(id).ok().map(|at| self.slots[at].1)
    }

    pub(super) fn group_of(&mut self, key: &LimitKey) -> Option<&mut Group> {
        self.find(GroupId::of(key)).map(|slot| &mut self.groups[slot as usize])
    }

    /// Whether a limit can be defined.
    pub(super) fn check_definition(
        &mut self,
        now: Timestamp,
        limit: &Limit,
    ) -> Result<(), DefineError> {
        let Some(group) = self.group_of(&limit.key) else {
            return template::check_new_key(&limit.key);
        };
        group.expire(now);
        let Some((_, live)) = group.find(&limit.key) else {
            return template::check_new_key(&limit.key);
        };
        let is_instance = live.template().is_some();
        if is_instance {
            template::check_new_key(&limit.key)?;
        }
        let is = live.registered().limit.kind;
        // An instance that is not in use and owes nothing is replaced.
        if is.is_same_kind(limit.kind) || live.is_unused_instance() {
            return Ok(());
        }
        Err(DefineError::KindConflict { key: limit.key.clone(), is: is.name() })
    }

    pub(super) fn group_or_new(&mut self, key: &LimitKey) -> &mut Group {
        let id = GroupId::of(key);
        let at = self.position(id).unwrap_or_else(|at| {
            let slot = u32::try_from(self.groups.insert(Group::new(id))).ok();
            let slot = slot.filter(|slot| *slot < u32::MAX / SHARDS).expect("a place fits 32 bits");
            self.slots.insert(at, (id, slot));
            at
        });
        &mut self.groups[self.slots[at].1 as usize]
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().map(|(_, group)| group)
    }

    /// Removes the group of a key if it has no limits.
    pub(super) fn drop_unused(&mut self, key: &LimitKey) {
        if let Some(slot) = self.find(GroupId::of(key)) {
            self.drop_if_unused(slot);
        }
    }

    fn drop_if_unused(&mut self, slot: u32) {
        if self.groups[slot as usize].has_no_limits() {
            let Group { id, .. } = self.groups.remove(slot as usize);
            self.slots.remove(self.position(id).expect("every group has its slot there"));
        }
    }

    /// Frees what has expired in at most `count_max` groups, and releases unused memory; false if no more are due.
    pub(super) fn sweep(&mut self, now: Timestamp, count_max: u32) -> bool {
        for _ in 0..count_max {
            let Some(next) = self.sweeps.peek_mut().filter(|next| next.0.0 <= now) else {
                self.shrink_to_fit();
                return false;
            };
            let Reverse((due, slot)) = PeekMut::pop(next);
            let group = self.groups.get_mut(slot as usize);
            let Some(group) = group.filter(|group| group.swept_at == due) else {
                continue;
            };
            group.expire(now);
            group.drop_unused_instances();
            group.shrink_to_fit();
            group.swept_at = Timestamp::NEVER;
            if !group.is_idle() {
                self.schedule_sweep(now, slot);
            }
            self.drop_if_unused(slot);
        }
        true
    }

    /// Releases memory that is mostly unused.
    fn shrink_to_fit(&mut self) {
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to_fit();
        }
        if self.groups.len() < self.groups.capacity() / 4 {
            self.groups.shrink_to_fit();
        }
        if self.sweeps.len() < self.sweeps.capacity() / 4 {
            self.sweeps.shrink_to_fit();
        }
    }

    /// Brings the instances in `count_max` slots in line with changed templates. Returns the next slot, if there are more.
    pub(super) fn realign(
        &mut self,
        now: Timestamp,
        is_changed: &impl Fn(&LimitKey) -> bool,
        templates: &CountedTemplates,
        from: u32,
        count_max: u32,
    ) -> Option<u32> {
        let to = from + count_max;
        for slot in from..to {
            if let Some(group) = self.groups.get_mut(slot as usize) {
                group.realign(now, is_changed, templates);
                self.drop_if_unused(slot);
            }
        }
        ((to as usize) < self.groups.capacity()).then_some(to)
    }

    /// Drops the instance of a key if nothing keeps it; true if so.
    pub(super) fn drop_unused_instance(&mut self, key: &LimitKey) -> bool {
        let is_dropped = self.group_of(key).is_some_and(|group| group.drop_unused_instance(key));
        if is_dropped {
            self.drop_unused(key);
        }
        is_dropped
    }

    /// Sets when the sweep looks at a group with live reservations: when something expires.
    fn schedule_sweep(&mut self, now: Timestamp, slot: u32) {
        let group = &mut self.groups[slot as usize];
        group.swept_at = group.next_expiry.min(now.after(SWEEP_INTERVAL_MAX));
        self.sweeps.push(Reverse((group.swept_at, slot)));
    }
}

/// The shards that one request needs.
#[derive(Debug, Default)]
pub(super) struct LockedGroups<'a>(ArrayVec<(u32, MutexGuard<'a, GroupShard>), REQUIREMENTS_MAX>);

impl LockedGroups<'_> {
    #[inline]
    pub(super) fn find(&mut self, key: &LimitKey) -> Option<GroupPlace> {
        let number = shard_of(key);
        let slot = self.shard(number).find(GroupId::of(key))?;
        Some(GroupPlace(slot * SHARDS + number))
    }

    #[inline]
    pub(super) fn group(&mut self, place: GroupPlace) -> &mut Group {
        &mut self.shard(place.shard()).groups[place.slot() as usize]
    }

    /// True if the key has a limit.
    pub(super) fn has(&mut self, key: &LimitKey) -> bool {
        let group = self.shard(shard_of(key)).group_of(key);
        group.is_some_and(|group| group.find(key).is_some())
    }

    /// Adds an instance, whose key has no limit.
    pub(super) fn add_instance(&mut self, now: Timestamp, instance: NewInstance) {
        let key = instance.0.key.clone();
        self.shard(shard_of(&key)).group_or_new(&key).add_instance(now, instance);
    }

    /// Drops the instance of a key if nothing keeps it; true if so.
    pub(super) fn drop_unused_instance(&mut self, key: &LimitKey) -> bool {
        self.shard(shard_of(key)).drop_unused_instance(key)
    }

    /// Sets when the sweep looks at a group: when something expires.
    #[cold]
    pub(super) fn schedule_sweep(&mut self, now: Timestamp, place: GroupPlace) {
        self.shard(place.shard()).schedule_sweep(now, place.slot());
    }

    #[inline]
    fn shard(&mut self, number: u32) -> &mut GroupShard {
        &mut self.0.iter_mut().find(|(other, _)| *other == number).expect(LOCKED).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, HoldTimeout, LimitKind};

    #[test]
    fn the_limits_of_one_model_are_one_group_and_other_keys_are_alone() {
        let group = |text: &str| GroupId::of(&LimitKey::new(text).unwrap());
        let model = "global:llm:openai:gpt-4o";
        assert_eq!(group(&format!("{model}:rpm")), group(&format!("{model}:tpm")));
        assert_eq!(group(&format!("{model}:rpm")), group(&format!("{model}:concurrency")));
        assert_ne!(group("global:llm:openai:a:rpm"), group("global:llm:openai:b:rpm"));
        assert_ne!(group("global:search:a"), group("global:search:b"));
        assert_ne!(group("rpm"), group("tpm"));
    }

    fn key(n: u32) -> LimitKey {
        LimitKey::new(format!("key-{n}")).unwrap()
    }

    fn define(groups: &Groups, key: &LimitKey) {
        let kind = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(1).unwrap() };
        let limit = Limit::new(key.clone(), kind, Capacity::new(1).unwrap());
        let now = Timestamp::from_unix_nanos(0);
        groups.lock_one(key).group_or_new(key).define(now, limit).unwrap();
    }

    #[test]
    fn groups_are_found_whatever_was_removed_before() {
        let mut random = fastrand::Rng::with_seed(3);
        let groups = Groups::default();
        let mut expected = std::collections::BTreeSet::new();
        for round in 0..40_000 {
            let n = random.u32(..if round / 10_000 % 2 == 0 { 2_000 } else { 50 });
            if expected.insert(n) {
                define(&groups, &key(n));
            } else {
                expected.remove(&n);
                let mut shard = groups.lock_one(&key(n));
                assert!(shard.group_of(&key(n)).unwrap().remove(&key(n)));
                shard.drop_unused(&key(n));
            }
        }
        for n in 0..2_000 {
            let mut shard = groups.lock_one(&key(n));
            let found = shard.group_of(&key(n)).is_some_and(|group| group.find(&key(n)).is_some());
            assert_eq!(found, expected.contains(&n), "{n}");
        }
        let count: usize =
            groups.shards.each().map(|shard| shard.lock().groups_mut().count()).sum();
        assert_eq!(count, expected.len(), "a group without limits takes no room");
    }

    /// MEM-04: the sweep looks at a group when something expires there, and not at all while nothing is live.
    #[test]
    fn mem_04_the_sweep_looks_only_at_groups_with_live_reservations() {
        let groups = Groups::default();
        (0..1_000).for_each(|n| define(&groups, &key(n)));
        let scheduled =
            || groups.shards.each().map(|shard| shard.lock().sweeps.len()).sum::<usize>();
        assert_eq!(scheduled(), 0);
        let now = Timestamp::from_unix_nanos(0);
        let mut locked = LockedGroups::default();
        groups.lock(&mut locked, [shard_of(&key(7))].into_iter());
        let place = locked.find(&key(7)).unwrap();
        let (_, expires_at) = locked.group(place).hold(now, 0, 1);
        locked.schedule_sweep(now, place);
        drop(locked);
        groups.shards.each().for_each(|shard| assert!(!shard.lock().sweep(now, 10)));
        assert_eq!(scheduled(), 1);
        groups.shards.each().for_each(|shard| assert!(!shard.lock().sweep(expires_at, 10)));
        assert_eq!(scheduled(), 0);
        let mut shard = groups.lock_one(&key(7));
        assert!(shard.group_of(&key(7)).unwrap().is_idle());
    }
}
