//! The cluster's time, as far as its answers tell it.
//!
//! TigerBeetle stamps transfers with its own clock, and expiry follows that clock. A machine whose
//! clock differs must not think a reservation over that is not, so it goes by the last answer.

use std::sync::atomic::{AtomicI64, Ordering};

use ratelimiter::clock::Timestamp;

use super::codes::TransferCode;
use crate::ids;
use crate::ledger::{Action, Movement, Transfer, TransferId, TransferResult, UserData, WorkItem};

/// No answer has told anything yet.
const UNKNOWN: i64 = i64::MIN;

/// How far the cluster's clock is ahead of ours.
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
    /// Takes note of an answer that was heard at `local_now`. What existed before has the time of
    /// its making; everything else, refused or not, has that of the request.
    pub(super) fn observe(&self, results: &[TransferResult], local_now: Timestamp) {
        let Some(latest) = results.iter().rfind(|result| !result.status.exists()) else {
            return;
        };
        let ahead = i128::from(latest.timestamp.unix_nanos()) - i128::from(local_now.unix_nanos());
        let ahead = i64::try_from(ahead).expect("moments are within 63 bits of nanoseconds");
        self.ahead_nanos.store(ahead, Ordering::Relaxed);
    }

    /// Whether any answer has told it.
    pub(super) fn is_known(&self) -> bool {
        self.ahead_nanos.load(Ordering::Relaxed) != UNKNOWN
    }

    /// The cluster's present moment, late by as long as an answer takes; our own until it is known.
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

/// A question for the time alone: the refusal says when it was.
pub(super) fn question() -> WorkItem {
    WorkItem::new().with(never_made(ids::transfer_at(0, "xfer:time")))
}

/// A transfer from an account to itself. TigerBeetle looks whether its ID exists or was burned, then refuses it without
/// burning the ID, and does not look at any account.
pub(super) fn never_made(id: TransferId) -> Transfer {
    let movement = Movement {
        debit: ids::operator_account(),
        credit: ids::operator_account(),
        amount: 0,
        code: TransferCode::Marker.number(),
    };
    Transfer { id, action: Action::Posted(movement), user_data: UserData::default() }
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
