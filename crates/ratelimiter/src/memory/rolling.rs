//! Reservations of one rolling limit with the same window.
//!
//! They last equally long, so expiry is a queue: new ones go to the back, expired ones leave at the front. A changed amount
//! keeps its place.

mod freed;

use std::collections::VecDeque;

pub(super) use self::freed::freed_at_across;
use super::sums::{self, Sums};
use crate::clock::Timestamp;
use crate::limit::CAPACITY_MAX;

/// How many numbers a block spans. Most limits need no more than one block.
const BLOCK: u32 = 16;
const BLOCK_ENTRIES: usize = 16;
const _: () = assert!(BLOCK as usize == BLOCK_ENTRIES && sums::BLOCK.is_multiple_of(BLOCK as u64));

/// Reservations with growing numbers and non-decreasing expiry, in blocks of [`BLOCK`] numbers, so that entries are never copied.
/// Numbers wrap after 32 bits, since there are never that many entries.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    /// The number of the first entry that has not left.
    first: u32,
    /// The number of the next entry.
    next: u32,
    /// The block of the next entry's number; it begins at a multiple of [`BLOCK`].
    tail: Option<Box<Block>>,
    /// The blocks before the tail.
    long: Option<Box<LongQueue>>,
    /// True if `long` has sums; without them, `push` and `close` skip the lookup.
    has_sums: bool,
}

/// Unused entries have arbitrary values.
type Block = [Entry; BLOCK_ENTRIES];

/// The rest of a queue that is longer than its tail.
#[derive(Debug, Default)]
struct LongQueue {
    /// Full blocks, the last one right before the tail.
    blocks: VecDeque<Box<Block>>,
    /// An expired block, reused as the next tail.
    spare: Option<Box<Block>>,
    /// Sums over the amounts, built when a hint first needs them, and updated until the queue is empty.
    sums: Sums,
    /// The number of the first entry in the sums, whose numbers do not wrap.
    first: u64,
}

/// One reservation.
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
pub(super) struct ClosedEntry {
    pub(super) reserved: u64,
    /// How much of it stays until it expires.
    pub(super) kept: u64,
}

impl Entry {
    const UNUSED: Self = Self { expires_at: Timestamp::from_unix_nanos(0), held: Held::RELEASED };
}

impl Held {
    const RELEASED: Self = Self::closed(0);

    #[inline]
    const fn open(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1 | 1)
    }

    #[inline]
    const fn closed(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1)
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

impl Rolling {
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    const fn len(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Adds a reservation of an open lease, which expires at or after all others, and returns its number.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        let number = self.next;
        debug_assert!(
            self.is_empty() || self.entry(number.wrapping_sub(1)).expires_at <= expires_at,
            "time goes forward, and all lifetimes are equal"
        );
        let tail = self.tail.get_or_insert_with(|| Box::new([Entry::UNUSED; BLOCK_ENTRIES]));
        tail[(number % BLOCK) as usize] = Entry { expires_at, held: Held::open(amount) };
        self.next = number.wrapping_add(1);
        if let Some((sums, number)) = self.sums_mut(number) {
            sums.add(number, amount);
        }
        if self.next.is_multiple_of(BLOCK) {
            self.begin_block();
        }
        number
    }

    /// Moves the full tail to the blocks, and begins a new tail.
    #[cold]
    fn begin_block(&mut self) {
        assert!(self.len() < u32::MAX - BLOCK, "a number fits 32 bits");
        let long = self.long.get_or_insert_default();
        let spare = long.spare.take();
        let full = std::mem::replace(&mut self.tail, spare);
        long.blocks.push_back(full.expect("an entry was added to it"));
    }

    /// The sums, if there are any, and the entry's number in them.
    #[inline]
    fn sums_mut(&mut self, number: u32) -> Option<(&mut Sums, u64)> {
        if !self.has_sums {
            return None;
        }
        let LongQueue { first, sums, .. } = &mut **self.long.as_mut()?;
        Some((sums, *first + u64::from(number.wrapping_sub(self.first))))
    }

    /// True if a number's block is the tail.
    #[inline]
    const fn is_in_tail(&self, number: u32) -> bool {
        number / BLOCK == self.next / BLOCK
    }

    /// The index of the block that has a number before the tail; the last block is right before the tail.
    fn block_of(&self, number: u32, count: usize) -> usize {
        let behind = (self.next / BLOCK).wrapping_sub(number / BLOCK) % (u32::MAX / BLOCK + 1);
        count - behind as usize
    }

    #[inline]
    fn entry(&self, number: u32) -> &Entry {
        let at = (number % BLOCK) as usize;
        if self.is_in_tail(number) {
            return &self.tail.as_ref().expect("an entry is in a block")[at];
        }
        let blocks = &self.long.as_ref().expect("something is before the tail").blocks;
        &blocks[self.block_of(number, blocks.len())][at]
    }

    #[inline]
    fn entry_mut(&mut self, number: u32) -> &mut Entry {
        let at = (number % BLOCK) as usize;
        if self.is_in_tail(number) {
            return &mut self.tail.as_mut().expect("an entry is in a block")[at];
        }
        let count = self.long.as_ref().map_or(0, |long| long.blocks.len());
        let block = self.block_of(number, count);
        let long = self.long.as_mut().expect("something is before the tail");
        &mut long.blocks[block][at]
    }

    /// The number `count` after the first.
    const fn after_first(&self, count: u32) -> u32 {
        self.first.wrapping_add(count)
    }

    /// All entries but the first `skipped`.
    fn entries(&self, skipped: u32) -> impl Iterator<Item = &Entry> {
        (skipped..self.len()).map(|at| self.entry(self.after_first(at)))
    }

    /// The amount of the reservation with this number, which has not expired and whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        self.entry(number).held.amount()
    }

    /// Ends such a reservation with its lease. `kept_of` maps the reserved amount to what stays; if that is 0, the entry may be
    /// reused.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> ClosedEntry {
        let entry = self.entry_mut(number);
        assert!(entry.held.is_open(), "a lease ends once");
        let reserved = entry.held.amount();
        let kept = kept_of(reserved);
        entry.held = Held::closed(kept);
        if let Some((sums, number)) = self.sums_mut(number) {
            sums.replace(number, reserved, kept);
        }
        if kept == 0 {
            self.drop_released();
        }
        ClosedEntry { reserved, kept }
    }

    /// Drops released entries at the front, and at the back within the tail.
    fn drop_released(&mut self) {
        while !self.is_empty() && !self.next.is_multiple_of(BLOCK) {
            let last = self.next.wrapping_sub(1);
            if self.entry(last).held != Held::RELEASED {
                break;
            }
            self.next = last;
        }
        while !self.is_empty() && self.entry(self.first).held == Held::RELEASED {
            self.drop_first();
        }
        self.after_departure();
    }

    #[inline]
    fn drop_first(&mut self) {
        self.first = self.first.wrapping_add(1);
        let ends_block = self.first.is_multiple_of(BLOCK);
        if !self.has_sums && !ends_block {
            return;
        }
        if let Some(long) = &mut self.long {
            long.first += 1;
            if ends_block && let Some(block) = long.blocks.pop_front() {
                long.spare = Some(block);
            }
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        while !self.is_empty() {
            let Entry { expires_at, held } = *self.entry(self.first);
            if expires_at > now {
                return;
            }
            if let Some((sums, first)) = self.sums_mut(self.first) {
                sums.replace(first, held.amount(), 0);
                sums.forget_before(first);
            }
            self.drop_first();
            departed(held);
        }
        self.after_departure();
    }

    /// Resets an empty queue: the next entry begins a block.
    fn after_departure(&mut self) {
        if !self.is_empty() {
            return;
        }
        self.long = None;
        self.has_sums = false;
        self.next = self.next.wrapping_add(BLOCK - 1) / BLOCK * BLOCK;
        self.first = self.next;
    }

    /// When the first entry expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        (!self.is_empty()).then(|| self.entry(self.first).expires_at)
    }

    pub(super) fn shrink_to_fit(&mut self) {
        if self.is_empty() {
            self.tail = None;
        }
        if let Some(long) = &mut self.long {
            long.spare = None;
            if long.blocks.len() < long.blocks.capacity() / 4 {
                long.blocks.shrink_to(long.blocks.len() * 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    pub(super) fn expired(rolling: &mut Rolling, now: u64) -> Vec<u64> {
        let mut amounts = Vec::new();
        rolling.expire(at(now), |held| amounts.push(held.amount()));
        amounts
    }

    #[test]
    fn expired_entries_leave_at_the_front() {
        let mut rolling = Rolling::default();
        for n in 0..1_000 {
            assert_eq!(rolling.push(at(u64::from(n) + 1), u64::from(n)), n);
        }
        assert_eq!(expired(&mut rolling, 0), [0; 0]);
        assert_eq!(expired(&mut rolling, 3), [0, 1, 2]);
        assert_eq!(rolling.next_expiry(), Some(at(4)));
        assert_eq!(expired(&mut rolling, 500), (3..500).collect::<Vec<_>>());
        assert_eq!(rolling.amount_of(700), 700);
        assert_eq!(expired(&mut rolling, 9_999), (500..1_000).collect::<Vec<_>>());
        assert!(rolling.is_empty());
        assert_eq!(rolling.push(at(10_000), 7), 1_008);
    }

    #[test]
    fn numbers_wrap_after_32_bits() {
        let start = 0_u32.wrapping_sub(BLOCK);
        let mut rolling = Rolling { first: start, next: start, ..Rolling::default() };
        let numbers: Vec<_> = (1..200).map(|amount| rolling.push(at(amount), amount)).collect();
        assert_eq!(numbers[BLOCK_ENTRIES - 1..=BLOCK_ENTRIES], [u32::MAX, 0]);
        for (number, amount) in numbers.iter().zip(1..) {
            assert_eq!(rolling.amount_of(*number), amount);
        }
        assert_eq!(expired(&mut rolling, 100), (1..=100).collect::<Vec<_>>());
        rolling.close(numbers[100], |_| 2);
        assert_eq!(expired(&mut rolling, 102), [2, 102]);
    }

    /// MEM-03
    #[test]
    fn mem_03_a_lasting_reservation_does_not_keep_the_memory_of_later_ones() {
        let mut rolling = Rolling::default();
        rolling.push(at(1), 1);
        for _ in 0..100_000 {
            let number = rolling.push(at(1), 1);
            rolling.close(number, |_| 0);
        }
        assert!(rolling.long.is_none());
        assert_eq!(rolling.len(), 1);
        assert_eq!(expired(&mut rolling, 1), [1]);
    }
}
