//! A hash table of places: it tells where something with a hash may stand, and the caller looks whether it does.
//!
//! A hash and a place are 12 bytes, and the entries of equal hashes stand beside each other, so that a look-up and an insertion touch
//! one cache line or two. A place that is not needed any more is taken out with many others, when the table is full: one at a time,
//! each would be a cache line that is far away.

/// Tables of this many entries and fewer are not made smaller.
const ROOM_KEPT: usize = 16;

/// Places by hash: open addressing with linear probing. At most three quarters of the entries are in use.
#[derive(Debug, Default)]
pub(super) struct PlaceIndex {
    /// None, or a power of two of them. An entry in use stands at or after the position that its hash tells, without a free one in
    /// between.
    entries: Box<[Entry]>,
    count: usize,
}

/// Where something stands: a list's number below 2^32 - 1, and a place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) list: u32,
    pub(super) at: u32,
}

/// A part of a hash, and a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u32,
    place: Place,
}

/// Where a place stands in an index, until the index is changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    at: usize,
    pub(super) place: Place,
}

impl Entry {
    const FREE: Self = Self { hash: 0, place: Place { list: u32::MAX, at: 0 } };

    #[inline]
    const fn is_free(self) -> bool {
        self.place.list == u32::MAX
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
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(Place) -> bool) -> Option<Found> {
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

    /// Adds a place. If there is no room, those that are not needed any more leave before the table grows.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, place: Place, is_needed: impl Fn(Place) -> bool) {
        debug_assert!(place.list < u32::MAX, "the last number means that an entry is free");
        if self.count * 4 >= self.entries.len() * 3 {
            self.make_room(is_needed);
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

    /// Something that was found stands elsewhere now.
    #[inline]
    pub(super) fn replace(&mut self, found: Found, place: Place) {
        self.entries[found.at].place = place;
    }

    /// Takes out all places, and hands them with their hashes to `taken`.
    pub(super) fn drain(&mut self, mut taken: impl FnMut(u32, Place)) {
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

    #[cold]
    fn make_room(&mut self, is_needed: impl Fn(Place) -> bool) {
        let count = self.needed_count(&is_needed);
        // Half full at the most, so that it is long until the next time.
        self.rebuild((count * 2).next_power_of_two().max(8), is_needed);
    }

    fn needed_count(&self, is_needed: impl Fn(Place) -> bool) -> usize {
        self.entries.iter().filter(|entry| !entry.is_free() && is_needed(entry.place)).count()
    }

    /// Gives room back if much more is kept than the places need, which are at least so many.
    pub(super) fn give_room_back(&mut self, needed_min: usize, is_needed: impl Fn(Place) -> bool) {
        if self.entries.len() <= ROOM_KEPT || needed_min >= self.entries.len() / 8 {
            return;
        }
        let count = self.needed_count(&is_needed);
        if count < self.entries.len() / 8 {
            self.rebuild((count * 2).next_power_of_two().max(8), is_needed);
        }
    }

    fn rebuild(&mut self, room: usize, is_needed: impl Fn(Place) -> bool) {
        debug_assert!(room.is_power_of_two());
        let entries = std::mem::replace(&mut self.entries, vec![Entry::FREE; room].into());
        self.count = 0;
        for entry in entries {
            if !entry.is_free() && is_needed(entry.place) {
                self.count += 1;
                self.put(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: u32) -> Place {
        Place { list: at % 3, at }
    }

    fn all(_: Place) -> bool {
        true
    }

    #[test]
    fn places_are_found_whatever_is_not_needed_any_more() {
        // Few different hashes, so that they collide; the last ones go round the end of the table.
        let hash_of = |n: u32| (n % 7).wrapping_sub(3);
        let mut index = PlaceIndex::default();
        let mut needed = 0;
        for n in 0..4_000_u32 {
            // Of the places that were added last, more are needed at one time than at another.
            needed = n.saturating_sub(if n / 1_000 % 2 == 0 { 300 } else { 20 }).max(needed);
            assert!(index.find(hash_of(n), |found| found == place(n)).is_none(), "{n}");
            index.insert(hash_of(n), place(n), |place| place.at >= needed);
            for n in needed..=n {
                let found = index.find(hash_of(n), |found| found == place(n));
                assert_eq!(found.map(|found| found.place), Some(place(n)));
            }
            if n % 100 == 0 {
                index.give_room_back(0, |place| place.at >= needed);
            }
        }
        assert!(index.entries.len() <= 1_024, "{}", index.entries.len());
    }

    #[test]
    fn a_place_that_was_found_is_replaced() {
        let mut index = PlaceIndex::default();
        (0..100).for_each(|n| index.insert(n, place(n), all));
        let found = index.find(50, |found| found == place(50)).unwrap();
        index.replace(found, place(500));
        assert!(index.find(50, |found| found == place(50)).is_none());
        assert!(index.find(50, |found| found == place(500)).is_some());
    }

    #[test]
    fn room_is_given_back() {
        let mut index = PlaceIndex::default();
        (0..10_000).for_each(|n| index.insert(n, place(n), all));
        index.give_room_back(10, |place| place.at < 10);
        assert!(index.entries.len() <= 32, "{}", index.entries.len());
        assert!((0..10).all(|n| index.find(n, |found| found == place(n)).is_some()));
        assert_eq!(index.len(), 10);
    }
}
