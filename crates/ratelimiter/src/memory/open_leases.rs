//! The leases that were allowed and have not ended.

use smallvec::SmallVec;

use super::limit_shard::Made;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// Lists with room for this many leases keep it while leases come and go, so that a busy shard does not shrink and grow all
/// the time; a sweep gives back more.
const ROOM_KEPT_BETWEEN_SWEEPS: usize = 512;
/// Lists with room for this many leases keep it always.
const ROOM_KEPT: usize = 64;

/// A lease that was allowed, not completed, and of which something may be live.
#[derive(Debug, Clone)]
pub(super) struct OpenLease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    pub(super) reservations: Reservations,
}

/// What a lease has reserved. Four stand beside each other in the lease itself; more need room elsewhere.
pub(super) type Reservations = SmallVec<[Reservation; 4]>;

/// What a lease has reserved of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Where the limit is. While the reservation is live, no other limit is there.
    pub(super) limit: LimitPlace,
    /// A part of the hash of the limit's key, to know the key again after the limit was deleted.
    pub(super) key_tag: u32,
    pub(super) made: Made,
}

/// Where a limit is: its shard in the low 8 bits, its slot there in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitPlace(u32);

impl LimitPlace {
    #[inline]
    pub(super) const fn new(shard: u8, slot: u32) -> Self {
        assert!(slot < 1 << 24, "a shard has fewer than 2^24 limits");
        Self(slot << 8 | shard as u32)
    }

    #[inline]
    pub(super) const fn shard(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    #[inline]
    pub(super) const fn slot(self) -> u32 {
        self.0 >> 8
    }
}

impl OpenLease {
    /// True if a reservation of this lease has not expired.
    #[inline]
    pub(super) const fn is_live(&self, reservation: &Reservation, now: Timestamp) -> bool {
        let expires_at = self.reserved_at.after_seconds(reservation.made.lifetime.seconds());
        now.unix_nanos() < expires_at.unix_nanos()
    }
}

/// A part of the open leases, without gaps. Where a lease stands is told by an index elsewhere.
#[derive(Debug, Default)]
pub(super) struct OpenLeases {
    leases: Vec<OpenLease>,
    /// When the last reservation of the lease at the same place expires. Apart, so that a sweep reads 8 bytes a lease.
    ends_at: Vec<Timestamp>,
}

impl OpenLeases {
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// The lease that stands here.
    #[inline]
    pub(super) fn at(&self, at: u32) -> &OpenLease {
        &self.leases[at as usize]
    }

    /// Adds a lease, and answers where.
    #[inline]
    pub(super) fn push(&mut self, lease: OpenLease, ends_at: Timestamp) -> u32 {
        let count = self.leases.len();
        if count == self.leases.capacity() {
            self.grow();
        }
        self.leases.push(lease);
        self.ends_at.push(ends_at);
        u32::try_from(count).expect("a shard has fewer than 2^32 leases")
    }

    #[cold]
    fn grow(&mut self) {
        // Half as much again, not twice: the room that nobody uses stays within a third.
        let more = (self.leases.len() / 2).max(4);
        self.leases.reserve_exact(more);
        self.ends_at.reserve_exact(more);
    }

    /// Takes out the lease that stands here. The last one, if it is another, stands here from now on: its ID is the answer,
    /// with the place where it was.
    #[inline]
    pub(super) fn take_out(&mut self, at: u32) -> Option<(LeaseId, u32)> {
        self.leases.swap_remove(at as usize);
        self.ends_at.swap_remove(at as usize);
        self.give_room_back_above(ROOM_KEPT_BETWEEN_SWEEPS);
        let moved = self.leases.get(at as usize)?;
        Some((moved.id, u32::try_from(self.leases.len()).expect("places fit 32 bits")))
    }

    /// The first lease from `start` on of which nothing is live any more.
    pub(super) fn first_ended(&self, start: u32, now: Timestamp) -> Option<u32> {
        let ended = self.ends_at[start as usize..].iter().position(|ends_at| *ends_at <= now)?;
        Some(start + u32::try_from(ended).expect("places fit 32 bits"))
    }

    pub(super) fn give_room_back(&mut self) {
        self.give_room_back_above(ROOM_KEPT);
    }

    #[inline]
    fn give_room_back_above(&mut self, kept: usize) {
        let count = self.leases.len();
        if self.leases.capacity() > kept && count < self.leases.capacity() / 4 {
            self.leases.shrink_to(count + count / 2);
            self.ends_at.shrink_to(count + count / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_four_is_small() {
        assert_eq!(size_of::<Reservation>(), 16);
        assert!(size_of::<OpenLease>() <= 96, "{}", size_of::<OpenLease>());
    }
}
