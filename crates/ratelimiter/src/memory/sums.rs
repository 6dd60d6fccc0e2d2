//! Sums over blocks of reservations, so that retry hints need no full scan.

use std::collections::VecDeque;

/// Reservation numbers per small block, and small blocks per large one.
pub(super) const BLOCK: u64 = 64;

/// Sums over the amounts of one queue by number, with two block sizes.
#[derive(Debug, Default)]
pub(super) struct Sums {
    small: Blocks<BLOCK>,
    large: Blocks<{ BLOCK * BLOCK }>,
}

/// Sums over blocks of `SPAN` numbers each.
#[derive(Debug, Default)]
struct Blocks<const SPAN: u64> {
    /// The block at the front, which begins at the number `first * SPAN`.
    first: u64,
    sums: VecDeque<u64>,
}

impl Sums {
    /// Sums over pairs of number and amount, in the order of the numbers.
    pub(super) fn over(amounts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut sums = Self::default();
        for (number, amount) in amounts {
            sums.add(number, amount);
        }
        sums
    }

    /// Adds an amount whose number is at or after all others.
    pub(super) fn add(&mut self, number: u64, amount: u64) {
        self.small.add(number, amount);
        self.large.add(number, amount);
    }

    /// Changes an amount.
    pub(super) fn replace(&mut self, number: u64, before: u64, after: u64) {
        self.small.replace(number, before, after);
        self.large.replace(number, before, after);
    }

    /// Drops the blocks before this number.
    pub(super) fn forget_before(&mut self, number: u64) {
        self.small.forget_before(number);
        self.large.forget_before(number);
    }

    /// The small block in which the running sum first reaches `amount`: its first number, and the sum before it.
    pub(super) fn block_reaching(&self, amount: u64) -> Option<(u64, u64)> {
        let (large, before) = self.large.reaching(amount, 0, 0)?;
        let (small, before) = self.small.reaching(amount, large * BLOCK, before)?;
        Some((small * BLOCK, before))
    }

    /// The small block that a number is in: its first number, and the sum of all before it.
    pub(super) fn before_block_of(&self, number: u64) -> (u64, u64) {
        let (small, large) = (number / BLOCK, number / (BLOCK * BLOCK));
        let before_large = self.large.sum_of(0, large);
        (small * BLOCK, before_large + self.small.sum_of(large * BLOCK, small))
    }
}

impl<const SPAN: u64> Blocks<SPAN> {
    /// The sum of the blocks from `start` up to `end`.
    fn sum_of(&self, start: u64, end: u64) -> u64 {
        let place = |block: u64| usize::try_from(block.saturating_sub(self.first));
        let (start, end) = (place(start).unwrap_or(usize::MAX), place(end).unwrap_or(usize::MAX));
        self.sums.iter().take(end).skip(start).sum()
    }

    fn add(&mut self, number: u64, amount: u64) {
        let block = number / SPAN;
        if self.sums.is_empty() {
            self.first = block;
        }
        while self.first + self.sums.len() as u64 <= block {
            self.sums.push_back(0);
        }
        *self.sum_mut(number) += amount;
    }

    fn replace(&mut self, number: u64, before: u64, after: u64) {
        let sum = self.sum_mut(number);
        *sum = *sum - before + after;
    }

    fn sum_mut(&mut self, number: u64) -> &mut u64 {
        let at = usize::try_from(number / SPAN - self.first).expect("blocks fit the memory");
        &mut self.sums[at]
    }

    fn forget_before(&mut self, number: u64) {
        while self.first < number / SPAN {
            self.sums.pop_front();
            self.first += 1;
        }
    }

    /// The first block from `start` on at which the running sum, beginning at `before`, reaches `amount`.
    fn reaching(&self, amount: u64, start: u64, mut before: u64) -> Option<(u64, u64)> {
        let skipped = usize::try_from(start.saturating_sub(self.first)).ok()?;
        for (at, sum) in self.sums.iter().enumerate().skip(skipped) {
            if before + sum >= amount {
                return Some((self.first + at as u64, before));
            }
            before += sum;
        }
        None
    }
}
