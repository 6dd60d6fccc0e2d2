//! Counters for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a limiter has counted since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observations {
    /// Leases that were allowed, each counted once.
    pub leases_allowed: u64,
    /// Transfers that these leases have created so far; divided by the leases, the permanent cost
    /// of one lease.
    pub lease_transfers: u64,
    /// Leases that had to be read from the cluster.
    pub cold_reads: u64,
    /// Open leases in memory.
    pub leases_cached: u64,
    /// Changes of a capacity that this server has carried out.
    pub capacity_changes: u64,
    /// Limits that are decreasing.
    pub limits_decreasing: u64,
    /// Limits whose definition here and capacity in the cluster have differed for longer than a
    /// change takes to reach every server.
    pub limits_disagreeing: u64,
    /// The last measured expiry lag.
    pub expiry_lag: Duration,
    /// Reserves that were rejected because of that lag.
    pub reserves_rejected: u64,
}

/// The counters that are updated by events.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) leases_allowed: Counter,
    pub(super) lease_transfers: Counter,
    pub(super) cold_reads: Counter,
    pub(super) capacity_changes: Counter,
    pub(super) reserves_rejected: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
