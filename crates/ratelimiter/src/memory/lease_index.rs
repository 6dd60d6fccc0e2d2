//! Where leases stand, by their IDs: the newest in a small table, which stays near the processor, all others in a large one.
//!
//! An ID begins with the time at which it was made, so a new one is mostly greater than all that stand in the large table. That
//! it is not known is then told without a look at memory that is far away.

use super::place_index::{Found, Place, PlaceIndex};
use crate::lease::LeaseId;

/// How many leases the small table has before they move to the large one, all at once: the machine fetches the places
/// that are far apart side by side.
const YOUNG_MAX: usize = 96;

/// Where leases stand.
#[derive(Debug)]
pub(super) struct LeaseIndex {
    young: PlaceIndex,
    /// The greatest ID that was ever in the small table since it was last empty.
    young_greatest: LeaseId,
    old: PlaceIndex,
    /// No ID in the large table is greater.
    old_greatest: LeaseId,
}

/// A lease ID with its hash, which is made once a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedId {
    pub(super) id: LeaseId,
    pub(super) hash: u32,
}

/// Where a lease stands in the index, until the index is changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundLease {
    found: Found,
    is_young: bool,
}

impl Default for LeaseIndex {
    fn default() -> Self {
        let least = LeaseId::from_u128(0);
        let (young, old) = (PlaceIndex::default(), PlaceIndex::default());
        Self { young, young_greatest: least, old, old_greatest: least }
    }
}

impl FoundLease {
    #[inline]
    pub(super) const fn place(self) -> Place {
        self.found.place
    }
}

impl LeaseIndex {
    /// Finds the place of a lease; `is_it` tells whether the lease there has the ID.
    #[inline]
    pub(super) fn find(
        &self,
        HashedId { id, hash }: HashedId,
        mut is_it: impl FnMut(Place) -> bool,
    ) -> Option<FoundLease> {
        if let Some(found) = self.young.find(hash, &mut is_it) {
            return Some(FoundLease { found, is_young: true });
        }
        if id > self.old_greatest {
            return None;
        }
        self.old.find(hash, is_it).map(|found| FoundLease { found, is_young: false })
    }

    /// Adds a lease that is not in there; `is_needed` tells which places still have a lease.
    #[inline]
    pub(super) fn insert(
        &mut self,
        HashedId { id, hash }: HashedId,
        place: Place,
        is_needed: impl Fn(Place) -> bool,
    ) {
        if self.young.len() == YOUNG_MAX {
            self.grow_old(&is_needed);
        }
        self.young_greatest = self.young_greatest.max(id);
        self.young.insert(hash, place, |_| true);
    }

    #[cold]
    fn grow_old(&mut self, is_needed: impl Fn(Place) -> bool) {
        let Self { young, old, .. } = self;
        young.drain(|hash, place| {
            if is_needed(place) {
                old.insert(hash, place, &is_needed);
            }
        });
        self.old_greatest = self.old_greatest.max(self.young_greatest);
        self.young_greatest = LeaseId::from_u128(0);
    }

    /// A lease that was found stands elsewhere now.
    #[inline]
    pub(super) fn replace(&mut self, FoundLease { found, is_young }: FoundLease, place: Place) {
        let table = if is_young { &mut self.young } else { &mut self.old };
        table.replace(found, place);
    }

    /// Gives room back if much more is kept than the leases need, of which there are so many. A table that is not much too large
    /// is not walked: with a million leases, that would take longer than all else that a sweep does.
    pub(super) fn give_room_back(
        &mut self,
        needed_count: usize,
        is_needed: impl Fn(Place) -> bool,
    ) {
        let needed_of_old = needed_count.saturating_sub(self.young.len());
        self.young.give_room_back(0, &is_needed);
        self.old.give_room_back(needed_of_old, &is_needed);
        if self.old.len() == 0 {
            self.old_greatest = LeaseId::from_u128(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether IDs grow, fall, or come in no order.
    #[test]
    fn leases_are_found_whatever_the_order_of_their_ids() {
        for order in 0..3 {
            let id_of = |n: u32| match order {
                0 => u128::from(n),
                1 => u128::from(u32::MAX - n),
                _ => u128::from(n.wrapping_mul(0x9e37_79b9)),
            };
            let hashed = |n: u32| HashedId { id: LeaseId::from_u128(id_of(n)), hash: n % 5_000 };
            let place = |n: u32| Place { list: 7, at: n };
            let mut index = LeaseIndex::default();
            for n in 0..10_000_u32 {
                let is_needed = |place: Place| place.at >= n.saturating_sub(3_000);
                assert!(index.find(hashed(n), |found| found == place(n)).is_none(), "{n}");
                index.insert(hashed(n), place(n), is_needed);
                for other in [n, n.saturating_sub(100), n.saturating_sub(3_000)] {
                    let found = index.find(hashed(other), |found| found == place(other));
                    assert_eq!(found.map(FoundLease::place), Some(place(other)), "{other}");
                }
                if n % 1_000 == 0 {
                    index.give_room_back(3_000.min(n as usize), is_needed);
                }
            }
        }
    }
}
