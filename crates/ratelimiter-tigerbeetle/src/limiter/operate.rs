//! What operators do: list and release open leases (`OPS-01`), forgive debts (`OPS-02`).

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, CompleteError, Decision, FirstLeases, ForgiveError, HeldAmount, LeaseId, LeasePage,
    LeasePosition, LeasesError, LimitKey, OpenLease, ReleaseError, ReserveRequest, Unanswered,
};

use super::TigerBeetleLimiter;
use super::capacity::Attempt;
use super::codes::TransferCode;
use super::lease::{Lease, reserved_at_of};
use super::reservation::Reservation;
use super::table::LimitTable;
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ids;
use crate::ledger::{Action, Ledger, Transfer, TransferStatus, UserData, WorkItem};

/// So many leases of the cache are looked at before callers may have its lock, and other tasks the
/// thread.
const LEASES_PER_TURN: usize = 256;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// A page of the leases in the cache that have something of a listed limit, with their amounts
    /// of listed limits. Another server may have completed some of them.
    ///
    /// # Errors
    /// As for [`Backend::leases`](ratelimiter::Backend::leases).
    pub async fn leases_where(
        &self,
        page: &LeasePage,
        is_listed: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        let after = match page.after {
            Some(lease) => Some(self.position_of(lease).await?),
            None => None,
        };
        let mut first = FirstLeases::new(after, page.len_max());
        for ids in self.cache.ids() {
            for some in ids.chunks(LEASES_PER_TURN) {
                self.add_open(page, &is_listed, some, &mut first);
                tokio::task::yield_now().await;
            }
        }
        Ok(first.into_sorted())
    }

    /// Adds those of the leases that are on the page.
    fn add_open(
        &self,
        page: &LeasePage,
        is_listed: &impl Fn(&LimitKey) -> bool,
        ids: &[LeaseId],
        first: &mut FirstLeases<OpenLease>,
    ) {
        let (now, table) = (self.cluster_now(), self.read_table());
        self.cache.look_at(ids, |lease| {
            let position = LeasePosition::of(lease.reserved_at, lease.id);
            if now.since(lease.reserved_at) >= page.older_than
                && first.admits(position)
                && let Some(open) = open_lease(lease, page, is_listed, now, &table)
            {
                first.add(position, open);
            }
        });
    }

    /// Where a lease is, or was before it ended: the ledger has its transfers for ever.
    async fn position_of(&self, lease: LeaseId) -> Result<LeasePosition, LeasesError> {
        if let Some(known) = self.cache.get(lease) {
            return Ok(LeasePosition::of(known.reserved_at, lease));
        }
        let rows = self.rows_of_lease(lease, None).await?;
        let reserved_at = reserved_at_of(&rows).ok_or(LeasesError::UnknownLease { lease })?;
        Ok(LeasePosition::of(reserved_at, lease))
    }

    pub(super) async fn release_lease(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        match self.end_lease(lease, &Actuals::none()).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(ReleaseError::UnknownLease { lease }),
            Err(CompleteError::Unanswered(unanswered)) => Err(unanswered.into()),
            Err(CompleteError::Refused(refused)) => Err(refused.into()),
            Err(CompleteError::InvalidActual { .. }) => {
                unreachable!("without actuals there is none to reject")
            }
        }
    }

    /// `TB-22`: one transfer of whatever the debt is when it arrives, so that no two forgive the
    /// same units.
    pub(super) async fn forgive_debt(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        let limit = {
            let table = self.read_table();
            // A template owes nothing.
            if table.templates.all().get(key).is_some() {
                return Ok(0);
            }
            table.resolve(key).ok_or_else(|| ForgiveError::UnknownKey { key: key.clone() })?
        };
        let account = limit.debt_account;
        if !limit.is_made() && self.rows_of(vec![account]).await?.is_empty() {
            return Ok(0);
        }
        let Attempt { unix_ms, nonce } = self.new_attempt();
        let id = ids::transfer_at(unix_ms, &format!("xfer:forgive:{nonce:032x}:{key}"));
        let operator = ids::operator_account();
        let all = TransferCode::Forgiveness.movement(operator, account, u128::MAX);
        let action = Action::BalancingCredit(all);
        let transfer = Transfer { id, action, user_data: UserData::default() };
        let sent = self.ledger.create_transfers(WorkItem::new().with(transfer)).await;
        // After an eviction it is sent again, and exists.
        let status = sent.map_err(unanswered)?[0].status;
        if !matches!(status, TransferStatus::Created | TransferStatus::Exists) {
            tracing::error!(%key, ?status, "tigerbeetle refused to forgive a debt");
            return Err(unexpected_status("forgive", status).into());
        }
        let rows = self.ledger.lookup_transfers(vec![id]).await.map_err(unanswered)?;
        let moved = rows.first().map(|row| row.amount).ok_or_else(|| Unanswered {
            reason: "the transfer that forgave the debt cannot be read".to_owned(),
            retry_after: RETRY_AFTER,
        })?;
        Ok(moved)
    }

    /// Remembers the job ID of a lease that was allowed, if it has one: the ledger has no room for it.
    pub(super) fn remember_job(&self, request: &ReserveRequest, decision: Option<&Decision>) {
        if let (Some(job), Some(Decision::Allowed { .. })) = (&request.job, decision) {
            self.cache.set_job(request.lease, job);
        }
    }
}

/// A lease as it is at `now`; `None` if it has nothing of the page's key or of a listed limit.
fn open_lease(
    lease: &Lease,
    page: &LeasePage,
    is_listed: &impl Fn(&LimitKey) -> bool,
    now: Timestamp,
    table: &LimitTable,
) -> Option<OpenLease> {
    let mut amounts: Vec<HeldAmount> = Vec::new();
    let mut add = |held: &Reservation| {
        let key = table.key_of(held.account).filter(|key| is_listed(key));
        let Some(key) = key.filter(|_| held.expires_at > now) else { return };
        // Parts of one limit are listed together, until the last one lapses.
        match amounts.iter_mut().find(|other| other.key == *key) {
            Some(other) => {
                other.amount = other.amount.saturating_add(held.amount);
                other.lapses_at = other.lapses_at.max(held.expires_at);
            }
            None => amounts.push(HeldAmount {
                key: key.clone(),
                amount: held.amount,
                lapses_at: held.expires_at,
            }),
        }
    };
    match &lease.renewed {
        Some(renewed) => renewed.parts.iter().for_each(|part| add(&part.held)),
        None => lease.reservations.iter().for_each(add),
    }
    if !page.has(&amounts) {
        return None;
    }
    amounts.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let Lease { id, ref job, reserved_at, .. } = *lease;
    let job = job.as_deref().cloned();
    Some(OpenLease { lease: id, job, reserved_at, age: now.since(reserved_at), amounts })
}
