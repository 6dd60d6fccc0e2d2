//! Reservations in the order in which they expire.
//!
//! All reservations of a limit last equally long until somebody changes its window, so expiry is a queue: new ones go
//! to the back, expired ones leave at the front. A change of the window begins a new timeline beside the old one.

use std::collections::VecDeque;

use super::sums::Sums;
use crate::clock::Timestamp;
use crate::limit::CAPACITY_MAX;

/// Below this many entries a walk is as fast as a look into the sums.
const SUMS_ENTRIES_MIN: usize = 256;
/// Below this many empty entries it is not worth closing the gaps.
const EMPTY_MIN: u32 = 32;
/// Queues of fewer entries keep their room.
const ROOM_KEPT: usize = 64;

/// Reservations with growing numbers and never-falling expiry.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    entries: VecDeque<Entry>,
    /// How many entries have an amount of 0: ended in the middle, not yet taken out.
    empty_count: u32,
    /// Sums over the entries' amounts, made when a hint first needs them and kept true from then on.
    sums: Option<Box<Sums>>,
}

/// One reservation: 24 bytes, of which a lease of four has 96.
#[derive(Debug, Clone, Copy)]
struct Entry {
    number: u64,
    expires_at: Timestamp,
    held: Held,
}

/// An amount, which needs 63 bits, and whether the lease it belongs to is open, which needs the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held(u64);

impl Held {
    const fn open(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1 | 1)
    }

    const fn closed(amount: u64) -> Self {
        assert!(amount <= CAPACITY_MAX, "an admitted amount is within a capacity");
        Self(amount << 1)
    }

    const fn amount(self) -> u64 {
        self.0 >> 1
    }

    const fn is_open(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What left a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Departed {
    pub(super) amount: u64,
    /// How many of the departed belonged to open leases.
    pub(super) open_count: u32,
}

impl Timeline {
    /// Adds a reservation of an open lease. Its number and expiry are at or after all others'.
    pub(super) fn push(&mut self, number: u64, expires_at: Timestamp, amount: u64) {
        // Only in tests: in production this would wait for memory that the push itself need not wait for.
        debug_assert!(
            self.entries
                .back()
                .is_none_or(|last| last.number < number && last.expires_at <= expires_at),
            "numbers grow, time goes forward, and the lifetime is one"
        );
        let count = self.entries.len();
        if count == self.entries.capacity() && count > ROOM_KEPT {
            // Half as much again, not twice: the room that nobody uses stays within a third.
            self.entries.reserve_exact(count / 2);
        }
        if let Some(sums) = &mut self.sums {
            sums.add(number, amount);
        }
        self.entries.push_back(Entry { number, expires_at, held: Held::open(amount) });
    }

    /// Takes out what has expired by `now`.
    pub(super) fn expire(&mut self, now: Timestamp) -> Departed {
        let mut departed = Departed::default();
        while let Some(first) = self.entries.front() {
            let held = first.held;
            if first.expires_at > now && held.amount() > 0 {
                break;
            }
            if held.amount() == 0 {
                self.empty_count -= 1;
            } else if let Some(sums) = &mut self.sums {
                sums.replace(first.number, held.amount(), 0);
            }
            departed.amount += held.amount();
            departed.open_count += u32::from(held.is_open());
            self.entries.pop_front();
        }
        if departed != Departed::default() {
            self.after_departures();
        }
        departed
    }

    fn after_departures(&mut self) {
        match (self.entries.front(), &mut self.sums) {
            (Some(first), Some(sums)) => sums.forget_before(first.number),
            (None, sums) => *sums = None,
            (Some(_), None) => {}
        }
        let count = self.entries.len();
        if self.entries.capacity() > ROOM_KEPT && count < self.entries.capacity() / 4 {
            self.entries.shrink_to(count + count / 2);
        }
    }

    /// The amount of the reservation that stands here.
    pub(super) fn amount_at(&self, at: usize) -> u64 {
        self.entries[at].held.amount()
    }

    /// The lease of the reservation that stands here has ended, and `amount` of it stays.
    pub(super) fn close_at(&mut self, at: usize, amount: u64) {
        let entry = &mut self.entries[at];
        let before = entry.held;
        assert!(before.is_open(), "a lease ends once");
        entry.held = Held::closed(amount);
        if let Some(sums) = &mut self.sums {
            sums.replace(entry.number, before.amount(), amount);
        }
        if amount == 0 {
            self.empty_count += 1;
            self.drop_empty();
        }
    }

    /// Empty entries leave at the front at once, and elsewhere when they are the majority, so that one hold that lasts
    /// does not keep the places of thousands that have ended.
    fn drop_empty(&mut self) {
        while self.entries.front().is_some_and(|first| first.held.amount() == 0) {
            self.entries.pop_front();
            self.empty_count -= 1;
        }
        if self.empty_count >= EMPTY_MIN && self.empty_count as usize * 2 > self.entries.len() {
            self.entries.retain(|entry| entry.held.amount() > 0);
            self.empty_count = 0;
        }
        self.after_departures();
    }

    /// Where the reservation with this number stands, if it is live. Numbers grow by one from entry to entry except where a gap was closed,
    /// so counting from the back nearly always hits.
    pub(super) fn position(&self, number: u64) -> Option<usize> {
        let last = self.entries.back()?.number;
        let from_back = usize::try_from(last.checked_sub(number)?).ok()?;
        if let Some(at) = (self.entries.len() - 1).checked_sub(from_back)
            && self.entries[at].number == number
        {
            return Some(at);
        }
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    /// Makes the sums that the hints of a long timeline need.
    pub(super) fn prepare_hints(&mut self) {
        if self.sums.is_none() && self.entries.len() >= SUMS_ENTRIES_MIN {
            let amounts = self.entries.iter().map(|entry| (entry.number, entry.held.amount()));
            self.sums = Some(Box::new(Sums::over(amounts)));
        }
    }

    /// When so much will have expired that `amount` is free, if nothing else changes.
    pub(super) fn freed_at(&self, amount: u64) -> Option<Timestamp> {
        let (start, mut freed) = match &self.sums {
            Some(sums) => {
                let (number, before) = sums.block_reaching(amount)?;
                (self.entries.partition_point(|entry| entry.number < number), before)
            }
            None => (0, 0),
        };
        let enough = self.entries.range(start..).find(|entry| {
            freed += entry.held.amount();
            freed >= amount
        });
        enough.map(|entry| entry.expires_at)
    }

    /// How much will have expired by `moment`, if nothing else changes.
    fn freed_by(&self, moment: Timestamp) -> u64 {
        let end = self.entries.partition_point(|entry| entry.expires_at <= moment);
        let (start, before) = match (&self.sums, self.entries.get(end)) {
            (Some(sums), Some(entry)) => {
                let (number, before) = sums.before_block_of(entry.number);
                (self.entries.partition_point(|entry| entry.number < number), before)
            }
            (Some(sums), None) => return sums.total(),
            (None, _) => (0, 0),
        };
        let amounts = self.entries.range(start..end).map(|entry| entry.held.amount());
        before + amounts.sum::<u64>()
    }

    /// When `amount` will be free over several timelines, if nothing else changes. That is a moment at which one of them
    /// has an entry that expires; what is freed by then only grows, so each is searched by halves.
    pub(super) fn freed_at_over(timelines: &[&Self], amount: u64) -> Option<Timestamp> {
        let freed_by =
            |moment| timelines.iter().map(|timeline| timeline.freed_by(moment)).sum::<u64>();
        let first_in = |timeline: &&Self| {
            let entries = &timeline.entries;
            let at = entries.partition_point(|entry| freed_by(entry.expires_at) < amount);
            entries.get(at).map(|entry| entry.expires_at)
        };
        timelines.iter().filter_map(first_in).min()
    }

    /// When the first reservation expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.entries.front().map(|entry| entry.expires_at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1_000)
    }

    /// A timeline of so many entries, of which the `n`th has the amount `n % 10 + 1` and expires in second `n`.
    fn timeline(count: u64) -> Timeline {
        let mut timeline = Timeline::default();
        for n in 0..count {
            timeline.push(n, at(n), n % 10 + 1);
        }
        timeline
    }

    fn amount(timeline: &Timeline, number: u64) -> Option<u64> {
        timeline.position(number).map(|at| timeline.amount_at(at))
    }

    fn close(timeline: &mut Timeline, number: u64, amount: u64) {
        let at = timeline.position(number).unwrap();
        timeline.close_at(at, amount);
    }

    /// What `freed_at` must say, by walking.
    fn walked(timelines: &[&Timeline], amount: u64) -> Option<Timestamp> {
        let mut entries: Vec<_> =
            timelines.iter().flat_map(|t| t.entries.iter().copied()).collect();
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
        let mut timeline = timeline(10);
        assert_eq!(timeline.expire(at(2)), Departed { amount: 1 + 2 + 3, open_count: 3 });
        assert_eq!(timeline.expire(at(2)), Departed::default());
        assert_eq!(amount(&timeline, 2), None);
        assert_eq!(amount(&timeline, 3), Some(4));
        close(&mut timeline, 3, 1);
        assert_eq!(timeline.expire(at(3)), Departed { amount: 1, open_count: 0 });
        assert_eq!(timeline.expire(at(100)).open_count, 6);
        assert!(timeline.is_empty());
    }

    #[test]
    fn a_reservation_is_found_after_gaps_were_closed() {
        let mut timeline = timeline(1_000);
        for n in (1..1_000).filter(|n| n % 3 != 0) {
            close(&mut timeline, n, 0);
        }
        assert!(timeline.entries.len() < 700, "{} entries are kept", timeline.entries.len());
        for n in 0..1_000 {
            let live = n % 3 == 0;
            assert_eq!(amount(&timeline, n).unwrap_or(0) > 0, live, "entry {n}");
        }
        assert_eq!(amount(&timeline, 1_000), None);
    }

    #[test]
    fn the_sums_of_a_long_timeline_agree_with_a_walk() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut timeline = timeline(20_000);
        timeline.prepare_hints();
        assert!(timeline.sums.is_some());
        let mut number = 20_000;
        let mut now = 0;
        while now < 21_000 {
            now += random.u64(..200);
            timeline.expire(at(now));
            for _ in 0..random.u64(..40) {
                let open = random.u64(now + 1..number.max(now + 2));
                let entry = timeline.position(open).map(|at| timeline.entries[at].held);
                if let Some(held) = entry.filter(|held| held.is_open()) {
                    close(&mut timeline, open, random.u64(..=held.amount()));
                }
            }
            if number < 20_500 {
                timeline.push(number, at(number), 5);
                number += 1;
            }
            for _ in 0..5 {
                let amount = random.u64(1..120_000);
                assert_eq!(timeline.freed_at(amount), walked(&[&timeline], amount));
                assert_eq!(
                    Timeline::freed_at_over(&[&timeline], amount),
                    walked(&[&timeline], amount)
                );
            }
        }
    }

    #[test]
    fn several_timelines_free_together() {
        let (mut short, mut long) = (timeline(300), Timeline::default());
        for n in 0..500 {
            long.push(n, at(n * 2 + 1), 3);
        }
        short.prepare_hints();
        long.prepare_hints();
        for amount in 1..3_200 {
            let expected = walked(&[&short, &long], amount);
            assert_eq!(Timeline::freed_at_over(&[&short, &long], amount), expected, "{amount}");
        }
    }

    #[test]
    fn room_is_given_back() {
        let mut timeline = timeline(100_000);
        timeline.expire(at(99_990));
        assert!(timeline.entries.capacity() <= ROOM_KEPT, "{}", timeline.entries.capacity());
    }
}
