//! Ended and denied leases, whose IDs are not allowed again for a while.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// At least so many leases join the index at a time. There may be a million, so each is a cache miss or two; those of a batch
/// overlap.
const BATCH: usize = 32;

/// The most leases that are not in the index. While IDs grow nobody asks for an old one, so most leases never need it.
const UNINDEXED_MAX: usize = 16_384;

/// A shard that remembers fewer than this many remembers exactly so many; any other, a batch less at times.
const EXACT_MAX: usize = 4_000;

/// A lease ID with its hash, which is computed once per request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedId {
    pub(super) id: LeaseId,
    pub(super) hash: u64,
}

/// The outcome of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PastOutcome {
    /// It was completed, or all its reservations have expired.
    Ended {
        /// How many milliseconds it was open; at most 2^32-1, which only a lease that was renewed may exceed.
        open_ms: u32,
    },
    /// It was denied; the first limit without room has a key with this tag.
    Denied { key_tag: u32 },
}

/// The past leases of one shard, with an index. They are bounded in number and age.
#[derive(Debug)]
pub(super) struct PastLeases {
    /// The greatest ID there ever was. IDs begin with their creation time, so a new one is usually greater.
    greatest: LeaseId,
    /// Oldest first.
    queue: VecDeque<PastLease>,
    /// The number of the oldest lease: how many have left the queue, modulo 2^32.
    first: u32,
    /// The numbers of all leases but the newest, of which there are fewer than [`UNINDEXED_MAX`].
    index: HashTable<u32>,
    remember_for: Duration,
    remember_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    outcome: PastOutcome,
}

/// The hash of a lease ID. Clients choose IDs, so it is seeded at random.
#[inline]
pub(super) fn hash_of(id: LeaseId) -> u64 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    HASHER.hash_one(id.as_u128())
}

impl PastOutcome {
    /// It was reserved then, and has ended now.
    #[inline]
    pub(super) fn ended(reserved_at: Timestamp, now: Timestamp) -> Self {
        let open_ms = now.unix_ms() - reserved_at.unix_ms();
        Self::Ended { open_ms: u32::try_from(open_ms).unwrap_or(u32::MAX) }
    }
}

impl PastLeases {
    pub(super) fn new(remember_for: Duration, remember_max: usize) -> Self {
        let (queue, index) = (VecDeque::new(), HashTable::new());
        Self { greatest: LeaseId::from_u128(0), queue, first: 0, index, remember_for, remember_max }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The outcome of a lease that is remembered.
    #[inline]
    pub(super) fn find(&mut self, now: Timestamp, id: HashedId) -> Option<PastOutcome> {
        self.find_lease(now, id).map(|lease| lease.outcome)
    }

    /// When a lease that has ended was reserved, in whole milliseconds, if it is remembered.
    pub(super) fn reserved_at_ms(&mut self, now: Timestamp, id: HashedId) -> Option<u64> {
        match self.find_lease(now, id)? {
            PastLease { since, outcome: PastOutcome::Ended { open_ms }, .. } => {
                Some(since.unix_ms() - u64::from(open_ms))
            }
            PastLease { outcome: PastOutcome::Denied { .. }, .. } => None,
        }
    }

    #[inline]
    fn find_lease(&mut self, now: Timestamp, id: HashedId) -> Option<PastLease> {
        if id.id > self.greatest {
            return None;
        }
        if self.len() - self.index.len() >= BATCH {
            self.index_newest();
        }
        let lease = *self.search(id)?;
        if now.since(lease.since) < self.remember_for {
            return Some(lease);
        }
        while self.forget_old(now, BATCH) {}
        None
    }

    fn search(&self, HashedId { id, hash }: HashedId) -> Option<&PastLease> {
        let newest = self.queue.range(self.index.len()..).find(|lease| lease.id == id);
        let at = |number: &u32| &self.queue[number.wrapping_sub(self.first) as usize];
        newest.or_else(|| self.index.find(hash, |number| at(number).id == id).map(at))
    }

    /// Remembers a lease that is not remembered.
    #[inline]
    pub(super) fn push(&mut self, now: Timestamp, id: LeaseId, outcome: PastOutcome) {
        self.greatest = self.greatest.max(id);
        self.queue.push_back(PastLease { id, since: now, outcome });
        if self.len() - self.index.len() == UNINDEXED_MAX {
            self.index_newest();
        }
        if self.len() > self.remember_max {
            self.forget_surplus();
        }
    }

    /// Adds the newest leases to the index.
    #[cold]
    fn index_newest(&mut self) {
        let Self { queue, first, index, .. } = self;
        let hash_of = |number: &u32| hash_of(queue[number.wrapping_sub(*first) as usize].id);
        for at in index.len()..queue.len() {
            let number = first.wrapping_add(u32::try_from(at).expect("bounded by `remember_max`"));
            index.insert_unique(hash_of(&number), number, hash_of);
        }
    }

    /// There is one lease too many. Forgets a batch of the oldest, unless so few are remembered that each of them counts.
    #[cold]
    fn forget_surplus(&mut self) {
        let count = if self.remember_max < EXACT_MAX { 1 } else { BATCH };
        (0..count).for_each(|_| self.forget_oldest());
    }

    /// Forgets at most `count_max` leases that are too old; false if there are no more.
    pub(super) fn forget_old(&mut self, now: Timestamp, count_max: usize) -> bool {
        for _ in 0..count_max {
            let oldest = self.queue.front();
            if oldest.is_none_or(|lease| now.since(lease.since) < self.remember_for) {
                return false;
            }
            self.forget_oldest();
        }
        true
    }

    fn forget_oldest(&mut self) {
        let oldest = self.queue.pop_front().expect("the caller has checked");
        let number = self.first;
        self.first = number.wrapping_add(1);
        if let Ok(found) = self.index.find_entry(hash_of(oldest.id), |other| *other == number) {
            found.remove();
        }
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        let Self { queue, first, index, .. } = self;
        if queue.len() < queue.capacity() / 4 {
            queue.shrink_to(queue.len() * 2);
        }
        if index.len() < index.capacity() / 4 {
            let hash_of = |number: &u32| hash_of(queue[number.wrapping_sub(*first) as usize].id);
            index.shrink_to(index.len() * 2, hash_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    /// Whether IDs grow, fall, or come in no order.
    #[test]
    fn leases_are_found_whatever_the_order_of_their_ids() {
        for order in 0..3 {
            let id = |n: u32| {
                let id = LeaseId::from_u128(match order {
                    0 => u128::from(n) + 1,
                    1 => u128::from(u32::MAX - n),
                    _ => u128::from(n.wrapping_mul(0x9e37_79b9)),
                });
                HashedId { id, hash: hash_of(id) }
            };
            let mut leases = PastLeases::new(Duration::MAX, 700);
            leases.first = 0_u32.wrapping_sub(1_000);
            for n in 0..3_000 {
                let now = at(n.into());
                assert_eq!(leases.find(now, id(n)), None, "{n}");
                leases.push(now, id(n).id, PastOutcome::Denied { key_tag: n });
                for age in [0, 1, 31, 32, 40, 300, 699, 700, 701] {
                    let Some(n) = n.checked_sub(age) else { continue };
                    let expected = (age < 700).then_some(PastOutcome::Denied { key_tag: n });
                    assert_eq!(leases.find(now, id(n)), expected, "{n}, {age}");
                }
            }
            assert_eq!(leases.len(), 700);
        }
    }

    /// RES-09: while IDs grow, nobody looks for an old one.
    #[test]
    fn res_09_leases_are_found_after_many_of_them_came_without_a_search() {
        for count in [1_000, 10_000, 20_000, 40_000] {
            let mut leases = PastLeases::new(Duration::MAX, 30_000);
            let id = |n: u32| LeaseId::from_u128(n.into());
            (0..count).for_each(|n| leases.push(at(0), id(n), PastOutcome::Denied { key_tag: n }));
            let forgotten = count - u32::try_from(leases.len()).unwrap();
            assert!(forgotten <= count.saturating_sub(29_900));
            for n in 0..count {
                let found = leases.find(at(0), HashedId { id: id(n), hash: hash_of(id(n)) });
                let expected = (n >= forgotten).then_some(PastOutcome::Denied { key_tag: n });
                assert_eq!(found, expected, "{n} of {count}");
            }
        }
    }

    /// RES-09: a lease that is forgotten, allowed again and ended again is remembered again.
    #[test]
    fn res_09_an_id_may_come_back_before_a_sweep() {
        let id = LeaseId::from_u128(7);
        let id = HashedId { id, hash: hash_of(id) };
        let mut leases = PastLeases::new(Duration::from_secs(1), 1_000);
        for second in 0..200 {
            assert_eq!(leases.find(at(second * 1_000), id), None);
            leases.push(at(second * 1_000), id.id, PastOutcome::Ended { open_ms: 0 });
            for other in 0..40 {
                leases.push(
                    at(second * 1_000),
                    LeaseId::from_u128(100 + other),
                    PastOutcome::Ended { open_ms: 0 },
                );
            }
            assert_eq!(
                leases.find(at(second * 1_000 + 999), id),
                Some(PastOutcome::Ended { open_ms: 0 })
            );
        }
    }

    /// MEM-03
    #[test]
    fn mem_03_the_memory_of_forgotten_leases_is_released() {
        let mut leases = PastLeases::new(Duration::from_secs(1), 100_000);
        (0..50_000).for_each(|n| {
            leases.push(at(0), LeaseId::from_u128(n), PastOutcome::Ended { open_ms: 0 });
        });
        assert!(leases.forget_old(at(1_000), 1_000), "there are more");
        while leases.forget_old(at(1_000), 1_000) {}
        leases.shrink_to_fit();
        assert_eq!((leases.len(), leases.queue.capacity(), leases.index.capacity()), (0, 0, 0));
    }
}
