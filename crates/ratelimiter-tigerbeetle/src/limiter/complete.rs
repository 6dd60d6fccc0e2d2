//! Complete, at any server.
//!
//! The lease comes from the cache, or else from the ledger.

mod plan;

use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, LeaseId, LimitKey, REQUIREMENTS_MAX, Unanswered,
};
use tokio::sync::OwnedMutexGuard;

use self::plan::{ChainReply, CompletePlan};
use super::TigerBeetleLimiter;
use super::capacity::{CHANGE_ATTEMPTS_MAX, Version};
use super::codes::ReservationKind;
use super::lease::{Lease, LeaseLookup, Reservation};
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ledger::{AccountId, Ledger, TransferStatus};

/// The most attempts to end a lease. The marker is replaced once, and each key's transfers are
/// dropped or replaced at most twice; beyond that, other servers keep changing its accounts.
const TRIES_MAX: usize = 1 + 2 * REQUIREMENTS_MAX + CHANGE_ATTEMPTS_MAX;

/// When a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseEnd {
    /// By this call.
    Now,
    /// By another call, or by expiry; or it was never allowed.
    Before,
}

/// Per-account locks: at most one complete of this server reopens a closed account at a time. Of
/// several that reopen one version, one succeeds; without locks all others would retry, each time.
#[derive(Default)]
struct AccountLocks {
    /// Sorted.
    accounts: Vec<AccountId>,
    guards: Vec<OwnedMutexGuard<()>>,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn complete_one(
        &self,
        request: &CompleteRequest,
    ) -> Result<(), CompleteError> {
        self.end_lease(request.lease, &request.actuals).await.map(|_| ())
    }

    pub(super) async fn end_lease(
        &self,
        id: LeaseId,
        actuals: &Actuals,
    ) -> Result<LeaseEnd, CompleteError> {
        match self.open_lease(id).await? {
            Some(lease) => self.end_open_lease(&lease, actuals).await,
            None => Ok(LeaseEnd::Before),
        }
    }

    /// As a complete; returns the limits that have room again by it.
    ///
    /// # Errors
    /// As for [`Limiter::complete`](ratelimiter::Limiter::complete).
    pub async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let Some(lease) = self.open_lease(request.lease).await? else {
            return Ok(Vec::new());
        };
        match self.end_open_lease(&lease, &request.actuals).await? {
            LeaseEnd::Now => Ok(self.freed_by(&lease, &request.actuals)),
            LeaseEnd::Before => Ok(Vec::new()),
        }
    }

    /// Returns all that a lease has that was admitted here, and whose callers have gone away before they
    /// were told. If another server has told somebody, the lease stays. Returns the limits that have room
    /// again by it.
    ///
    /// # Errors
    /// The cluster gave no answer.
    pub async fn return_lease(&self, id: LeaseId) -> Result<Vec<LimitKey>, Unanswered> {
        let Some(lease) = self.open_lease(id).await? else {
            return Ok(Vec::new());
        };
        let plan = plan::plan_return(&lease, self.cluster_now(), &self.read_table());
        if self.end_as_planned(&lease, plan).await? == LeaseEnd::Before {
            return Ok(Vec::new());
        }
        let table = self.read_table();
        let keys = lease.reservations.iter().filter_map(|held| table.key_of(held.account));
        Ok(keys.cloned().collect())
    }

    async fn end_open_lease(
        &self,
        lease: &Lease,
        actuals: &Actuals,
    ) -> Result<LeaseEnd, CompleteError> {
        let plan = {
            let now = self.cluster_now();
            plan::plan(lease, actuals, now, &self.read_table())?
        };
        Ok(self.end_as_planned(lease, plan).await?)
    }

    async fn end_as_planned(
        &self,
        lease: &Lease,
        plan: Option<CompletePlan>,
    ) -> Result<LeaseEnd, Unanswered> {
        let end = match plan {
            Some(plan) => self.end(plan).await?,
            None => LeaseEnd::Before,
        };
        self.cache.remove(lease.id);
        self.record_use_of_instances(lease);
        Ok(end)
    }

    /// The limits of which a completed lease gave something back.
    fn freed_by(&self, lease: &Lease, actuals: &Actuals) -> Vec<LimitKey> {
        let table = self.read_table();
        let is_freed = |held: &Reservation, key: &LimitKey| {
            let actual = actuals.iter().find(|actual| actual.key == *key);
            held.kind == ReservationKind::Hold
                || actual.is_some_and(|actual| actual.amount < held.amount)
        };
        let freed = lease.reservations.iter().filter_map(|held| {
            let key = table.key_of(held.account)?;
            is_freed(held, key).then(|| key.clone())
        });
        freed.collect()
    }

    /// The lease, unless it is unknown or was completed.
    async fn open_lease(&self, id: LeaseId) -> Result<Option<Lease>, Unanswered> {
        if let Some(lease) = self.cache.get(id) {
            return Ok(Some(lease));
        }
        match self.look_up_lease(id).await? {
            LeaseLookup::Open(lease) => Ok(Some(*lease)),
            LeaseLookup::Completed | LeaseLookup::Denied | LeaseLookup::Unknown => Ok(None),
        }
    }

    /// Tries the plan until it, or another complete of the lease, succeeds: one request, unless
    /// part of it is refused.
    async fn end(&self, mut plan: CompletePlan) -> Result<LeaseEnd, Unanswered> {
        let mut locks = AccountLocks::default();
        for _ in 0..TRIES_MAX {
            let item = plan.item(self.cluster_now(), || self.new_attempt());
            let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
            self.time.observe(&results, self.options.clock.now());
            match plan.read(&results) {
                ChainReply::Done { created_count } => {
                    self.counters.lease_transfers.add(created_count);
                    self.count_uncovered(&plan);
                    self.remember_debtors(plan.debtors()).await;
                    return Ok(LeaseEnd::Now);
                }
                ChainReply::AlreadyDone => return Ok(LeaseEnd::Before),
                ChainReply::Retry => {}
                ChainReply::ReadAccount(account) => {
                    if !locks.accounts.contains(&account) {
                        locks = self.lock_accounts(locks, account).await;
                    }
                    plan.record_version(account, self.version_of(account).await?);
                }
                ChainReply::Unexpected(status) => {
                    tracing::error!(?status, "tigerbeetle refused a complete unexpectedly");
                    return Err(unexpected_status("complete", status));
                }
            }
        }
        let reason = "too much contention on the lease's closed accounts".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER })
    }

    /// Locks one more closed account. All locks are taken again, in sorted order, so that completes
    /// cannot deadlock.
    async fn lock_accounts(&self, earlier: AccountLocks, account: AccountId) -> AccountLocks {
        let AccountLocks { mut accounts, guards } = earlier;
        drop(guards);
        accounts.push(account);
        accounts.sort_unstable();
        let mut guards = Vec::with_capacity(accounts.len());
        for account in &accounts {
            let lock = self.read_table().reopen_lock_of(*account);
            if let Some(lock) = lock {
                guards.push(lock.lock_owned().await);
            }
        }
        AccountLocks { accounts, guards }
    }

    fn count_uncovered(&self, plan: &CompletePlan) {
        let table = self.read_table();
        for (key, units) in plan.uncovered() {
            match (table.get(key), table.template_of(key)) {
                (Some(limit), _) => limit.record_uncovered(*units),
                (None, Some(template)) => {
                    table.templates.counted().note_uncovered(template, *units);
                }
                (None, None) => {}
            }
        }
    }

    /// An instance that has become idle is soon forgotten.
    fn record_use_of_instances(&self, lease: &Lease) {
        let table = self.read_table();
        if table.instance_count() == 0 {
            return;
        }
        let now = self.options.clock.now();
        let keys = lease.reservations.iter().filter_map(|held| table.key_of(held.account));
        keys.filter_map(|key| table.get(key)).for_each(|limit| limit.record_use(now));
    }

    async fn version_of(&self, account: AccountId) -> Result<Version, Unanswered> {
        let rows = self.ledger.lookup_accounts(vec![account]).await.map_err(unanswered)?;
        let row = rows.first();
        let row =
            row.ok_or_else(|| unexpected_status("complete", TransferStatus::DebitAccountNotFound))?;
        Ok(Version::of(*row))
    }
}
