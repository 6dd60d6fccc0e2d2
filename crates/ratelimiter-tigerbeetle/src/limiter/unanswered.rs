//! No answer, in words for the caller.

use std::time::Duration;

use ratelimiter::Unanswered;

use crate::ledger::{LedgerError, TransferStatus};

/// When to repeat a request that the cluster did not answer.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The ledger gave no results.
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub(super) fn unanswered(error: LedgerError) -> Unanswered {
    Unanswered { reason: error.to_string(), retry_after: RETRY_AFTER }
}

/// The ledger gave a status that no rule foresees.
pub(super) fn not_foreseen(what: &str, status: TransferStatus) -> Unanswered {
    let reason = format!("TigerBeetle answered a {what} with {status:?}, which nothing foresees");
    Unanswered { reason, retry_after: RETRY_AFTER }
}
