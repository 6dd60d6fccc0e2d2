//! All groups of limits, in shards with one lock each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use arrayvec::ArrayVec;
use slab::Slab;

use super::group::{Group, GroupId};
use super::poison::guard;
use crate::clock::Timestamp;
use crate::key::LimitKey;
use crate::request::REQUIREMENTS_MAX;

/// Enough that threads rarely meet in a shard without sharing a model.
const SHARDS: u32 = 256;
const LOCKED: &str = "a request locks the shards of its groups";
/// A group with live reservations is swept at least this often, so that it releases unused memory.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Groups {
    shards: Box<[Padded]>,
}

/// A shard on its own cache lines, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Padded(Mutex<Shard>);

/// The groups of some keys.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The slots of the groups, sorted by their IDs.
    slots: Vec<(GroupId, u32)>,
    groups: Slab<Group>,
    /// When the sweep looks at which slot, the soonest first. An entry counts only if the group says the same.
    sweeps: BinaryHeap<Reverse<(Timestamp, u32)>>,
}

/// Where a group is: its slot, and in the lowest bits its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlace(u32);

impl Padded {
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        guard(self.0.lock())
    }
}

impl GroupPlace {
    #[inline]
    const fn slot(self) -> usize {
        (self.0 / SHARDS) as usize
    }

    #[inline]
    pub(super) const fn shard(self) -> u32 {
        self.0 % SHARDS
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Padded::default()).collect() }
    }
}

/// The number of the shard that has a key's group.
#[inline]
pub(super) const fn shard_of(key: &LimitKey) -> u32 {
    GroupId::of(key).number() % SHARDS
}

impl Groups {
    #[inline]
    fn lock_shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.shards[number as usize].lock()
    }

    /// Locks the shard of a key.
    pub(super) fn lock_one(&self, key: &LimitKey) -> MutexGuard<'_, Shard> {
        self.lock_shard(shard_of(key))
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
                locked.0.push((number, self.lock_shard(number)));
                bits &= bits - 1;
            }
        }
    }

    /// Every shard, to be locked.
    pub(super) fn each(&self) -> impl Iterator<Item = &Padded> {
        self.shards.iter()
    }
}

impl Shard {
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

    pub(super) fn group_or_new(&mut self, key: &LimitKey) -> &mut Group {
        let id = GroupId::of(key);
        let slot = match self.position(id) {
            Ok(at) => self.slots[at].1,
            Err(at) => {
                let slot = u32::try_from(self.groups.insert(Group::new(id))).ok();
                let slot = slot.filter(|slot| *slot < u32::MAX / SHARDS);
                let slot = slot.expect("a place fits 32 bits");
                self.slots.insert(at, (id, slot));
                slot
            }
        };
        &mut self.groups[slot as usize]
    }

    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().map(|(_, group)| group)
    }

    /// Removes the group of a key if it has no limits.
    pub(super) fn drop_unused(&mut self, key: &LimitKey) {
        if let Some(slot) = self.find(GroupId::of(key))
            && self.groups[slot as usize].has_no_limits()
        {
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        let group = self.groups.remove(slot as usize);
        self.slots.remove(self.position(group.id).expect("every group has its slot there"));
    }

    /// Sets when the sweep looks at a group with live reservations.
    fn schedule_sweep(&mut self, now: Timestamp, slot: u32) {
        let group = &mut self.groups[slot as usize];
        group.swept_at = group.next_expiry().min(now.after(SWEEP_INTERVAL_MAX));
        self.sweeps.push(Reverse((group.swept_at, slot)));
    }

    /// Frees what has expired in at most `count_max` groups, and releases unused memory; false if no more are due.
    pub(super) fn sweep(&mut self, now: Timestamp, count_max: usize) -> bool {
        for _ in 0..count_max {
            let Some((due, slot)) = self.sweeps.peek().map(|Reverse(next)| *next) else {
                break;
            };
            if due > now {
                break;
            }
            self.sweeps.pop();
            let Some(group) = self.groups.get_mut(slot as usize).filter(|g| g.swept_at == due)
            else {
                continue;
            };
            group.expire(now);
            group.shrink_to_fit();
            group.swept_at = Timestamp::NEVER;
            if group.has_no_limits() {
                self.remove(slot);
            } else if !group.is_idle() {
                self.schedule_sweep(now, slot);
            }
        }
        self.groups.shrink_to_fit();
        self.sweeps.peek().is_some_and(|Reverse((due, _))| *due <= now)
    }
}

/// The shards that one request needs.
#[derive(Debug, Default)]
pub(super) struct LockedGroups<'a>(ArrayVec<(u32, MutexGuard<'a, Shard>), REQUIREMENTS_MAX>);

impl LockedGroups<'_> {
    #[inline]
    fn shard(&self, number: u32) -> &Shard {
        let (_, shard) = self.0.iter().find(|(other, _)| *other == number).expect(LOCKED);
        shard
    }

    #[inline]
    fn shard_mut(&mut self, number: u32) -> &mut Shard {
        let (_, shard) = self.0.iter_mut().find(|(other, _)| *other == number).expect(LOCKED);
        shard
    }

    #[inline]
    pub(super) fn find(&self, key: &LimitKey) -> Option<GroupPlace> {
        let number = shard_of(key);
        let slot = self.shard(number).find(GroupId::of(key))?;
        Some(GroupPlace(slot * SHARDS + number))
    }

    #[inline]
    pub(super) fn group(&self, place: GroupPlace) -> &Group {
        &self.shard(place.shard()).groups[place.slot()]
    }

    #[inline]
    pub(super) fn group_mut(&mut self, place: GroupPlace) -> &mut Group {
        &mut self.shard_mut(place.shard()).groups[place.slot()]
    }

    /// Sets when the sweep looks at a group: when something expires.
    #[cold]
    pub(super) fn schedule_sweep(&mut self, now: Timestamp, place: GroupPlace) {
        let slot = place.0 / SHARDS;
        self.shard_mut(place.shard()).schedule_sweep(now, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, HoldTimeout, Limit, LimitKind};

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
        let count: usize = groups.each().map(|shard| shard.lock().groups_mut().count()).sum();
        assert_eq!(count, expected.len(), "a group without limits takes no room");
    }

    /// MEM-04: the sweep looks at a group when something expires there, and not at all while nothing is live.
    #[test]
    fn mem_04_the_sweep_looks_only_at_groups_with_live_reservations() {
        let groups = Groups::default();
        (0..1_000).for_each(|n| define(&groups, &key(n)));
        let scheduled = || groups.each().map(|shard| shard.lock().sweeps.len()).sum::<usize>();
        assert_eq!(scheduled(), 0);
        let now = Timestamp::from_unix_nanos(0);
        let mut locked = LockedGroups::default();
        groups.lock(&mut locked, [shard_of(&key(7))].into_iter());
        let place = locked.find(&key(7)).unwrap();
        let (_, expires_at) = locked.group_mut(place).hold(now, 0, 1);
        locked.schedule_sweep(now, place);
        drop(locked);
        groups.each().for_each(|shard| assert!(!shard.lock().sweep(now, 10)));
        assert_eq!(scheduled(), 1);
        groups.each().for_each(|shard| assert!(!shard.lock().sweep(expires_at, 10)));
        assert_eq!(scheduled(), 0);
        let mut shard = groups.lock_one(&key(7));
        assert!(shard.group_of(&key(7)).unwrap().is_idle());
    }
}
