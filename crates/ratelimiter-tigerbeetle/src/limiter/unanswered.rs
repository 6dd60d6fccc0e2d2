//! Ledger errors as `Unanswered`.

use std::time::Duration;

use ratelimiter::Unanswered;

use crate::ledger::{LedgerError, TransferStatus};

/// Retry hint for a request that the cluster did not answer.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(500);

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
pub(super) fn unanswered(error: LedgerError) -> Unanswered {
    Unanswered { reason: error.to_string(), retry_after: RETRY_AFTER }
}

/// The ledger returned a status that no rule allows for.
pub(super) fn unexpected_status(what: &str, status: TransferStatus) -> Unanswered {
    let reason = format!("TigerBeetle answered a {what} with the unexpected status {status:?}");
    Unanswered { reason, retry_after: RETRY_AFTER }
}
