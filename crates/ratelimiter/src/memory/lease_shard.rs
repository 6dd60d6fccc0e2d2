//! Shards of the leases, open and past, by lease ID.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;

use super::MemoryOptions;
use super::lease_index::{FoundLease, HashedId, LeaseIndex};
use super::open_leases::LeasePlace;
use super::past_leases::{PastLeases, PastOutcome, PastPlace};
use super::poison::guard;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// The most shards that leases are spread over.
const SHARD_COUNT_MAX: usize = 64;
/// A shard remembers at least this many past leases, so that "the oldest first" holds exactly for a small memory and
/// nearly for a large one.
const REMEMBERED_PER_SHARD_MIN: usize = 4_096;

/// All leases, in shards with one lock each.
#[derive(Debug)]
pub(super) struct Leases {
    shards: Box<[Padded]>,
    hasher: RandomState,
}

/// A shard on its own cache lines, to avoid false sharing.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<LeaseShard>);

/// One shard. An open lease is stored in the group of its limits; the index locates it.
#[derive(Debug)]
pub(super) struct LeaseShard {
    /// The places of the open leases, by the hash of their IDs.
    index: LeaseIndex,
    past: PastLeases,
    /// Where the jitter of hints comes from.
    pub(super) random: fastrand::Rng,
}

/// The result of looking a lease up.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeaseLookup {
    Open(FoundLease),
    /// It is past, unless that was too long ago.
    Past(PastPlace),
}

impl Leases {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        // A power of two, so that some bits of the hash select the shard.
        let wanted = options.remember_max / REMEMBERED_PER_SHARD_MIN;
        let count = 1 << wanted.clamp(1, SHARD_COUNT_MAX).ilog2();
        let hasher = RandomState::default();
        let mut seeds = fastrand::Rng::with_seed(options.seed);
        let shard = |number| {
            // The shares add up to `remember_max`, so the total over all shards is bounded by it.
            let share = options.remember_max / count;
            let rest = usize::from(number < options.remember_max % count);
            let past = PastLeases::new(options.remember_for, share + rest);
            let index = LeaseIndex::default();
            Padded(Mutex::new(LeaseShard { index, past, random: seeds.fork() }))
        };
        let shards = (0..count).map(shard).collect();
        Self { shards, hasher }
    }

    /// Locks the shard of a lease.
    #[inline]
    pub(super) fn lock(&self, id: LeaseId) -> (HashedId, MutexGuard<'_, LeaseShard>) {
        let (hash, part) = hash_by(&self.hasher, id);
        let shard = &self.shards[part as usize & (self.shards.len() - 1)];
        (HashedId { id, hash }, lock(shard))
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LeaseShard>> {
        self.shards.iter().map(lock)
    }
}

/// One hash for the index of a shard, and one that selects the shard. Clients choose lease IDs, so the hashes are seeded at random.
#[inline]
fn hash_by(hasher: &RandomState, id: LeaseId) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = hasher.hash_one(id.as_u128()).to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

#[inline]
fn lock(shard: &Padded) -> MutexGuard<'_, LeaseShard> {
    guard(shard.0.lock())
}

impl LeaseShard {
    /// Looks a lease up; `is_open` checks whether the open lease at a place has the ID.
    #[inline]
    pub(super) fn find(
        &self,
        id: HashedId,
        is_open: impl FnMut(LeasePlace) -> bool,
    ) -> Option<LeaseLookup> {
        match self.find_open(id, is_open) {
            Some(found) => Some(LeaseLookup::Open(found)),
            None => self.past.find(id).map(LeaseLookup::Past),
        }
    }

    /// The same for open leases only.
    #[inline]
    pub(super) fn find_open(
        &self,
        id: HashedId,
        is_open: impl FnMut(LeasePlace) -> bool,
    ) -> Option<FoundLease> {
        self.index.find(id, is_open)
    }

    /// The outcome of a past lease that was found; `None` if it is too old and forgotten.
    pub(super) fn past(&mut self, now: Timestamp, place: PastPlace) -> Option<PastOutcome> {
        let past = self.past.past_at(place, now);
        if past.is_none() {
            self.past.forget_old(now);
        }
        past
    }

    /// Adds a lease that was allowed and is not known.
    #[inline]
    pub(super) fn allow(&mut self, id: HashedId, place: LeasePlace) {
        self.index.insert(id, place);
    }

    /// Remembers a new lease as denied. The first limit without room has a key with this tag.
    pub(super) fn deny(&mut self, now: Timestamp, id: HashedId, key_tag: u32) {
        self.past.push(now, id, PastOutcome::Denied(key_tag));
    }

    /// Ends the open lease that was found.
    #[inline]
    pub(super) fn end(&mut self, now: Timestamp, id: HashedId, found: FoundLease) {
        self.index.remove(found);
        self.past.push(now, id, PastOutcome::Ended);
    }

    /// Forgets what is too old, and releases unused memory.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.past.forget_old(now);
        self.past.shrink_to_fit();
        self.index.shrink_to_fit();
    }

    pub(super) fn past_count(&self) -> usize {
        self.past.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn leases(remember_max: usize, remember_for: Duration) -> Leases {
        Leases::new(&MemoryOptions { remember_max, remember_for, ..MemoryOptions::default() })
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    /// In these tests, a lease's place is derived from its ID.
    fn place(id: u128) -> LeasePlace {
        let slot = u32::try_from(id).unwrap();
        LeasePlace { group: slot % 7, slot }
    }

    fn find(leases: &Leases, now: Timestamp, id: u128) -> Option<LeaseLookup> {
        let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
        let known = shard.find(hashed, |found| found == place(id))?;
        match known {
            LeaseLookup::Open(_) => Some(known),
            LeaseLookup::Past(at) => shard.past(now, at).map(|_| known),
        }
    }

    fn allow(leases: &Leases, id: u128) {
        let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
        shard.allow(hashed, place(id));
    }

    fn end(leases: &Leases, now: Timestamp, id: u128) {
        let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
        let Some(found) = shard.find_open(hashed, |found| found == place(id)) else {
            panic!("{id} is open");
        };
        shard.end(now, hashed, found);
    }

    /// A lease that is allowed and ends at once.
    fn remember(leases: &Leases, now: Timestamp, id: u128) {
        allow(leases, id);
        end(leases, now, id);
    }

    fn past(leases: &Leases, now: Timestamp) -> Vec<u128> {
        (0..100).filter(|id| matches!(find(leases, now, *id), Some(LeaseLookup::Past(_)))).collect()
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_number() {
        let leases = leases(3, Duration::from_secs(600));
        for n in 0..10 {
            remember(&leases, at(0), n);
            assert_eq!(past(&leases, at(0)), (n.saturating_sub(2)..=n).collect::<Vec<_>>());
        }
    }

    /// RES-09
    #[test]
    fn res_09_a_large_memory_forgets_some_at_once_and_never_has_too_many() {
        let leases = leases(8_000, Duration::from_secs(600));
        for n in 0..30_000 {
            remember(&leases, at(0), n);
            assert!(leases.each().map(|shard| shard.past_count()).sum::<usize>() <= 8_000);
        }
        assert!(leases.each().map(|shard| shard.past_count()).sum::<usize>() > 7_900);
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_age() {
        let leases = leases(100, Duration::from_millis(10));
        for n in 0..20 {
            remember(&leases, at(n), u128::from(n));
        }
        assert_eq!(past(&leases, at(19)), (10..20).collect::<Vec<_>>());
        assert_eq!(past(&leases, at(28)), [19]);
        assert_eq!(past(&leases, at(29)), [0; 0]);
        assert_eq!(leases.each().map(|shard| shard.past_count()).sum::<usize>(), 0);
    }

    #[test]
    fn nothing_is_remembered_with_a_bound_of_0() {
        let leases = leases(0, Duration::from_secs(600));
        remember(&leases, at(0), 1);
        assert_eq!(past(&leases, at(0)), [0; 0]);
    }

    #[test]
    fn leases_are_found_whatever_ended_before() {
        let leases = leases(1_000_000, Duration::MAX);
        let mut random = fastrand::Rng::with_seed(3);
        let mut open: Vec<u128> = Vec::new();
        for id in 0..20_000 {
            allow(&leases, id);
            open.push(id);
            if random.bool() {
                end(&leases, at(0), open.swap_remove(random.usize(..open.len())));
            }
        }
        for id in 0..20_000 {
            let is_open = matches!(find(&leases, at(1), id), Some(LeaseLookup::Open(found)) if found.place() == place(id));
            assert_eq!(is_open, open.contains(&id), "{id}");
        }
    }
}
