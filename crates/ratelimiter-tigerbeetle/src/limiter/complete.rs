//! Complete: from the lease in memory, or else from the ledger, so that it works at any server.

mod plan;

use ratelimiter::{CompleteError, CompleteRequest, REQUIREMENTS_MAX, Unanswered};
use tokio::sync::OwnedMutexGuard;

use self::plan::{Plan, Reply};
use super::TigerBeetleLimiter;
use super::capacity::{CHANGE_ATTEMPTS_MAX, Version};
use super::lease::{Lease, ReadBack};
use super::unanswered::{RETRY_AFTER, not_foreseen, unanswered};
use crate::ledger::{AccountId, Ledger, TransferStatus};

/// How often the end of a lease is tried. The marker is replaced once, and what a key needs is left
/// out or replaced at most twice; beyond that, others open and close its accounts all the time.
const TRIES_MAX: usize = 1 + 2 * REQUIREMENTS_MAX + CHANGE_ATTEMPTS_MAX;

/// The closed accounts that this server opens for nobody else meanwhile. Of several that open one
/// version, one succeeds; without turns all others would try again, each time.
#[derive(Default)]
struct Turns {
    /// Sorted.
    accounts: Vec<AccountId>,
    guards: Vec<OwnedMutexGuard<()>>,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn complete_one(
        &self,
        request: &CompleteRequest,
    ) -> Result<(), CompleteError> {
        let Some(lease) = self.open_lease(request).await? else {
            return Ok(());
        };
        let plan = {
            let now = self.cluster_now();
            plan::plan(&lease, &request.actuals, now, &self.read_table())?
        };
        if let Some(plan) = plan {
            self.end(plan).await?;
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

    /// Tries the plan until it, or another complete of the lease, has succeeded: one request, unless
    /// something in it is refused.
    async fn end(&self, mut plan: Plan) -> Result<(), Unanswered> {
        let mut turns = Turns::default();
        for _ in 0..TRIES_MAX {
            let item = plan.item(self.cluster_now(), || self.new_attempt());
            let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
            self.time.observe(&results, self.options.clock.now());
            match plan.read(&results) {
                Reply::Done { created_count } => {
                    self.counters.lease_transfers.add(created_count);
                    self.count_uncovered(&plan);
                    return Ok(());
                }
                Reply::DoneBefore => return Ok(()),
                Reply::Again => {}
                Reply::Look(account) => {
                    if !turns.accounts.contains(&account) {
                        turns = self.take_turns(turns, account).await;
                    }
                    plan.found(account, self.version_of(account).await?);
                }
                Reply::Unexpected(status) => {
                    tracing::error!(?status, "tigerbeetle refused a complete unexpectedly");
                    return Err(not_foreseen("complete", status));
                }
            }
        }
        let reason = "the limits of the lease are opened and closed without pause".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    /// Waits for a turn on one more closed account. All are taken anew, in one order, so that no two
    /// completes wait for each other.
    async fn take_turns(&self, earlier: Turns, account: AccountId) -> Turns {
        let Turns { mut accounts, guards } = earlier;
        drop(guards);
        accounts.push(account);
        accounts.sort_unstable();
        let mut guards = Vec::with_capacity(accounts.len());
        for account in &accounts {
            let turn = self.read_table().turn_on(*account);
            if let Some(turn) = turn {
                guards.push(turn.lock_owned().await);
            }
        }
        Turns { accounts, guards }
    }

    fn count_uncovered(&self, plan: &Plan) {
        for (key, units) in plan.uncovered() {
            if let Some(limit) = self.read_table().get(key) {
                limit.counts.note_uncovered(*units);
            }
        }
    }

    async fn version_of(&self, account: AccountId) -> Result<Version, Unanswered> {
        let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
        let row = rows.first();
        let row =
            row.ok_or_else(|| not_foreseen("complete", TransferStatus::DebitAccountNotFound))?;
        Ok(Version::of(*row))
    }
}
