//! The next tick of a schedule, across clock changes.
//!
//! Between two changes a zone's offset is fixed and civil time is plain arithmetic. So the search
//! goes from change to change and finds the next civil match in each interval; only the edges need
//! rules.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp as Moment};

use super::CronSchedule;
use crate::Timestamp;

/// The most intervals that a search visits. Zones change their clocks a few times a year and a line
/// is due within 8 years if it ever is, so a search that reaches this bound is past the last date.
const INTERVALS_MAX: usize = 1000;

/// The position of a search: the first candidate of the current interval.
struct Cursor {
    at: Moment,
    /// Whether `at` itself may be the tick.
    inclusive: bool,
}

impl CronSchedule {
    /// The first tick after `after`, or `None` if it is past the last date.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let mut cursor = self.cursor_after(after.to_jiff());
        for _ in 0..INTERVALS_MAX {
            let offset = self.zone.to_offset(cursor.at);
            let civil = self.next_civil(offset.to_datetime(cursor.at), cursor.inclusive)?;
            let candidate = offset.to_timestamp(civil).ok()?;
            let Some(change) = self.zone.following(cursor.at).next() else {
                return tick(candidate);
            };
            let changed_at = change.timestamp();
            if candidate < changed_at {
                return tick(candidate);
            }
            let next_offset = change.offset();
            if !self.follows_elapsed_time && civil < next_offset.to_datetime(changed_at) {
                // The civil time is in the gap of this change: it is due at the end of the gap.
                return tick(changed_at);
            }
            let at = changed_at + self.repeated(offset, next_offset);
            cursor = Cursor { at, inclusive: true };
        }
        None
    }

    /// Starts a search. In the second pass of a repeated hour, times of day start after its end.
    fn cursor_after(&self, after: Moment) -> Cursor {
        let Some((changed_at, before, since)) = change_at_or_before(&self.zone, after) else {
            return Cursor { at: after, inclusive: false };
        };
        let repeated_until = changed_at + self.repeated(before, since);
        if after < repeated_until {
            Cursor { at: repeated_until, inclusive: true }
        } else {
            Cursor { at: after, inclusive: false }
        }
    }

    /// How long after a change the civil times repeat ones that this schedule has already run.
    fn repeated(&self, before: Offset, since: Offset) -> SignedDuration {
        if self.follows_elapsed_time || before <= since {
            return SignedDuration::ZERO;
        }
        since.duration_until(before)
    }

    /// The next civil time that the line matches. Civil time is represented as UTC, which has no
    /// clock changes.
    fn next_civil(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        let from = from.to_zoned(TimeZone::UTC).ok()?;
        let next = self.cron.find_next_occurrence(&from, inclusive).ok()?;
        Some(next.datetime())
    }

    /// Whether the line matches any day, from a fixed date on so that the answer depends on the
    /// line only.
    pub(super) fn is_ever_due(&self) -> bool {
        self.next_civil(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true).is_some()
    }
}

fn tick(moment: Moment) -> Option<Timestamp> {
    Timestamp::from_jiff(moment).ok()
}

/// The last change at or before `moment`, with the offsets before and since.
fn change_at_or_before(zone: &TimeZone, moment: Moment) -> Option<(Moment, Offset, Offset)> {
    let just_after = moment.checked_add(SignedDuration::from_nanos(1)).ok()?;
    let change = zone.preceding(just_after).next()?;
    let just_before = change.timestamp().checked_sub(SignedDuration::from_nanos(1)).ok()?;
    Some((change.timestamp(), zone.to_offset(just_before), change.offset()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use jiff::tz::TimeZoneDatabase;

    /// Shows the next ticks after a moment in local time.
    fn check(line: &str, zone: &str, after: &str, count: usize, expected: &Expect) {
        let schedule = CronSchedule::parse(line, zone).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        let mut shown = String::new();
        for _ in 0..count {
            at = schedule.next_after(at).unwrap();
            let local = at.to_jiff().to_zoned(schedule.zone.clone());
            shown += &format!("{} = {at}\n", local.strftime("%a %F %T %:z"));
        }
        expected.assert_eq(&shown);
    }

    #[test]
    fn a_time_in_the_gap_runs_once_at_the_first_moment_after_it() {
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-27T12:00:00Z",
            3,
            &expect![[r#"
                Sat 2026-03-28 02:30:00 +01:00 = 2026-03-28T01:30:00Z
                Sun 2026-03-29 03:00:00 +02:00 = 2026-03-29T01:00:00Z
                Mon 2026-03-30 02:30:00 +02:00 = 2026-03-30T00:30:00Z
            "#]],
        );
    }

    #[test]
    fn a_time_that_exists_twice_runs_once_on_its_first_pass() {
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-23T12:00:00Z",
            3,
            &expect![[r#"
                Sat 2026-10-24 02:30:00 +02:00 = 2026-10-24T00:30:00Z
                Sun 2026-10-25 02:30:00 +02:00 = 2026-10-25T00:30:00Z
                Mon 2026-10-26 02:30:00 +01:00 = 2026-10-26T01:30:00Z
            "#]],
        );
    }

    #[test]
    fn several_times_in_the_gap_are_one_run() {
        check(
            "0,30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            3,
            &expect![[r#"
                Sun 2026-03-08 03:00:00 -04:00 = 2026-03-08T07:00:00Z
                Mon 2026-03-09 02:00:00 -04:00 = 2026-03-09T06:00:00Z
                Mon 2026-03-09 02:30:00 -04:00 = 2026-03-09T06:30:00Z
            "#]],
        );
    }

    #[test]
    fn a_time_in_the_gap_is_not_lost_beside_one_after_it() {
        check(
            "30 2,3 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            4,
            &expect![[r#"
                Sun 2026-03-08 03:00:00 -04:00 = 2026-03-08T07:00:00Z
                Sun 2026-03-08 03:30:00 -04:00 = 2026-03-08T07:30:00Z
                Mon 2026-03-09 02:30:00 -04:00 = 2026-03-09T06:30:00Z
                Mon 2026-03-09 03:30:00 -04:00 = 2026-03-09T07:30:00Z
            "#]],
        );
    }

    #[test]
    fn several_times_that_exist_twice_run_once_each() {
        check(
            "15,45 1 * * *",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            3,
            &expect![[r#"
                Sun 2026-11-01 01:15:00 -04:00 = 2026-11-01T05:15:00Z
                Sun 2026-11-01 01:45:00 -04:00 = 2026-11-01T05:45:00Z
                Mon 2026-11-02 01:15:00 -05:00 = 2026-11-02T06:15:00Z
            "#]],
        );
    }

    #[test]
    fn a_search_from_the_second_pass_does_not_repeat_the_first() {
        check(
            "15,45 1 * * *",
            "America/New_York",
            "2026-11-01T06:00:00Z",
            2,
            &expect![[r#"
                Mon 2026-11-02 01:15:00 -05:00 = 2026-11-02T06:15:00Z
                Mon 2026-11-02 01:45:00 -05:00 = 2026-11-02T06:45:00Z
            "#]],
        );
    }

    #[test]
    fn every_half_hour_follows_elapsed_time_over_the_gap() {
        check(
            "*/30 * * * *",
            "America/New_York",
            "2026-03-08T06:00:00Z",
            3,
            &expect![[r#"
                Sun 2026-03-08 01:30:00 -05:00 = 2026-03-08T06:30:00Z
                Sun 2026-03-08 03:00:00 -04:00 = 2026-03-08T07:00:00Z
                Sun 2026-03-08 03:30:00 -04:00 = 2026-03-08T07:30:00Z
            "#]],
        );
    }

    #[test]
    fn every_half_hour_runs_through_both_passes() {
        check(
            "*/30 * * * *",
            "America/New_York",
            "2026-11-01T04:45:00Z",
            5,
            &expect![[r#"
                Sun 2026-11-01 01:00:00 -04:00 = 2026-11-01T05:00:00Z
                Sun 2026-11-01 01:30:00 -04:00 = 2026-11-01T05:30:00Z
                Sun 2026-11-01 01:00:00 -05:00 = 2026-11-01T06:00:00Z
                Sun 2026-11-01 01:30:00 -05:00 = 2026-11-01T06:30:00Z
                Sun 2026-11-01 02:00:00 -05:00 = 2026-11-01T07:00:00Z
            "#]],
        );
    }

    #[test]
    fn an_hourly_line_does_not_run_at_the_end_of_a_half_hour_gap() {
        check(
            "0 * * * *",
            "Australia/Lord_Howe",
            "2026-10-03T14:00:00Z",
            3,
            &expect![[r#"
                Sun 2026-10-04 01:00:00 +10:30 = 2026-10-03T14:30:00Z
                Sun 2026-10-04 03:00:00 +11:00 = 2026-10-03T16:00:00Z
                Sun 2026-10-04 04:00:00 +11:00 = 2026-10-03T17:00:00Z
            "#]],
        );
    }

    #[test]
    fn a_half_hour_gap_moves_only_the_times_in_it() {
        check(
            "10,35 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            3,
            &expect![[r#"
                Sun 2026-10-04 02:30:00 +11:00 = 2026-10-03T15:30:00Z
                Sun 2026-10-04 02:35:00 +11:00 = 2026-10-03T15:35:00Z
                Mon 2026-10-05 02:10:00 +11:00 = 2026-10-04T15:10:00Z
            "#]],
        );
    }

    #[test]
    fn a_midnight_that_does_not_exist_runs_at_one() {
        check(
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00Z",
            2,
            &expect![[r#"
                Sun 2018-11-04 01:00:00 -02:00 = 2018-11-04T03:00:00Z
                Mon 2018-11-05 00:00:00 -02:00 = 2018-11-05T02:00:00Z
            "#]],
        );
    }

    #[test]
    fn a_day_that_does_not_exist_runs_at_the_start_of_the_next() {
        check(
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            3,
            &expect![[r#"
                Thu 2011-12-29 12:00:00 -10:00 = 2011-12-29T22:00:00Z
                Sat 2011-12-31 00:00:00 +14:00 = 2011-12-30T10:00:00Z
                Sat 2011-12-31 12:00:00 +14:00 = 2011-12-30T22:00:00Z
            "#]],
        );
    }

    #[test]
    fn a_line_with_seconds_ticks_within_the_minute() {
        check(
            "*/20 * * * * *",
            "UTC",
            "2026-01-01T00:00:50Z",
            3,
            &expect![[r#"
                Thu 2026-01-01 00:01:00 +00:00 = 2026-01-01T00:01:00Z
                Thu 2026-01-01 00:01:20 +00:00 = 2026-01-01T00:01:20Z
                Thu 2026-01-01 00:01:40 +00:00 = 2026-01-01T00:01:40Z
            "#]],
        );
    }

    #[test]
    fn a_leap_day_is_found_years_ahead() {
        check(
            "0 0 29 2 *",
            "UTC",
            "2026-01-01T00:00:00Z",
            2,
            &expect![[r#"
                Tue 2028-02-29 00:00:00 +00:00 = 2028-02-29T00:00:00Z
                Sun 2032-02-29 00:00:00 +00:00 = 2032-02-29T00:00:00Z
            "#]],
        );
    }

    #[test]
    fn either_day_field_suffices() {
        check(
            "0 9 13 * FRI",
            "UTC",
            "2026-02-01T00:00:00Z",
            3,
            &expect![[r#"
                Fri 2026-02-06 09:00:00 +00:00 = 2026-02-06T09:00:00Z
                Fri 2026-02-13 09:00:00 +00:00 = 2026-02-13T09:00:00Z
                Fri 2026-02-20 09:00:00 +00:00 = 2026-02-20T09:00:00Z
            "#]],
        );
    }

    #[test]
    fn a_search_from_within_a_second_finds_the_next_whole_one() {
        check(
            "* * * * * *",
            "UTC",
            "2026-01-01T00:00:00.25Z",
            2,
            &expect![[r#"
                Thu 2026-01-01 00:00:01 +00:00 = 2026-01-01T00:00:01Z
                Thu 2026-01-01 00:00:02 +00:00 = 2026-01-01T00:00:02Z
            "#]],
        );
    }

    #[test]
    fn a_nightly_line_runs_once_a_night_in_every_zone_around_every_change() {
        let mut changes = 0;
        for name in TimeZoneDatabase::bundled().available() {
            let schedule = CronSchedule::parse("30 2 * * *", name.as_str()).unwrap();
            let from: Moment = "2026-01-01T00:00:00Z".parse().unwrap();
            for change in schedule.zone.following(from).take(4) {
                changes += 1;
                let two_days = SignedDuration::from_hours(48);
                let mut at = Timestamp::from_jiff(change.timestamp() - two_days).unwrap();
                let mut days = Vec::new();
                for _ in 0..4 {
                    at = schedule.next_after(at).unwrap();
                    days.push(at.to_jiff().to_zoned(schedule.zone.clone()).date());
                }
                for pair in days.windows(2) {
                    assert_eq!(pair[0].tomorrow().unwrap(), pair[1], "{name}: {days:?}");
                }
            }
        }
        assert!(changes > 400, "the zones do change their clocks: {changes}");
    }
}
