//! A limiter that does not answer.

use std::time::Duration;

use ratelimiter::clock::Timestamp;

use crate::no_answer;

/// Whether requests are answered. While they are not, one at a time is made to find out, so that ten thousand jobs do not
/// knock at a closed door.
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
        let until = now.after(no_answer::pause(count, retry_after, jitter));
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
