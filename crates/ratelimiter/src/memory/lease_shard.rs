//! A part of the leases: open and past ones whose IDs fall into one shard.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;

use super::MemoryOptions;
use super::open_leases::{LimitPlace, OpenLease, OpenLeases};
use super::past_leases::{Past, PastLeases};
use super::place_index::{Found, PlaceIndex};
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// The most shards that leases are spread over.
const SHARD_COUNT_MAX: usize = 64;
/// A shard remembers at least this many past leases, so that "the oldest first" holds exactly for a small memory and
/// nearly for a large one.
const REMEMBERED_PER_SHARD_MIN: usize = 4_096;

/// All leases, in shards that are locked on their own.
#[derive(Debug)]
pub(super) struct Leases {
    shards: Box<[Padded]>,
    hasher: RandomState,
}

/// A shard on cache lines of its own, so that threads on different shards do not slow each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<LeaseShard>);

/// A part of the leases. A lease is in the index from its first reserve until it is forgotten: when it ends, only the place that
/// the index tells changes.
#[derive(Debug)]
pub(super) struct LeaseShard {
    /// The places of all leases, by the hash of their IDs.
    index: PlaceIndex,
    open: OpenLeases,
    past: PastLeases,
    hasher: RandomState,
    /// Where the jitter of hints comes from.
    pub(super) random: fastrand::Rng,
}

/// Where a lease stands. In the index, the highest bit tells which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open(u32),
    Past(u32),
}

/// A lease ID with its hash, which is made once a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedId {
    pub(super) id: LeaseId,
    hash: u64,
}

/// What is known of a lease.
#[derive(Debug)]
pub(super) enum Known<'a> {
    Open(&'a OpenLease),
    Past(Past),
}

/// Where an open lease was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundLease(Found);

impl Leases {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        // A power of two, so that some bits of the hash tell the shard.
        let wanted = options.remember_max / REMEMBERED_PER_SHARD_MIN;
        let count = 1 << wanted.clamp(1, SHARD_COUNT_MAX).ilog2();
        let hasher = RandomState::default();
        let mut seeds = fastrand::Rng::with_seed(options.seed);
        let shard = |number| {
            // The shares add up to the whole, so the bound over all shards is the one that was chosen.
            let share = options.remember_max / count;
            let rest = usize::from(number < options.remember_max % count);
            let open = OpenLeases::default();
            let past = PastLeases::new(options.remember_for, share + rest);
            let (index, hasher) = (PlaceIndex::default(), hasher.clone());
            Padded(Mutex::new(LeaseShard { index, open, past, hasher, random: seeds.fork() }))
        };
        let shards = (0..count).map(shard).collect();
        Self { shards, hasher }
    }

    /// Locks the shard of a lease.
    #[inline]
    pub(super) fn lock(&self, id: LeaseId) -> (HashedId, MutexGuard<'_, LeaseShard>) {
        let hash = hash_by(&self.hasher, id);
        // The table of a shard uses the high half.
        let part = usize::from(hash.to_le_bytes()[0]);
        let shard = &self.shards[part & (self.shards.len() - 1)];
        (HashedId { id, hash }, lock(shard))
    }

    /// Locks every shard in turn.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, LeaseShard>> {
        self.shards.iter().map(lock)
    }
}

/// Lease IDs are chosen by clients, so their hash is keyed at random.
#[inline]
fn hash_by(hasher: &RandomState, id: LeaseId) -> u64 {
    hasher.hash_one(id.as_u128())
}

#[inline]
fn lock(shard: &Padded) -> MutexGuard<'_, LeaseShard> {
    shard.0.lock().expect("no thread has panicked while it held a lock")
}

impl Place {
    /// Past places begin here.
    const PAST: u32 = 1 << 31;

    #[inline]
    const fn of(number: u32) -> Self {
        match number.checked_sub(Self::PAST) {
            Some(at) => Self::Past(at),
            None => Self::Open(number),
        }
    }

    #[inline]
    const fn number(self) -> u32 {
        match self {
            Self::Open(at) => {
                assert!(at < Self::PAST, "a shard has fewer than 2^31 open leases");
                at
            }
            Self::Past(at) => at + Self::PAST,
        }
    }
}

impl LeaseShard {
    #[inline]
    fn id_at(&self, place: Place) -> LeaseId {
        match place {
            Place::Open(at) => self.open.at(at).id,
            Place::Past(at) => self.past.id_at(at),
        }
    }

    /// What is known of a lease.
    #[inline]
    pub(super) fn known(&mut self, now: Timestamp, id: HashedId) -> Option<Known<'_>> {
        if self.past.may_be_old(now) {
            self.forget_old(now);
        }
        let is_it = |place| self.id_at(Place::of(place)) == id.id;
        let found = self.index.find(id.hash, is_it)?;
        Some(match Place::of(found.place) {
            Place::Open(at) => Known::Open(self.open.at(at)),
            Place::Past(at) => Known::Past(self.past.past_at(at)),
        })
    }

    /// Finds an open lease.
    #[inline]
    pub(super) fn find_open(&self, id: HashedId) -> Option<FoundLease> {
        let is_it = |place| match Place::of(place) {
            Place::Open(at) => self.open.at(at).id == id.id,
            Place::Past(_) => false,
        };
        self.index.find(id.hash, is_it).map(FoundLease)
    }

    /// The lease that was found.
    #[inline]
    pub(super) fn open(&self, found: FoundLease) -> &OpenLease {
        self.open.at(found.0.place)
    }

    /// Adds a lease that was allowed and is not known.
    #[inline]
    pub(super) fn allow(&mut self, id: HashedId, lease: OpenLease, ends_at: Timestamp) {
        debug_assert_eq!(lease.id, id.id);
        let place = Place::Open(self.open.push(lease, ends_at));
        self.index.insert(id.hash, place.number());
    }

    /// Remembers a lease that is not known as one that was denied for want of room, first at this limit.
    pub(super) fn deny(&mut self, now: Timestamp, id: HashedId, first: LimitPlace) {
        let place = Place::Past(self.past.push(now, id.id, Past::Denied(first)));
        self.index.insert(id.hash, place.number());
        self.forget_excess();
    }

    /// Ends the open lease that was found.
    #[inline]
    pub(super) fn end(&mut self, now: Timestamp, found: FoundLease) {
        let at = found.0.place;
        let place = Place::Past(self.past.push(now, self.open.at(at).id, Past::Ended));
        self.index.replace(found.0, place.number());
        if let Some((moved, was_at)) = self.open.take_out(at) {
            let moved = self.find(moved, Place::Open(was_at));
            self.index.replace(moved, Place::Open(at).number());
        }
        self.forget_excess();
    }

    /// Where the index tells that a lease stands at this place.
    fn find(&self, id: LeaseId, place: Place) -> Found {
        let found = self.index.find(hash_by(&self.hasher, id), |other| other == place.number());
        found.expect("every lease is in the index")
    }

    /// Forgets some of the oldest if there are too many.
    #[inline]
    fn forget_excess(&mut self) {
        for _ in 0..self.past.excess() {
            let oldest = self.past.forget_oldest().expect("there are too many");
            self.forget(oldest);
        }
    }

    fn forget_old(&mut self, now: Timestamp) {
        while let Some(old) = self.past.forget_old(now) {
            self.forget(old);
        }
    }

    /// Takes a lease that has left the past ones out of the index.
    fn forget(&mut self, (at, id): (u32, LeaseId)) {
        let found = self.find(id, Place::Past(at));
        self.index.remove(found);
    }

    /// Ends the leases of which nothing is live any more, forgets what is too old, and gives unused room back.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.forget_old(now);
        let mut from = 0;
        while let Some(at) = self.open.first_ended(from, now) {
            let found = self.find(self.open.at(at).id, Place::Open(at));
            self.end(now, FoundLease(found));
            // Another lease stands here now, so the place is looked at again.
            from = at;
        }
        self.open.give_room_back();
        self.past.give_room_back();
        self.index.give_room_back();
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn past_count(&self) -> usize {
        self.past.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::open_leases::Reservations;

    fn leases(remember_max: usize, remember_for: Duration) -> Leases {
        Leases::new(&MemoryOptions { remember_max, remember_for, ..MemoryOptions::default() })
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    fn allow(leases: &Leases, now: Timestamp, id: u128, ends_at: Timestamp) {
        let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
        let (id, reservations) = (hashed.id, Reservations::new());
        shard.allow(hashed, OpenLease { id, reserved_at: now, reservations }, ends_at);
    }

    fn end(leases: &Leases, now: Timestamp, id: u128) {
        let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
        let found = shard.find_open(hashed).unwrap();
        assert_eq!(shard.open(found).id, hashed.id);
        shard.end(now, found);
    }

    /// A lease that is allowed and ends at once.
    fn remember(leases: &Leases, now: Timestamp, id: u128) {
        allow(leases, now, id, now);
        end(leases, now, id);
    }

    fn past(leases: &Leases, now: Timestamp) -> Vec<u128> {
        let is_past = |id: &u128| {
            let (hashed, mut shard) = leases.lock(LeaseId::from_u128(*id));
            matches!(shard.known(now, hashed), Some(Known::Past(Past::Ended)))
        };
        (0..100).filter(is_past).collect()
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
    fn nothing_is_remembered_where_none_may_be() {
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
            allow(&leases, at(0), id, at(1 + u64::from(id % 2 == 0)));
            open.push(id);
            if random.bool() {
                end(&leases, at(0), open.swap_remove(random.usize(..open.len())));
            }
        }
        leases.each().for_each(|mut shard| shard.sweep(at(1)));
        open.retain(|id| id % 2 == 0);
        for id in 0..20_000 {
            let (hashed, mut shard) = leases.lock(LeaseId::from_u128(id));
            let is_open = matches!(shard.known(at(1), hashed), Some(Known::Open(_)));
            assert_eq!(is_open, open.contains(&id), "{id}");
        }
        assert_eq!(leases.each().map(|shard| shard.open_count()).sum::<usize>(), open.len());
    }
}
