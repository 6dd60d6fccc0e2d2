//! Timestamps in microseconds since the Unix epoch.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A time between 1970 and the end of the year 9999, in microseconds.
///
/// PostgreSQL stores microseconds, so a timestamp survives a round trip through every provider.
///
/// ```
/// use std::time::Duration;
/// use coordination::Timestamp;
///
/// let due_at: Timestamp = "2026-03-29T01:00:00Z".parse().unwrap();
/// assert_eq!(due_at.after(Duration::from_secs(60)).to_string(), "2026-03-29T01:01:00Z");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Why a timestamp was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidTimestamp {
    /// Before 1970 or after the year 9999.
    #[error("timestamp_out_of_range: {unix_micros} is not between 1970 and 9999")]
    OutOfRange { unix_micros: i64 },
    /// Not an RFC 3339 timestamp.
    #[error("timestamp_unreadable: {text:?} is not an RFC 3339 timestamp")]
    Unreadable { text: String },
}

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const MIN: Timestamp = Timestamp(0);
    /// The last timestamp of the calendar library, 9999-12-30T22:00:00Z.
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000_000);

    /// The time this many microseconds after the Unix epoch.
    ///
    /// # Errors
    /// [`InvalidTimestamp::OutOfRange`] before [`Timestamp::MIN`] or after [`Timestamp::MAX`].
    pub const fn from_unix_micros(unix_micros: i64) -> Result<Timestamp, InvalidTimestamp> {
        if unix_micros < Timestamp::MIN.0 || unix_micros > Timestamp::MAX.0 {
            return Err(InvalidTimestamp::OutOfRange { unix_micros });
        }
        Ok(Timestamp(unix_micros))
    }

    /// Microseconds since the Unix epoch.
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// The time `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, span: Duration) -> Timestamp {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(micros).min(Timestamp::MAX.0))
    }

    /// The time `span` earlier, at least [`Timestamp::MIN`].
    #[must_use]
    pub fn before(self, span: Duration) -> Timestamp {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_sub(micros).max(Timestamp::MIN.0))
    }

    /// How long ago `earlier` was, or zero if it is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    pub(crate) fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.0)
            .expect("the bounds of this type lie within those of jiff")
    }

    pub(crate) fn from_jiff(moment: jiff::Timestamp) -> Result<Timestamp, InvalidTimestamp> {
        Timestamp::from_unix_micros(moment.as_microsecond())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_jiff().fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Timestamp, InvalidTimestamp> {
        let moment: jiff::Timestamp =
            text.parse().map_err(|_| InvalidTimestamp::Unreadable { text: text.to_owned() })?;
        Timestamp::from_jiff(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_accepted_and_one_beyond_is_refused() {
        assert!(Timestamp::from_unix_micros(0).is_ok());
        assert!(Timestamp::from_unix_micros(Timestamp::MAX.0).is_ok());
        for unix_micros in [-1, Timestamp::MAX.0 + 1] {
            assert_eq!(
                Timestamp::from_unix_micros(unix_micros),
                Err(InvalidTimestamp::OutOfRange { unix_micros })
            );
        }
    }

    #[test]
    fn the_last_moment_can_be_shown() {
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-30T22:00:00Z");
        assert_eq!(Timestamp::MAX.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.before(Duration::MAX), Timestamp::MIN);
    }

    #[test]
    fn a_later_moment_is_no_time_ago() {
        let now = Timestamp::MIN.after(Duration::from_secs(5));
        assert_eq!(now.since(Timestamp::MIN), Duration::from_secs(5));
        assert_eq!(Timestamp::MIN.since(now), Duration::ZERO);
    }

    #[test]
    fn text_that_is_no_moment_is_refused() {
        assert!(matches!("soon".parse::<Timestamp>(), Err(InvalidTimestamp::Unreadable { .. })));
        assert!(matches!(
            "1969-12-31T23:59:59Z".parse::<Timestamp>(),
            Err(InvalidTimestamp::OutOfRange { .. })
        ));
    }
}
