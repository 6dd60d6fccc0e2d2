//! Options of the memory limiter.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, MonotonicClock};
use crate::hint::HintPolicy;

/// Options of a [`MemoryLimiter`](super::MemoryLimiter). [`MemoryOptions::default`] is right for production.
///
/// ```
/// use std::sync::Arc;
/// use ratelimiter::MemoryLimiter;
/// use ratelimiter::clock::FakeClock;
/// use ratelimiter::memory::MemoryOptions;
///
/// let clock = Arc::new(FakeClock::new());
/// let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock));
/// # drop(limiter);
/// ```
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Time source.
    pub clock: Arc<dyn Clock>,
    /// Constants from which retry hints are computed.
    pub hints: HintPolicy,
    /// How long an ended or denied lease is remembered, so that its ID is not allowed again.
    pub remember_for: Duration,
    /// The most ended or denied leases that are remembered; the oldest are forgotten first.
    pub remember_max: usize,
    /// Interval of the background sweep; with `None`, only [`sweep`] removes expired reservations.
    ///
    /// [`sweep`]: super::MemoryLimiter::sweep
    pub sweep_every: Option<Duration>,
    /// The most limits that are made from templates; a reserve that would need another one is denied.
    pub instances_max: usize,
    /// The most limits that are made from templates in a second.
    pub new_instances_per_second_max: usize,
    /// Seed of the jitter of hints; a fixed seed makes the hints of a test repeatable.
    pub seed: u64,
}

impl MemoryOptions {
    /// For tests: this clock, no background sweep, and a fixed seed.
    pub fn for_tests(clock: impl Clock + 'static) -> Self {
        Self { clock: Arc::new(clock), sweep_every: None, seed: 1, ..Self::default() }
    }
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(MonotonicClock::new()),
            hints: HintPolicy::default(),
            remember_for: Duration::from_secs(600),
            remember_max: 1_000_000,
            sweep_every: Some(Duration::from_millis(500)),
            instances_max: 1_000_000,
            new_instances_per_second_max: 1_000,
            seed: fastrand::u64(..),
        }
    }
}
