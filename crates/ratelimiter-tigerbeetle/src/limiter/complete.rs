//! Complete: from the lease in memory, or else from the ledger, so that it works at any server.

mod plan;

use ratelimiter::{CompleteError, CompleteRequest, Unanswered};

use self::plan::{Outcome, Shrink};
use super::TigerBeetleLimiter;
use super::capacity::{Attempt, CHANGE_ATTEMPTS_MAX, Version};
use super::lease::{Lease, ReadBack};
use super::unanswered::{RETRY_AFTER, not_foreseen, unanswered};
use crate::ids;
use crate::ledger::{Ledger, TransferResult, TransferStatus, WorkItem};

/// What became of an attempt to make a reservation smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShrinkReply {
    /// It is smaller, or it is gone.
    Done,
    /// The account was opened or closed meanwhile.
    Moved,
    Unexpected(TransferStatus),
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn complete_one(
        &self,
        request: &CompleteRequest,
    ) -> Result<(), CompleteError> {
        let Some(lease) = self.open_lease(request).await? else {
            return Ok(());
        };
        let mut plan = {
            let now = self.cluster_now();
            plan::plan(&lease, &request.actuals, now, &self.read_table())?
        };
        if !plan.item.is_empty() {
            let item = std::mem::take(&mut plan.item);
            let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
            self.time.observe(&results, self.options.clock.now());
            self.note(plan.read(&results)).await?;
        }
        self.cache.remove(lease.id);
        Ok(())
    }

    /// The lease, unless it is unknown or was completed.
    async fn open_lease(&self, request: &CompleteRequest) -> Result<Option<Lease>, Unanswered> {
        if let Some(lease) = self.cache.get(request.lease) {
            return Ok(Some(lease));
        }
        match self.read_back(request.lease).await? {
            ReadBack::Open(lease) => Ok(Some(*lease)),
            ReadBack::Completed | ReadBack::Unknown => Ok(None),
        }
    }

    async fn note(&self, outcome: Outcome) -> Result<(), Unanswered> {
        let Outcome { created_count, uncovered, unshrunk, unexpected } = outcome;
        self.counters.lease_transfers.add(created_count);
        for (key, units) in uncovered {
            if let Some(limit) = self.read_table().get(&key) {
                limit.counts.note_uncovered(units);
            }
        }
        if let Some(status) = unexpected {
            tracing::error!(?status, "tigerbeetle refused a complete unexpectedly");
            return Err(not_foreseen("complete", status));
        }
        for shrink in unshrunk {
            self.shrink(&shrink).await?;
        }
        Ok(())
    }

    /// Makes a reservation smaller whose account is closed, or was when it was tried first.
    async fn shrink(&self, shrink: &Shrink) -> Result<(), Unanswered> {
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let account = shrink.reservation.account;
            let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
            let Some(row) = rows.first() else {
                return Err(not_foreseen("complete", TransferStatus::DebitAccountNotFound));
            };
            let item = self.shrinking(shrink, Version::of(*row));
            let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
            match read_shrink(&results) {
                ShrinkReply::Done => {
                    self.counters.lease_transfers.add(2);
                    return Ok(());
                }
                ShrinkReply::Moved => {}
                ShrinkReply::Unexpected(status) => return Err(not_foreseen("complete", status)),
            }
        }
        let reason = format!("{} is opened and closed without pause", shrink.key);
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    fn shrinking(&self, shrink: &Shrink, version: Version) -> WorkItem {
        let Shrink { lease, key, reservation, actual } = shrink;
        let attempt: Attempt = self.new_attempt();
        let label = format!("xfer:rereserve:{lease}:{:032x}:{key}", attempt.nonce);
        let id = ids::transfer_at(lease.timestamp_ms(), &label);
        let seconds = plan::remaining_seconds(reservation.expires_at, self.cluster_now());
        let void = plan::void(*lease, reservation, Some(key));
        let smaller = plan::rereserve(id, *lease, reservation, *actual, seconds);
        if version.is_closed() {
            return version.while_open(key, void, smaller, attempt);
        }
        WorkItem::new().with_chain([void, smaller])
    }
}

/// The void is the second event from the end of a pair, or the third of a chain that opens and closes.
fn read_shrink(results: &[TransferResult]) -> ShrinkReply {
    let quiet = [TransferStatus::Created, TransferStatus::LinkedEventFailed];
    let Some(at) = results.iter().position(|result| !quiet.contains(&result.status)) else {
        return ShrinkReply::Done;
    };
    let status = results[at].status;
    let void_at = if results.len() == 2 { 0 } else { 3 };
    let gone = matches!(
        status,
        TransferStatus::PendingTransferExpired
            | TransferStatus::PendingTransferAlreadyVoided
            | TransferStatus::PendingTransferAlreadyPosted
    );
    if at == void_at && (gone || status.exists()) {
        return ShrinkReply::Done;
    }
    let moved = status.exists() || status == TransferStatus::DebitAccountAlreadyClosed;
    if moved { ShrinkReply::Moved } else { ShrinkReply::Unexpected(status) }
}
