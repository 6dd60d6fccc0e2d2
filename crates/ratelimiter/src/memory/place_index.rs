//! A hash table of places: it tells where something with a hash may stand, and the caller looks whether it does.
//!
//! A hash and a place are 8 bytes, and the entries of equal hashes stand beside each other, so that a look-up, an insertion and a
//! removal touch one cache line, and growing touches nothing but the table.

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

/// A part of a hash in the high half, a place plus one in the low half; 0 if free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

/// Where a place stands in an index, until the index is changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    at: usize,
    /// The place.
    pub(super) place: u32,
}

impl Entry {
    const FREE: Self = Self(0);
    const HASH: u64 = 0xffff_ffff_0000_0000;

    const fn new(hash: u64, place: u32) -> Self {
        assert!(place < u32::MAX, "places leave out the last 32-bit number");
        Self((hash & Self::HASH) | (place as u64 + 1))
    }

    const fn is_free(self) -> bool {
        self.0 == 0
    }

    const fn place(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        // Not 0 in an entry in use.
        u32::from_le_bytes([a, b, c, d]) - 1
    }

    /// The position that the hash tells in a table of which the positions have these bits.
    fn home(self, mask: usize) -> usize {
        home(self.0, mask)
    }
}

/// The part of a hash that an entry keeps tells its position.
#[inline]
fn home(hash: u64, mask: usize) -> usize {
    usize::try_from(hash >> 32).expect("32 bits") & mask
}

impl PlaceIndex {
    #[cfg(test)]
    const fn len(&self) -> usize {
        self.count
    }

    const fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    /// Finds the place with this hash that `is_it`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<Found> {
        let mask = self.mask();
        let mut at = home(hash, mask);
        loop {
            // Without any entry there is nothing to find.
            let entry = *self.entries.get(at)?;
            if entry.is_free() {
                return None;
            }
            if (entry.0 ^ hash) & Entry::HASH == 0 && is_it(entry.place()) {
                return Some(Found { at, place: entry.place() });
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a place.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, place: u32) {
        if self.count * 4 >= self.entries.len() * 3 {
            self.resize((self.entries.len() * 2).max(4));
        }
        self.count += 1;
        self.put(Entry::new(hash, place));
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.home(mask);
        while !self.entries[at].is_free() {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    /// Something that was found stands elsewhere now.
    #[inline]
    pub(super) fn replace(&mut self, found: Found, place: u32) {
        let entry = &mut self.entries[found.at];
        *entry = Entry::new(entry.0, place);
    }

    /// Takes out what was found.
    pub(super) fn remove(&mut self, found: Found) {
        let mask = self.mask();
        let mut free = found.at;
        let mut at = free;
        // What stands behind moves up if its hash allows, so that no look-up stops too early.
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry.is_free() {
                break;
            }
            let from_home = at.wrapping_sub(entry.home(mask)) & mask;
            if from_home >= at.wrapping_sub(free) & mask {
                self.entries[free] = entry;
                free = at;
            }
        }
        self.entries[free] = Entry::FREE;
        self.count -= 1;
    }

    /// Gives room back if much more is kept than the places need.
    pub(super) fn give_room_back(&mut self) {
        if self.entries.len() > ROOM_KEPT && self.count < self.entries.len() / 8 {
            self.resize((self.count * 2).next_power_of_two().max(4));
        }
    }

    #[cold]
    fn resize(&mut self, room: usize) {
        debug_assert!(room.is_power_of_two() && self.count < room);
        let entries = std::mem::replace(&mut self.entries, vec![Entry::FREE; room].into());
        for entry in entries.into_iter().filter(|entry| !entry.is_free()) {
            self.put(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_whatever_was_taken_out_before() {
        // Few different hashes, so that they collide; the last ones go round the end of the table.
        let hash_of = |n: u32| (u64::from(n % 7) << 32).wrapping_sub(3 << 32) ^ u64::from(n);
        let mut random = fastrand::Rng::with_seed(3);
        let mut index = PlaceIndex::default();
        let mut expected = std::collections::BTreeSet::new();
        for round in 0..40_000 {
            // It fills, empties, and fills again.
            let n = random.u32(..if round / 10_000 % 2 == 0 { 400 } else { 20 });
            match index.find(hash_of(n), |place| place == n) {
                Some(found) => {
                    assert!(expected.remove(&n), "{n} is in there");
                    assert_eq!(found.place, n);
                    index.remove(found);
                }
                None => {
                    assert!(expected.insert(n), "{n} is not in there");
                    index.insert(hash_of(n), n);
                }
            }
            assert_eq!(index.len(), expected.len());
            if round % 1_000 == 0 {
                index.give_room_back();
            }
        }
        for n in 0..400 {
            let found = index.find(hash_of(n), |place| place == n);
            assert_eq!(found.is_some(), expected.contains(&n));
        }
    }

    #[test]
    fn room_is_given_back() {
        let mut index = PlaceIndex::default();
        for n in 0..10_000 {
            index.insert(u64::from(n) << 40, n);
        }
        for n in 10..10_000 {
            let found = index.find(u64::from(n) << 40, |place| place == n);
            index.remove(found.unwrap());
        }
        index.give_room_back();
        assert!(index.entries.len() <= 32, "{}", index.entries.len());
        assert!((0..10).all(|n| index.find(u64::from(n) << 40, |place| place == n).is_some()));
    }
}
