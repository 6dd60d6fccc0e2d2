//! The cluster's clock, estimated from its answers.
//!
//! TigerBeetle timestamps transfers with its own clock, and expiry follows that clock. A server
//! with a wrong clock must not treat a live reservation as expired, so it follows the cluster's
//! timestamps.

use std::sync::atomic::{AtomicI64, Ordering};

use ratelimiter::clock::Timestamp;

use super::codes::TransferCode;
use crate::ids;
use crate::ledger::{Transfer, TransferId, TransferResult, WorkItem};

/// No answer yet.
const UNKNOWN: i64 = i64::MIN;

/// The offset of the cluster's clock from the local one.
#[derive(Debug)]
pub(super) struct ClusterTime {
    ahead_nanos: AtomicI64,
}

impl Default for ClusterTime {
    fn default() -> Self {
        Self { ahead_nanos: AtomicI64::new(UNKNOWN) }
    }
}

impl ClusterTime {
    /// Updates the offset from an answer received at `local_now`. A transfer that existed before
    /// has the timestamp of its creation; all others, refused or not, have that of the request.
    pub(super) fn observe(&self, results: &[TransferResult], local_now: Timestamp) {
        let Some(latest) = results.iter().rfind(|result| !result.status.exists()) else {
            return;
        };
        let ahead = i128::from(latest.timestamp.unix_nanos()) - i128::from(local_now.unix_nanos());
        let ahead = i64::try_from(ahead).expect("moments are within 63 bits of nanoseconds");
        self.ahead_nanos.store(ahead, Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.ahead_nanos.load(Ordering::Relaxed) != UNKNOWN
    }

    /// The cluster's current time, late by up to one round trip; the local time until it is known.
    pub(super) fn at(&self, local_now: Timestamp) -> Timestamp {
        match self.ahead_nanos.load(Ordering::Relaxed) {
            UNKNOWN => local_now,
            ahead => {
                let nanos = local_now.unix_nanos().saturating_add_signed(ahead);
                Timestamp::from_unix_nanos(nanos)
            }
        }
    }
}

/// A request that only reads the cluster's clock: the refusal carries a timestamp.
pub(super) fn time_query() -> WorkItem {
    WorkItem::new().with(always_refused())
}

/// A transfer that is refused and changes nothing, not even which IDs are burned.
pub(super) fn always_refused() -> Transfer {
    id_probe(ids::transfer_at(0, "xfer:time"))
}

/// A transfer from an account to itself, which changes nothing. TigerBeetle checks whether its ID
/// exists or was burned, then refuses it without burning the ID and without reading any account.
pub(super) fn id_probe(id: TransferId) -> Transfer {
    let operator = ids::operator_account();
    Transfer::posted(id, TransferCode::Marker.movement(operator, operator, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::TransferStatus;

    fn answer(status: TransferStatus, ms: u64) -> TransferResult {
        TransferResult { status, timestamp: Timestamp::from_unix_ms(ms) }
    }

    #[test]
    fn a_clock_that_is_ahead_or_behind_is_followed() {
        let time = ClusterTime::default();
        let local = Timestamp::from_unix_ms;
        assert!(!time.is_known());
        assert_eq!(time.at(local(1_000)), local(1_000), "nothing is known yet");
        for (cluster, expected) in [(3_500, 3_600), (500, 600), (1_000, 1_100)] {
            time.observe(&[answer(TransferStatus::Created, cluster)], local(1_000));
            assert!(time.is_known());
            assert_eq!(time.at(local(1_100)), local(expected));
        }
    }

    #[test]
    fn what_existed_before_tells_no_time_and_what_was_refused_does() {
        let time = ClusterTime::default();
        let local = Timestamp::from_unix_ms;
        time.observe(&[answer(TransferStatus::Exists, 10)], local(1_000));
        assert!(!time.is_known());
        let refused = answer(TransferStatus::ExceedsCredits, 5_000);
        time.observe(&[refused, answer(TransferStatus::Exists, 10)], local(1_000));
        assert_eq!(time.at(local(1_000)), local(5_000));
    }
}
