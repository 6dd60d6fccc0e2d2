//! The reservations of one shard that last equally long, in the order in which they expire.
//!
//! They last equally long, so expiry is a queue: new ones go to the back, expired ones leave at the front. A shard has few
//! different lifetimes, so that a request writes to the ends of a few queues, which stay near the processor, however
//! many limits there are. Each limit's own reservations are linked backwards.

use std::collections::VecDeque;

use super::sums::BLOCK;
use crate::clock::Timestamp;
use crate::limit::{CAPACITY_MAX, LimitKind};

/// [`BLOCK`], to compare with how many entries there are.
const BLOCK_ENTRIES: usize = 128;
const _: () = assert!(BLOCK_ENTRIES as u64 == BLOCK, "they are the same");
/// In the place of a limit's slot: the reservation was released before its time.
const RELEASED: u32 = u32::MAX;

/// Reservations with growing numbers and never-falling expiry, in blocks of [`BLOCK`] numbers, so that a number finds its entry without
/// a search, and room is given back block by block.
#[derive(Debug)]
pub(super) struct Timeline {
    lifetime: Lifetime,
    /// Full blocks, of which those whose entries were all released have given back their room; the first one has not.
    blocks: VecDeque<Block>,
    /// The newest entries: the block that takes the next ones.
    tail: Block,
    /// The number of the tail's first entry: a multiple of [`BLOCK`].
    tail_start: u64,
    /// The number of the first entry that has not expired.
    first: u64,
}

/// For how long a reservation lasts, and whether it is a hold. Holds have timelines of their own, since they may leave early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime(u32);

/// The entries of [`BLOCK`] numbers.
#[derive(Debug)]
struct Block {
    entries: Vec<Entry>,
    /// How many of the entries were not released early.
    kept_count: u32,
    /// When the first entry expires.
    starts_at: Timestamp,
}

/// One reservation: 24 bytes, of which a lease of four has 96.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) expires_at: Timestamp,
    pub(super) held: Held,
    /// The limit's slot, or [`RELEASED`].
    pub(super) slot: u32,
    /// How many numbers back the limit's reservation before this one is; 0 if there is none.
    back: u32,
}

/// An amount, which needs 63 bits, and whether the lease it belongs to is open, which needs the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held(u64);

impl Lifetime {
    pub(super) const fn of(kind: LimitKind) -> Self {
        // A lifetime is at most 31 days, which need 22 bits.
        Self(kind.lifetime_seconds() << 1 | kind.is_concurrency() as u32)
    }

    pub(super) const fn seconds(self) -> u32 {
        self.0 >> 1
    }

    pub(super) const fn is_hold(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Held {
    pub(super) const fn open(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1 | 1)
    }

    pub(super) const fn closed(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1)
    }

    pub(super) const fn amount(self) -> u64 {
        self.0 >> 1
    }

    pub(super) const fn is_open(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Block {
    const EMPTY: Self =
        Self { entries: Vec::new(), kept_count: 0, starts_at: Timestamp::from_unix_nanos(0) };
}

impl Timeline {
    /// A limit that has no reservation yet has this as its newest number.
    pub(super) const NO_NUMBER: u64 = u64::MAX;

    pub(super) const fn new(lifetime: Lifetime) -> Self {
        let blocks = VecDeque::new();
        Self { lifetime, blocks, tail: Block::EMPTY, tail_start: 0, first: 0 }
    }

    pub(super) const fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// The number of the next entry.
    #[inline]
    const fn next(&self) -> u64 {
        self.tail_start + self.tail.entries.len() as u64
    }

    /// The number of the first block's first entry.
    #[inline]
    fn base(&self) -> u64 {
        self.tail_start - BLOCK * self.blocks.len() as u64
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.first == self.next()
    }

    /// The numbers of all entries that have not expired.
    pub(super) const fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.next()
    }

    /// Adds a reservation of an open lease for the limit in this slot, whose newest one so far has the number `newest`.
    /// It expires at or after all others. Answers with its number.
    #[inline]
    pub(super) fn push(
        &mut self,
        expires_at: Timestamp,
        slot: u32,
        amount: u64,
        newest: u64,
    ) -> u64 {
        if self.tail.entries.len() == BLOCK_ENTRIES {
            self.begin_block();
        }
        debug_assert!(
            self.tail.entries.last().is_none_or(|last| last.expires_at <= expires_at),
            "time goes forward, and the lifetime is one"
        );
        let number = self.next();
        // Further back than 2^32 nothing is left.
        let back = u32::try_from(number.wrapping_sub(newest)).unwrap_or(0);
        self.tail.entries.push(Entry { expires_at, held: Held::open(amount), slot, back });
        self.tail.kept_count += 1;
        number
    }

    /// The tail is full: it becomes a block, and there is a new one.
    #[cold]
    fn begin_block(&mut self) {
        self.tail_start += BLOCK;
        if self.first == self.tail_start {
            // All has expired, so that the tail's room is free.
            self.tail.entries.clear();
            self.tail.kept_count = 0;
            return;
        }
        assert!(u32::try_from(self.tail_start - self.first).is_ok(), "32 bits tell a number");
        let room = Vec::with_capacity(BLOCK_ENTRIES);
        let mut full = std::mem::replace(&mut self.tail, Block { entries: room, ..Block::EMPTY });
        full.starts_at = full.entries[0].expires_at;
        if full.kept_count == 0 {
            full.entries = Vec::new();
        }
        self.blocks.push_back(full);
        self.drop_empty_blocks();
    }

    /// The whole number, of which the low 32 bits are given, of an entry that has not expired.
    #[inline]
    pub(super) const fn number_of(&self, low: u32) -> u64 {
        let newest = self.next() - 1;
        newest - (newest.wrapping_sub(low as u64) & 0xffff_ffff)
    }

    /// The block that a number is in, and where it stands there.
    #[inline]
    fn block(&self, number: u64) -> (&Block, usize) {
        let at = place_in_block(number);
        if number >= self.tail_start {
            return (&self.tail, at);
        }
        (&self.blocks[whole((number - self.base()) / BLOCK)], at)
    }

    #[inline]
    fn block_mut(&mut self, number: u64) -> (&mut Block, usize) {
        let at = place_in_block(number);
        if number >= self.tail_start {
            return (&mut self.tail, at);
        }
        let block = whole((number - self.base()) / BLOCK);
        (&mut self.blocks[block], at)
    }

    /// The entry with this number, which has not expired. It may be gone if it was released.
    #[inline]
    fn get(&self, number: u64) -> Option<&Entry> {
        let (block, at) = self.block(number);
        block.entries.get(at)
    }

    /// The entry with this number, which has neither expired nor been released.
    #[inline]
    pub(super) fn entry(&self, number: u64) -> &Entry {
        self.get(number).expect("the entry is live")
    }

    /// The lease of the reservation with this number, which is live, has ended. `keep` is told the amount, and answers how much of it
    /// stays. If that is nothing, nobody will ask for the reservation again.
    #[inline]
    pub(super) fn close(&mut self, number: u64, keep: impl FnOnce(u64) -> u64) {
        let is_in_tail = number >= self.tail_start;
        let (block, at) = self.block_mut(number);
        let entry = &mut block.entries[at];
        assert!(entry.held.is_open(), "a lease ends once");
        let kept = keep(entry.held.amount());
        entry.held = Held::closed(kept);
        if kept > 0 {
            return;
        }
        entry.slot = RELEASED;
        block.kept_count -= 1;
        if is_in_tail {
            self.drop_released_at_back();
        } else if block.kept_count == 0 {
            // One that lasts does not keep the room of thousands that came and went after it.
            block.entries = Vec::new();
            self.drop_empty_blocks();
        }
    }

    /// Makes room at the back, whose numbers are then given out again. Not for rolling reservations, to which others
    /// link.
    #[inline]
    fn drop_released_at_back(&mut self) {
        if !self.lifetime.is_hold() {
            return;
        }
        while self.next() > self.first
            && self.tail.entries.last().is_some_and(|last| last.slot == RELEASED)
        {
            self.tail.entries.pop();
        }
    }

    fn drop_empty_blocks(&mut self) {
        while self.blocks.front().is_some_and(|block| block.entries.is_empty()) {
            self.blocks.pop_front();
        }
        self.first = self.first.max(self.base());
    }

    /// Takes out what has expired by `now`, and hands it to `departed` with its number.
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(u64, Entry)) {
        while !self.is_empty() {
            let entry = *self.entry(self.first);
            if entry.expires_at > now {
                return;
            }
            if entry.slot != RELEASED {
                departed(self.first, entry);
            }
            self.first += 1;
            if self.first == self.base() + BLOCK && self.blocks.pop_front().is_some() {
                self.drop_empty_blocks();
            }
        }
    }

    /// When the first entry expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        (!self.is_empty()).then(|| self.entry(self.first).expires_at)
    }

    /// Gives the room of a timeline without entries back.
    pub(super) fn give_room_back(&mut self) {
        if self.is_empty() {
            self.tail_start = self.next().next_multiple_of(BLOCK);
            self.first = self.tail_start;
            self.tail = Block::EMPTY;
            self.blocks = VecDeque::new();
        } else if self.blocks.len() < self.blocks.capacity() / 4 {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
    }

    /// The rolling reservations of the limit in a slot that have not expired, the newest first, with their numbers.
    pub(super) fn back_from(&self, slot: u32, newest: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let before = move |(number, entry): &(u64, &Entry)| match entry.back {
            0 => None,
            back => self.at_or_before(slot, number.checked_sub(u64::from(back))?),
        };
        std::iter::successors(self.at_or_before(slot, newest), before)
    }

    /// A limit's entry with this number, or the next one before it if this one's block has given back its room.
    fn at_or_before(&self, slot: u32, number: u64) -> Option<(u64, &Entry)> {
        if !self.numbers().contains(&number) {
            return None;
        }
        if let Some(entry) = self.get(number) {
            return Some((number, entry));
        }
        let entries = (self.first..number).rev().filter_map(|n| Some((n, self.get(n)?)));
        entries.into_iter().find(|(_, entry)| entry.slot == slot)
    }

    /// The entries whose numbers are in a range within one block, as far as they have not expired.
    pub(super) fn between(&self, start: u64, end: u64) -> impl Iterator<Item = &Entry> {
        let numbers = start.max(self.first)..end.min(self.next());
        numbers.filter_map(|number| self.get(number))
    }

    /// The first number whose entry expires after `moment`.
    pub(super) fn number_after(&self, moment: Timestamp) -> u64 {
        let count_in = |block: &Block| match block.entries.len() {
            0 => BLOCK,
            _ => block.entries.partition_point(|entry| entry.expires_at <= moment) as u64,
        };
        let started = self.blocks.partition_point(|block| block.starts_at <= moment);
        let number = match started.checked_sub(1) {
            Some(last) if started < self.blocks.len() || self.tail_starts_after(moment) => {
                self.base() + BLOCK * last as u64 + count_in(&self.blocks[last])
            }
            None if !self.blocks.is_empty() => self.base(),
            _ => {
                let expired = self.tail.entries.partition_point(|e| e.expires_at <= moment);
                self.tail_start + expired as u64
            }
        };
        number.max(self.first)
    }

    fn tail_starts_after(&self, moment: Timestamp) -> bool {
        self.tail.entries.first().is_some_and(|first| first.expires_at > moment)
    }

    /// The first moment at which an entry expires and a condition is met that stays met from then on.
    pub(super) fn first_moment(&self, is_met: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
        let first_in = |block: &Block| {
            let at = block.entries.partition_point(|entry| !is_met(entry.expires_at));
            block.entries.get(at).map(|entry| entry.expires_at)
        };
        let before = self.blocks.partition_point(|block| !is_met(block.starts_at));
        let in_last = before.checked_sub(1).and_then(|last| first_in(&self.blocks[last]));
        let at_next = || self.blocks.get(before).map(|block| block.starts_at);
        in_last.or_else(at_next).or_else(|| first_in(&self.tail))
    }
}

/// Where a number stands in its block.
#[inline]
fn place_in_block(number: u64) -> usize {
    whole(number % BLOCK)
}

#[inline]
fn whole(count: u64) -> usize {
    usize::try_from(count).expect("what fits the memory fits a usize")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{HoldTimeout, Window};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn rolling() -> Timeline {
        Timeline::new(Lifetime::of(LimitKind::Rolling { window: Window::from_seconds(1).unwrap() }))
    }

    fn holds() -> Timeline {
        let timeout = HoldTimeout::from_seconds(1).unwrap();
        Timeline::new(Lifetime::of(LimitKind::Concurrency { timeout }))
    }

    fn expired(timeline: &mut Timeline, now: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        timeline.expire(at(now), |number, _| numbers.push(number));
        numbers
    }

    #[test]
    fn what_expires_leaves_at_the_front() {
        let mut timeline = rolling();
        for n in 0..1_000 {
            assert_eq!(timeline.push(at(n + 1), 7, n, Timeline::NO_NUMBER), n);
        }
        assert_eq!(expired(&mut timeline, 0), [0; 0]);
        assert_eq!(expired(&mut timeline, 3), [0, 1, 2]);
        assert_eq!(expired(&mut timeline, 3), [0; 0]);
        assert_eq!(timeline.next_expiry(), Some(at(4)));
        assert_eq!(expired(&mut timeline, 500), (3..500).collect::<Vec<_>>());
        assert_eq!(timeline.entry(500).held, Held::open(500));
        assert_eq!(expired(&mut timeline, 9_999), (500..1_000).collect::<Vec<_>>());
        assert!(timeline.is_empty());
        timeline.give_room_back();
        assert_eq!(timeline.push(at(10_000), 7, 1, Timeline::NO_NUMBER), 1_024);
    }

    #[test]
    fn a_limits_reservations_are_linked_backwards() {
        let mut timeline = rolling();
        let mut newest = [Timeline::NO_NUMBER; 3];
        for n in 0..300 {
            let slot = n % 3;
            newest[slot as usize] =
                timeline.push(at(u64::from(n) + 1), slot, 1, newest[slot as usize]);
        }
        expired(&mut timeline, 100);
        for (slot, newest) in (0..).zip(newest) {
            let numbers: Vec<_> =
                timeline.back_from(slot, newest).map(|(number, _)| number).collect();
            let expected = (100..300).rev().filter(|n| n % 3 == u64::from(slot));
            assert_eq!(numbers, expected.collect::<Vec<_>>());
        }
        assert_eq!(timeline.back_from(0, 99).count(), 0);
        assert_eq!(timeline.back_from(0, Timeline::NO_NUMBER).count(), 0);
    }

    /// MEM-03
    #[test]
    fn mem_03_one_hold_that_lasts_does_not_keep_the_room_of_those_after_it() {
        let mut timeline = holds();
        timeline.push(at(1), 1, 1, Timeline::NO_NUMBER);
        let mut open = VecDeque::new();
        for _ in 0..100_000 {
            open.push_back(timeline.push(at(1), 2, 1, Timeline::NO_NUMBER));
            if open.len() > 10 {
                timeline.close(open.pop_front().unwrap(), |_| 0);
            }
        }
        let blocks = timeline.blocks.iter().chain([&timeline.tail]);
        let entries: usize = blocks.map(|block| block.entries.capacity()).sum();
        assert!(entries <= 4 * BLOCK_ENTRIES, "room for {entries} entries is kept");
        let expected: Vec<_> = std::iter::once(0).chain(open).collect();
        assert_eq!(expired(&mut timeline, 1), expected);
    }

    #[test]
    fn holds_are_found_whatever_was_released_before() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut timeline = holds();
        let mut open: Vec<(u64, u64, u64)> = Vec::new();
        for n in 0..50_000 {
            let now = n / 200;
            let mut left = expired(&mut timeline, now);
            let (live, dead) = open.into_iter().partition(|(_, expires, _)| *expires > now);
            open = live;
            let dead: Vec<(u64, u64, u64)> = dead;
            left.sort_unstable();
            assert_eq!(left, dead.iter().map(|(number, ..)| *number).collect::<Vec<_>>());
            if random.bool() && !open.is_empty() {
                let (number, _, amount) = open.remove(random.usize(..open.len()));
                timeline.close(number, |reserved| {
                    assert_eq!(reserved, amount);
                    0
                });
            } else {
                let number = timeline.push(at(now + 1), 3, n, Timeline::NO_NUMBER);
                assert_eq!(timeline.number_of(u32::try_from(number).unwrap()), number);
                open.push((number, now + 1, n));
            }
        }
    }
}
