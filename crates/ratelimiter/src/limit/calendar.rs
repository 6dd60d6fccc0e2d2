//! When a calendar limit resets, by the clocks of a time zone.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZoneDatabase};
use jiff::{Span, ToSpan};

use super::LimitError;
use crate::clock::Timestamp;

/// The last day of a month on which a limit can reset, so that every month has it.
pub const RESET_DAY_MAX: u8 = 28;

/// A name of the database that stands for a machine whose zone nobody has set.
const FACTORY: &str = "Factory";

/// When a calendar limit resets: all its reservations return at that moment.
///
/// ```
/// use ratelimiter::clock::Timestamp;
/// use ratelimiter::{ResetDay, ResetSchedule, ResetTime, TimeZone};
///
/// let schedule = ResetSchedule::Monthly {
///     day: ResetDay::FIRST,
///     at: ResetTime::MIDNIGHT,
///     zone: TimeZone::new("Europe/Sofia")?,
/// };
/// let july_15 = Timestamp::from_unix_ms(1_784_073_600_000);
/// assert_eq!(schedule.next_reset(july_15).unix_ms(), 1_785_531_600_000); // 1 August, midnight in Sofia
/// # Ok::<(), ratelimiter::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetSchedule {
    /// Every hour, at this minute in UTC.
    Hourly {
        /// 0 to 59.
        minute: ResetMinute,
    },
    /// Every day.
    Daily {
        /// The time of the zone's clocks.
        at: ResetTime,
        /// Whose clocks count.
        zone: TimeZone,
    },
    /// Every week.
    Weekly {
        /// The day of the week.
        weekday: Weekday,
        /// The time of the zone's clocks.
        at: ResetTime,
        /// Whose clocks count.
        zone: TimeZone,
    },
    /// Every month.
    Monthly {
        /// The day of the month.
        day: ResetDay,
        /// The time of the zone's clocks.
        at: ResetTime,
        /// Whose clocks count.
        zone: TimeZone,
    },
}

/// A minute of the hour: 0 to 59.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResetMinute(u8);

/// A time of day in hours and minutes: `00:00` to `23:59`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResetTime {
    hour: u8,
    minute: ResetMinute,
}

/// A day that every month has: 1 to 28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResetDay(u8);

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(missing_docs, reason = "everyone knows them")]
pub enum Weekday {
    #[default]
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// A time zone of the IANA database, such as `Europe/Sofia`. The database is part of the program, so that all servers of one
/// version agree.
#[derive(Clone, Copy)]
pub struct TimeZone(&'static jiff::tz::TimeZone);

impl ResetSchedule {
    /// The first reset after `now`.
    ///
    /// A time that the clocks skip that day is the first moment after the gap; of a time that they show twice, the first counts.
    ///
    /// # Panics
    /// After the year 2554.
    pub fn next_reset(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Hourly { minute } => next_hourly(minute, now),
            Self::Daily { at, zone } => {
                let start = zone.date(now).saturating_sub(2.days());
                zone.first_after(now, dates(start, 1.day()), at)
            }
            Self::Weekly { weekday, at, zone } => {
                let today = zone.date(now);
                let since = today.weekday().since(weekday.to_jiff());
                let start = today.saturating_sub(since.days()).saturating_sub(1.week());
                zone.first_after(now, dates(start, 1.week()), at)
            }
            Self::Monthly { day, at, zone } => {
                let this_month = zone.date(now).with().day(day.0.cast_signed()).build();
                let this_month = this_month.expect("every month has this day");
                let start = this_month.saturating_sub(1.month());
                zone.first_after(now, dates(start, 1.month()), at)
            }
        }
    }

    /// The name of the period: `hour`, `day`, `week` or `month`.
    pub const fn period_name(self) -> &'static str {
        match self {
            Self::Hourly { .. } => "hour",
            Self::Daily { .. } => "day",
            Self::Weekly { .. } => "week",
            Self::Monthly { .. } => "month",
        }
    }
}

fn next_hourly(ResetMinute(minute): ResetMinute, now: Timestamp) -> Timestamp {
    const HOUR_NANOS: u64 = 3_600_000_000_000;
    let offset = u64::from(minute) * 60_000_000_000;
    let nanos = now.unix_nanos();
    let this_hour = nanos - nanos % HOUR_NANOS + offset;
    let next = if this_hour > nanos { this_hour } else { this_hour + HOUR_NANOS };
    Timestamp::from_unix_nanos(next)
}

/// This date, and every one a step later.
fn dates(first: Date, step: Span) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(first), move |date| date.checked_add(step).ok())
}

impl TimeZone {
    /// Looks up a time zone by its IANA name; upper and lower case are the same.
    ///
    /// # Errors
    /// No time zone has this name.
    pub fn new(name: &str) -> Result<Self, LimitError> {
        // There are some 600 names, so what is kept here is bounded.
        static KNOWN: Mutex<BTreeMap<&'static str, TimeZone>> = Mutex::new(BTreeMap::new());
        let unknown = || LimitError::UnknownTimeZone { name: name.chars().take(64).collect() };
        let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())?;
        let name = zone.iana_name().filter(|name| *name != FACTORY).ok_or_else(unknown)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = known.get(name) {
            return Ok(*zone);
        }
        let zone = Self(Box::leak(Box::new(zone)));
        known.insert(zone.name(), zone);
        Ok(zone)
    }

    /// UTC.
    pub fn utc() -> Self {
        static UTC: jiff::tz::TimeZone = jiff::tz::TimeZone::UTC;
        Self(&UTC)
    }

    /// The zone's IANA name.
    ///
    /// # Panics
    /// Never: every zone of the database has a name.
    pub fn name(self) -> &'static str {
        self.0.iana_name().expect("a zone of the database has a name")
    }

    fn date(self, now: Timestamp) -> Date {
        self.0.to_datetime(to_jiff(now)).date()
    }

    /// The first moment after `now` at which the clocks show `at` on one of these dates.
    fn first_after(
        self,
        now: Timestamp,
        mut dates: impl Iterator<Item = Date>,
        at: ResetTime,
    ) -> Timestamp {
        let reset = dates.find_map(|date| Some(self.moment(at.on(date))).filter(|m| *m > now));
        reset.expect("a reset before the year 2554")
    }

    fn moment(self, local: DateTime) -> Timestamp {
        let ambiguous = self.0.to_ambiguous_timestamp(local);
        let moment = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local),
            // With the later offset the moment is just before the clocks change.
            AmbiguousOffset::Gap { after, .. } => after.to_timestamp(local).map(|before_gap| {
                let change = self.0.following(before_gap).next();
                change.expect("a gap is a change of the clocks").timestamp()
            }),
        };
        let moment = moment.expect("a moment of our calendar");
        // Before 1970 nothing resets.
        let nanos = u64::try_from(moment.as_nanosecond().max(0));
        Timestamp::from_unix_nanos(nanos.expect("a moment before the year 2554"))
    }
}

fn to_jiff(moment: Timestamp) -> jiff::Timestamp {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(moment.unix_nanos()));
    moment.expect("the library knows moments up to the year 9999")
}

impl PartialEq for TimeZone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for TimeZone {}

impl Hash for TimeZone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TimeZone {
    type Err = LimitError;

    fn from_str(name: &str) -> Result<Self, LimitError> {
        Self::new(name)
    }
}

impl ResetMinute {
    /// The number of the minute.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl ResetTime {
    /// The first moment of a day.
    pub const MIDNIGHT: Self = Self { hour: 0, minute: ResetMinute(0) };

    /// The minute of the hour.
    pub const fn minute(self) -> ResetMinute {
        self.minute
    }

    fn on(self, date: Date) -> DateTime {
        let [hour, minute] = [self.hour, self.minute.0].map(u8::cast_signed);
        date.at(hour, minute, 0, 0)
    }
}

impl From<ResetMinute> for ResetTime {
    /// The first hour of the day, at this minute.
    fn from(minute: ResetMinute) -> Self {
        Self { hour: 0, minute }
    }
}

impl fmt::Display for ResetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute.0)
    }
}

impl FromStr for ResetTime {
    type Err = LimitError;

    /// `HH:MM`
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let number = |digits: &str, max: u8| {
            let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten().filter(|number| *number <= max)
        };
        let parse = || {
            let (hour, minute) = text.split_once(':')?;
            Some(Self { hour: number(hour, 23)?, minute: ResetMinute(number(minute, 59)?) })
        };
        parse().ok_or_else(|| LimitError::ResetTime { text: text.chars().take(64).collect() })
    }
}

impl ResetDay {
    /// The first day of the month.
    pub const FIRST: Self = Self(1);

    /// A day of the month.
    ///
    /// # Errors
    /// Outside 1..=[`RESET_DAY_MAX`].
    pub fn new(day: u64) -> Result<Self, LimitError> {
        match u8::try_from(day) {
            Ok(small) if (1..=RESET_DAY_MAX).contains(&small) => Ok(Self(small)),
            Ok(_) | Err(_) => Err(LimitError::ResetDayOutOfRange { day }),
        }
    }

    /// The number of the day.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Weekday {
    /// The day's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    const fn to_jiff(self) -> jiff::civil::Weekday {
        use jiff::civil::Weekday as W;
        match self {
            Self::Monday => W::Monday,
            Self::Tuesday => W::Tuesday,
            Self::Wednesday => W::Wednesday,
            Self::Thursday => W::Thursday,
            Self::Friday => W::Friday,
            Self::Saturday => W::Saturday,
            Self::Sunday => W::Sunday,
        }
    }
}

impl fmt::Display for ResetSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hourly { minute: ResetMinute(minute) } => write!(f, "hour at minute {minute}"),
            Self::Daily { at, zone } => write!(f, "day at {at} {zone}"),
            Self::Weekly { weekday, at, zone } => {
                write!(f, "week on {} at {at} {zone}", weekday.name())
            }
            Self::Monthly { day, at, zone } => write!(f, "month on day {} at {at} {zone}", day.0),
        }
    }
}

#[cfg(test)]
mod tests;
