//! When calendar limits reset, worked out here apart from the product, which asks a library.
//!
//! A limit resets when the clocks of its zone first show its time on a date, or a later one because they skip it.

use ratelimiter::clock::Timestamp;
use ratelimiter::{ResetSchedule, ResetTime, TimeZone};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// When a calendar limit resets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Schedule {
    Hourly { minute: u8 },
    Daily { zone: usize, hour: u8, minute: u8 },
}

/// A time zone in the year 2025.
struct Zone {
    name: &'static str,
    /// How far its clocks are ahead of UTC when the year begins.
    ahead_minutes: i64,
    /// When they change, in seconds since 1970, and how far they are ahead then.
    changes: &'static [(i64, i64)],
}

const ZONES: [Zone; 5] = [
    Zone { name: "UTC", ahead_minutes: 0, changes: &[] },
    Zone {
        name: "Europe/Sofia",
        ahead_minutes: 120,
        changes: &[(1_743_296_400, 180), (1_761_440_400, 120)],
    },
    Zone {
        name: "America/New_York",
        ahead_minutes: -300,
        changes: &[(1_741_503_600, -240), (1_762_063_200, -300)],
    },
    Zone {
        name: "Australia/Lord_Howe",
        ahead_minutes: 660,
        changes: &[(1_743_865_200, 630), (1_759_591_800, 660)],
    },
    Zone { name: "Asia/Kathmandu", ahead_minutes: 345, changes: &[] },
];

/// A moment in seconds since 1970, and a limit that resets then.
pub(super) type DailyReset = (u64, Schedule);

/// Resets around which runs are played. The last six are on nights on which the clocks change.
pub(super) const DAILY_RESETS: [DailyReset; 11] = [
    (1_736_660_040, Schedule::Daily { zone: 0, hour: 5, minute: 34 }),
    (1_736_660_040, Schedule::Daily { zone: 1, hour: 7, minute: 34 }),
    (1_736_660_040, Schedule::Daily { zone: 2, hour: 0, minute: 34 }),
    (1_736_660_040, Schedule::Daily { zone: 3, hour: 16, minute: 34 }),
    (1_736_660_040, Schedule::Daily { zone: 4, hour: 11, minute: 19 }),
    // The clocks skip this time.
    (1_743_296_400, Schedule::Daily { zone: 1, hour: 3, minute: 30 }),
    (1_741_503_600, Schedule::Daily { zone: 2, hour: 2, minute: 1 }),
    (1_759_591_800, Schedule::Daily { zone: 3, hour: 2, minute: 29 }),
    // They show it twice.
    (1_761_438_600, Schedule::Daily { zone: 1, hour: 3, minute: 30 }),
    (1_762_061_400, Schedule::Daily { zone: 2, hour: 1, minute: 30 }),
    (1_743_864_300, Schedule::Daily { zone: 3, hour: 1, minute: 45 }),
];

impl Schedule {
    /// As a limit has it.
    pub(super) fn resets(self) -> ResetSchedule {
        let time = |hour: u8, minute: u8| -> ResetTime {
            format!("{hour:02}:{minute:02}").parse().expect("plans are valid")
        };
        match self {
            Self::Hourly { minute } => ResetSchedule::Hourly { minute: time(0, minute).minute() },
            Self::Daily { zone, hour, minute } => {
                let zone = TimeZone::new(ZONES[zone].name).expect("plans are valid");
                ResetSchedule::Daily { at: time(hour, minute), zone }
            }
        }
    }

    /// What a limit has; `None` if no plan has it.
    pub(super) fn of(resets: ResetSchedule) -> Option<Self> {
        match resets {
            ResetSchedule::Hourly { minute } => Some(Self::Hourly { minute: minute.get() }),
            ResetSchedule::Daily { at, zone } => {
                let zone = ZONES.iter().position(|known| known.name == zone.name())?;
                let hour = at.to_string().split(':').next()?.parse().ok()?;
                Some(Self::Daily { zone, hour, minute: at.minute().get() })
            }
            ResetSchedule::Weekly { .. } | ResetSchedule::Monthly { .. } => None,
        }
    }

    /// The first reset after a moment.
    pub(super) fn next_reset(self, now: Timestamp) -> Timestamp {
        let second = i64::try_from(now.unix_ms() / 1_000).expect("plans are of the year 2025");
        let next = match self {
            Self::Hourly { minute } => {
                let this_hour = second - second % HOUR + i64::from(minute) * MINUTE;
                if this_hour > second { this_hour } else { this_hour + HOUR }
            }
            Self::Daily { zone, hour, minute } => {
                let of_day = i64::from(hour) * HOUR + i64::from(minute) * MINUTE;
                let first_day = second / DAY - 2;
                let mut resets =
                    (first_day..).map(|day| ZONES[zone].first_shows(day * DAY + of_day));
                resets.find(|reset| *reset > second).expect("there is always another day")
            }
        };
        Timestamp::from_unix_ms(next.unsigned_abs() * 1_000)
    }
}

impl Zone {
    /// When the clocks first show this time or a later one; the time is in seconds, as if the zone's clocks were UTC.
    fn first_shows(&self, shown: i64) -> i64 {
        let mut moment = shown - self.ahead_minutes * MINUTE;
        for (changes_at, ahead_minutes) in self.changes {
            if moment >= *changes_at {
                moment = (shown - ahead_minutes * MINUTE).max(*changes_at);
            }
        }
        moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CAL-02: a limit resets at each of these moments, and the next time after so many minutes.
    #[test]
    fn cal_02_days_are_as_long_as_they_are() {
        let minutes = [1_440, 1_440, 1_440, 1_440, 1_440, 1_410, 1_381, 1_439, 1_500, 1_500, 1_470];
        for ((second, schedule), minutes) in DAILY_RESETS.into_iter().zip(minutes) {
            let reset = Timestamp::from_unix_ms(second * 1_000);
            let before = Timestamp::from_unix_ms(second * 1_000 - 1);
            assert_eq!(schedule.next_reset(before), reset, "{schedule:?}");
            let next = Timestamp::from_unix_ms((second + minutes * 60) * 1_000);
            assert_eq!(schedule.next_reset(reset), next, "{schedule:?}");
            assert_eq!(Schedule::of(schedule.resets()), Some(schedule));
        }
    }

    /// CAL-01
    #[test]
    fn cal_01_an_hour_ends_at_its_minute() {
        let reset = |ms| Schedule::Hourly { minute: 34 }.next_reset(Timestamp::from_unix_ms(ms));
        assert_eq!(reset(1_736_660_039_999).unix_ms(), 1_736_660_040_000);
        assert_eq!(reset(1_736_660_040_000).unix_ms(), 1_736_663_640_000);
    }
}
