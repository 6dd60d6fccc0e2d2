//! Retention of finished items.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long finished items are kept: those that were handled, and those that failed, which an
/// operator may inspect or revive.
///
/// ```
/// use std::time::Duration;
/// use coordination::Retention;
///
/// let hour = Duration::from_secs(60 * 60);
/// let keep = Retention { done: hour, ..Retention::default() };
/// assert_eq!(keep.dead, 30 * 24 * hour);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention {
    /// For items that were handled: 7 days.
    pub done: Duration,
    /// For items that failed: 30 days.
    pub dead: Duration,
}

impl Retention {
    /// The same duration for both.
    pub const fn of_all(span: Duration) -> Retention {
        Retention { done: span, dead: span }
    }
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { done: DAY * 7, dead: DAY * 30 }
    }
}
