//! `CAL-01`: when the periods of a calendar limit end.

use std::collections::{BTreeMap, BTreeSet};

use ratelimiter::clock::Timestamp;

use crate::limits::calendar::Schedule;

/// The resets of a calendar limit, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// When the current period may end; several moments while nobody knows which schedule it began with.
    ends: BTreeSet<Timestamp>,
    /// The resets that may have happened, and whether they certainly have.
    past: BTreeMap<Timestamp, bool>,
}

impl Periods {
    /// A period may begin now, because the limit may have been defined anew.
    pub(super) fn begin(&mut self, now: Timestamp, schedules: &[Schedule]) {
        self.ends.extend(schedules.iter().map(|schedule| schedule.next_reset(now)));
    }

    /// Time has passed, under one of these schedules. A new period follows the schedule that is in force when it begins.
    pub(super) fn advance(&mut self, now: Timestamp, schedules: &[Schedule]) {
        while let Some(reset) = self.ends.first().copied().filter(|end| *end <= now) {
            let is_certain = self.ends.len() == 1;
            self.ends.remove(&reset);
            self.past.insert(reset, is_certain);
            self.begin(reset, schedules);
        }
    }

    /// When a reservation that began at a moment ends: at the earliest, and at the latest.
    pub(super) fn expiry(&self, began_at: Timestamp) -> (Timestamp, Timestamp) {
        let is_later = |end: &&Timestamp| **end > began_at;
        let earliest = self.past.keys().chain(&self.ends).find(is_later);
        let mut certain = self.past.iter().filter(|(_, is_certain)| **is_certain);
        let certain = certain.find(|(end, _)| **end > began_at).map(|(end, _)| end);
        let latest = certain.or(self.ends.last());
        // Without a moment there is no such limit now, and nothing of it is held.
        (earliest.copied().unwrap_or(began_at), latest.copied().unwrap_or(began_at))
    }

    pub(super) fn may_end_at(&self, end: Timestamp) -> bool {
        self.ends.contains(&end)
    }

    /// The current period certainly ends then.
    pub(super) fn settle(&mut self, end: Timestamp) {
        self.ends = BTreeSet::from([end]);
    }

    /// When the current period may end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.ends.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Schedule = Schedule::Hourly { minute: 10 };
    const SECOND: Schedule = Schedule::Hourly { minute: 30 };

    fn minute(minute: u64) -> Timestamp {
        Timestamp::from_unix_ms(1_736_640_000_000 + minute * 60_000)
    }

    /// CAL-01
    #[test]
    fn cal_01_a_changed_schedule_applies_from_the_next_reset() {
        let mut periods = Periods::default();
        periods.begin(minute(0), &[FIRST]);
        periods.advance(minute(9), &[SECOND]);
        assert_eq!(periods.expiry(minute(9)), (minute(10), minute(10)));
        periods.advance(minute(10), &[SECOND]);
        assert_eq!(periods.expiry(minute(9)), (minute(10), minute(10)));
        assert_eq!(periods.expiry(minute(10)), (minute(30), minute(30)));
    }

    /// CAL-01
    #[test]
    fn cal_01_what_nobody_knows_has_two_bounds() {
        let mut periods = Periods::default();
        periods.begin(minute(0), &[FIRST]);
        periods.advance(minute(10), &[FIRST, SECOND]);
        assert_eq!(periods.expiry(minute(11)), (minute(30), minute(70)));
        periods.advance(minute(31), &[SECOND]);
        assert_eq!(periods.expiry(minute(11)), (minute(30), minute(90)));
        periods.settle(minute(70));
        assert_eq!(periods.expiry(minute(31)), (minute(70), minute(70)));
    }
}
