//! Timestamps and clocks.
//!
//! Only [`MonotonicClock`] reads the system time, so every test of expiry can run on a [`FakeClock`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A moment in nanoseconds since the Unix epoch, up to the year 2554.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The moment this many milliseconds after the Unix epoch.
    ///
    /// # Panics
    /// After the year 2554.
    pub const fn from_unix_ms(ms: u64) -> Self {
        Self(ms.checked_mul(1_000_000).expect("a moment before the year 2554"))
    }

    /// The moment this many nanoseconds after the Unix epoch.
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Whole milliseconds since the Unix epoch, rounded down.
    pub const fn unix_ms(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn unix_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` after this one.
    ///
    /// # Panics
    /// After the year 2554.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let later = u64::try_from(duration.as_nanos()).ok().and_then(|n| self.0.checked_add(n));
        Self(later.expect("a moment before the year 2554"))
    }

    /// The moment `seconds` after this one.
    ///
    /// # Panics
    /// After the year 2554.
    #[must_use]
    pub const fn after_seconds(self, seconds: u32) -> Self {
        let nanos = seconds as u64 * 1_000_000_000;
        Self(self.0.checked_add(nanos).expect("a moment before the year 2554"))
    }

    /// Time since `earlier`; zero if `earlier` is not in the past.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// In UTC, in whole seconds: `2026-12-01T00:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.0 / 1_000_000_000).cast_signed();
        let moment = jiff::Timestamp::from_second(seconds);
        moment.expect("the library knows moments up to the year 9999").fmt(f)
    }
}

/// Time source of a limiter. It never goes backwards.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// Reads the wall clock once, then follows the monotonic clock, so that a change of the wall clock neither frees
/// reservations early nor extends them.
#[derive(Debug, Clone)]
pub struct MonotonicClock {
    started: Instant,
    started_at: Timestamp,
}

impl MonotonicClock {
    /// Starts at the current wall-clock time.
    ///
    /// # Panics
    /// If the wall clock is before 1970 or after 2554.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("the wall clock is after 1970");
        let started_at = Timestamp(0).after(since_epoch);
        Self { started: Instant::now(), started_at }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.started.elapsed();
        // Cheaper than `after`, which takes any duration; each reserve and each complete reads the clock.
        let nanos = elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos());
        Timestamp(self.started_at.0 + nanos)
    }
}

/// A clock that stands still until [`FakeClock::advance`] moves it.
///
/// ```
/// use std::time::Duration;
/// use ratelimiter::clock::{Clock, FakeClock};
///
/// let clock = FakeClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().since(before), Duration::from_secs(60));
/// ```
#[derive(Debug)]
pub struct FakeClock {
    nanos: AtomicU64,
}

impl FakeClock {
    /// A clock at a fixed moment in January 2025.
    pub const fn new() -> Self {
        Self::at(Timestamp::from_unix_ms(1_736_660_000_000))
    }

    /// A clock at `now`.
    pub const fn at(now: Timestamp) -> Self {
        Self { nanos: AtomicU64::new(now.0) }
    }

    /// Moves the clock forward.
    ///
    /// # Panics
    /// After the year 2554.
    pub fn advance(&self, by: Duration) {
        let advanced = |nanos| Some(Timestamp(nanos).after(by).0);
        self.nanos
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, advanced)
            .expect("the closure always returns a value");
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.nanos.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = MonotonicClock::new();
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn milliseconds_are_rounded_down() {
        let moment = Timestamp::from_unix_nanos(1_999_999);
        assert_eq!(moment.unix_ms(), 1);
        assert_eq!(moment.since(Timestamp::from_unix_ms(1)), Duration::from_nanos(999_999));
        assert_eq!(Timestamp::from_unix_ms(1).since(moment), Duration::ZERO);
    }

    #[test]
    fn a_moment_is_shown_in_utc_and_whole_seconds() {
        let moment = Timestamp::from_unix_ms(1_796_076_000_999);
        assert_eq!(moment.to_string(), "2026-11-30T22:00:00Z");
        assert_eq!(Timestamp::from_unix_nanos(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp::NEVER.to_string(), "2554-07-21T23:34:33Z");
    }
}
