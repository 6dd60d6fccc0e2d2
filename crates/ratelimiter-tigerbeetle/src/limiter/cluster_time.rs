//! The cluster's time, as far as its answers tell it.
//!
//! TigerBeetle stamps transfers with its own clock, and expiry follows that clock. A machine whose
//! clock differs must not think a reservation over that is not, so it goes by the last answer.

use std::sync::atomic::{AtomicI64, Ordering};

use ratelimiter::clock::Timestamp;

/// How far the cluster's clock is ahead of ours.
#[derive(Debug, Default)]
pub(super) struct ClusterTime {
    ahead_nanos: AtomicI64,
}

impl ClusterTime {
    /// Takes note that something was created at `created_at`, which was heard of at `local_now`.
    pub(super) fn observe(&self, created_at: Timestamp, local_now: Timestamp) {
        let ahead = i128::from(created_at.unix_nanos()) - i128::from(local_now.unix_nanos());
        let ahead = i64::try_from(ahead).expect("moments are within 63 bits of nanoseconds");
        self.ahead_nanos.store(ahead, Ordering::Relaxed);
    }

    /// The cluster's present moment, late by as long as an answer takes.
    pub(super) fn at(&self, local_now: Timestamp) -> Timestamp {
        let ahead = self.ahead_nanos.load(Ordering::Relaxed);
        Timestamp::from_unix_nanos(local_now.unix_nanos().saturating_add_signed(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_or_behind_is_followed() {
        let time = ClusterTime::default();
        let local = Timestamp::from_unix_ms;
        assert_eq!(time.at(local(1_000)), local(1_000), "nothing is known yet");
        for (cluster, expected) in [(3_500, 3_600), (500, 600), (1_000, 1_100)] {
            time.observe(local(cluster), local(1_000));
            assert_eq!(time.at(local(1_100)), local(expected));
        }
    }
}
