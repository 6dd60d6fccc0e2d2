//! The limits as calls share them, and what a call owes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};

use crate::limits::{Levels, Limits, Refused};
use crate::options::MockOptions;

#[derive(Debug)]
pub(crate) struct SharedLimits {
    limits: Mutex<Limits>,
    clock: MonotonicClock,
}

/// The tokens that an admitted call has used until now. They are taken when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    limits: Arc<SharedLimits>,
    tokens_used: u64,
}

impl SharedLimits {
    pub(crate) fn new(options: &MockOptions) -> Self {
        let clock = MonotonicClock::new();
        let MockOptions { requests_per_minute, tokens_per_minute, rate_counts, .. } = *options;
        let limits = Limits::new(requests_per_minute, tokens_per_minute, rate_counts, clock.now());
        Self { limits: Mutex::new(limits), clock }
    }

    pub(crate) fn set(&self, requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) {
        let (mut limits, now) = self.lock();
        limits.set(requests_per_minute, tokens_per_minute, now);
    }

    pub(crate) fn admit(
        self: &Arc<Self>,
        prompt_tokens: u64,
        output_tokens_max: u64,
    ) -> Result<Charge, Refused> {
        let (mut limits, now) = self.lock();
        limits.admit(prompt_tokens, output_tokens_max, now)?;
        Ok(Charge { limits: Arc::clone(self), tokens_used: prompt_tokens })
    }

    pub(crate) fn levels(&self) -> Levels {
        let (mut limits, now) = self.lock();
        limits.levels(now)
    }

    /// The clock is read under the lock, so that the limits see no time twice in the wrong order.
    fn lock(&self) -> (MutexGuard<'_, Limits>, Timestamp) {
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        (limits, self.clock.now())
    }
}

impl Charge {
    pub(crate) const fn add(&mut self, tokens: u64) {
        self.tokens_used = self.tokens_used.saturating_add(tokens);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (mut limits, now) = self.limits.lock();
        limits.end(self.tokens_used, now);
    }
}
