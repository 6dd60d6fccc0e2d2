//! Options of the limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::HintPolicy;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::memory::MemoryOptions;

/// Options of a [`TigerBeetleLimiter`](super::TigerBeetleLimiter).
#[derive(Clone)]
pub struct LimiterOptions {
    /// The local clock. Expiry follows the cluster's clock, which is estimated from its answers.
    pub clock: Arc<dyn Clock>,
    /// The constants of the retry hints.
    pub hints: HintPolicy,
    /// The most open leases in the cache; others are read from the cluster when they complete.
    pub leases_cached_max: usize,
    /// The expiry lag above which reserves are rejected until the cluster has caught up (`TB-14`).
    pub expiry_lag_max: Duration,
    /// How often the lag is measured while there is traffic: one small transfer each time.
    pub probe_every: Duration,
    /// The most limits made from templates that this server knows (`TPL-07`).
    pub instances_max: usize,
    /// The most of them that are new in a second.
    pub new_instances_per_second_max: usize,
    /// Seed of jitter and attempt IDs. Two limiters on one ledger need different seeds.
    pub seed: u64,
}

impl Default for LimiterOptions {
    fn default() -> Self {
        let MemoryOptions { instances_max, new_instances_per_second_max, .. } =
            MemoryOptions::default();
        Self {
            clock: Arc::new(MonotonicClock::new()),
            hints: HintPolicy::default(),
            leases_cached_max: 100_000,
            expiry_lag_max: Duration::from_secs(10),
            probe_every: Duration::from_secs(5),
            instances_max,
            new_instances_per_second_max,
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
