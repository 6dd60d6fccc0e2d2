//! The leases that have ended or were denied: their IDs are not allowed again for a while.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashTable;

use super::open_leases::LimitPlace;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Lists of fewer leases keep their room.
const ROOM_KEPT: usize = 64;

/// How many of the oldest leases a large memory forgets when it is full.
const FORGOTTEN_AT_ONCE: usize = 64;

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It was completed, or all that it had reserved has expired.
    Ended,
    /// It was denied, first for want of room at this limit.
    Denied(LimitPlace),
}

/// A part of the past leases: the newest ones, up to a number and an age.
#[derive(Debug)]
pub(super) struct PastLeases {
    remember_for: Duration,
    remember_max: usize,
    /// The leases, oldest first.
    queue: VecDeque<PastLease>,
    /// How many leases have left the queue's front, modulo 2^32.
    forgotten: u32,
    /// The places of the leases by the hash of their IDs. A place is `forgotten` plus the position in the queue, modulo
    /// 2^32, so that it stays the same while older leases leave.
    index: HashTable<u32>,
}

#[derive(Debug)]
struct PastLease {
    id: LeaseId,
    since: Timestamp,
    past: Past,
}

impl PastLeases {
    pub(super) fn new(remember_for: Duration, remember_max: usize) -> Self {
        assert!(u32::try_from(remember_max).is_ok(), "places fit 32 bits");
        Self {
            remember_for,
            remember_max,
            queue: VecDeque::new(),
            forgotten: 0,
            index: HashTable::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// What became of a lease, if that is not too long ago.
    pub(super) fn get(
        &mut self,
        now: Timestamp,
        hash: u64,
        id: LeaseId,
        hash_of: impl Fn(LeaseId) -> u64,
    ) -> Option<Past> {
        let place = self.index.find(hash, |place| self.lease_at(*place).id == id)?;
        let PastLease { since, past, .. } = *self.lease_at(*place);
        if now.since(since) >= self.remember_for {
            self.forget_old(now, hash_of);
            return None;
        }
        Some(past)
    }

    fn lease_at(&self, place: u32) -> &PastLease {
        &self.queue[place.wrapping_sub(self.forgotten) as usize]
    }

    /// Remembers a lease that is not in here.
    pub(super) fn remember(
        &mut self,
        now: Timestamp,
        hash: u64,
        id: LeaseId,
        past: Past,
        hash_of: impl Fn(LeaseId) -> u64,
    ) {
        if self.remember_max == 0 {
            return;
        }
        if self.queue.len() == self.remember_max {
            // A large memory forgets several at once: their places in the index are far apart, and the machine fetches
            // them side by side.
            for _ in 0..FORGOTTEN_AT_ONCE.min(self.remember_max.div_ceil(FORGOTTEN_AT_ONCE)) {
                self.forget_oldest(&hash_of);
            }
        }
        let at = u32::try_from(self.queue.len()).expect("at most `remember_max`");
        let place = self.forgotten.wrapping_add(at);
        self.queue.push_back(PastLease { id, since: now, past });
        let Self { queue, index, forgotten, .. } = self;
        let id_at = |place: &u32| queue[place.wrapping_sub(*forgotten) as usize].id;
        index.insert_unique(hash, place, |place| hash_of(id_at(place)));
    }

    /// Forgets the leases that are old enough.
    pub(super) fn forget_old(&mut self, now: Timestamp, hash_of: impl Fn(LeaseId) -> u64) {
        while let Some(oldest) = self.queue.front()
            && now.since(oldest.since) >= self.remember_for
        {
            self.forget_oldest(&hash_of);
        }
        self.give_room_back(hash_of);
    }

    fn forget_oldest(&mut self, hash_of: &impl Fn(LeaseId) -> u64) {
        let oldest = self.queue.pop_front().expect("the caller has looked that there is one");
        let place = self.forgotten;
        self.forgotten = self.forgotten.wrapping_add(1);
        let entry = self.index.find_entry(hash_of(oldest.id), |other| *other == place);
        entry.expect("every lease is in the index").remove();
    }

    fn give_room_back(&mut self, hash_of: impl Fn(LeaseId) -> u64) {
        let count = self.queue.len();
        if self.queue.capacity() <= ROOM_KEPT || count >= self.queue.capacity() / 4 {
            return;
        }
        self.queue.shrink_to(count + count / 2);
        let Self { queue, index, forgotten, .. } = self;
        let id_at = |place: &u32| queue[place.wrapping_sub(*forgotten) as usize].id;
        index.shrink_to(count, |place| hash_of(id_at(place)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(id: LeaseId) -> u64 {
        u64::try_from(id.as_u128() % 5).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn known(past: &mut PastLeases, now_ms: u64) -> Vec<u128> {
        let now = Timestamp::from_unix_ms(now_ms);
        let ids = (0..100).map(LeaseId::from_u128);
        let known = ids.filter(|id| past.get(now, hash_of(*id), *id, hash_of).is_some());
        known.map(LeaseId::as_u128).collect()
    }

    fn remember(past: &mut PastLeases, now_ms: u64, id: u128) {
        let id = LeaseId::from_u128(id);
        past.remember(Timestamp::from_unix_ms(now_ms), hash_of(id), id, Past::Ended, hash_of);
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_number() {
        let mut past = PastLeases::new(Duration::from_secs(600), 3);
        // The places go round once.
        past.forgotten = u32::MAX - 2;
        for n in 0..10 {
            remember(&mut past, 0, n);
            assert_eq!(known(&mut past, 0), (n.saturating_sub(2)..=n).collect::<Vec<_>>());
        }
    }

    /// RES-09
    #[test]
    fn res_09_a_large_memory_forgets_some_at_once_and_never_has_too_many() {
        let mut past = PastLeases::new(Duration::from_secs(600), 10_000);
        for n in 0..30_000 {
            remember(&mut past, 0, n);
            assert!(past.len() <= 10_000);
        }
        assert!(past.len() > 10_000 - FORGOTTEN_AT_ONCE, "{}", past.len());
    }

    /// RES-09
    #[test]
    fn res_09_the_oldest_are_forgotten_first_by_age() {
        let mut past = PastLeases::new(Duration::from_millis(10), 100);
        for n in 0..20 {
            remember(&mut past, n, u128::from(n));
        }
        assert_eq!(known(&mut past, 19), (10..20).collect::<Vec<_>>());
        assert_eq!(known(&mut past, 28), [19]);
        assert_eq!(known(&mut past, 29), [0; 0]);
        assert_eq!(past.len(), 0);
    }

    #[test]
    fn nothing_is_remembered_where_none_may_be() {
        let mut past = PastLeases::new(Duration::from_secs(600), 0);
        remember(&mut past, 0, 1);
        assert_eq!(past.len(), 0);
    }
}
