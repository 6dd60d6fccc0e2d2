//! What the connections have counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::server_info::ServerInfo;

/// The most commands of one pipeline: a longer batch is sent in several, so that other requests come between.
pub(crate) const PIPELINE_MAX: usize = 128;
/// Sizes of pipelines up to 1, 2, 4 and so on, up to the largest.
const SIZES: usize = PIPELINE_MAX.ilog2() as usize + 1;

/// What the connections have counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observations {
    /// Requests and pipelines that were sent.
    pub round_trips: u64,
    /// Script calls in them.
    pub calls: u64,
    /// Round trips with 1, 2, up to 4, up to 8 calls and so on, up to 128.
    pub pipeline_sizes: [u64; SIZES],
    /// Calls without an answer, by [`RedisProblem::kind`](crate::RedisProblem::kind).
    pub errors: Vec<(&'static str, u64)>,
    /// Whether [changes are followed](crate::RedisLimiter::follow_changes) at the moment.
    pub is_subscribed: bool,
    /// Changes of definitions that were announced meanwhile, its own among them.
    pub changes: u64,
    /// What Redis said of itself; `None` if the user may not ask.
    pub server: Option<ServerInfo>,
    /// The past leases that Redis remembers, as of some tick.
    pub past_leases: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    round_trips: AtomicU64,
    calls: AtomicU64,
    pipeline_sizes: [AtomicU64; SIZES],
    errors: Mutex<Vec<(&'static str, u64)>>,
    is_subscribed: AtomicBool,
    changes: AtomicU64,
    server: RwLock<Option<ServerInfo>>,
    past_leases: AtomicU64,
}

impl Counters {
    pub(crate) fn observations(&self) -> Observations {
        let Self { errors, server, .. } = self;
        Observations {
            round_trips: self.round_trips.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            pipeline_sizes: self.pipeline_sizes.each_ref().map(|size| size.load(Ordering::Relaxed)),
            errors: errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            is_subscribed: self.is_subscribed.load(Ordering::Relaxed),
            changes: self.changes.load(Ordering::Relaxed),
            server: server.read().unwrap_or_else(PoisonError::into_inner).clone(),
            past_leases: self.past_leases.load(Ordering::Relaxed),
        }
    }

    /// A round trip with so many calls, 1 to [`PIPELINE_MAX`].
    pub(crate) fn count_round_trip(&self, calls: usize) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
        let size = calls.next_power_of_two().ilog2() as usize;
        self.pipeline_sizes[size].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_error(&self, kind: &'static str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match errors.iter_mut().find(|(counted, _)| *counted == kind) {
            Some((_, count)) => *count += 1,
            None => errors.push((kind, 1)),
        }
    }

    pub(crate) fn begin_subscription(&self) {
        self.is_subscribed.store(true, Ordering::Relaxed);
    }

    /// Returns whether there was one.
    pub(crate) fn end_subscription(&self) -> bool {
        self.is_subscribed.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn count_changes(&self, count: u64) {
        self.changes.fetch_add(count, Ordering::Relaxed);
    }

    /// Keeps what Redis says of itself, and warns of a policy that loses what is counted.
    pub(crate) fn note_server(&self, info: Option<ServerInfo>) {
        let mut known = self.server.write().unwrap_or_else(PoisonError::into_inner);
        let policy =
            |info: &Option<ServerInfo>| info.as_ref().map(|info| info.maxmemory_policy.clone());
        if let Some(info) = &info
            && info.may_evict()
            && policy(&known).as_ref() != Some(&info.maxmemory_policy)
        {
            let policy = info.maxmemory_policy.as_str();
            tracing::warn!(
                policy,
                "redis may evict what is counted; its maxmemory-policy must be noeviction"
            );
        }
        *known = info;
    }

    pub(crate) fn note_past_leases(&self, count: u64) {
        self.past_leases.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_counts_in_the_bucket_of_its_size() {
        let counters = Counters::default();
        for calls in [1, 2, 3, 4, 5, 127, PIPELINE_MAX] {
            counters.count_round_trip(calls);
        }
        let seen = counters.observations();
        assert_eq!(seen.pipeline_sizes, [1, 1, 2, 1, 0, 0, 0, 2]);
        assert_eq!((seen.round_trips, seen.calls), (7, 270));
    }
}
