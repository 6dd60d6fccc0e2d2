//! Reservations of one limit with the same lifetime.
//!
//! They last equally long, so new ones expire last. A changed amount keeps its place.

use slab::Slab;

use crate::clock::Timestamp;
use crate::limit::CAPACITY_MAX;

/// Entries per block.
const BLOCK: u32 = 16;
/// No block.
const NONE: u32 = u32::MAX;

/// Entries in the order of expiry, in blocks with their sums, so that hints skip most of them. A block is freed with its last entry,
/// whatever is before it.
#[derive(Debug)]
pub(super) struct Reservations {
    /// The number of the next entry: its block's number times [`BLOCK`], plus its place there.
    next: u32,
    blocks: Box<Blocks>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Blocks {
    /// The entries of the newest block, which is not full.
    newest: Entries,
    /// All blocks by number, linked in the order of expiry.
    all: Slab<Block>,
    oldest: u32,
}

/// Entries that have left, or do not exist yet, are released.
type Entries = [Entry; BLOCK as usize];

#[derive(Debug)]
struct Block {
    /// The sum of all amounts; 0 in the newest block.
    sum: u64,
    /// `None` in the newest block.
    entries: Option<Box<Entries>>,
    older: u32,
    newer: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    expires_at: Timestamp,
    held: Held,
}

/// An amount in 63 bits, and in the lowest bit whether its lease is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held(u64);

/// A reservation whose lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) expires_at: Timestamp,
    pub(super) reserved: u64,
    /// How much of it stays until it expires.
    pub(super) kept: u64,
}

impl Entry {
    const RELEASED: Self = Self { expires_at: Timestamp::from_unix_nanos(0), held: Held::RELEASED };
}

impl Held {
    const RELEASED: Self = Self(0);

    #[inline]
    pub(super) fn new(amount: u64, is_open: bool) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1 | u64::from(is_open))
    }

    #[inline]
    pub(super) const fn amount(self) -> u64 {
        self.0 >> 1
    }

    #[inline]
    pub(super) const fn is_open(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Default for Reservations {
    fn default() -> Self {
        let newest = [Entry::RELEASED; BLOCK as usize];
        let mut blocks = Box::new(Blocks { newest, all: Slab::new(), oldest: NONE });
        let next = blocks.begin_block(NONE) * BLOCK;
        Self { next, blocks }
    }
}

impl Blocks {
    /// Adds a block after the newest one, and returns its number.
    fn begin_block(&mut self, older: u32) -> u32 {
        let block = Block { sum: 0, entries: None, older, newer: NONE };
        let number = u32::try_from(self.all.insert(block)).ok();
        let number = number.filter(|number| *number < NONE / BLOCK).expect("a number fits 32 bits");
        *self.link_from(older) = number;
        number
    }

    /// The link to the block after this one.
    fn link_from(&mut self, older: u32) -> &mut u32 {
        self.all.get_mut(older as usize).map_or(&mut self.oldest, |block| &mut block.newer)
    }

    /// Changes the sum of a full block. A block without entries is removed.
    #[inline]
    fn change_sum(&mut self, number: u32, freed: u64, added: u64) {
        let block = &mut self.all[number as usize];
        block.sum = block.sum - freed + added;
        // An open lease may have given back all its units.
        if block.sum == 0 && block.entries.as_deref().is_none_or(|all| live(all).next().is_none()) {
            let Block { older, newer, .. } = self.all.remove(number as usize);
            self.all[newer as usize].older = older;
            *self.link_from(older) = newer;
        }
    }

    /// All blocks with their sums, the oldest first; the newest has none.
    fn iter(&self) -> impl Iterator<Item = (Option<u64>, &Entries)> {
        let block = |number: u32| self.all.get(number as usize);
        let blocks = std::iter::successors(block(self.oldest), move |one| block(one.newer));
        blocks.map(|block| match &block.entries {
            Some(entries) => (Some(block.sum), &**entries),
            None => (None, &self.newest),
        })
    }
}

impl Reservations {
    /// Adds a reservation of an open lease, which expires at or after all others. Its number is valid until it expires.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        let number = self.next;
        let entry = Entry { expires_at, held: Held::new(amount, true) };
        self.blocks.newest[(number % BLOCK) as usize] = entry;
        self.next += 1;
        if self.next.is_multiple_of(BLOCK) {
            self.begin_block(number / BLOCK);
        }
        number
    }

    /// The newest block is full.
    #[cold]
    fn begin_block(&mut self, full: u32) {
        let entries = std::mem::replace(&mut self.blocks.newest, [Entry::RELEASED; BLOCK as usize]);
        let block = &mut self.blocks.all[full as usize];
        block.sum = entries.iter().map(|entry| entry.held.amount()).sum();
        block.entries = Some(Box::new(entries));
        self.next = self.blocks.begin_block(full) * BLOCK;
    }

    /// The amount of the reservation with this number, which has not expired and whose lease is open.
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        let block = &self.blocks.all[(number / BLOCK) as usize];
        let entries = block.entries.as_deref().unwrap_or(&self.blocks.newest);
        entries[(number % BLOCK) as usize].held.amount()
    }

    /// Changes the amount of such a reservation, which keeps its expiry. Returns what it was.
    pub(super) fn resize(&mut self, number: u32, amount: u64) -> u64 {
        let block = number / BLOCK;
        let Blocks { newest, all, .. } = &mut *self.blocks;
        let full = all[block as usize].entries.as_deref_mut();
        let is_newest = full.is_none();
        let held = &mut full.unwrap_or(newest)[(number % BLOCK) as usize].held;
        assert!(held.is_open(), "its lease is open");
        let before = std::mem::replace(held, Held::new(amount, true)).amount();
        if !is_newest {
            self.blocks.change_sum(block, before, amount);
        }
        before
    }

    /// Ends such a reservation with its lease. `kept_of` maps the reserved amount to what stays.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        let block = number / BLOCK;
        let is_newest = block == self.next / BLOCK;
        let entries = match is_newest {
            true => &mut self.blocks.newest,
            false => self.blocks.all[block as usize].entries.as_mut().expect("a full block"),
        };
        let Entry { expires_at, held } = &mut entries[(number % BLOCK) as usize];
        assert!(held.is_open(), "a lease ends once");
        let (expires_at, reserved) = (*expires_at, held.amount());
        let kept = kept_of(reserved);
        *held = Held::new(kept, false);
        match is_newest {
            true => self.reuse_released(),
            false => self.blocks.change_sum(block, reserved, kept),
        }
        Closed { expires_at, reserved, kept }
    }

    /// Makes released entries at the end of the newest block the next ones.
    #[inline]
    fn reuse_released(&mut self) {
        let is_released =
            |number: u32| self.blocks.newest[(number % BLOCK) as usize].held == Held::RELEASED;
        while !self.next.is_multiple_of(BLOCK) && is_released(self.next - 1) {
            self.next -= 1;
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        let newest = self.next / BLOCK;
        loop {
            let number = self.blocks.oldest;
            let Blocks { newest: entries, all, .. } = &mut *self.blocks;
            let entries = all[number as usize].entries.as_deref_mut().unwrap_or(entries);
            let (mut freed, mut is_done) = (0, number == newest);
            for entry in entries.iter_mut().filter(|entry| entry.held != Held::RELEASED) {
                if entry.expires_at > now {
                    is_done = true;
                    break;
                }
                departed(entry.held);
                freed += entry.held.amount();
                entry.held = Held::RELEASED;
            }
            if number != newest {
                self.blocks.change_sum(number, freed, 0);
            }
            if is_done {
                break;
            }
        }
        self.reuse_released();
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        let all = &mut self.blocks.all;
        if all.len() < all.capacity() / 4 {
            all.shrink_to_fit();
        }
    }

    /// When each entry expires, and its amount, in the order of expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.blocks.iter().flat_map(|(_, entries)| live(entries))
    }

    /// When `amount` will be free, if nothing else changes.
    pub(super) fn freed_at(&self, amount: u64) -> Option<Timestamp> {
        let mut left = amount;
        let mut blocks = self.blocks.iter().skip_while(|(sum, _)| {
            let skipped = sum.filter(|sum| *sum < left);
            left -= skipped.unwrap_or(0);
            skipped.is_some()
        });
        let (_, entries) = blocks.next()?;
        let mut entries = live(entries);
        let enough = entries.find(|(_, freed)| {
            left = left.saturating_sub(*freed);
            left == 0
        });
        enough.map(|(expires_at, _)| expires_at)
    }
}

/// When each entry of a block expires, and its amount.
fn live(entries: &Entries) -> impl Iterator<Item = (Timestamp, u64)> {
    let live = entries.iter().filter(|entry| entry.held != Held::RELEASED);
    live.map(|entry| (entry.expires_at, entry.held.amount()))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn expired(reservations: &mut Reservations, now: u64) -> Vec<u64> {
        let mut amounts = Vec::new();
        reservations.expire(at(now), |held| amounts.push(held.amount()));
        amounts
    }

    fn is_empty(reservations: &Reservations) -> bool {
        reservations.iter().next().is_none()
    }

    #[test]
    fn expired_entries_leave_at_the_front() {
        let mut reservations = Reservations::default();
        let numbers: Vec<_> = (1..=1_000).map(|n| reservations.push(at(n), n)).collect();
        assert_eq!(expired(&mut reservations, 0), [0; 0]);
        assert_eq!(expired(&mut reservations, 3), [1, 2, 3]);
        assert_eq!(reservations.iter().next().map(|(expires_at, _)| expires_at), Some(at(4)));
        assert_eq!(expired(&mut reservations, 500), (4..=500).collect::<Vec<_>>());
        assert_eq!(reservations.amount_of(numbers[700]), 701);
        assert!(!is_empty(&reservations));
        assert_eq!(expired(&mut reservations, 9_999), (501..=1_000).collect::<Vec<_>>());
        assert!(is_empty(&reservations));
    }

    #[test]
    fn reservations_are_found_whatever_was_removed_before() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut reservations = Reservations::default();
        let mut expected: Vec<(u32, u64, u64)> = Vec::new();
        for n in 1..50_000 {
            let now = n / 200;
            let (live, dead): (Vec<_>, Vec<_>) =
                expected.into_iter().partition(|(_, expires_at, _)| *expires_at > now);
            expected = live;
            let dead: Vec<_> = dead.into_iter().map(|(_, _, amount)| amount).collect();
            assert_eq!(expired(&mut reservations, now), dead, "in their order");
            assert_eq!(is_empty(&reservations), expected.is_empty());
            let first = expected.first().map(|(_, expires_at, _)| at(*expires_at));
            assert_eq!(reservations.iter().next().map(|(expires_at, _)| expires_at), first);
            if random.bool() && !expected.is_empty() {
                let (number, expires_at, amount) = expected.remove(random.usize(..expected.len()));
                assert_eq!(reservations.amount_of(number), amount);
                let closed = Closed { expires_at: at(expires_at), reserved: amount, kept: 0 };
                assert_eq!(reservations.close(number, |_| 0), closed);
            } else {
                expected.push((reservations.push(at(now + 1), n), now + 1, n));
            }
            if n % 1_000 == 0 {
                reservations.shrink_to_fit();
                let in_order = expected.iter().map(|(_, expires_at, n)| (at(*expires_at), *n));
                assert!(reservations.iter().eq(in_order));
            }
        }
    }

    /// MEM-03
    #[test]
    fn mem_03_a_lasting_reservation_does_not_keep_the_memory_of_later_ones() {
        let mut reservations = Reservations::default();
        reservations.push(at(1), 7);
        for _ in 0..100_000 {
            let number = reservations.push(at(1), 1);
            reservations.close(number, |_| 0);
        }
        assert_eq!(reservations.blocks.all.len(), 1, "a call at a time reuses its entry");
        let mut open = VecDeque::new();
        for _ in 0..100_000 {
            open.push_back(reservations.push(at(1), 1));
            if open.len() > 100 {
                reservations.close(open.pop_front().unwrap(), |_| 0);
            }
        }
        let capacity = reservations.blocks.all.capacity();
        assert!(capacity <= 16, "{capacity} blocks");
        let amounts: Vec<_> = std::iter::once(7).chain([1; 100]).collect();
        assert_eq!(expired(&mut reservations, 1), amounts);
    }

    /// MEM-03
    #[test]
    fn mem_03_the_memory_of_many_reservations_is_released() {
        let mut reservations = Reservations::default();
        let numbers: Vec<_> = (0..10_000).map(|_| reservations.push(at(1), 1)).collect();
        for number in &numbers[2..] {
            reservations.close(*number, |_| 0);
        }
        reservations.push(at(1), 2);
        expired(&mut reservations, 1);
        reservations.shrink_to_fit();
        assert!(is_empty(&reservations));
        let again = [reservations.push(at(1), 2), reservations.push(at(2), 3)];
        assert_eq!(again.map(|number| reservations.amount_of(number)), [2, 3]);
        assert_eq!(expired(&mut reservations, 2), [2, 3]);
    }

    /// As `freed_at` must answer, by a walk over all entries.
    fn walked(reservations: &Reservations, amount: u64) -> Option<Timestamp> {
        let mut freed = 0;
        let enough = reservations.iter().find(|(_, amount_of_entry)| {
            freed += amount_of_entry;
            freed >= amount
        });
        enough.map(|(expires_at, _)| expires_at)
    }

    /// HINT-02
    #[test]
    fn hint_02_the_sums_agree_with_a_walk() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut reservations = Reservations::default();
        let mut open = Vec::new();
        for now in 0..16_000 {
            // Long stretches with many entries and with few.
            let lasts = if now % 8_000 < 6_000 { 2_000 } else { 10 };
            expired(&mut reservations, now);
            open.retain(|(_, expires_at)| *expires_at > now);
            let expires_at = (now + lasts).max(open.last().map_or(0, |(_, last)| *last));
            open.push((reservations.push(at(expires_at), random.u64(1..10)), expires_at));
            if random.bool() {
                let (number, _) = open.remove(random.usize(..open.len()));
                // A call may use more than it reserved.
                let kept = random.u64(..=2 * reservations.amount_of(number)) * (now / 1_000 % 2);
                reservations.close(number, |_| kept);
            }
            if now % 100 == 0 {
                let total: u64 = reservations.iter().map(|(_, amount)| amount).sum();
                for amount in [1, 2, random.u64(1..8_000), total.max(1), total + 1] {
                    assert_eq!(reservations.freed_at(amount), walked(&reservations, amount));
                }
            }
        }
    }
}
