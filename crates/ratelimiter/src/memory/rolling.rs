//! The reservations of one rolling limit that last equally long.
//!
//! They last equally long, so expiry is a queue: new ones go to the back, expired ones leave at the front. An amount that
//! becomes less, or more, keeps its place.

use std::collections::VecDeque;

use super::sums::{BLOCK, Sums};
use crate::clock::Timestamp;
use crate::limit::CAPACITY_MAX;

/// [`BLOCK`], to compare with how many entries there are.
const BLOCK_ENTRIES: usize = 64;
const _: () = assert!(BLOCK_ENTRIES as u64 == BLOCK, "they are the same");
/// Room for this many reservations is kept when the last one leaves.
const ROOM_KEPT: usize = 16;

/// Reservations with growing numbers and never-falling expiry, in blocks of [`BLOCK`] numbers, so that what is written once is never
/// copied. Most limits need no more than one block.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    /// The newest entries.
    tail: Vec<Entry>,
    /// The number of the tail's first entry: a multiple of [`BLOCK`].
    tail_start: u64,
    /// The number of the first entry that has not left. The low 32 bits of a number tell an entry, since there are never so many.
    first: u64,
    /// What stands before the tail.
    long: Option<Box<Long>>,
}

/// What a long queue has beside its tail.
#[derive(Debug, Default)]
struct Long {
    /// Full blocks, the last one right before the tail.
    blocks: VecDeque<Vec<Entry>>,
    /// A block that has expired, to be the next tail.
    spare: Vec<Entry>,
    /// Sums over the amounts, made when a hint first needs them, and kept true until nothing is left.
    sums: Option<Sums>,
}

/// One reservation.
#[derive(Debug, Clone, Copy)]
struct Entry {
    expires_at: Timestamp,
    held: Held,
}

/// An amount, which needs 63 bits, and whether the lease it belongs to is open, which needs the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held(u64);

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
        self.first == self.next()
    }

    /// The number of the next entry.
    #[inline]
    const fn next(&self) -> u64 {
        self.tail_start + self.tail.len() as u64
    }

    /// Adds a reservation of an open lease, which expires at or after all others. Answers with its number.
    #[inline]
    pub(super) fn push(&mut self, expires_at: Timestamp, amount: u64) -> u32 {
        if self.tail.len() == BLOCK_ENTRIES {
            self.begin_block();
        }
        debug_assert!(
            self.tail.last().is_none_or(|last| last.expires_at <= expires_at),
            "time goes forward, and the lifetime is one"
        );
        let number = self.next();
        self.tail.push(Entry { expires_at, held: Held::open(amount) });
        if let Some(sums) = self.sums_mut() {
            sums.add(number, amount);
        }
        low(number)
    }

    /// The tail is full: it becomes a block, and there is a new one.
    #[cold]
    fn begin_block(&mut self) {
        self.tail_start += BLOCK;
        if self.first == self.tail_start {
            self.tail.clear();
            return;
        }
        assert!(u32::try_from(self.tail_start - self.first).is_ok(), "32 bits tell a number");
        let long = self.long.get_or_insert_default();
        let mut tail = std::mem::take(&mut long.spare);
        tail.clear();
        tail.reserve_exact(BLOCK_ENTRIES);
        long.blocks.push_back(std::mem::replace(&mut self.tail, tail));
    }

    #[inline]
    fn sums_mut(&mut self) -> Option<&mut Sums> {
        self.long.as_mut()?.sums.as_mut()
    }

    /// The whole number, of which the low half is given, of an entry that has not left.
    #[inline]
    const fn number_of(&self, number: u32) -> u64 {
        self.first + number.wrapping_sub(low(self.first)) as u64
    }

    /// The block that a number before the tail is in: the last one has the numbers right before the tail.
    fn block_of(&self, number: u64, count: usize) -> usize {
        count - whole((self.tail_start - 1 - number) / BLOCK) - 1
    }

    #[inline]
    fn entry(&self, number: u64) -> &Entry {
        if let Some(at) = number.checked_sub(self.tail_start) {
            return &self.tail[whole(at)];
        }
        let blocks = &self.long.as_ref().expect("something is before the tail").blocks;
        &blocks[self.block_of(number, blocks.len())][whole(number % BLOCK)]
    }

    #[inline]
    fn entry_mut(&mut self, number: u64) -> &mut Entry {
        if let Some(at) = number.checked_sub(self.tail_start) {
            return &mut self.tail[whole(at)];
        }
        let count = self.long.as_ref().map_or(0, |long| long.blocks.len());
        let block = self.block_of(number, count);
        let long = self.long.as_mut().expect("something is before the tail");
        &mut long.blocks[block][whole(number % BLOCK)]
    }

    /// All entries from a number on.
    fn entries(&self, start: u64) -> impl Iterator<Item = &Entry> {
        (start..self.next()).map(|number| self.entry(number))
    }

    /// The amount of the reservation with this number, which has not expired and whose lease is open.
    #[inline]
    pub(super) fn amount_of(&self, number: u32) -> u64 {
        self.entry(self.number_of(number)).held.amount()
    }

    /// The lease of such a reservation has ended, and so much of it stays. If that is nothing, its place may be taken.
    #[inline]
    pub(super) fn close(&mut self, number: u32, kept: u64) {
        let number = self.number_of(number);
        let entry = self.entry_mut(number);
        assert!(entry.held.is_open(), "a lease ends once");
        let reserved = entry.held.amount();
        entry.held = Held::closed(kept);
        if let Some(sums) = self.sums_mut() {
            sums.replace(number, reserved, kept);
        }
        if kept == 0 {
            self.drop_released();
        }
    }

    /// Makes room at the front, and at the back as far as the tail goes.
    fn drop_released(&mut self) {
        while self.next() > self.first
            && self.tail.last().is_some_and(|last| last.held == Held::RELEASED)
        {
            self.tail.pop();
        }
        while !self.is_empty() && self.entry(self.first).held == Held::RELEASED {
            self.drop_first();
        }
        self.after_departure();
    }

    /// Takes the first entry out.
    #[inline]
    fn drop_first(&mut self) {
        self.first += 1;
        if self.first.is_multiple_of(BLOCK)
            && let Some(long) = &mut self.long
            && let Some(block) = long.blocks.pop_front()
        {
            long.spare = block;
        }
    }

    /// Takes out what has expired by `now`, and hands it to `departed`.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, mut departed: impl FnMut(Held)) {
        while !self.is_empty() {
            let Entry { expires_at, held } = *self.entry(self.first);
            if expires_at > now {
                return;
            }
            let first = self.first;
            if let Some(sums) = self.sums_mut() {
                sums.replace(first, held.amount(), 0);
                sums.forget_before(first);
            }
            self.drop_first();
            departed(held);
        }
        self.after_departure();
    }

    fn after_departure(&mut self) {
        if !self.is_empty() {
            return;
        }
        self.long = None;
        self.tail.clear();
        if self.tail.capacity() > ROOM_KEPT {
            self.tail = Vec::new();
        }
        self.tail_start = self.first.next_multiple_of(BLOCK);
        self.first = self.tail_start;
    }

    /// When the first entry expires.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        (!self.is_empty()).then(|| self.entry(self.first).expires_at)
    }

    pub(super) fn give_room_back(&mut self) {
        if let Some(long) = &mut self.long {
            long.spare = Vec::new();
            if long.blocks.len() < long.blocks.capacity() / 4 {
                long.blocks.shrink_to(long.blocks.len() * 2);
            }
        }
    }

    /// When `amount` will be free, if nothing else changes.
    pub(super) fn freed_at(&mut self, amount: u64) -> Option<Timestamp> {
        // What stands in one block is walked; more gets sums.
        let (start, mut freed) = match self.sums() {
            Some(sums) => sums.block_reaching(amount)?,
            None => (self.first, 0),
        };
        let enough = self.entries(start.max(self.first)).find(|entry| {
            freed += entry.held.amount();
            freed >= amount
        });
        enough.map(|entry| entry.expires_at)
    }

    /// The sums of a long queue.
    fn sums(&mut self) -> Option<&Sums> {
        if self.long.as_ref()?.sums.is_none() {
            let amounts = self.entries(self.first).map(|entry| entry.held.amount());
            let sums = Sums::over((self.first..).zip(amounts));
            self.long.as_mut()?.sums = Some(sums);
        }
        self.long.as_ref()?.sums.as_ref()
    }

    /// How much will have expired by `moment`, if nothing else changes.
    fn freed_by(&mut self, moment: Timestamp) -> u64 {
        let end = self.first_number(|expires_at| expires_at > moment);
        let (start, before) = match self.sums() {
            Some(sums) => sums.before_block_of(end),
            None => (self.first, 0),
        };
        let start = start.max(self.first);
        let walked = (start..end).map(|number| self.entry(number).held.amount());
        before + walked.sum::<u64>()
    }

    /// The first number at whose expiry a condition is met that stays met from then on.
    fn first_number(&self, mut is_met: impl FnMut(Timestamp) -> bool) -> u64 {
        let (mut low, mut high) = (self.first, self.next());
        while low < high {
            let middle = low.midpoint(high);
            if is_met(self.entry(middle).expires_at) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// When `amount` will be free over several queues, if nothing else changes. That is a moment at which an entry of one of them
/// expires; what is freed by then only grows, so each is searched by halves.
pub(super) fn freed_at_over(queues: &mut [&mut Rolling], amount: u64) -> Option<Timestamp> {
    let mut earliest: Option<Timestamp> = None;
    for at in 0..queues.len() {
        let (mut low, mut high) = (queues[at].first, queues[at].next());
        while low < high {
            let middle = low.midpoint(high);
            let moment = queues[at].entry(middle).expires_at;
            if queues.iter_mut().map(|queue| queue.freed_by(moment)).sum::<u64>() >= amount {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let moment = queues[at].entries(low).next().map(|entry| entry.expires_at);
        earliest = earliest.into_iter().chain(moment).min();
    }
    earliest
}

/// The low half of a number.
#[inline]
const fn low(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[inline]
fn whole(count: u64) -> usize {
    usize::try_from(count).expect("what fits the memory fits a usize")
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

    /// What `freed_at` must say, by a walk in the order of expiry.
    fn walked(queues: &[&mut Rolling], amount: u64) -> Option<Timestamp> {
        let mut entries: Vec<_> =
            queues.iter().flat_map(|queue| queue.entries(queue.first).copied()).collect();
        entries.sort_by_key(|entry| entry.expires_at);
        let mut freed = 0;
        let enough = entries.iter().find(|entry| {
            freed += entry.held.amount();
            freed >= amount
        });
        enough.map(|entry| entry.expires_at)
    }

    #[test]
    fn what_expires_leaves_at_the_front() {
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
        assert_eq!(rolling.push(at(10_000), 7), 1_024);
    }

    #[test]
    fn numbers_go_round_after_32_bits() {
        let start = (1 << 32) - BLOCK;
        let mut rolling = Rolling { first: start, tail_start: start, ..Rolling::default() };
        let numbers: Vec<_> = (1..200).map(|amount| rolling.push(at(amount), amount)).collect();
        assert_eq!(numbers[BLOCK_ENTRIES - 1..=BLOCK_ENTRIES], [u32::MAX, 0]);
        for (number, amount) in numbers.iter().zip(1..) {
            assert_eq!(rolling.amount_of(*number), amount);
        }
        assert_eq!(expired(&mut rolling, 100), (1..=100).collect::<Vec<_>>());
        rolling.close(numbers[100], 2);
        assert_eq!(expired(&mut rolling, 102), [2, 102]);
    }

    /// MEM-03
    #[test]
    fn mem_03_one_that_lasts_does_not_keep_the_room_of_those_after_it() {
        let mut rolling = Rolling::default();
        rolling.push(at(1), 1);
        for _ in 0..100_000 {
            let number = rolling.push(at(1), 1);
            rolling.close(number, 0);
        }
        assert!(rolling.long.is_none() && rolling.tail.capacity() <= 8);
        assert_eq!(expired(&mut rolling, 1), [1]);
    }

    #[test]
    fn a_walk_and_the_sums_agree_with_the_order_of_expiry() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut rolling = Rolling::default();
        let mut open = Vec::new();
        for now in 0..16_000 {
            // Long stretches with many entries and with few, so that both ways are taken.
            let lasts = if now % 8_000 < 6_000 { 2_000 } else { 100 };
            expired(&mut rolling, now);
            open.retain(|(_, expires_at)| *expires_at > now);
            let expires_at = (now + lasts).max(open.last().map_or(0, |(_, last)| *last));
            open.push((rolling.push(at(expires_at), random.u64(1..10)), expires_at));
            if random.bool() {
                let (number, _) = open.remove(random.usize(..open.len()));
                let kept = random.u64(..=rolling.amount_of(number)) * (now / 1_000 % 2);
                rolling.close(number, kept);
            }
            if now % 100 == 0 {
                let total: u64 =
                    rolling.entries(rolling.first).map(|entry| entry.held.amount()).sum();
                for amount in [1, 2, random.u64(1..8_000), total.max(1), total + 1] {
                    let expected = walked(&[&mut rolling], amount);
                    assert_eq!(rolling.freed_at(amount), expected);
                    assert_eq!(freed_at_over(&mut [&mut rolling], amount), expected);
                }
            }
        }
    }

    #[test]
    fn several_queues_are_freed_together() {
        let (mut short, mut long) = (Rolling::default(), Rolling::default());
        for n in 0..500 {
            short.push(at(n * 2 + 10), n % 10 + 1);
            long.push(at(n + 400), 3);
        }
        let queues = &mut [&mut short, &mut long];
        for amount in 1..4_300 {
            let expected = walked(queues, amount);
            assert_eq!(freed_at_over(queues, amount), expected, "{amount}");
        }
    }
}
