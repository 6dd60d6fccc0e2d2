//! Limit definitions.

mod calendar;

use std::fmt;

use arcstr::ArcStr;

pub use self::calendar::{
    RESET_DAY_MAX, ResetDay, ResetMinute, ResetSchedule, ResetTime, TimeZone, Weekday,
};
use crate::clock::Timestamp;
use crate::key::LimitKey;

/// The longest window of a rolling limit: 31 days.
pub const WINDOW_SECONDS_MAX: u32 = 2_678_400;
/// The longest timeout of a concurrency limit: one day.
pub const TIMEOUT_SECONDS_MAX: u32 = 86_400;
/// The largest capacity. Half the range of 64 bits, so that the sum of two never overflows.
pub const CAPACITY_MAX: u64 = i64::MAX as u64;
/// The most bytes of a limit's unit or description.
pub const NOTE_BYTES_MAX: usize = 1_024;

/// The definition of a limit.
///
/// ```
/// use ratelimiter::{Capacity, Limit, LimitKey, LimitKind, Overage, Window};
///
/// let limit = Limit::new(
///     LimitKey::llm_rpm("openai", "gpt-4o")?,
///     LimitKind::Rolling { window: Window::from_seconds(60)? },
///     Capacity::new(3_000)?,
/// );
/// assert_eq!(limit.overage, Overage::Debt);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Identifies the limit.
    pub key: LimitKey,
    /// How its units are returned.
    pub kind: LimitKind,
    /// The most units held at a time. 0 is a pause: nothing is admitted until it is raised.
    pub capacity: Capacity,
    /// What happens to usage above the reservation when the limit is full.
    pub overage: Overage,
    /// Whether the limit denies.
    pub mode: LimitMode,
    /// What is counted, for display: `requests`, `tokens`.
    pub unit: Note,
    /// What the limit is for, for display.
    pub description: Note,
}

/// How the units of a limit are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// A reservation counts for `window` from its admission, then it expires.
    Rolling {
        /// How long a reservation counts.
        window: Window,
    },
    /// A hold is kept until its lease completes, or until `timeout` has passed.
    Concurrency {
        /// When a hold that was not completed is released.
        timeout: HoldTimeout,
    },
    /// A reservation counts until the end of the period in which it was admitted; then all of them return at once.
    Calendar {
        /// When the periods end. A change applies from the next reset.
        resets: ResetSchedule,
    },
}

/// Whether a limit denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LimitMode {
    /// It admits up to its capacity.
    #[default]
    Enforce,
    /// It counts and never denies; an allowed reserve names it if it would have denied.
    Shadow,
}

/// How long a rolling reservation counts: 1 second to 31 days, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u32);

/// How long a hold lasts if it is not completed: 1 second to 1 day, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldTimeout(u32);

/// The most units held at a time: 0 to 2^63-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(u64);

/// What happens to usage above the reservation when the limit is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overage {
    /// It is added to the key's debt.
    #[default]
    Debt,
    /// It only counts in a metric.
    Deny,
}

/// Free text for display, at most 1 KiB. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Note(ArcStr);

/// Why a value is invalid in a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum LimitError {
    /// A window outside 1..=2 678 400 seconds.
    #[error(
        "a rolling limit's window is 1 to {WINDOW_SECONDS_MAX} seconds (31 days), not {seconds}"
    )]
    WindowOutOfRange { seconds: u64 },
    /// A hold timeout outside 1..=86 400 seconds.
    #[error(
        "a concurrency limit's timeout is 1 to {TIMEOUT_SECONDS_MAX} seconds (1 day), not {seconds}"
    )]
    TimeoutOutOfRange { seconds: u64 },
    /// A capacity above 2^63-1.
    #[error("a capacity is 0 to {CAPACITY_MAX} (2^63-1), not {capacity}")]
    CapacityOutOfRange { capacity: u64 },
    /// A unit or description of more than 1 KiB.
    #[error("a unit or description has at most {NOTE_BYTES_MAX} bytes, this one has {bytes}")]
    NoteTooLong { bytes: usize },
    /// The name is not in the time zone database.
    #[error("{name:?} is no time zone of the IANA database; write it like Europe/Sofia, or UTC")]
    UnknownTimeZone { name: String },
    /// Not a time of day.
    #[error("a reset time is HH:MM from 00:00 to 23:59, not {text:?}")]
    ResetTime { text: String },
    /// A day of the month outside 1..=28.
    #[error("a monthly limit resets on day 1 to {RESET_DAY_MAX}, which every month has, not {day}")]
    ResetDayOutOfRange { day: u64 },
}

impl Limit {
    /// An enforced limit with [`Overage::Debt`], without unit and description.
    pub fn new(key: LimitKey, kind: LimitKind, capacity: Capacity) -> Self {
        Self {
            key,
            kind,
            capacity,
            overage: Overage::default(),
            mode: LimitMode::default(),
            unit: Note::default(),
            description: Note::default(),
        }
    }

    /// The most units that can be reserved at a time: the capacity, or in shadow mode as many as can be counted.
    pub const fn ceiling(&self) -> Capacity {
        match self.mode {
            LimitMode::Enforce => self.capacity,
            LimitMode::Shadow => Capacity::MAX,
        }
    }
}

impl LimitKind {
    /// How long a reservation or hold lasts if its lease is not completed, in seconds; `None` for a calendar limit, where all end
    /// with the period.
    pub const fn lifetime_seconds(self) -> Option<u32> {
        match self {
            Self::Rolling { window } => Some(window.0),
            Self::Concurrency { timeout } => Some(timeout.0),
            Self::Calendar { .. } => None,
        }
    }

    /// When a reservation that is made at `now` expires.
    pub fn expires_at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Rolling { window: Window(seconds) }
            | Self::Concurrency { timeout: HoldTimeout(seconds) } => now.after_seconds(seconds),
            Self::Calendar { resets } => resets.next_reset(now),
        }
    }

    /// True for concurrency limits, whose holds end with their lease.
    pub const fn is_concurrency(self) -> bool {
        matches!(self, Self::Concurrency { .. })
    }

    /// True if both are of one kind, whatever their durations.
    pub fn is_same_kind(self, other: Self) -> bool {
        self.name() == other.name()
    }

    /// The kind's name: `rolling`, `concurrency` or `calendar`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rolling { .. } => "rolling",
            Self::Concurrency { .. } => "concurrency",
            Self::Calendar { .. } => "calendar",
        }
    }
}

/// The kind's name and its duration, for display: `rolling 60s`, `calendar month on day 1 at 00:00 UTC`.
impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling { window: Window(seconds) }
            | Self::Concurrency { timeout: HoldTimeout(seconds) } => {
                write!(f, "{} {seconds}s", self.name())
            }
            Self::Calendar { resets } => write!(f, "calendar {resets}"),
        }
    }
}

impl LimitMode {
    /// The mode's name: `enforce` or `shadow`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

impl Window {
    /// Creates a window from a number of seconds.
    ///
    /// # Errors
    /// Outside 1..=[`WINDOW_SECONDS_MAX`].
    pub fn from_seconds(seconds: u64) -> Result<Self, LimitError> {
        seconds_within(seconds, WINDOW_SECONDS_MAX)
            .map(Self)
            .ok_or(LimitError::WindowOutOfRange { seconds })
    }

    /// The window in seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

impl HoldTimeout {
    /// Creates a hold timeout from a number of seconds.
    ///
    /// # Errors
    /// Outside 1..=[`TIMEOUT_SECONDS_MAX`].
    pub fn from_seconds(seconds: u64) -> Result<Self, LimitError> {
        seconds_within(seconds, TIMEOUT_SECONDS_MAX)
            .map(Self)
            .ok_or(LimitError::TimeoutOutOfRange { seconds })
    }

    /// The timeout in seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

fn seconds_within(seconds: u64, max: u32) -> Option<u32> {
    u32::try_from(seconds).ok().filter(|seconds| (1..=max).contains(seconds))
}

impl Capacity {
    /// Pauses a limit: nothing is admitted.
    pub const ZERO: Self = Self(0);
    /// The largest capacity.
    pub const MAX: Self = Self(CAPACITY_MAX);

    /// Creates a capacity from a number of units.
    ///
    /// # Errors
    /// Above [`CAPACITY_MAX`].
    pub const fn new(capacity: u64) -> Result<Self, LimitError> {
        if capacity > CAPACITY_MAX {
            return Err(LimitError::CapacityOutOfRange { capacity });
        }
        Ok(Self(capacity))
    }

    /// The capacity in units.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Overage {
    /// The policy's name: `debt` or `deny`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debt => "debt",
            Self::Deny => "deny",
        }
    }
}

impl Note {
    /// Creates a note from a text.
    ///
    /// # Errors
    /// More than [`NOTE_BYTES_MAX`] bytes.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, LimitError> {
        let text = text.into();
        if text.len() > NOTE_BYTES_MAX {
            return Err(LimitError::NoteTooLong { bytes: text.len() });
        }
        Ok(Self(ArcStr::from(text)))
    }

    /// The note's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DEF-02
    #[test]
    fn def_02_a_window_is_1_second_to_31_days() {
        assert!(Window::from_seconds(1).is_ok());
        assert_eq!(Window::from_seconds(2_678_400).unwrap().seconds(), 2_678_400);
        for seconds in [0, 2_678_401, u64::from(u32::MAX) + 2, u64::MAX] {
            let error = Window::from_seconds(seconds).unwrap_err();
            assert_eq!(error, LimitError::WindowOutOfRange { seconds });
            assert!(error.to_string().contains("1 to 2678400 seconds"), "{error}");
        }
    }

    /// DEF-02
    #[test]
    fn def_02_a_hold_timeout_is_1_second_to_1_day() {
        assert!(HoldTimeout::from_seconds(1).is_ok());
        assert_eq!(HoldTimeout::from_seconds(86_400).unwrap().seconds(), 86_400);
        for seconds in [0, 86_401, u64::MAX] {
            let error = HoldTimeout::from_seconds(seconds).unwrap_err();
            assert_eq!(error, LimitError::TimeoutOutOfRange { seconds });
            assert!(error.to_string().contains("1 to 86400 seconds"), "{error}");
        }
    }

    /// DEF-03
    #[test]
    fn def_03_a_capacity_is_0_to_2_to_the_63_minus_1() {
        assert_eq!(Capacity::new(0).unwrap(), Capacity::ZERO);
        assert_eq!(Capacity::new((1 << 63) - 1).unwrap().get(), (1 << 63) - 1);
        for capacity in [1 << 63, u64::MAX] {
            assert_eq!(Capacity::new(capacity), Err(LimitError::CapacityOutOfRange { capacity }));
        }
    }

    /// DEF-03
    #[test]
    fn def_03_notes_have_at_most_a_kibibyte() {
        assert!(Note::new("x".repeat(1_024)).is_ok());
        assert_eq!(Note::new("x".repeat(1_025)), Err(LimitError::NoteTooLong { bytes: 1_025 }));
    }
}
