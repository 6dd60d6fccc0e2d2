//! The periods of calendar limits (`TB-19`).
//!
//! Each period has an account of its own, so that a reset costs nothing. When the period in course
//! ends is a fact of the ledger, not of a definition: the posted credits of the limit's *period end
//! account*. Servers that learn of a new schedule at different times, or restart, agree on it.
//!
//! While that end is in the future of the cluster's clock, it is the end of the period, whatever the
//! definition says. After it, the first server that needs a period announces its end by its
//! definition, with one transfer whose ID depends on the end before. So one announcement succeeds,
//! and the others read it back. Whatever is interrupted after that, the next server goes on: it
//! creates the account of the announced period if it is missing, and funds it if it is new.

use std::sync::Arc;

use futures::future::try_join;
use ratelimiter::clock::Timestamp;
use ratelimiter::{Limit, LimitKey, LimitKind, Unanswered};

use super::TigerBeetleLimiter;
use super::accounts::AccountsOf;
use super::codes::TransferCode;
use super::table::{KnownLimit, LimitAccount};
use super::unanswered::{RETRY_AFTER, unexpected_status};
use crate::ids;
use crate::ledger::{AccountRow, Ledger, Transfer, TransferStatus};
use crate::lock::lock;

/// The most attempts to find a period. Whoever is not the first to announce it reads it at the next
/// attempt, unless it has ended by then.
const ATTEMPTS_MAX: usize = 8;

/// A limit whose account is asked for. The kind says when the next period ends, if the one in course
/// is over.
#[derive(Clone, Debug)]
pub(super) struct AccountRequest {
    pub(super) key: LimitKey,
    pub(super) kind: LimitKind,
}

impl AccountRequest {
    /// Asks for the account of a definition.
    pub(super) fn of(limit: &Limit) -> Self {
        Self { key: limit.key.clone(), kind: limit.kind }
    }
}

/// The account of a limit; `None` while it is not found.
type FoundAccount = Option<Result<LimitAccount, Unanswered>>;

/// The period after one that has ended.
struct Announcement {
    /// The index of its limit.
    limit: usize,
    ends_at: Timestamp,
    transfer: Transfer,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// The accounts of limits, in order. Of calendar limits they are those of the periods in course,
    /// which are announced if need be; they may not exist yet.
    pub(super) async fn current_accounts(
        &self,
        limits: &[AccountRequest],
    ) -> Result<Vec<LimitAccount>, Unanswered> {
        self.each_current_account(limits).await.into_iter().collect()
    }

    /// The same, where one may fail and the others not.
    pub(super) async fn each_current_account(
        &self,
        limits: &[AccountRequest],
    ) -> Vec<Result<LimitAccount, Unanswered>> {
        let mut found = self.known_accounts(limits);
        let mut otherwise = Unanswered {
            reason: "too many servers begin periods of the same limits".to_owned(),
            retry_after: RETRY_AFTER,
        };
        for _ in 0..ATTEMPTS_MAX {
            if found.iter().all(Option::is_some) {
                break;
            }
            if let Err(unanswered) = self.find_periods(limits, &mut found).await {
                otherwise = unanswered;
                break;
            }
        }
        found.into_iter().map(|found| found.unwrap_or_else(|| Err(otherwise.clone()))).collect()
    }

    /// The accounts that need not be asked for: those that last, and those of periods that are in
    /// course. A successor is announced only after the end.
    fn known_accounts(&self, limits: &[AccountRequest]) -> Vec<FoundAccount> {
        let (now, table) = (self.cluster_now(), self.read_table());
        let known = |AccountRequest { key, kind }: &AccountRequest| match kind {
            LimitKind::Rolling { .. } | LimitKind::Concurrency { .. } => {
                Some(LimitAccount::lasting(key))
            }
            LimitKind::Calendar { .. } => table
                .get(key)
                .map(|limit| limit.account)
                .filter(|account| account.ends_at.is_some() && !account.has_ended(now)),
        };
        limits.iter().map(|limit| known(limit).map(Ok)).collect()
    }

    /// Makes one attempt at the accounts that are not found.
    async fn find_periods(
        &self,
        limits: &[AccountRequest],
        found: &mut [FoundAccount],
    ) -> Result<(), Unanswered> {
        let open: Vec<usize> = (0..limits.len()).filter(|at| found[*at].is_none()).collect();
        let ids = open.iter().map(|at| ids::period_end_account(&limits[*at].key)).collect();
        let (rows, now) = try_join(self.rows_of(ids), self.read_cluster_time()).await?;
        let (mut missing, mut announcements) = (Vec::new(), Vec::new());
        for at in open {
            let AccountRequest { key, kind } = &limits[at];
            let before_ms = match rows.get(&ids::period_end_account(key)) {
                Some(row) => match end_of(key, row) {
                    Ok(ended_at) if ended_at <= now => ended_at.unix_ms(),
                    in_course => {
                        let account = |ends_at| LimitAccount::of_period(key, ends_at);
                        found[at] = Some(in_course.map(account));
                        continue;
                    }
                },
                None => {
                    missing.push(AccountsOf::Calendar(key));
                    0
                }
            };
            let ends_at = kind.expires_at(now);
            let transfer = announce(key, before_ms, ends_at);
            announcements.push(Announcement { limit: at, ends_at, transfer });
        }
        // First, because an announcement on a missing account would burn its ID.
        self.create_accounts_of(&missing).await?;
        let transfers: Vec<_> = announcements.iter().map(|announced| announced.transfer).collect();
        let results = self.send_singly(&transfers).await?;
        for (Announcement { limit, ends_at, .. }, result) in announcements.into_iter().zip(results)
        {
            let (key, status) = (&limits[limit].key, result.status);
            if status == TransferStatus::Created {
                found[limit] = Some(Ok(LimitAccount::of_period(key, ends_at)));
            } else if !status.exists() {
                tracing::error!(%key, ?status, "a period cannot be announced");
                found[limit] = Some(Err(unexpected_status("period", status)));
            }
            // Otherwise another server was first: its announcement is read at the next attempt.
        }
        Ok(())
    }

    /// The accounts of limits for reading: of calendar limits, those of the periods in course.
    /// Nothing is written: a period that nobody has announced yet would end by the definition here.
    pub(super) async fn accounts_in_course(
        &self,
        limits: &[Arc<KnownLimit>],
    ) -> Result<Vec<LimitAccount>, Unanswered> {
        let now = self.cluster_now();
        let ended = limits.iter().filter(|limit| limit.account.has_ended(now));
        let ends: Vec<_> = ended.map(|limit| ids::period_end_account(limit.key())).collect();
        let rows = self.rows_of(ends).await?;
        let account = |limit: &Arc<KnownLimit>| {
            if !limit.account.has_ended(now) {
                return Ok(limit.account);
            }
            let key = limit.key();
            let announced = rows.get(&ids::period_end_account(key));
            let announced = announced.map(|row| end_of(key, row)).transpose()?;
            let ends_at = announced
                .filter(|ends_at| *ends_at > now)
                .unwrap_or_else(|| limit.registered.limit.kind.expires_at(now));
            Ok(LimitAccount::of_period(key, ends_at))
        };
        limits.iter().map(account).collect()
    }

    /// The accounts of the announced periods in course, in order; `None` if the key has none.
    pub(super) async fn announced_accounts(
        &self,
        keys: &[LimitKey],
    ) -> Result<Vec<Option<LimitAccount>>, Unanswered> {
        let rows = self.rows_of(keys.iter().map(ids::period_end_account).collect()).await?;
        if !rows.is_empty() && !self.time.is_known() {
            self.read_cluster_time().await?;
        }
        let now = self.cluster_now();
        let account = |key: &LimitKey| {
            let announced = rows.get(&ids::period_end_account(key));
            let ends_at = announced.map(|row| end_of(key, row)).transpose()?;
            let account = ends_at.map(|ends_at| LimitAccount::of_period(key, ends_at));
            Ok(account.filter(|account| !account.has_ended(now)))
        };
        keys.iter().map(account).collect()
    }

    /// Begins the periods in course of calendar limits whose last known ones have ended: a few round
    /// trips, once per limit and period. Concurrent calls for other limits join, so that thousands of
    /// limits which end together take a few requests; those for the same limit find it done.
    pub(super) async fn begin_periods(&self, keys: Vec<LimitKey>) -> Result<(), Unanswered> {
        lock(&self.due_periods).extend(keys.iter().cloned());
        let mut admin = self.admin.lock().await;
        let mut due = std::mem::take(&mut *lock(&self.due_periods));
        // An earlier call may have taken them and failed.
        due.extend(keys);
        let limits: Vec<_> = {
            let (now, table) = (self.cluster_now(), self.read_table());
            let known = due.iter().filter_map(|key| table.get(key));
            let ended = known.filter(|limit| limit.account.has_ended(now));
            // An instance whose template has changed meanwhile is checked instead.
            ended.filter(|limit| table.is_ready(limit)).cloned().collect()
        };
        self.fund_periods(&mut admin, &limits).await
    }
}

impl KnownLimit {
    /// Asks for its account. The next period ends by its present definition.
    pub(super) fn account_request(&self) -> AccountRequest {
        AccountRequest::of(&self.registered.limit)
    }
}

/// The end of the latest period.
fn end_of(key: &LimitKey, row: &AccountRow) -> Result<Timestamp, Unanswered> {
    let ends_ms = row.balances.credits_posted;
    u64::try_from(ends_ms).ok().and_then(moment).ok_or_else(|| {
        let reason = format!("the period of {key} has an impossible end, {ends_ms} ms");
        Unanswered { reason, retry_after: RETRY_AFTER }
    })
}

/// The moment that the ledger stores in milliseconds; `None` if no server has stored it.
pub(super) fn moment(unix_ms: u64) -> Option<Timestamp> {
    unix_ms.checked_mul(1_000_000).map(Timestamp::from_unix_nanos)
}

fn announce(key: &LimitKey, before_ms: u64, ends_at: Timestamp) -> Transfer {
    let length_ms = ends_at.unix_ms().checked_sub(before_ms).filter(|length| *length > 0);
    let length_ms = length_ms.expect("the period before has ended, and this one has not");
    let (operator, account) = (ids::operator_account(), ids::period_end_account(key));
    let movement = TransferCode::Announcement.movement(operator, account, length_ms.into());
    Transfer::posted(ids::announcement(key, before_ms), movement)
}
