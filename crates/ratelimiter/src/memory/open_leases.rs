//! The leases that were allowed and have not ended.

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Lists of fewer leases keep their room.
const ROOM_KEPT: usize = 64;

/// A lease that was allowed, not completed, and of which something may be live.
#[derive(Debug, Clone)]
pub(super) struct OpenLease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    /// When its first reservation expires; from then on a reserve of it is refused.
    pub(super) first_expiry: Timestamp,
    pub(super) reservations: Reservations,
}

/// What a lease has reserved. Four stand beside each other in the lease itself; more need room elsewhere.
pub(super) type Reservations = SmallVec<[Reservation; 4]>;

/// What a lease has reserved of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// The reservation's number at its limit.
    pub(super) number: u64,
    pub(super) limit: LimitPlace,
    /// A part of the hash of the limit's key, to know the key again after the limit was deleted.
    pub(super) key_tag: u32,
}

/// Where a limit is: its shard in the low 8 bits, its slot there in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitPlace(u32);

impl LimitPlace {
    pub(super) const SHARD_COUNT: usize = 256;

    pub(super) fn new(shard: u8, slot: u32) -> Self {
        assert!(slot < 1 << 24, "a shard has fewer than 2^24 limits");
        Self(slot << 8 | u32::from(shard))
    }

    pub(super) const fn shard(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    pub(super) const fn slot(self) -> u32 {
        self.0 >> 8
    }
}

/// A part of the open leases, found by their IDs.
#[derive(Debug, Default)]
pub(super) struct OpenLeases {
    /// The places of the leases, by the hash of their IDs.
    index: HashTable<u32>,
    /// The leases, without gaps.
    leases: Vec<OpenLease>,
    /// When the last reservation of the lease at the same place expires. Apart, so that a sweep reads 8 bytes a lease.
    ends_at: Vec<Timestamp>,
}

impl OpenLeases {
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Where an open lease stands.
    pub(super) fn find(&self, hash: u64, id: LeaseId) -> Option<u32> {
        self.index.find(hash, |at| self.leases[*at as usize].id == id).copied()
    }

    /// The lease that stands here.
    pub(super) fn at(&self, at: u32) -> &OpenLease {
        &self.leases[at as usize]
    }

    /// Adds a lease whose ID is not in here.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        lease: OpenLease,
        ends_at: Timestamp,
        hash_of: impl Fn(LeaseId) -> u64,
    ) {
        if self.leases.len() == self.leases.capacity() {
            // Half as much again, not twice: the room that nobody uses stays within a third.
            let more = (self.leases.len() / 2).max(4);
            self.leases.reserve_exact(more);
            self.ends_at.reserve_exact(more);
        }
        let at = u32::try_from(self.leases.len()).expect("a shard has fewer than 2^32 leases");
        self.leases.push(lease);
        self.ends_at.push(ends_at);
        let leases = &self.leases;
        self.index.insert_unique(hash, at, |at| hash_of(leases[*at as usize].id));
    }

    /// Takes out the lease that stands here.
    pub(super) fn remove(&mut self, hash: u64, at: u32, hash_of: impl Fn(LeaseId) -> u64) {
        let entry = self.index.find_entry(hash, |other| *other == at);
        entry.expect("every lease is in the index").remove();
        self.take_out(at, &hash_of);
        self.give_room_back(hash_of);
    }

    /// Takes out the lease at a place that the index no longer has, and puts the last one there.
    fn take_out(&mut self, at: u32, hash_of: &impl Fn(LeaseId) -> u64) -> OpenLease {
        let lease = self.leases.swap_remove(at as usize);
        self.ends_at.swap_remove(at as usize);
        if let Some(moved) = self.leases.get(at as usize) {
            let was_last = u32::try_from(self.leases.len()).expect("places fit 32 bits");
            let place = self.index.find_mut(hash_of(moved.id), |place| *place == was_last);
            *place.expect("every lease is in the index") = at;
        }
        lease
    }

    /// Takes out the leases of which nothing is live any more, and hands each to `ended`, with its hash.
    pub(super) fn expire(
        &mut self,
        now: Timestamp,
        hash_of: impl Fn(LeaseId) -> u64,
        mut ended: impl FnMut(u64, LeaseId),
    ) {
        let mut at = 0;
        while at < self.ends_at.len() {
            if self.ends_at[at] > now {
                at += 1;
                continue;
            }
            let place = u32::try_from(at).expect("places fit 32 bits");
            let hash = hash_of(self.leases[at].id);
            let entry = self.index.find_entry(hash, |other| *other == place);
            entry.expect("every lease is in the index").remove();
            // Another lease stands here now, so the place is looked at again.
            ended(hash, self.take_out(place, &hash_of).id);
        }
        self.give_room_back(hash_of);
    }

    fn give_room_back(&mut self, hash_of: impl Fn(LeaseId) -> u64) {
        let count = self.leases.len();
        if self.leases.capacity() <= ROOM_KEPT || count >= self.leases.capacity() / 4 {
            return;
        }
        self.leases.shrink_to(count + count / 2);
        self.ends_at.shrink_to(count + count / 2);
        let leases = &self.leases;
        self.index.shrink_to(count, |at| hash_of(leases[*at as usize].id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(id: LeaseId) -> u64 {
        // Few different hashes, so that places collide.
        u64::try_from(id.as_u128() % 7).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn lease(id: u128) -> OpenLease {
        OpenLease {
            id: LeaseId::from_u128(id),
            reserved_at: Timestamp::from_unix_ms(1),
            first_expiry: Timestamp::from_unix_ms(2),
            reservations: Reservations::new(),
        }
    }

    #[test]
    fn leases_are_found_whatever_was_taken_out_before() {
        let mut open = OpenLeases::default();
        let mut expected = std::collections::BTreeSet::new();
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let id = u128::from(random.u64(..400));
            let lease_id = LeaseId::from_u128(id);
            if expected.remove(&id) {
                let at = open.find(hash_of(lease_id), lease_id).unwrap();
                open.remove(hash_of(lease_id), at, hash_of);
            } else {
                let ends_at = Timestamp::from_unix_ms(u64::try_from(id).unwrap());
                open.insert(hash_of(lease_id), lease(id), ends_at, hash_of);
                expected.insert(id);
            }
            let id = LeaseId::from_u128(random.u128(..400));
            let found = open.find(hash_of(id), id).map(|at| open.at(at).id);
            assert_eq!(found, expected.contains(&id.as_u128()).then_some(id));
        }
        let mut ended = Vec::new();
        open.expire(Timestamp::from_unix_ms(200), hash_of, |_, id| {
            ended.push(id.as_u128());
        });
        ended.sort_unstable();
        assert_eq!(ended, expected.iter().copied().filter(|id| *id <= 200).collect::<Vec<_>>());
        assert_eq!(open.len(), expected.len() - ended.len());
    }

    #[test]
    fn a_lease_of_four_is_small() {
        assert_eq!(size_of::<Reservation>(), 16);
        assert!(size_of::<OpenLease>() <= 112, "{}", size_of::<OpenLease>());
    }
}
