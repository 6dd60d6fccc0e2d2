//! Outages of the limiter, and pauses after requests without an answer.

use std::time::Duration;

use super::WAIT_MAX;
use crate::clock::Timestamp;

/// The pause after the first request without an answer.
const PAUSE_BASE: Duration = Duration::from_millis(100);
/// The longest pause, unless the limiter asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// More doublings exceed the longest pause.
const DOUBLINGS_MAX: u32 = 16;

/// Whether the limiter answers. During an outage one request at a time probes it, so that ten thousand waiters do not
/// retry at once.
#[derive(Debug, Default)]
pub(super) struct Outage {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    /// Unanswered requests in a row, each begun after the one before.
    count: u32,
    grown_at: Timestamp,
    until: Timestamp,
}

impl Outage {
    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// A request that began at `begun_at` got no answer. Of concurrent ones the first counts.
    pub(super) fn grow(
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

    /// True if a request may be made while `asking` others are in flight.
    pub(super) fn may_ask(&self, now: Timestamp, asking: usize) -> bool {
        self.until().is_none_or(|until| asking == 0 && until <= now)
    }

    pub(super) fn until(&self) -> Option<Timestamp> {
        self.current.as_ref().map(|current| current.until)
    }
}

/// The pause after `count` requests in a row without an answer: 100 ms, doubled up to 5 s, or `retry_after` if that is
/// longer, plus up to half of it by `jitter`, which is in 0..1. At most [`WAIT_MAX`].
pub fn no_answer_pause(count: u32, retry_after: Duration, jitter: f64) -> Duration {
    let doublings = count.saturating_sub(1).min(DOUBLINGS_MAX);
    let pause = (PAUSE_BASE * 2_u32.pow(doublings)).min(PAUSE_MAX);
    let pause = pause.max(retry_after.min(WAIT_MAX));
    pause.mul_f64(1.0 + jitter / 2.0).min(WAIT_MAX)
}
