//! The leases that were allowed and have not ended.

use smallvec::SmallVec;

use super::live_limit::Made;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// A group with room for this many leases keeps it when the last one leaves, so that it does not grow again all the time; a
/// sweep gives it back.
const ROOM_KEPT_BETWEEN_SWEEPS: usize = 64;
/// A group with room for this many leases keeps it always.
const ROOM_KEPT: usize = 16;
const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);
/// In the place of a slot: there is none.
const NO_SLOT: u32 = u32::MAX;

/// A lease that was allowed, not completed, and of which something may be live. It stands on two cache lines.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct OpenLease {
    pub(super) id: LeaseId,
    pub(super) reserved_at: Timestamp,
    /// When its last reservation expires.
    pub(super) ends_at: Timestamp,
    next_free: u32,
    pub(super) reservations: Reservations,
}

/// What a lease has reserved. Four stand beside each other in the lease itself; more need room elsewhere.
pub(super) type Reservations = SmallVec<[Reservation; 4]>;

/// What a lease has reserved of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Where the limit is. While the reservation is live, no other limit is there.
    pub(super) limit: LimitPlace,
    /// A hash of the limit's key, to know the key again after the limit was deleted.
    pub(super) key_tag: u32,
    pub(super) made: Made,
}

/// Where a limit is: its group's number, and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitPlace {
    pub(super) group: u32,
    pub(super) slot: u32,
}

/// Where an open lease is: the number of the group that it is kept in, and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasePlace {
    /// Of the groups of its limits the one with the lowest number, which is the first to be locked.
    pub(super) group: u32,
    pub(super) slot: u32,
}

/// For how long a lease has been open, to tell which of its reservations have not expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    nanos: u64,
}

impl OpenLease {
    /// How old the lease is.
    #[inline]
    pub(super) const fn age(&self, now: Timestamp) -> Age {
        Age { nanos: now.unix_nanos() - self.reserved_at.unix_nanos() }
    }
}

impl Age {
    /// True if a reservation of the lease has not expired.
    #[inline]
    pub(super) const fn is_live(self, reservation: &Reservation) -> bool {
        self.nanos < reservation.made.lifetime.seconds() as u64 * 1_000_000_000
    }
}

/// The open leases of one group, each in a slot of its own until it ends.
#[derive(Debug)]
pub(super) struct OpenLeases {
    /// What stands in a free slot has no reservations, and tells by `next_free` which is the next one.
    slots: Box<[OpenLease]>,
    /// The first free slot, or [`NO_SLOT`].
    free: u32,
    /// How many slots are not free.
    count: u32,
    /// No lease ends by itself before this second since the Unix epoch.
    next_end_second: u32,
}

impl Default for OpenLeases {
    fn default() -> Self {
        Self { slots: Box::default(), free: NO_SLOT, count: 0, next_end_second: u32::MAX }
    }
}

impl OpenLeases {
    pub(super) const fn len(&self) -> usize {
        self.count as usize
    }

    /// The lease in a slot that is not free.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &OpenLease {
        &self.slots[slot as usize]
    }

    /// Adds a lease without reservations, and answers where. [`OpenLeases::reservations`] and [`OpenLeases::set_end`] follow.
    #[inline]
    pub(super) fn insert(&mut self, id: LeaseId, reserved_at: Timestamp) -> u32 {
        if self.free == NO_SLOT {
            self.add_slot();
        }
        let slot = self.free;
        let lease = &mut self.slots[slot as usize];
        self.free = lease.next_free;
        self.count += 1;
        lease.id = id;
        lease.reserved_at = reserved_at;
        slot
    }

    #[cold]
    fn add_slot(&mut self) {
        let mut slots = std::mem::take(&mut self.slots).into_vec();
        // Half as much again, not twice: the room that nobody uses stays within a third.
        slots.reserve_exact((slots.len() / 2).max(2));
        while slots.len() < slots.capacity() {
            let next_free = self.free;
            self.free = u32::try_from(slots.len()).expect("a group has fewer than 2^32 leases");
            slots.push(OpenLease {
                id: LeaseId::from_u128(0),
                reserved_at: NEVER,
                ends_at: NEVER,
                next_free,
                reservations: Reservations::new(),
            });
        }
        self.slots = slots.into_boxed_slice();
    }

    /// The reservations of the lease in a slot.
    #[inline]
    pub(super) fn reservations(&mut self, slot: u32) -> &mut Reservations {
        &mut self.slots[slot as usize].reservations
    }

    /// Says when the last reservation of the lease in a slot expires.
    #[inline]
    pub(super) fn set_end(&mut self, slot: u32, ends_at: Timestamp) {
        self.slots[slot as usize].ends_at = ends_at;
        self.next_end_second = self.next_end_second.min(second(ends_at));
    }

    /// Takes out what the lease in a slot has reserved; [`OpenLeases::remove`] or [`OpenLeases::put_back`] follows.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> OpenLease {
        let lease = &mut self.slots[slot as usize];
        let reservations = std::mem::take(&mut lease.reservations);
        OpenLease { reservations, ..*lease }
    }

    pub(super) fn put_back(&mut self, slot: u32, lease: OpenLease) {
        self.slots[slot as usize] = lease;
    }

    /// Frees the slot of a lease that was taken.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let lease = &mut self.slots[slot as usize];
        debug_assert!(lease.reservations.is_empty(), "it was taken");
        lease.next_free = self.free;
        self.free = slot;
        self.count -= 1;
        if self.count == 0 && self.slots.len() > ROOM_KEPT_BETWEEN_SWEEPS {
            *self = Self::default();
        }
    }

    /// The leases of which nothing is live any more.
    pub(super) fn ended(&mut self, now: Timestamp) -> Vec<LeaseId> {
        if second(now) < self.next_end_second {
            return Vec::new();
        }
        let open = || self.slots.iter().filter(|lease| !lease.reservations.is_empty());
        let next_end = open().map(|lease| lease.ends_at).filter(|ends_at| *ends_at > now).min();
        self.next_end_second = next_end.map_or(u32::MAX, second);
        open().filter(|lease| lease.ends_at <= now).map(|lease| lease.id).collect()
    }

    /// Gives back the room of free slots behind the last lease, if that is most of all.
    pub(super) fn give_room_back(&mut self) {
        if self.slots.len() <= ROOM_KEPT || self.len() >= self.slots.len() / 4 {
            return;
        }
        let used = self.slots.iter().rposition(|lease| !lease.reservations.is_empty());
        let mut slots = std::mem::take(&mut self.slots).into_vec();
        slots.truncate(used.map_or(0, |at| at + 1));
        self.slots = slots.into_boxed_slice();
        self.free = NO_SLOT;
        for (slot, lease) in (0..).zip(&mut self.slots) {
            if lease.reservations.is_empty() {
                lease.next_free = self.free;
                self.free = slot;
            }
        }
    }
}

/// The second that a moment is in. In 2106 it is the last one for ever, and every sweep looks at all leases.
fn second(moment: Timestamp) -> u32 {
    u32::try_from(moment.unix_ms() / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_four_is_small() {
        assert_eq!(size_of::<Reservation>(), 20);
        assert!(size_of::<OpenLease>() <= 128, "{}", size_of::<OpenLease>());
    }
}
