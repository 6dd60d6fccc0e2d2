//! How long to wait when the limiter does not answer.

use std::time::Duration;

/// How long to wait after the first request without an answer.
const PAUSE_BASE: Duration = Duration::from_millis(100);
/// How long to wait at the most, unless the limiter itself asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Doubling more often than this is beyond the longest pause.
const DOUBLINGS_MAX: u32 = 16;

/// The longest wait, whatever a hint says: a moment further off may have no name.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The pause after so many requests in a row without an answer. `jitter` is in 0..1.
pub(crate) fn pause(count: u32, retry_after: Duration, jitter: f64) -> Duration {
    let doublings = count.saturating_sub(1).min(DOUBLINGS_MAX);
    let pause = (PAUSE_BASE * 2_u32.pow(doublings)).min(PAUSE_MAX);
    let pause = pause.max(retry_after.min(WAIT_MAX));
    pause.mul_f64(1.0 + jitter / 2.0).min(WAIT_MAX)
}
