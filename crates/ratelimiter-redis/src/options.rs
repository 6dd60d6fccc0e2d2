//! Options of the limiter.

use std::time::Duration;

use ratelimiter::HintPolicy;
use ratelimiter::memory::MemoryOptions;

/// Options of a [`RedisLimiter`](super::RedisLimiter). All that share a Redis should have the same.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// The constants of the retry hints.
    pub hints: HintPolicy,
    /// How long an ended or denied lease is remembered, so that its ID is not allowed again.
    pub remember_for: Duration,
    /// The most ended or denied leases that are remembered; the oldest are forgotten first.
    pub remember_max: usize,
    /// The most limits made from templates (`TPL-07`).
    pub instances_max: usize,
    /// The most of them that are new in a second.
    pub new_instances_per_second_max: usize,
    /// Whose time it is.
    pub time: TimeSource,
}

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// That of Redis (`RDS-02`).
    #[default]
    Server,
    /// For tests: the microseconds since the Unix epoch in the key `{prefix}:now`.
    Simulated,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let MemoryOptions {
            hints,
            remember_for,
            remember_max,
            instances_max,
            new_instances_per_second_max,
            ..
        } = MemoryOptions::default();
        Self {
            hints,
            remember_for,
            remember_max,
            instances_max,
            new_instances_per_second_max,
            time: TimeSource::Server,
        }
    }
}
