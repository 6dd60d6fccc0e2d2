//! The groups of limits: lock-free lookup and ordered locking.
//!
//! Every request reads the table and only an administrator changes it, so lookups take no lock. Lock-free readers may see a stale
//! table: verify under the group's lock, and retry under the table lock when nothing was found.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use arrayvec::ArrayVec;

use super::group::Group;
use super::lease_index::{FoundLease, HashedId};
use super::lease_shard::LeaseShard;
use super::live_limit::LiveLimit;
use super::open_leases::LimitPlace;
use super::poison::{PoisonFlag, guard};
use crate::clock::Timestamp;
use crate::error::{ReserveError, Unanswered};
use crate::key::LimitKey;
use crate::request::{REQUIREMENTS_MAX, ReserveRequest};

/// How many groups the first block has; each further block has twice as many as the one before.
const FIRST_BLOCK: u32 = 32;
const BLOCKS: usize = 20;
/// How many groups there may be.
const GROUPS_MAX: u32 = FIRST_BLOCK * ((1 << BLOCKS) - 1);
/// How many entries the first table has; each further table has twice as many as the one before.
const FIRST_TABLE: usize = 64;
const TABLES: usize = 21;

/// All groups of limits. A group keeps its number while it has limits or leases.
#[derive(Debug, Default)]
pub(super) struct Groups {
    blocks: [OnceLock<Box<[Padded]>>; BLOCKS],
    /// Tables of growing size; the last one is in use. Open addressing with linear probing; an entry is the group's
    /// hash in the high half, its number plus one in the low half, or 0. At most half of them are in use.
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES],
    /// The index of the table in use.
    table: AtomicUsize,
    group_table: Mutex<GroupTable>,
    /// Covers the groups, the tables and the leases.
    pub(super) poison: PoisonFlag,
}

/// A group on its own cache line, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(Mutex<Group>);

/// State for adding and removing groups.
#[derive(Debug, Default)]
struct GroupTable {
    /// How many numbers have been given out.
    made: u32,
    /// The [`group_hash`] of each group's keys, by its number; `None` if it has no limits.
    hashes: Vec<Option<u32>>,
    /// Numbers whose groups have nothing.
    free: Vec<u32>,
}

/// The hash that identifies a key's group. Requests usually need the limits of one model together, so these form one group with one
/// lock; every other key is a group of one. Groups with the same hash are merged.
#[inline]
pub(super) const fn group_hash(key: &LimitKey) -> u32 {
    key.hashes().stem
}

impl Groups {
    /// The group with a number that was given out.
    #[inline]
    fn at(&self, number: u32) -> &Mutex<Group> {
        // Blocks double, so the highest bit selects the block and the others the position in it.
        let n = number + FIRST_BLOCK;
        let block = n.ilog2() - FIRST_BLOCK.ilog2();
        let groups = self.blocks[block as usize].get().expect("the block of a number exists");
        &groups[(n - (FIRST_BLOCK << block)) as usize].0
    }

    #[inline]
    fn lock_one(&self, number: u32) -> MutexGuard<'_, Group> {
        guard(self.at(number).lock())
    }

    /// Looks a group up without a lock. The result may be stale, and a group that is being moved in the table may be missed.
    #[inline]
    fn find_lockfree(&self, hash: u32) -> Option<u32> {
        let table = self.tables[self.table.load(Ordering::Acquire)].get()?;
        let mask = table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (of, number) = parts(table[at].load(Ordering::Acquire))?;
            if of == hash {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, GroupTable> {
        guard(self.group_table.lock())
    }

    /// The number of the group that a key belongs to, if there is one.
    #[inline]
    pub(super) fn number_of(&self, key: &LimitKey) -> Option<u32> {
        let hash = group_hash(key);
        match self.find_lockfree(hash) {
            None => self.find_locked(hash),
            found => found,
        }
    }

    /// Looks a group up under the table lock, so that the result is exact.
    #[cold]
    fn find_locked(&self, hash: u32) -> Option<u32> {
        let _table = self.lock_table();
        self.find_lockfree(hash)
    }

    /// True if the key, which was not found in the group with this number, now belongs to another group.
    #[cold]
    pub(super) fn group_changed(&self, key: &LimitKey, number: u32) -> bool {
        self.find_locked(group_hash(key)).is_some_and(|now| now != number)
    }

    /// The error for a request of which a key belongs to no group: it names the first one that is not defined.
    #[cold]
    pub(super) fn first_unknown(&self, request: &ReserveRequest) -> ReserveError {
        let mut keys = request.requirements.iter().map(|requirement| &requirement.key);
        let is_defined =
            |key: &LimitKey| self.lock_for(key).is_some_and(|group| group.find(key).is_some());
        let last = request.requirements.len() - 1;
        let unknown = keys.find(|key| !is_defined(key));
        let key = unknown.unwrap_or(&request.requirements[last].key).clone();
        ReserveError::UnknownKey { key }
    }

    /// Locks the group of a limit, if its key is defined.
    pub(super) fn lock_for(&self, key: &LimitKey) -> Option<MutexGuard<'_, Group>> {
        loop {
            let number = self.number_of(key)?;
            let group = self.lock_one(number);
            if group.find(key).is_some() {
                return Some(group);
            }
            drop(group);
            if !self.group_changed(key, number) {
                return None;
            }
        }
    }

    /// Locks the group that a key belongs to, and makes it if there is none.
    pub(super) fn lock_or_make(&self, key: &LimitKey) -> Result<MutexGuard<'_, Group>, Unanswered> {
        let hash = group_hash(key);
        let mut group_table = self.lock_table();
        let _change = self.poison.begin_change()?;
        if let Some(number) = self.find_lockfree(hash) {
            return Ok(self.lock_one(number));
        }
        let number = group_table.free.pop().unwrap_or_else(|| self.make_number(&mut group_table));
        group_table.hashes[number as usize] = Some(hash);
        self.enter(hash, number, &group_table);
        Ok(self.lock_one(number))
    }

    fn make_number(&self, group_table: &mut GroupTable) -> u32 {
        let number = group_table.made;
        assert!(number < GROUPS_MAX, "there are at most {GROUPS_MAX} groups of limits");
        group_table.made += 1;
        group_table.hashes.push(None);
        let block = (number + FIRST_BLOCK).ilog2() - FIRST_BLOCK.ilog2();
        self.blocks[block as usize]
            .get_or_init(|| (0..FIRST_BLOCK << block).map(|_| Padded::default()).collect());
        number
    }

    /// Puts a group into the table in force, or into a larger one if that is half full.
    fn enter(&self, hash: u32, number: u32, group_table: &GroupTable) {
        let in_force = self.table.load(Ordering::Relaxed);
        let count = group_table.made as usize - group_table.free.len();
        let make = |at: usize| {
            self.tables[at]
                .get_or_init(|| (0..FIRST_TABLE << at).map(|_| AtomicU64::new(0)).collect())
        };
        if count * 2 <= FIRST_TABLE << in_force {
            put(make(in_force), entry(hash, number));
            return;
        }
        let larger = make(in_force + 1);
        for old in make(in_force) {
            if let old @ 1.. = old.load(Ordering::Relaxed) {
                put(larger, old);
            }
        }
        put(larger, entry(hash, number));
        self.table.store(in_force + 1, Ordering::Release);
    }

    /// Removes a group without limits and leases.
    fn release(&self, number: u32) -> Result<(), Unanswered> {
        let mut group_table = self.lock_table();
        let mut group = self.lock_one(number);
        let _change = self.poison.begin_change()?;
        if !group.is_unused() {
            return Ok(());
        }
        let Some(hash) = group_table.hashes[number as usize].take() else {
            return Ok(());
        };
        *group = Group::default();
        let table = self.tables[self.table.load(Ordering::Relaxed)].get();
        take_out(table.expect("a group is in the table"), hash);
        group_table.free.push(number);
        Ok(())
    }

    /// Locks every group in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Group>> {
        let made = self.lock_table().made;
        (0..made).map(|number| self.lock_one(number))
    }

    /// Finds an open lease, while no group is locked.
    #[cold]
    pub(super) fn find_lease(&self, id: HashedId, leases: &LeaseShard) -> Option<FoundLease> {
        leases.find_open(id, |place| self.lock_one(place.group).leases.at(place.slot).id == id.id)
    }

    /// Calls `sweep` on every group in turn, and removes the groups that are unused afterwards.
    pub(super) fn sweep(
        &self,
        mut sweep: impl FnMut(&mut Group) -> Result<(), Unanswered>,
    ) -> Result<(), Unanswered> {
        let made = self.lock_table().made;
        for number in 0..made {
            let mut group = self.lock_one(number);
            sweep(&mut group)?;
            if group.is_unused() {
                drop(group);
                self.release(number)?;
            }
        }
        Ok(())
    }

    /// Unlocks all groups, then locks this one.
    #[inline]
    pub(super) fn lock_first<'a>(&'a self, locked: &mut LockedGroups<'a>, number: u32) {
        locked.unlock();
        locked.guards.push((number, self.lock_one(number)));
    }

    /// Locks groups in the order of their numbers, so that threads cannot deadlock. Groups that are locked already
    /// have lower numbers.
    #[inline]
    pub(super) fn lock<'a>(&'a self, locked: &mut LockedGroups<'a>, numbers: &GroupNumbers) {
        for &number in &numbers.0 {
            locked.guards.push((number, self.lock_one(number)));
        }
    }
}

/// Different numbers of groups that are to be locked, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupNumbers(ArrayVec<u32, { REQUIREMENTS_MAX + 1 }>);

impl GroupNumbers {
    /// Adds a number if it is not there.
    #[inline]
    pub(super) fn add(&mut self, number: u32) {
        // They are few, and requirements of one group are usually adjacent.
        if self.0.contains(&number) {
            return;
        }
        let at = self.0.iter().rposition(|other| *other < number).map_or(0, |at| at + 1);
        self.0.insert(at, number);
    }
}

#[inline]
const fn entry(hash: u32, number: u32) -> u64 {
    (hash as u64) << 32 | (number as u64 + 1)
}

/// The hash and the number of an entry in use.
#[inline]
const fn parts(entry: u64) -> Option<(u32, u32)> {
    let [a, b, c, d, e, f, g, h] = entry.to_le_bytes();
    match u32::from_le_bytes([a, b, c, d]).checked_sub(1) {
        Some(number) => Some((u32::from_le_bytes([e, f, g, h]), number)),
        None => None,
    }
}

fn home(entry: u64, table: &[AtomicU64]) -> usize {
    usize::try_from(entry >> 32).expect("32 bits") & (table.len() - 1)
}

/// Puts an entry into a table, under the table lock.
fn put(table: &[AtomicU64], entry: u64) {
    let mut at = home(entry, table);
    while table[at].load(Ordering::Relaxed) != 0 {
        at = (at + 1) & (table.len() - 1);
    }
    table[at].store(entry, Ordering::Release);
}

/// Removes the entry of a hash. The entries after it are reinserted, so that no lookup stops too early.
fn take_out(table: &[AtomicU64], hash: u32) {
    let mask = table.len() - 1;
    let mut at = hash as usize & mask;
    while parts(table[at].load(Ordering::Relaxed)).is_some_and(|(of, _)| of != hash) {
        at = (at + 1) & mask;
    }
    table[at].store(0, Ordering::Release);
    loop {
        at = (at + 1) & mask;
        let moved = table[at].swap(0, Ordering::AcqRel);
        if moved == 0 {
            return;
        }
        put(table, moved);
    }
}

/// The groups that one request needs.
#[derive(Debug, Default)]
pub(super) struct LockedGroups<'a> {
    /// The locked groups by growing number: those of the limits, and that of the lease.
    guards: ArrayVec<(u32, MutexGuard<'a, Group>), { REQUIREMENTS_MAX + 1 }>,
}

/// Which of the locked groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockedGroup(u8);

impl LockedGroup {
    pub(super) const FIRST: Self = Self(0);
}

impl LockedGroups<'_> {
    /// Unlocks all.
    #[inline]
    pub(super) fn unlock(&mut self) {
        self.guards.clear();
    }

    /// Returns what has expired in all these groups.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) {
        for (_, group) in &mut self.guards {
            group.expire(now);
        }
    }

    /// Finds a group among the locked ones, to use it several times.
    #[inline]
    pub(super) fn find(&self, number: u32) -> LockedGroup {
        self.find_if_locked(number).expect("the request has locked its groups")
    }

    /// Finds a group if it is among the locked ones.
    #[inline]
    pub(super) fn find_if_locked(&self, number: u32) -> Option<LockedGroup> {
        let at = (0..).zip(&self.guards).find(|(_, (locked, _))| *locked == number)?.0;
        Some(LockedGroup(at))
    }

    #[inline]
    pub(super) fn group(&self, at: LockedGroup) -> &Group {
        &self.guards[usize::from(at.0)].1
    }

    #[inline]
    pub(super) fn group_mut(&mut self, at: LockedGroup) -> &mut Group {
        &mut self.guards[usize::from(at.0)].1
    }

    /// The first group, with its number.
    #[inline]
    pub(super) fn first(&mut self) -> (u32, &mut Group) {
        let (number, group) = &mut self.guards[0];
        (*number, group)
    }

    /// The limit at a place where one was found under these locks, or where a live reservation is.
    #[inline]
    pub(super) fn limit(&self, place: LimitPlace) -> &LiveLimit {
        self.group(self.find(place.group)).limit(place.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Capacity, HoldTimeout, Limit, LimitKind};

    #[test]
    fn a_group_is_one_cache_line() {
        assert_eq!(size_of::<Padded>(), 64);
    }

    #[test]
    fn the_limits_of_one_model_are_one_group_and_other_keys_are_alone() {
        let group = |text: &str| group_hash(&LimitKey::new(text).unwrap());
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
        groups.lock_or_make(key).unwrap().define(Timestamp::from_unix_nanos(0), limit).unwrap();
    }

    #[test]
    fn groups_are_found_whatever_was_taken_out_before() {
        let mut random = fastrand::Rng::with_seed(3);
        let groups = Groups::default();
        let mut expected = std::collections::BTreeSet::new();
        for round in 0..4_000 {
            let n = random.u32(..if round / 1_000 % 2 == 0 { 2_000 } else { 50 });
            if expected.insert(n) {
                define(&groups, &key(n));
            } else {
                expected.remove(&n);
                assert!(groups.lock_for(&key(n)).unwrap().remove(&key(n)));
                groups.sweep(|_| Ok(())).unwrap();
            }
        }
        for n in 0..2_000 {
            let found = groups.lock_for(&key(n)).is_some_and(|group| group.find(&key(n)).is_some());
            assert_eq!(found, expected.contains(&n), "{n}");
        }
    }

    #[test]
    fn numbers_are_given_out_again() {
        let groups = Groups::default();
        for n in 0..10_000 {
            define(&groups, &key(n));
            groups.lock_for(&key(n)).unwrap().remove(&key(n));
            groups.sweep(|_| Ok(())).unwrap();
        }
        assert_eq!(groups.lock_table().made, 1);
    }

    #[test]
    fn groups_are_found_while_others_come_and_go() {
        let groups = Groups::default();
        (0..100).for_each(|n| define(&groups, &key(n)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 100..3_000 {
                    define(&groups, &key(n));
                    if n % 3 > 0 {
                        groups.lock_for(&key(n)).unwrap().remove(&key(n));
                        groups.sweep(|_| Ok(())).unwrap();
                    }
                }
            });
            for n in (0..100).cycle().take(100_000) {
                assert!(groups.lock_for(&key(n)).unwrap().find(&key(n)).is_some(), "{n}");
            }
        });
    }
}
