//! What one limit has in one timeline, and when how much of it will be free.

use super::sums::{BLOCK, Sums};
use super::timeline::Timeline;
use crate::clock::Timestamp;

/// What one limit has in one timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share<'a> {
    pub(super) timeline: &'a Timeline,
    /// The limit's slot, which its entries carry.
    pub(super) slot: u32,
    /// The number of the limit's newest entry.
    pub(super) newest: u64,
}

impl Share<'_> {
    /// When `amount` of the share will be free, if nothing else changes: by a walk from the newest entry, `total` being the
    /// sum of all.
    pub(super) fn freed_at(self, amount: u64, total: u64) -> Option<Timestamp> {
        let mut freed_at = None;
        let mut freed = total;
        for (_, entry) in self.timeline.back_from(self.slot, self.newest) {
            // `freed` is what this entry and all before it hold.
            if freed < amount {
                break;
            }
            freed_at = Some(entry.expires_at);
            freed -= entry.held.amount();
        }
        freed_at
    }

    /// Sums over the share, so that a long one need not be walked again.
    pub(super) fn sums(self) -> Sums {
        let mut amounts: Vec<_> = self
            .timeline
            .back_from(self.slot, self.newest)
            .map(|(number, entry)| (number, entry.held.amount()))
            .collect();
        amounts.reverse();
        Sums::over(amounts.into_iter())
    }

    /// When `amount` of the share will be free, if nothing else changes, by its sums.
    pub(super) fn freed_at_by_sums(self, amount: u64, sums: &Sums) -> Option<Timestamp> {
        let (start, mut freed) = sums.block_reaching(amount)?;
        let enough = self.timeline.between(start, start + BLOCK).find(|entry| {
            if entry.slot == self.slot {
                freed += entry.held.amount();
            }
            freed >= amount
        });
        Some(enough.expect("the sums are true").expires_at)
    }

    /// How much of the share will have expired by `moment`, if nothing else changes.
    fn freed_by(self, moment: Timestamp, sums: &Sums) -> u64 {
        let end = self.timeline.number_after(moment);
        let (start, before) = sums.before_block_of(end);
        let entries = self.timeline.between(start, end).filter(|entry| entry.slot == self.slot);
        before + entries.map(|entry| entry.held.amount()).sum::<u64>()
    }
}

/// When `amount` will be free over several shares, if nothing else changes. That is a moment at which an entry of one of the
/// timelines expires; what is freed by then only grows, so each is searched by halves.
pub(super) fn freed_at_over(shares: &[(Share<'_>, &Sums)], amount: u64) -> Option<Timestamp> {
    let freed_by =
        |moment| shares.iter().map(|(share, sums)| share.freed_by(moment, sums)).sum::<u64>();
    let first_in = |(Share { timeline, .. }, _): &(Share<'_>, &Sums)| {
        timeline.first_moment(|moment| freed_by(moment) >= amount)
    };
    shares.iter().filter_map(first_in).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{LimitKind, Window};
    use crate::memory::timeline::Lifetime;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    fn timeline(window: u64) -> Timeline {
        let window = Window::from_seconds(window).unwrap();
        Timeline::new(Lifetime::of(LimitKind::Rolling { window }))
    }

    /// What `freed_at` must say, by walking from the oldest entry.
    fn walked(shares: &[Share<'_>], amount: u64) -> Option<Timestamp> {
        let of = |share: &Share<'_>| {
            let entries = share.timeline.between(0, u64::MAX).filter(|e| e.slot == share.slot);
            entries.copied().collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = shares.iter().flat_map(of).collect();
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
        let mut timeline = timeline(4_000);
        let mut newest = Timeline::NO_NUMBER;
        let mut sums = Sums::default();
        for now in 0..16_000 {
            timeline.expire(at(now), |number, entry| {
                if entry.slot == 1 {
                    sums.replace(number, entry.held.amount(), 0);
                }
            });
            sums.forget_before(timeline.numbers().start);
            let slot = random.u32(..3);
            let amount = random.u64(1..10);
            let before = if slot == 1 { newest } else { Timeline::NO_NUMBER };
            let number = timeline.push(at(now + 4_000), slot, amount, before);
            if slot == 1 {
                newest = number;
                sums.add(number, amount);
            }
            let changed = random.u64(timeline.numbers());
            // Some stretches are released as a whole, so that blocks give back their room.
            for changed in changed..timeline.numbers().end.min(changed + random.u64(1..5)) {
                let Some(entry) = timeline.between(changed, changed + 1).next().copied() else {
                    continue;
                };
                if entry.held.is_open() {
                    timeline.close(changed, |reserved| {
                        let kept = random.u64(..=reserved) * (changed / 1_000 % 2);
                        if entry.slot == 1 {
                            sums.replace(changed, reserved, kept);
                        }
                        kept
                    });
                }
            }
            if now % 100 == 0 {
                let share = Share { timeline: &timeline, slot: 1, newest };
                let total = sums.total();
                for amount in [1, 2, random.u64(1..8_000), total.max(1), total + 1] {
                    let expected = walked(&[share], amount);
                    assert_eq!(share.freed_at(amount, total), expected);
                    assert_eq!(share.freed_at_by_sums(amount, &sums), expected);
                    assert_eq!(share.freed_at_by_sums(amount, &share.sums()), expected);
                    assert_eq!(freed_at_over(&[(share, &sums)], amount), expected);
                }
            }
        }
    }

    #[test]
    fn several_shares_are_freed_together() {
        let (mut short, mut long) = (timeline(10), timeline(400));
        let mut newest = [Timeline::NO_NUMBER; 2];
        for n in 0..500 {
            newest[0] = short.push(at(n * 2 + 10), 1, n % 10 + 1, newest[0]);
            short.push(at(n * 2 + 10), 2, 100, Timeline::NO_NUMBER);
            newest[1] = long.push(at(n + 400), 1, 3, newest[1]);
        }
        let short = Share { timeline: &short, slot: 1, newest: newest[0] };
        let long = Share { timeline: &long, slot: 1, newest: newest[1] };
        let sums = [short.sums(), long.sums()];
        let shares = [(short, &sums[0]), (long, &sums[1])];
        for amount in 1..4_300 {
            let expected = walked(&[short, long], amount);
            assert_eq!(freed_at_over(&shares, amount), expected, "{amount}");
        }
    }
}
