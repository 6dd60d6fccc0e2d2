//! What can be chosen about a limiter in memory.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::hint::HintPolicy;

/// What can be chosen about a limiter in memory. [`MemoryOptions::default`] is right for production.
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
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// The constants behind the hints of denials.
    pub hints: HintPolicy,
    /// For how long an ended or denied lease is remembered, so that its ID is not allowed again.
    pub remember_for: Duration,
    /// How many ended or denied leases are remembered at the most; the oldest are forgotten first.
    pub remember_max: usize,
    /// How often expired reservations are swept in the background; `None`: only when [`sweep`] is called.
    ///
    /// [`sweep`]: super::MemoryLimiter::sweep
    pub sweep_every: Option<Duration>,
    /// Where the jitter of hints begins; a fixed seed makes the hints of a test repeatable.
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
            clock: Arc::new(SystemClock::new()),
            hints: HintPolicy::default(),
            remember_for: Duration::from_secs(600),
            remember_max: 1_000_000,
            sweep_every: Some(Duration::from_millis(500)),
            seed: fastrand::u64(..),
        }
    }
}
