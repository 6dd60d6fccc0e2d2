//! Ended and denied leases, whose IDs are not allowed again for a while.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// So many leases join the queue and the index at a time. There may be a million, so each is a cache miss or two; those of a batch
/// overlap.
const BATCH: usize = 32;

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
    Ended,
    /// It was denied; the first limit without room has a key with this tag.
    Denied { key_tag: u32 },
}

/// The past leases of one shard in the order of their end, with an index. They are bounded in number and age.
#[derive(Debug)]
pub(super) struct PastLeases {
    /// The greatest ID there ever was. IDs begin with their creation time, so a new one is usually greater.
    greatest: LeaseId,
    /// The newest leases, fewer than [`BATCH`].
    recent: Vec<PastLease>,
    /// All others, oldest first.
    queue: VecDeque<PastLease>,
    /// Number of leases that have left the queue, modulo 2^32.
    left: u32,
    /// By the hash of its ID, the position in the queue of each lease there, plus `left`.
    index: HashTable<u32>,
    hasher: RandomState,
    remember_for: Duration,
    remember_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    outcome: PastOutcome,
}

impl PastLeases {
    pub(super) fn new(hasher: RandomState, remember_for: Duration, remember_max: usize) -> Self {
        Self {
            greatest: LeaseId::from_u128(0),
            recent: Vec::new(),
            queue: VecDeque::new(),
            left: 0,
            index: HashTable::new(),
            hasher,
            remember_for,
            remember_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.recent.len()
    }

    /// The outcome of a lease that is remembered.
    #[inline]
    pub(super) fn find(&mut self, now: Timestamp, id: HashedId) -> Option<PastOutcome> {
        if id.id > self.greatest {
            return None;
        }
        let PastLease { since, outcome, .. } = *self.search(id)?;
        if now.since(since) < self.remember_for {
            return Some(outcome);
        }
        while self.forget_old(now, BATCH) {}
        None
    }

    fn search(&self, HashedId { id, hash }: HashedId) -> Option<&PastLease> {
        let recent = self.recent.iter().find(|lease| lease.id == id);
        let at = |number: &u32| &self.queue[number.wrapping_sub(self.left) as usize];
        recent.or_else(|| self.index.find(hash, |number| at(number).id == id).map(at))
    }

    /// Remembers a lease that is not remembered.
    #[inline]
    pub(super) fn push(&mut self, now: Timestamp, id: LeaseId, outcome: PastOutcome) {
        self.greatest = self.greatest.max(id);
        self.recent.push(PastLease { id, since: now, outcome });
        if self.recent.len() == BATCH || self.len() > self.remember_max {
            self.add_batch();
        }
    }

    /// Moves the newest leases to the queue, and forgets the oldest if there are too many.
    #[cold]
    fn add_batch(&mut self) {
        let Self { recent, queue, left, index, hasher, .. } = self;
        queue.extend(recent.iter());
        let hash_of =
            |number: &u32| hasher.hash_one(queue[number.wrapping_sub(*left) as usize].id.as_u128());
        for at in queue.len() - recent.len()..queue.len() {
            let number = left.wrapping_add(u32::try_from(at).expect("bounded by `remember_max`"));
            index.insert_unique(hash_of(&number), number, hash_of);
        }
        recent.clear();
        // Room for the next batch, unless so few are remembered that each of them counts.
        let room = if self.remember_max < EXACT_MAX { 0 } else { BATCH };
        while self.queue.len() > self.remember_max - room {
            self.forget_oldest();
        }
    }

    /// Forgets at most `count_max` leases that are too old; false if there are no more.
    pub(super) fn forget_old(&mut self, now: Timestamp, count_max: usize) -> bool {
        let remember_for = self.remember_for;
        let is_old = |lease: &PastLease| now.since(lease.since) >= remember_for;
        if self.recent.first().is_some_and(is_old) {
            self.add_batch();
        }
        for _ in 0..count_max {
            if !self.queue.front().is_some_and(is_old) {
                return false;
            }
            self.forget_oldest();
        }
        true
    }

    fn forget_oldest(&mut self) {
        let oldest = self.queue.pop_front().expect("the caller has checked");
        let number = self.left;
        self.left = number.wrapping_add(1);
        let hash = self.hasher.hash_one(oldest.id.as_u128());
        let found = self.index.find_entry(hash, |other| *other == number);
        found.expect("all in the queue are in the index").remove();
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        let Self { queue, left, index, hasher, .. } = self;
        if queue.len() < queue.capacity() / 4 {
            queue.shrink_to(queue.len() * 2);
        }
        if index.len() < index.capacity() / 4 {
            let hash_of = |number: &u32| {
                hasher.hash_one(queue[number.wrapping_sub(*left) as usize].id.as_u128())
            };
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
        let hasher = RandomState::default();
        for order in 0..3 {
            let id = |n: u32| {
                let id = LeaseId::from_u128(match order {
                    0 => u128::from(n) + 1,
                    1 => u128::from(u32::MAX - n),
                    _ => u128::from(n.wrapping_mul(0x9e37_79b9)),
                });
                HashedId { id, hash: hasher.hash_one(id.as_u128()) }
            };
            let mut leases = PastLeases::new(hasher.clone(), Duration::MAX, 700);
            leases.left = 0_u32.wrapping_sub(1_000);
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

    /// RES-09: a lease that is forgotten, allowed again and ended again is remembered again.
    #[test]
    fn res_09_an_id_may_come_back_before_a_sweep() {
        let hasher = RandomState::default();
        let id = HashedId { id: LeaseId::from_u128(7), hash: hasher.hash_one(7_u128) };
        let mut leases = PastLeases::new(hasher, Duration::from_secs(1), 1_000);
        for second in 0..200 {
            assert_eq!(leases.find(at(second * 1_000), id), None);
            leases.push(at(second * 1_000), id.id, PastOutcome::Ended);
            for other in 0..40 {
                leases.push(
                    at(second * 1_000),
                    LeaseId::from_u128(100 + other),
                    PastOutcome::Ended,
                );
            }
            assert_eq!(leases.find(at(second * 1_000 + 999), id), Some(PastOutcome::Ended));
        }
    }

    /// MEM-03
    #[test]
    fn mem_03_the_memory_of_forgotten_leases_is_released() {
        let mut leases = PastLeases::new(RandomState::default(), Duration::from_secs(1), 100_000);
        (0..50_000).for_each(|n| leases.push(at(0), LeaseId::from_u128(n), PastOutcome::Ended));
        assert!(leases.forget_old(at(1_000), 1_000), "there are more");
        while leases.forget_old(at(1_000), 1_000) {}
        leases.shrink_to_fit();
        assert_eq!((leases.len(), leases.queue.capacity(), leases.index.capacity()), (0, 0, 0));
    }
}
