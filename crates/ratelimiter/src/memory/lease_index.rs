//! Index of open leases by ID.
//!
//! The newest are in a small table that stays in cache, the rest in a large one.
//!
//! An ID begins with its creation time, so a new one is usually greater than all IDs here, or at least than all in the large table.
//! Such an ID is then known to be new without a cache miss.

use super::open_leases::LeasePlace;
use super::place_index::{Found, PlaceIndex};
use crate::lease::LeaseId;

/// Size at which the small table moves to the large one, all leases at once, so that their cache misses overlap.
const YOUNG_MAX: usize = 96;
const LEAST: LeaseId = LeaseId::from_u128(0);

/// Where open leases are stored.
#[derive(Debug)]
pub(super) struct LeaseIndex {
    young: PlaceIndex,
    /// The greatest ID added to the small table since it was last empty.
    young_greatest: LeaseId,
    old: PlaceIndex,
    /// No ID in the large table is greater.
    old_greatest: LeaseId,
}

/// A lease ID with its hash, which is computed once per request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedId {
    pub(super) id: LeaseId,
    pub(super) hash: u32,
}

/// A lease's position in the index, valid until the index changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundLease {
    found: Found,
    is_young: bool,
}

impl Default for LeaseIndex {
    fn default() -> Self {
        let (young, old) = (PlaceIndex::default(), PlaceIndex::default());
        Self { young, young_greatest: LEAST, old, old_greatest: LEAST }
    }
}

impl FoundLease {
    #[inline]
    pub(super) const fn place(self) -> LeasePlace {
        self.found.place
    }
}

impl LeaseIndex {
    /// Finds an open lease; `is_it` checks whether the lease at a place has the ID.
    #[inline]
    pub(super) fn find(
        &self,
        HashedId { id, hash }: HashedId,
        mut is_it: impl FnMut(LeasePlace) -> bool,
    ) -> Option<FoundLease> {
        if id <= self.young_greatest
            && let Some(found) = self.young.find(hash, &mut is_it)
        {
            return Some(FoundLease { found, is_young: true });
        }
        if id > self.old_greatest {
            return None;
        }
        self.old.find(hash, is_it).map(|found| FoundLease { found, is_young: false })
    }

    /// Adds a lease that is not in the index.
    #[inline]
    pub(super) fn insert(&mut self, HashedId { id, hash }: HashedId, place: LeasePlace) {
        if self.young.len() == YOUNG_MAX {
            self.move_to_large_table();
        }
        self.young_greatest = self.young_greatest.max(id);
        self.young.insert(hash, place);
    }

    #[cold]
    fn move_to_large_table(&mut self) {
        let Self { young, old, .. } = self;
        young.drain(|hash, place| old.insert(hash, place));
        self.old_greatest = self.old_greatest.max(self.young_greatest);
        self.young_greatest = LEAST;
    }

    /// Removes a lease that was found.
    #[inline]
    pub(super) fn remove(&mut self, FoundLease { found, is_young }: FoundLease) {
        if !is_young {
            return self.old.remove(found);
        }
        self.young.remove(found);
        if self.young.len() == 0 {
            self.young_greatest = LEAST;
        }
    }

    /// Releases memory if the tables are mostly empty.
    pub(super) fn shrink_to_fit(&mut self) {
        self.young.shrink_to_fit();
        self.old.shrink_to_fit();
        if self.old.len() == 0 {
            self.old_greatest = LEAST;
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
                0 => u128::from(n) + 1,
                1 => u128::from(u32::MAX - n),
                _ => u128::from(n.wrapping_mul(0x9e37_79b9)) + 1,
            };
            let hashed = |n: u32| HashedId { id: LeaseId::from_u128(id_of(n)), hash: n % 5_000 };
            let place = |n: u32| LeasePlace { group: 7, slot: n };
            let find =
                |index: &LeaseIndex, n: u32| index.find(hashed(n), |found| found == place(n));
            let mut index = LeaseIndex::default();
            for n in 0..10_000_u32 {
                assert!(find(&index, n).is_none(), "{n}");
                index.insert(hashed(n), place(n));
                // Of four leases one ends at once, one when it is no longer young, and two never.
                for (ends, rest) in [(n, 0), (n.saturating_sub(1_000), 2)] {
                    if ends % 4 == rest
                        && let Some(found) = find(&index, ends)
                    {
                        index.remove(found);
                    }
                }
                for other in [n, n.saturating_sub(100), n.saturating_sub(3_000)] {
                    let has_ended = other % 4 == 0 || other % 4 == 2 && other + 1_000 <= n;
                    let found = find(&index, other).map(FoundLease::place);
                    assert_eq!(found, (!has_ended).then(|| place(other)), "{other} at {n}");
                }
                if n % 1_000 == 0 {
                    index.shrink_to_fit();
                }
            }
        }
    }
}
