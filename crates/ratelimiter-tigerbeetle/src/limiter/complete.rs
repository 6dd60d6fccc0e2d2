//! Complete, at any server.
//!
//! The lease comes from the cache, or else from the ledger.

mod plan;
mod renewed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, LeaseId, LimitKey, REQUIREMENTS_MAX, Unanswered,
};
use tokio::sync::OwnedMutexGuard;

use self::plan::{ChainReply, CompletePlan};
pub(super) use self::plan::{already_done, end_marker_id, remaining_seconds, version_changed};
use super::TigerBeetleLimiter;
use super::capacity::{CHANGE_ATTEMPTS_MAX, Version};
use super::codes::ReservationKind;
use super::lease::{Lease, LeaseLookup};
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ledger::{AccountId, Ledger, TransferStatus};

/// The most attempts to end a lease. The marker is replaced once, and each key's transfers are
/// dropped or replaced at most twice; beyond that, other servers keep changing its accounts.
const TRIES_MAX: usize = 1 + 2 * REQUIREMENTS_MAX + CHANGE_ATTEMPTS_MAX;

/// The most times that a complete begins anew because the lease was renewed meanwhile.
const RENEWS_MAX: usize = 16;

/// How a plan to end a lease went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlanEnd {
    Done,
    /// Nothing has changed: the lease was ended or renewed meanwhile.
    Overtaken,
}

/// Per-account locks: at most one complete or renew of this server reopens a closed account at a time. Of
/// several that reopen one version, one succeeds; without locks all others would retry, each time.
#[derive(Default)]
pub(super) struct AccountLocks {
    accounts: BTreeSet<AccountId>,
    guards: Vec<OwnedMutexGuard<()>>,
}

impl AccountLocks {
    pub(super) fn has(&self, account: AccountId) -> bool {
        self.accounts.contains(&account)
    }
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn complete_one(
        &self,
        request: &CompleteRequest,
    ) -> Result<(), CompleteError> {
        self.end_lease(request.lease, &request.actuals).await.map(drop)
    }

    /// Returns all that a lease has that was admitted here, and whose callers have gone away before they
    /// were told. If another server has told somebody, or somebody has renewed it, the lease stays. Returns
    /// the limits that have room again by it.
    pub(super) async fn return_lease(&self, id: LeaseId) -> Result<Vec<LimitKey>, Unanswered> {
        let lease = match self.cache.get(id) {
            Some(lease) => lease,
            None => match self.read_open_lease(id).await? {
                Some(lease) => lease,
                None => return Ok(Vec::new()),
            },
        };
        if lease.renewed.is_some() {
            return Ok(Vec::new());
        }
        let plan = plan::plan_return(&lease, self.cluster_now(), &self.read_table());
        let end = match plan {
            Some(plan) => self.end(plan).await?,
            None => PlanEnd::Overtaken,
        };
        self.forget(&lease);
        if end == PlanEnd::Overtaken {
            return Ok(Vec::new());
        }
        let table = self.read_table();
        let keys = lease.reservations.iter().filter_map(|held| table.key_of(held.account));
        Ok(keys.cloned().collect())
    }

    /// Ends a lease. Returns it as it was, or `None` if another call or its expiry ended it before, or it
    /// was never allowed.
    pub(super) async fn end_lease(
        &self,
        id: LeaseId,
        actuals: &Actuals,
    ) -> Result<Option<Lease>, CompleteError> {
        let mut known = self.cache.get(id);
        for _ in 0..RENEWS_MAX {
            let is_read = known.is_none();
            let lease = match known.take() {
                Some(lease) => lease,
                None => match self.read_open_lease(id).await? {
                    Some(lease) => lease,
                    None => return Ok(None),
                },
            };
            let plan = {
                let (now, table) = (self.cluster_now(), self.read_table());
                match &lease.renewed {
                    Some(renewed) => renewed::plan(&lease, renewed, actuals, now, &table),
                    None => plan::plan(&lease, actuals, now, &table),
                }
            };
            let end = match plan {
                Ok(Some(plan)) => self.end(plan).await?,
                // Another server may have renewed or completed it since it is known here.
                Ok(None) | Err(_) if !is_read => continue,
                Err(refusal) => return Err(refusal),
                Ok(None) => {
                    self.forget(&lease);
                    return Ok(None);
                }
            };
            // Otherwise it was ended or renewed: read it.
            if end == PlanEnd::Done {
                self.forget(&lease);
                return Ok(Some(lease));
            }
        }
        let reason = "the lease is renewed as soon as it is known".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER }.into())
    }

    /// The limits of which a completed lease gave something back.
    pub(super) fn freed_by(&self, lease: &Lease, actuals: &Actuals) -> Vec<LimitKey> {
        let (parts, table) = (lease.parts(), self.read_table());
        let freed = lease.reservations.iter().enumerate().filter_map(|(at, first)| {
            let of_limit = || parts.iter().filter(|part| part.at == at).map(|part| &part.held);
            let key = of_limit().find_map(|held| table.key_of(held.account))?;
            let held = of_limit().fold(0, |sum: u64, held| sum.saturating_add(held.amount));
            let actual = actuals.iter().find(|actual| actual.key == *key);
            let is_freed = first.kind == ReservationKind::Hold
                || actual.is_some_and(|actual| actual.amount < held);
            is_freed.then(|| key.clone())
        });
        freed.collect()
    }

    /// The lease according to the ledger, unless it is unknown, was denied or has ended.
    pub(super) async fn read_open_lease(&self, id: LeaseId) -> Result<Option<Lease>, Unanswered> {
        match self.look_up_lease(id).await? {
            LeaseLookup::Open(lease) => {
                let job = self.cache.get(id).and_then(|cached| cached.job);
                Ok(Some(Lease { job, ..*lease }))
            }
            LeaseLookup::Completed | LeaseLookup::Denied | LeaseLookup::Unknown => {
                self.cache.remove(id);
                Ok(None)
            }
        }
    }

    /// A lease has ended.
    fn forget(&self, lease: &Lease) {
        self.cache.remove(lease.id);
        self.record_use_of_instances(lease);
    }

    /// Tries the plan until it succeeds: one request, unless part of it is refused.
    async fn end(&self, mut plan: CompletePlan) -> Result<PlanEnd, Unanswered> {
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
                    return Ok(PlanEnd::Done);
                }
                ChainReply::AlreadyDone => return Ok(PlanEnd::Overtaken),
                ChainReply::Retry => {}
                ChainReply::ReadAccount(account) => {
                    locks = self.with_locks_of(locks, [account]).await;
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

    /// Locks more closed accounts, unless they are locked. All locks are taken again, in the order of the keys
    /// and the one that limits which are not known here share last, so that callers cannot deadlock.
    pub(super) async fn with_locks_of(
        &self,
        earlier: AccountLocks,
        more: impl IntoIterator<Item = AccountId>,
    ) -> AccountLocks {
        let AccountLocks { mut accounts, mut guards } = earlier;
        let locked_count = accounts.len();
        accounts.extend(more);
        if accounts.len() == locked_count {
            return AccountLocks { accounts, guards };
        }
        guards.clear();
        let (known, has_unknown) = {
            let table = self.read_table();
            let locks = accounts.iter().map(|account| table.reopen_lock_of(*account));
            let has_unknown = locks.clone().any(|lock| lock.is_none());
            (locks.flatten().collect::<BTreeMap<_, _>>(), has_unknown)
        };
        let unknown = has_unknown.then(|| Arc::clone(&self.unknown_reopen_lock));
        for lock in known.into_values().chain(unknown) {
            guards.push(lock.lock_owned().await);
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
        Ok(self.versions_of(vec![account]).await?[0])
    }

    /// The accounts of reservations, in this order.
    pub(super) async fn versions_of(
        &self,
        accounts: Vec<AccountId>,
    ) -> Result<Vec<Version>, Unanswered> {
        let count = accounts.len();
        let rows = self.ledger.lookup_accounts(accounts).await.map_err(unanswered)?;
        if rows.len() != count {
            return Err(unexpected_status("lookup", TransferStatus::DebitAccountNotFound));
        }
        Ok(rows.into_iter().map(Version::of).collect())
    }
}
