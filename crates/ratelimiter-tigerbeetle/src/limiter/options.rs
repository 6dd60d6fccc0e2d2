//! What a limiter can be told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::HintPolicy;
use ratelimiter::clock::{Clock, SystemClock};

/// What a [`TigerBeetleLimiter`](super::TigerBeetleLimiter) can be told.
#[derive(Clone)]
pub struct LimiterOptions {
    /// This machine's time. Expiry follows the cluster's, which is learned from its answers.
    pub clock: Arc<dyn Clock>,
    /// The constants behind the hints.
    pub hints: HintPolicy,
    /// So many open leases are remembered; those beyond are read back when they complete.
    pub leases_cached_max: usize,
    /// How late reservations may lapse before new ones are turned away until the cluster has caught
    /// up (`TB-14`).
    pub expiry_lag_max: Duration,
    /// How often the lag is looked at while there is traffic: one small transfer each time.
    pub probe_every: Duration,
    /// For jitter, and for what makes attempts differ. Two limiters on one ledger need two seeds.
    pub seed: u64,
}

impl Default for LimiterOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            hints: HintPolicy::default(),
            leases_cached_max: 100_000,
            expiry_lag_max: Duration::from_secs(10),
            probe_every: Duration::from_secs(5),
            seed: fastrand::u64(..),
        }
    }
}

impl fmt::Debug for LimiterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterOptions")
            .field("leases_cached_max", &self.leases_cached_max)
            .field("expiry_lag_max", &self.expiry_lag_max)
            .field("probe_every", &self.probe_every)
            .finish_non_exhaustive()
    }
}
