//! A hash table from a lease ID's hash to candidate places; the caller compares the IDs.
//!
//! An entry is 12 bytes, and entries with equal hashes are adjacent, so that a lookup or an insertion touches one or two cache lines.

use super::open_leases::LeasePlace;

/// Tables of this many entries and fewer are not made smaller.
const ROOM_KEPT: usize = 16;
/// Marks a free entry: no group has this number.
const NOWHERE: LeasePlace = LeasePlace { group: u32::MAX, slot: 0 };

/// Places by hash: open addressing with linear probing. At most three quarters of the entries are in use.
#[derive(Debug, Default)]
pub(super) struct PlaceIndex {
    /// Empty, or a power of two long. An entry in use is at or after the position of its hash, without a free one in between.
    entries: Box<[Entry]>,
    count: usize,
}

/// A part of a hash, and a place.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    place: LeasePlace,
}

/// The position of a place in an index, valid until the index changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    at: usize,
    pub(super) place: LeasePlace,
}

impl Entry {
    const FREE: Self = Self { hash: 0, place: NOWHERE };

    #[inline]
    const fn is_free(self) -> bool {
        self.place.group == NOWHERE.group
    }
}

impl PlaceIndex {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    const fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    /// Finds the place with this hash that `is_it`.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u32,
        mut is_it: impl FnMut(LeasePlace) -> bool,
    ) -> Option<Found> {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            // Without any entry there is nothing to find.
            let entry = *self.entries.get(at)?;
            if entry.is_free() {
                return None;
            }
            if entry.hash == hash && is_it(entry.place) {
                return Some(Found { at, place: entry.place });
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a place.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, place: LeasePlace) {
        debug_assert!(place.group != NOWHERE.group, "it marks a free entry");
        if self.count * 4 >= self.entries.len() * 3 {
            self.rebuild();
        }
        self.count += 1;
        self.put(Entry { hash, place });
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.hash as usize & mask;
        while !self.entries[at].is_free() {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    /// Removes an entry that was found. Later entries move up, so that no lookup stops too early.
    #[inline]
    pub(super) fn remove(&mut self, found: Found) {
        let mask = self.mask();
        let (mut hole, mut at) = (found.at, found.at);
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.is_free() {
                break;
            }
            // An entry may move into the hole if that is not before its home position.
            let from_home = at.wrapping_sub(entry.hash as usize) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = Entry::FREE;
        self.count -= 1;
    }

    /// Removes all places, and passes them with their hashes to `taken`.
    pub(super) fn drain(&mut self, mut taken: impl FnMut(u32, LeasePlace)) {
        for entry in &mut self.entries {
            if let Entry { hash, place } = *entry
                && !entry.is_free()
            {
                taken(hash, place);
                *entry = Entry::FREE;
            }
        }
        self.count = 0;
    }

    /// Releases memory if the table is mostly empty.
    pub(super) fn shrink_to_fit(&mut self) {
        if self.entries.len() > ROOM_KEPT && self.count < self.entries.len() / 8 {
            self.rebuild();
        }
    }

    /// Makes the table at most half full, so that rebuilds are rare.
    #[cold]
    fn rebuild(&mut self) {
        let room = ((self.count + 1) * 2).next_power_of_two().max(8);
        let entries = std::mem::replace(&mut self.entries, vec![Entry::FREE; room].into());
        for entry in entries {
            if !entry.is_free() {
                self.put(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slot: u32) -> LeasePlace {
        LeasePlace { group: slot % 3, slot }
    }

    #[test]
    fn places_are_found_whatever_was_taken_out() {
        let mut random = fastrand::Rng::with_seed(3);
        // Few different hashes, so that they collide; some go round the end of the table.
        let hash_of = |n: u32| (n % 50).wrapping_sub(3);
        let mut index = PlaceIndex::default();
        let mut expected = std::collections::BTreeSet::new();
        for round in 0..40_000 {
            // More at one time than at another, so that the table grows and shrinks.
            let n = random.u32(..if round / 5_000 % 2 == 0 { 400 } else { 20 });
            let found = index.find(hash_of(n), |found| found == place(n));
            assert_eq!(found.map(|found| found.place), expected.get(&n).map(|n| place(*n)));
            if let Some(found) = found {
                index.remove(found);
                expected.remove(&n);
            } else {
                index.insert(hash_of(n), place(n));
                expected.insert(n);
            }
            assert_eq!(index.len(), expected.len());
            if round % 100 == 0 {
                index.shrink_to_fit();
            }
        }
        let mut drained = Vec::new();
        index.drain(|_, place| drained.push(place.slot));
        drained.sort_unstable();
        assert_eq!(drained, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn memory_is_released() {
        let mut index = PlaceIndex::default();
        (0..10_000).for_each(|n| index.insert(n, place(n)));
        for n in 10..10_000 {
            let found = index.find(n, |found| found == place(n)).unwrap();
            index.remove(found);
        }
        index.shrink_to_fit();
        assert!(index.entries.len() <= 32, "{}", index.entries.len());
        assert!((0..10).all(|n| index.find(n, |found| found == place(n)).is_some()));
        assert_eq!(index.len(), 10);
    }
}
