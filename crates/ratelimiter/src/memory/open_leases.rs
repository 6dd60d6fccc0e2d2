//! Open leases: allowed and not ended.

use smallvec::SmallVec;

use super::live_limit::ReservationRef;
use crate::clock::Timestamp;
use crate::lease::LeaseId;

/// A group with at most this many slots keeps them when the last lease ends, so that it does not reallocate all the time; a sweep
/// releases them.
const ROOM_KEPT_BETWEEN_SWEEPS: usize = 64;
/// A group with at most this many slots always keeps them.
const ROOM_KEPT: usize = 16;
const NEVER: Timestamp = Timestamp::from_unix_nanos(u64::MAX);
/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// A lease that was allowed, not completed, and may have live reservations. It takes two cache lines.
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

/// The reservations of a lease. Up to four are inline; more are on the heap.
pub(super) type Reservations = SmallVec<[Reservation; 4]>;

/// A lease's reservation of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Where the limit is. While the reservation is live, no other limit is there.
    pub(super) limit: LimitPlace,
    /// A hash of the limit's key, to recognise the key after the limit was deleted.
    pub(super) key_tag: u32,
    pub(super) reference: ReservationRef,
}

/// Where a limit is: its group's number, and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitPlace {
    pub(super) group: u32,
    pub(super) slot: u32,
}

/// Where an open lease is stored: its group's number, and its slot there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeasePlace {
    /// The lowest-numbered group of its limits, which is locked first.
    pub(super) group: u32,
    pub(super) slot: u32,
}

/// How long a lease has been open, which decides which of its reservations have expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    nanos: u64,
}

impl OpenLease {
    #[inline]
    pub(super) const fn age(&self, now: Timestamp) -> Age {
        Age { nanos: now.unix_nanos() - self.reserved_at.unix_nanos() }
    }
}

impl Age {
    /// True if a reservation of the lease has not expired.
    #[inline]
    pub(super) const fn is_live(self, reservation: &Reservation) -> bool {
        self.nanos < reservation.reference.lifetime.seconds() as u64 * 1_000_000_000
    }
}

/// The open leases of one group, each in its own slot until it ends.
#[derive(Debug)]
pub(super) struct OpenLeases {
    /// A free slot has no reservations, and links to the next one by `next_free`.
    slots: Box<[OpenLease]>,
    /// The first free slot, or [`NO_SLOT`].
    free: u32,
    /// Number of slots in use.
    count: u32,
    /// No lease expires before this second since the Unix epoch.
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

    /// Adds a lease without reservations, and returns its slot. [`OpenLeases::reservations`] and [`OpenLeases::set_end`] follow.
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
        // Grow by half instead of doubling: at most a third of the memory is unused.
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

    /// Sets when the last reservation of the lease in a slot expires.
    #[inline]
    pub(super) fn set_end(&mut self, slot: u32, ends_at: Timestamp) {
        self.slots[slot as usize].ends_at = ends_at;
        self.next_end_second = self.next_end_second.min(second(ends_at));
    }

    /// Takes the lease's reservations out of its slot; [`OpenLeases::remove`] or [`OpenLeases::put_back`] follows.
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

    /// The leases whose reservations have all expired.
    pub(super) fn ended(&mut self, now: Timestamp) -> Vec<LeaseId> {
        if second(now) < self.next_end_second {
            return Vec::new();
        }
        let open = || self.slots.iter().filter(|lease| !lease.reservations.is_empty());
        let next_end = open().map(|lease| lease.ends_at).filter(|ends_at| *ends_at > now).min();
        self.next_end_second = next_end.map_or(u32::MAX, second);
        open().filter(|lease| lease.ends_at <= now).map(|lease| lease.id).collect()
    }

    /// Releases the memory of free slots after the last lease, if that is most of it.
    pub(super) fn shrink_to_fit(&mut self) {
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

/// Whole seconds since the Unix epoch. From 2106 on this saturates, and every sweep scans all leases.
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
