//! A limiter that does not answer.

use std::time::Duration;

use super::WAIT_MAX;
use crate::clock::Timestamp;

/// How long to wait after the first request without an answer.
const PAUSE_BASE: Duration = Duration::from_millis(100);
/// How long to wait at the most, unless the limiter itself asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Doubling more often than this is beyond the longest pause.
const DOUBLINGS_MAX: u32 = 16;

/// Whether requests are answered. While they are not, one at a time is made to find out, so that ten thousand
/// waiters do not knock at a closed door.
#[derive(Debug, Default)]
pub(super) struct Outage {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    /// Requests in a row, each begun after the one before, that nobody answered.
    count: u32,
    grown_at: Timestamp,
    until: Timestamp,
}

impl Outage {
    pub(super) fn ends(&mut self) {
        self.current = None;
    }

    /// A request that began at `begun_at` got no answer. Of several that were under way together, the first counts.
    pub(super) fn grows(
        &mut self,
        now: Timestamp,
        begun_at: Timestamp,
        retry_after: Duration,
        jitter: f64,
    ) {
        let count = match &self.current {
            Some(current) if begun_at <= current.grown_at => return,
            Some(current) => current.count.saturating_add(1),
            None => 1,
        };
        let until = now.after(no_answer_pause(count, retry_after, jitter));
        self.current = Some(Current { count, grown_at: now, until });
    }

    /// True if a request may be made while so many others are under way.
    pub(super) fn lets_ask(&self, now: Timestamp, asking: usize) -> bool {
        self.until().is_none_or(|until| asking == 0 && until <= now)
    }

    pub(super) fn until(&self) -> Option<Timestamp> {
        self.current.as_ref().map(|current| current.until)
    }
}

/// How long to wait after so many requests in a row without an answer: 100 ms, doubled up to 5 s, or what the limiter asks
/// for if that is longer; up to half as long again by `jitter`, which is in 0..1. Never longer than [`WAIT_MAX`].
pub fn no_answer_pause(count: u32, retry_after: Duration, jitter: f64) -> Duration {
    let doublings = count.saturating_sub(1).min(DOUBLINGS_MAX);
    let pause = (PAUSE_BASE * 2_u32.pow(doublings)).min(PAUSE_MAX);
    let pause = pause.max(retry_after.min(WAIT_MAX));
    pause.mul_f64(1.0 + jitter / 2.0).min(WAIT_MAX)
}
