//! Renew, at any server (`TB-18`).
//!
//! The lease comes from the cache, or else from the ledger. The cached one may be outdated; then the
//! chain fails as a whole, and the lease is read from the ledger. An answer that needs no chain is given
//! once the ledger confirms the cached lease.

mod plan;

use std::sync::Arc;

use futures::future::try_join_all;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Decision, Denial, DenialReason, LeaseId, LimitKey, RenewError, RenewRequest, Renewal,
    ReserveError, Unanswered,
};

use self::plan::{Change, Changes, Findings, Growth, RenewReply, StepAccount};
use super::TigerBeetleLimiter;
use super::capacity::{CHANGE_ATTEMPTS_MAX, Version};
use super::codes::{ReservationKind, TransferCode};
use super::complete::AccountLocks;
use super::due_instances::first_error;
use super::lease::Lease;
use super::renewed_lease::{DeniedBy, Part, RenewOutcome, RenewRecord};
use super::reserve::AT_ONCE;
use super::table::{KnownLimit, LimitTable, ResolvedRequirement};
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ledger::{AccountId, Ledger, TransferQuery, TransferStatus, WorkItem};

/// The most attempts to renew a lease; beyond that, others keep changing it or its accounts.
const TRIES_MAX: usize = 32 + CHANGE_ATTEMPTS_MAX;

/// A renew that is denied, and the place of the limit that denies it.
struct DeniedGrowth {
    denial: Denial,
    by: DeniedBy,
    at: usize,
}

/// How an attempt ended.
enum Outcome {
    /// The answer, and the limits that have room again.
    Answered(Renewal, Vec<LimitKey>),
    /// Try again.
    Again,
    /// The lease may have changed: read it, and try again.
    ReadLease,
}

/// A renew under way.
struct Attempts<'a> {
    request: &'a RenewRequest,
    lease: Lease,
    /// The ledger has it so, or had when it was read.
    is_confirmed: bool,
    findings: Findings,
    locks: AccountLocks,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// As a renew; also returns the limits that have room again by it.
    pub(super) async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        let (lease, is_confirmed) = match self.cache.get(request.lease) {
            Some(lease) => (lease, false),
            None => (self.read_lease_to_renew(request.lease).await?, true),
        };
        let (findings, locks) = (Findings::default(), AccountLocks::default());
        let mut attempts = Attempts { request, lease, is_confirmed, findings, locks };
        for _ in 0..TRIES_MAX {
            match self.try_renew(&mut attempts).await {
                Ok(Outcome::Answered(renewal, freed)) => return Ok((renewal, freed)),
                Ok(Outcome::Again) => {}
                Ok(Outcome::ReadLease) => {
                    attempts.lease = self.read_lease_to_renew(request.lease).await?;
                    attempts.is_confirmed = true;
                }
                Err(RenewError::Unanswered(unanswered)) => return Err(unanswered.into()),
                // Before all else, a lease may have ended.
                Err(refusal) => {
                    if self.confirm_lease(&mut attempts).await? {
                        return Err(refusal);
                    }
                }
            }
        }
        let reason = "too much contention on the lease or its closed accounts".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER }.into())
    }

    /// Reads an open lease. One that was renewed may have many transfers, which the next renew need not
    /// read again.
    async fn read_lease_to_renew(&self, id: LeaseId) -> Result<Lease, RenewError> {
        let lease = self.read_open_lease(id).await?.ok_or(RenewError::LeaseEnded)?;
        if lease.renewed.is_some() {
            self.cache.insert(lease.clone());
        }
        Ok(lease)
    }

    /// Makes sure that the ledger has the lease as it is known here; returns whether it had.
    async fn confirm_lease(&self, attempts: &mut Attempts<'_>) -> Result<bool, RenewError> {
        if std::mem::replace(&mut attempts.is_confirmed, true) {
            return Ok(true);
        }
        let known = attempts.lease.version();
        attempts.lease = self.read_lease_to_renew(attempts.lease.id).await?;
        Ok(attempts.lease.version() == known)
    }

    async fn try_renew(&self, attempts: &mut Attempts<'_>) -> Result<Outcome, RenewError> {
        let request = attempts.request;
        if let Some(answer) = self.answer_known(request, &attempts.lease)? {
            return Ok(match self.confirm_lease(attempts).await? {
                true => Outcome::Answered(answer, Vec::new()),
                false => Outcome::Again,
            });
        }
        let (changes, growths) = self.ready_growths(request, &attempts.lease).await?;
        if let Some(denied) = self.refuse_growths(&growths)? {
            return self.deny_renew(attempts, denied).await;
        }
        let number = request.number;
        let plan = plan::plan(&attempts.lease, number, &changes, &growths, &self.read_table());
        let accounts = plan.step_accounts();
        let decreasing = self.decreasing_of(&accounts, &attempts.locks);
        if !decreasing.is_empty() {
            self.read_closed(attempts, &accounts, decreasing).await?;
            return Ok(Outcome::Again);
        }
        let chain = plan.chain(&attempts.findings, || self.new_attempt());
        let sent = self.ledger.create_transfers(chain.item()).await;
        let results = sent.map_err(unanswered)?;
        self.time.observe(&results, self.options.clock.now());
        match chain.read(&plan, &results) {
            RenewReply::Done => {
                let lease = plan.renewed_lease(&chain, &results);
                self.counters.lease_transfers.add(results.len() as u64);
                let requirements: Vec<_> =
                    growths.into_iter().map(|growth| growth.requirement).collect();
                let shadow_denied = self.shadow_denied_by(&requirements, &results).await;
                let renewal = self.renewed(request, lease, &requirements, shadow_denied);
                let shrunk = changes.each.into_iter().filter(Change::shrinks);
                Ok(Outcome::Answered(renewal, shrunk.map(|change| change.key).collect()))
            }
            RenewReply::ReadLease => Ok(Outcome::ReadLease),
            RenewReply::Lapsed(part) => {
                attempts.lease.mark_lapsed(&part, changes.now);
                Ok(Outcome::Again)
            }
            RenewReply::Burned => {
                attempts.findings.is_burned = true;
                Ok(Outcome::Again)
            }
            RenewReply::NoRoom { growth } => {
                let Growth { at, requirement } = &growths[growth];
                let streak = requirement.limit.counts.record_denial();
                let denial = denial_of(self.deny(requirement, streak));
                let denied = DeniedGrowth { denial, by: DeniedBy::NoRoom, at: *at };
                self.deny_renew(attempts, denied).await
            }
            RenewReply::Decreasing { growth } => {
                let Growth { at, requirement } = &growths[growth];
                let denial = denial_of(self.deny_decreasing(requirement));
                let denied = DeniedGrowth { denial, by: DeniedBy::Decrease, at: *at };
                self.deny_renew(attempts, denied).await
            }
            RenewReply::ReadAccount(account) => {
                self.read_closed(attempts, &accounts, vec![account]).await?;
                Ok(Outcome::Again)
            }
            RenewReply::ReadClosing(account) => {
                attempts.findings.closed_without_key.push(account);
                self.read_closed(attempts, &accounts, vec![account]).await?;
                Ok(Outcome::Again)
            }
            RenewReply::Unexpected(status) => Err(refused_unexpectedly(status)),
        }
    }

    /// The accounts that are closed as far as is known here, and not locked yet.
    fn decreasing_of(&self, accounts: &[StepAccount], locks: &AccountLocks) -> Vec<AccountId> {
        let table = self.read_table();
        let ids = accounts.iter().map(|account| account.id);
        ids.filter(|id| table.is_decreasing(*id) && !locks.has(*id)).collect()
    }

    /// Reads all accounts at once, while the closed ones are locked. An open one is not, so that leases which
    /// share it do not wait for each other.
    async fn read_closed(
        &self,
        attempts: &mut Attempts<'_>,
        accounts: &[StepAccount],
        mut to_lock: Vec<AccountId>,
    ) -> Result<(), Unanswered> {
        let Attempts { locks, findings, .. } = attempts;
        let mut closed = Vec::new();
        while !to_lock.is_empty() {
            *locks = self.with_locks_of(std::mem::take(locks), to_lock).await;
            let versions = self.versions_of(accounts.iter().map(|account| account.id).collect());
            closed = accounts.iter().zip(versions.await?).collect();
            closed.retain(|(_, version)| version.is_closed());
            let ids = closed.iter().map(|(account, _)| account.id);
            to_lock = ids.filter(|id| !locks.has(*id)).collect();
        }
        let closed = try_join_all(closed.into_iter().map(|(account, version)| {
            let is_known = findings.is_closed_with_key(account);
            async move { if is_known { Ok(version) } else { self.with_closing(version).await } }
        }));
        let closed = closed.await?;
        findings.record_closed(closed);
        Ok(())
    }

    /// A closed version with its closing transfer.
    async fn with_closing(&self, version: Version) -> Result<Version, Unanswered> {
        let query = TransferQuery::new(version.closing_data());
        let rows = self.ledger.query_transfers(query).await.map_err(unanswered)?;
        // Somebody may have chosen this number for a lease.
        let code = TransferCode::Closing.number();
        let closing = rows.iter().find(|row| row.code == code && row.debit == version.account());
        let closing = closing.ok_or_else(|| Unanswered {
            reason: "an older release has closed the account of one of the lease's limits, whose key is not \
                     known here; name that key in the renew, or wait until its decrease is applied"
                .to_owned(),
            retry_after: RETRY_AFTER,
        })?;
        Ok(version.closed_by(closing.id))
    }

    /// The answer that the state of the lease gives: it has ended, or the number is not new.
    fn answer_known(
        &self,
        request: &RenewRequest,
        lease: &Lease,
    ) -> Result<Option<Renewal>, RenewError> {
        let lapses_at = lease.renewable_until();
        if lapses_at <= self.cluster_now() {
            return Err(RenewError::LeaseEnded);
        }
        let Some(renewed) = &lease.renewed else {
            return Ok(None);
        };
        let RenewRecord { number, decided_at, outcome } = renewed.last;
        if request.number < number {
            return Err(RenewError::Superseded);
        }
        if request.number > number {
            return Ok(None);
        }
        Ok(Some(match outcome {
            RenewOutcome::Renewed => {
                Renewal::Renewed { renewed_at: decided_at, lapses_at, shadow_denied: Vec::new() }
            }
            RenewOutcome::Denied { by, at } => {
                Renewal::Denied(self.deny_renew_again(request, lease, by, at))
            }
        }))
    }

    /// The new amounts, and those of them that need room, once their limits can be reserved on.
    async fn ready_growths(
        &self,
        request: &RenewRequest,
        lease: &Lease,
    ) -> Result<(Changes, Vec<Growth>), RenewError> {
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let now = self.cluster_now();
            let (changes, growths) = {
                let table = self.read_table();
                let changes = plan::changes(lease, &request.amounts, now, &table)?;
                let growths = growths(lease, &changes.each, &table)?;
                (changes, growths)
            };
            let limits = || growths.iter().map(|growth| &growth.requirement.limit);
            let keys_of = |is_so: &dyn Fn(&&Arc<KnownLimit>) -> bool| {
                limits().filter(is_so).map(|limit| limit.key().clone()).collect::<Vec<LimitKey>>()
            };
            let not_made = keys_of(&|limit| !limit.is_made());
            let ended = keys_of(&|limit| limit.is_made() && limit.account.has_ended(now));
            if !not_made.is_empty() {
                first_error(self.check_held_instances(not_made).await)?;
            } else if !ended.is_empty() {
                self.begin_periods(ended).await?;
            } else {
                return Ok((changes, growths));
            }
        }
        let reason = "the limits change as soon as they are known".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER }.into())
    }

    /// The refusal by the definitions alone.
    fn refuse_growths(&self, growths: &[Growth]) -> Result<Option<DeniedGrowth>, RenewError> {
        let requirements: Vec<_> =
            growths.iter().map(|growth| growth.requirement.clone()).collect();
        let denial = match self.refuse_by_definition(&requirements) {
            None => return Ok(None),
            Some(Err(ReserveError::AmountExceedsCapacity { key })) => {
                return Err(RenewError::AmountExceedsCapacity { key });
            }
            Some(Err(error)) => unreachable!("a definition does not answer {error}"),
            Some(Ok(decision)) => denial_of(decision),
        };
        let (by, key) = match &denial.reason {
            DenialReason::Paused { key } => (DeniedBy::Pause, key),
            DenialReason::Decreasing { key } => (DeniedBy::Decrease, key),
            DenialReason::NoRoom { .. }
            | DenialReason::TooManyInstances { .. }
            | DenialReason::TooManyWaiters { .. } => {
                unreachable!("a definition denies by a pause or a decrease")
            }
        };
        let is_of_key = |growth: &&Growth| growth.requirement.limit.key() == key;
        let at = growths.iter().find(is_of_key).expect("a growth is denied").at;
        Ok(Some(DeniedGrowth { denial, by, at }))
    }

    /// Records the denial, so that the number stays denied at every server.
    async fn deny_renew(
        &self,
        attempts: &mut Attempts<'_>,
        denied: DeniedGrowth,
    ) -> Result<Outcome, RenewError> {
        // The record alone does not meet the void of a hold that has ended the lease.
        if !attempts.lease.ends_by_marker() && !self.confirm_lease(attempts).await? {
            return Ok(Outcome::Again);
        }
        let Attempts { request, lease, .. } = attempts;
        let DeniedGrowth { denial, by, at } = denied;
        let outcome = RenewOutcome::Denied { by, at };
        let item = WorkItem::new().with(plan::record(lease, request.number, outcome));
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        self.time.observe(&results, self.options.clock.now());
        let result = results[0];
        if result.status.exists() {
            return Ok(Outcome::ReadLease);
        }
        if result.status != TransferStatus::Created {
            return Err(refused_unexpectedly(result.status));
        }
        self.counters.lease_transfers.add(1);
        let (number, decided_at) = (request.number, result.timestamp);
        let last = RenewRecord { number, decided_at, outcome };
        self.cache.insert(plan::denied_lease(lease, last, self.cluster_now()));
        Ok(Outcome::Answered(Renewal::Denied(denial), Vec::new()))
    }

    /// A number that was denied before: the hint is of this moment.
    fn deny_renew_again(
        &self,
        request: &RenewRequest,
        lease: &Lease,
        by: DeniedBy,
        at: usize,
    ) -> Denial {
        let table = self.read_table();
        let key = key_at(request, lease, at, &table);
        let limit = key.as_ref().and_then(|key| table.get(key)).cloned();
        drop(table);
        let fixed = |reason| Denial { reason, retry_after: self.options.hints.decreasing };
        match (by, key, limit) {
            (DeniedBy::Pause, Some(key), _) => fixed(DenialReason::Paused { key }),
            (DeniedBy::Decrease, Some(key), _) => fixed(DenialReason::Decreasing { key }),
            (DeniedBy::NoRoom, Some(_), Some(limit)) => {
                denial_of(self.deny_again(&ResolvedRequirement { limit, amount: 0 }))
            }
            (_, key, _) => {
                let keys = key.into_iter().collect();
                Denial { reason: DenialReason::NoRoom { keys }, retry_after: AT_ONCE }
            }
        }
    }

    fn renewed(
        &self,
        request: &RenewRequest,
        lease: Lease,
        requirements: &[ResolvedRequirement],
        mut shadow_denied: Vec<LimitKey>,
    ) -> Renewal {
        let now = self.options.clock.now();
        for requirement in requirements {
            requirement.limit.counts.record_allow();
            requirement.limit.record_use(now);
        }
        let renewed = lease.renewed.as_ref().expect("it was renewed");
        let (renewed_at, lapses_at) = (renewed.last.decided_at, lease.renewable_until());
        self.cache.insert(lease);
        shadow_denied.sort_by_key(|key| request.amounts.iter().position(|new| new.key == *key));
        Renewal::Renewed { renewed_at, lapses_at, shadow_denied }
    }
}

/// Those of the new amounts that need room. A limit that was defined again as another kind is not the
/// one that the lease holds.
fn growths(
    lease: &Lease,
    changes: &[Change],
    table: &LimitTable,
) -> Result<Vec<Growth>, RenewError> {
    let mut growths = Vec::new();
    for change in changes.iter().filter(|change| change.grows()) {
        let is_same_kind = |limit: &Arc<KnownLimit>| {
            let kind = ReservationKind::of(limit.registered.limit.kind);
            kind == lease.reservations[change.at].kind
        };
        let Some(limit) = table.resolve(&change.key).filter(is_same_kind) else {
            return Err(RenewError::UnknownKey { key: change.key.clone() });
        };
        let requirement = ResolvedRequirement { limit, amount: change.amount };
        growths.push(Growth { at: change.at, requirement });
    }
    Ok(growths)
}

/// The key of a limit of the lease, if it is in the request or defined here.
fn key_at(
    request: &RenewRequest,
    lease: &Lease,
    at: usize,
    table: &LimitTable,
) -> Option<LimitKey> {
    let first = lease.reservations.get(at)?;
    let mut keys = request.amounts.iter().map(|new| &new.key);
    let named = keys.find(|key| first.is_of(key, || table.lasting_account_of(key)));
    named.or_else(|| table.key_of(first.account)).cloned()
}

fn denial_of(decision: Decision) -> Denial {
    match decision {
        Decision::Denied(denial) => denial,
        Decision::Allowed { .. } => unreachable!("the limiter denies"),
    }
}

fn refused_unexpectedly(status: TransferStatus) -> RenewError {
    tracing::error!(?status, "tigerbeetle refused a renew unexpectedly");
    unexpected_status("renew", status).into()
}

impl Lease {
    /// The ledger says that a part has lapsed.
    fn mark_lapsed(&mut self, part: &Part, now: Timestamp) {
        let parts = self.renewed.iter_mut().flat_map(|renewed| &mut renewed.parts);
        let parts = parts.map(|part| &mut part.held);
        for held in self.reservations.iter_mut().chain(parts) {
            if held.transfer == part.held.transfer {
                held.expires_at = held.expires_at.min(now);
            }
        }
    }
}
