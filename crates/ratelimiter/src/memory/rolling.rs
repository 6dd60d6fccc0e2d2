//! Reservations of a rolling limit with one window, each of which expires at its own moment.
//!
//! They last equally long, so expiry is a queue: new ones go to the back, expired ones leave at the front. A changed amount
//! keeps its place.

use std::collections::VecDeque;

use crate::clock::Timestamp;
use crate::limit::CAPACITY_MAX;

/// Entries per block.
const BLOCK: u32 = 16;
const BLOCK_ENTRIES: usize = BLOCK as usize;
const NOT_RELEASED: &str = "an open reservation is in its block";
/// The greatest number of a block.
const BLOCK_NUMBER_MAX: u32 = u32::MAX / BLOCK;

/// Entries with growing numbers and non-decreasing expiry, in blocks, so that hints skip most of them. Numbers wrap after 32 bits,
/// since there are never that many entries.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    /// The number of the first entry that has not left.
    first: u32,
    /// The number of the next entry.
    next: u32,
    blocks: Box<Blocks>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Blocks {
    /// The block of the next entry.
    tail: Block,
    /// From the block of the first entry to the one before the tail.
    full: VecDeque<FullBlock>,
}

/// Entries that have left, or do not exist yet, are released.
type Block = [Entry; BLOCK_ENTRIES];

#[derive(Debug)]
struct FullBlock {
    /// The sum of all amounts.
    sum: u64,
    /// `None` once all are released.
    entries: Option<Box<Block>>,
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
    pub(super) reserved: u64,
    /// How much of it stays until it expires.
    pub(super) kept: u64,
}

impl Entry {
    const RELEASED: Self = Self { expires_at: Timestamp::from_unix_nanos(0), held: Held::RELEASED };

    #[inline]
    fn close(&mut self, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        assert!(self.held.is_open(), "a lease ends once");
        let reserved = self.held.amount();
        let kept = kept_of(reserved);
        self.held = Held::new(kept, false);
        Closed { reserved, kept }
    }

    /// Releases the entry if it has expired; `None` if it has not.
    fn leave(&mut self, now: Timestamp) -> Option<Held> {
        let leaves = self.held == Held::RELEASED || self.expires_at <= now;
        leaves.then(|| std::mem::replace(&mut self.held, Held::RELEASED))
    }
}

impl Held {
    const RELEASED: Self = Self(0);

    #[inline]
    fn new(amount: u64, is_open: bool) -> Self {
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

impl Default for Blocks {
    fn default() -> Self {
        Self { tail: [Entry::RELEASED; BLOCK_ENTRIES], full: VecDeque::new() }
    }
}

impl Rolling {
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Adds a reservation of an open lease, which expires at or after all others, and returns its number.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        let number = self.next;
        let entry = Entry { expires_at, held: Held::new(amount, true) };
        self.blocks.tail[(number % BLOCK) as usize] = entry;
        self.next = number.wrapping_add(1);
        if self.next.is_multiple_of(BLOCK) {
            self.begin_block();
        }
        number
    }

    /// Moves the full tail to the other blocks.
    #[cold]
    fn begin_block(&mut self) {
        assert!(self.blocks.full.len() < BLOCK_NUMBER_MAX as usize, "a number fits 32 bits");
        let entries = std::mem::replace(&mut self.blocks.tail, [Entry::RELEASED; BLOCK_ENTRIES]);
        let sum = entries.iter().map(|entry| entry.held.amount()).sum();
        self.blocks
            .full
            .push_back(FullBlock { sum, entries: (sum > 0).then(|| Box::new(entries)) });
    }

    /// The index of the block of a number, unless it is the tail.
    #[inline]
    fn full_block_of(&self, number: u32) -> Option<usize> {
        let after_first = (number / BLOCK).wrapping_sub(self.first / BLOCK) & BLOCK_NUMBER_MAX;
        (number / BLOCK != self.next / BLOCK).then_some(after_first as usize)
    }

    /// The amount of the reservation with this number, which has not expired and whose lease is open.
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        let block = match self.full_block_of(number) {
            None => &self.blocks.tail,
            Some(at) => self.blocks.full[at].entries.as_ref().expect(NOT_RELEASED),
        };
        block[(number % BLOCK) as usize].held.amount()
    }

    /// Ends such a reservation with its lease. `kept_of` maps the reserved amount to what stays.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept_of: impl FnOnce(u64) -> u64) -> Closed {
        let Some(at) = self.full_block_of(number) else {
            let closed = self.blocks.tail[(number % BLOCK) as usize].close(kept_of);
            if closed.kept == 0 {
                self.reuse_released();
            }
            return closed;
        };
        let block = &mut self.blocks.full[at];
        let entries = block.entries.as_mut().expect(NOT_RELEASED);
        let closed = entries[(number % BLOCK) as usize].close(kept_of);
        block.sum = block.sum - closed.reserved + closed.kept;
        if block.sum == 0 {
            block.entries = None;
        }
        closed
    }

    /// Makes released entries at the end of the tail the next ones.
    fn reuse_released(&mut self) {
        let is_released =
            |number: u32| self.blocks.tail[(number % BLOCK) as usize].held == Held::RELEASED;
        while !self.next.is_multiple_of(BLOCK) && !self.is_empty() && is_released(self.next - 1) {
            self.next -= 1;
        }
    }

    /// Removes what has expired by `now`, and passes it to `departed`.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        while !self.is_empty() {
            let first = (self.first % BLOCK) as usize;
            let block_end = (self.first / BLOCK + 1).wrapping_mul(BLOCK);
            match self.blocks.full.front_mut() {
                None => {
                    let Some(held) = self.blocks.tail[first].leave(now) else { return };
                    departed(held);
                    self.first = self.first.wrapping_add(1);
                }
                Some(block) => {
                    let entries =
                        block.entries.iter_mut().flat_map(|entries| &mut entries[first..]);
                    for entry in entries {
                        let Some(held) = entry.leave(now) else { return };
                        departed(held);
                        block.sum -= held.amount();
                        self.first = self.first.wrapping_add(1);
                    }
                    self.blocks.full.pop_front();
                    self.first = block_end;
                }
            }
        }
    }

    /// Releases memory that is mostly unused.
    pub(super) fn shrink_to_fit(&mut self) {
        let full = &mut self.blocks.full;
        if full.len() < full.capacity() / 4 {
            full.shrink_to(full.len() * 2);
        }
    }

    /// No entry expires before this moment.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.iter().next().map(|(expires_at, _)| expires_at)
    }

    /// When each entry expires, and its amount, in the order of expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let full = self.blocks.full.iter().filter_map(|block| block.entries.as_deref());
        full.chain([&self.blocks.tail]).flat_map(live)
    }

    /// When `amount` will be free, if nothing else changes.
    pub(super) fn freed_at(&self, amount: u64) -> Option<Timestamp> {
        let mut freed = 0;
        let mut full = self.blocks.full.iter();
        let reaching = full.find(|block| {
            freed += block.sum;
            freed >= amount
        });
        let block = match reaching {
            None => &self.blocks.tail,
            Some(block) => {
                freed -= block.sum;
                block.entries.as_deref()?
            }
        };
        let enough = live(block).find(|(_, amount_of_entry)| {
            freed += amount_of_entry;
            freed >= amount
        });
        enough.map(|(expires_at, _)| expires_at)
    }
}

/// When each entry of a block expires, and its amount.
fn live(block: &Block) -> impl Iterator<Item = (Timestamp, u64)> {
    let live = block.iter().filter(|entry| entry.held != Held::RELEASED);
    live.map(|entry| (entry.expires_at, entry.held.amount()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn expired(rolling: &mut Rolling, now: u64) -> Vec<u64> {
        let mut amounts = Vec::new();
        rolling.expire(at(now), |held| amounts.push(held.amount()));
        amounts
    }

    #[test]
    fn expired_entries_leave_at_the_front() {
        let mut rolling = Rolling::default();
        for n in 1..=1_000 {
            assert_eq!(rolling.push(at(n), n), u32::try_from(n).unwrap() - 1);
        }
        assert_eq!(expired(&mut rolling, 0), [0; 0]);
        assert_eq!(expired(&mut rolling, 3), [1, 2, 3]);
        assert_eq!(rolling.next_expiry(), Some(at(4)));
        assert_eq!(expired(&mut rolling, 500), (4..=500).collect::<Vec<_>>());
        assert_eq!(rolling.amount_of(700), 701);
        assert_eq!(expired(&mut rolling, 9_999), (501..=1_000).collect::<Vec<_>>());
        assert!(rolling.is_empty());
        assert_eq!(rolling.push(at(10_000), 7), 1_000);
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
        assert!(rolling.blocks.full.is_empty(), "a call at a time reuses its entry");
        let mut open = VecDeque::new();
        for _ in 0..100_000 {
            open.push_back(rolling.push(at(1), 1));
            if open.len() > 100 {
                rolling.close(open.pop_front().unwrap(), |_| 0);
            }
        }
        let blocks = rolling.blocks.full.iter().filter(|block| block.entries.is_some()).count();
        assert!(blocks <= 100 / BLOCK_ENTRIES + 2, "{blocks} blocks");
        let mut amounts = expired(&mut rolling, 1);
        amounts.retain(|amount| *amount > 0);
        assert_eq!(amounts, [1; 101]);
    }

    /// As `freed_at` must answer, by a walk over all entries.
    fn walked(rolling: &Rolling, amount: u64) -> Option<Timestamp> {
        let mut freed = 0;
        let enough = rolling.iter().find(|(_, amount_of_entry)| {
            freed += amount_of_entry;
            freed >= amount
        });
        enough.map(|(expires_at, _)| expires_at)
    }

    /// HINT-02
    #[test]
    fn hint_02_the_sums_agree_with_a_walk() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut rolling = Rolling::default();
        let mut open = Vec::new();
        for now in 0..16_000 {
            // Long stretches with many entries and with few.
            let lasts = if now % 8_000 < 6_000 { 2_000 } else { 10 };
            expired(&mut rolling, now);
            open.retain(|(_, expires_at)| *expires_at > now);
            let expires_at = (now + lasts).max(open.last().map_or(0, |(_, last)| *last));
            open.push((rolling.push(at(expires_at), random.u64(1..10)), expires_at));
            if random.bool() {
                let (number, _) = open.remove(random.usize(..open.len()));
                let kept = random.u64(..=rolling.amount_of(number)) * (now / 1_000 % 2);
                rolling.close(number, |_| kept);
            }
            if now % 100 == 0 {
                let total: u64 = rolling.iter().map(|(_, amount)| amount).sum();
                for amount in [1, 2, random.u64(1..8_000), total.max(1), total + 1] {
                    assert_eq!(rolling.freed_at(amount), walked(&rolling, amount));
                }
            }
        }
    }
}
