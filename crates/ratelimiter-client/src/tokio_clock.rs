//! A clock on tokio's time.

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use tokio::time::Instant;

/// The wall clock, read once, and from then on tokio's time: it pauses and advances with that.
///
/// ```
/// use std::time::Duration;
/// use ratelimiter_client::TokioClock;
/// use ratelimiter_client::clock::Clock;
///
/// let clock = TokioClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Debug, Clone)]
pub struct TokioClock {
    started: Instant,
    started_at: Timestamp,
}

impl TokioClock {
    /// A clock that starts at the current time.
    pub fn new() -> Self {
        Self { started: Instant::now(), started_at: MonotonicClock::new().now() }
    }

    /// A clock that starts at this time.
    pub fn starting_at(started_at: Timestamp) -> Self {
        Self { started: Instant::now(), started_at }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.started_at.after(self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// SCH-08
    #[tokio::test(start_paused = true)]
    async fn sch_08_the_clock_moves_with_tokios_time_and_only_then() {
        let start = Timestamp::from_unix_ms(1_736_660_000_000);
        let clock = TokioClock::starting_at(start);
        assert_eq!(clock.now(), start);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now().since(start), Duration::from_secs(60));
    }
}
