//! Release times of rolling reservations, for retry hints.

use super::{Rolling, Sums};
use crate::clock::Timestamp;

/// Queues up to this length are scanned without sums.
const WALKED_MAX: u32 = 64;

impl Rolling {
    /// When `amount` will be free, if nothing else changes.
    pub(in crate::memory) fn freed_at(&mut self, amount: u64) -> Option<Timestamp> {
        let (skipped, mut freed) = match self.sums() {
            Some((sums, first)) => {
                let (start, before) = sums.block_reaching(amount)?;
                (start.saturating_sub(first), before)
            }
            None => (0, 0),
        };
        let enough = self.entries(position(skipped)).find(|entry| {
            freed += entry.held.amount();
            freed >= amount
        });
        enough.map(|entry| entry.expires_at)
    }

    /// The sums of a long queue, and the first entry's number in them.
    fn sums(&mut self) -> Option<(&Sums, u64)> {
        if self.len() <= WALKED_MAX {
            return None;
        }
        if !self.has_sums {
            let first = u64::from(self.first);
            let amounts = self.entries(0).map(|entry| entry.held.amount());
            let sums = Sums::over((first..).zip(amounts));
            let long = self.long.as_mut().expect("a queue this long has more than the tail");
            (long.sums, long.first) = (sums, first);
            self.has_sums = true;
        }
        self.long.as_ref().map(|long| (&long.sums, long.first))
    }

    /// How much will have expired by `moment`, if nothing else changes.
    fn freed_by(&mut self, moment: Timestamp) -> u64 {
        let end = self.count_until(|expires_at| expires_at > moment);
        let (start, before) = match self.sums() {
            Some((sums, first)) => {
                let (start, before) = sums.before_block_of(first + u64::from(end));
                (start.saturating_sub(first), before)
            }
            None => (0, 0),
        };
        let walked = (position(start)..end).map(|at| self.amount_of(self.after_first(at)));
        before + walked.sum::<u64>()
    }

    /// Binary search: the number of entries before the first one whose expiry meets a monotonic condition.
    fn count_until(&self, mut is_met: impl FnMut(Timestamp) -> bool) -> u32 {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_met(self.entry(self.after_first(middle)).expires_at) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// When `amount` will be free over several queues, if nothing else changes. That is a moment at which an entry of one of them
/// expires; the freed amount grows with time, so each queue is searched by bisection.
pub(in crate::memory) fn freed_at_across(
    queues: &mut [&mut Rolling],
    amount: u64,
) -> Option<Timestamp> {
    let mut earliest: Option<Timestamp> = None;
    for at in 0..queues.len() {
        let (mut low, mut high) = (0, queues[at].len());
        while low < high {
            let middle = low.midpoint(high);
            let queue = &queues[at];
            let moment = queue.entry(queue.after_first(middle)).expires_at;
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

/// A number of entries of one queue.
fn position(count: u64) -> u32 {
    u32::try_from(count).expect("a number fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, expired};
    use super::*;

    /// The expected result of `freed_at`, by a scan in the order of expiry.
    fn walked(queues: &[&mut Rolling], amount: u64) -> Option<Timestamp> {
        let mut entries: Vec<_> =
            queues.iter().flat_map(|queue| queue.entries(0).copied()).collect();
        entries.sort_by_key(|entry| entry.expires_at);
        let mut freed = 0;
        let enough = entries.iter().find(|entry| {
            freed += entry.held.amount();
            freed >= amount
        });
        enough.map(|entry| entry.expires_at)
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
                rolling.close(number, |_| kept);
            }
            if now % 100 == 0 {
                let total: u64 = rolling.entries(0).map(|entry| entry.held.amount()).sum();
                for amount in [1, 2, random.u64(1..8_000), total.max(1), total + 1] {
                    let expected = walked(&[&mut rolling], amount);
                    assert_eq!(rolling.freed_at(amount), expected);
                    assert_eq!(freed_at_across(&mut [&mut rolling], amount), expected);
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
            assert_eq!(freed_at_across(queues, amount), expected, "{amount}");
        }
    }
}
