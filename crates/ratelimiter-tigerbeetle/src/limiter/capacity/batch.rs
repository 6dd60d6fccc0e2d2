//! Bulk reads and writes of accounts in few requests.

use std::collections::HashMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use ratelimiter::Unanswered;

use super::CapacityChange;
use super::plan::{ChangeReply, read};
use crate::ledger::{
    AccountId, AccountRow, Ledger, LedgerError, Transfer, TransferResult, WorkItem,
};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::accounts::{AccountsOf, of_limits};
use crate::limiter::unanswered::unanswered;

/// The most accounts or transfers per call, unless the settings allow fewer: any server accepts
/// this many. Concurrent calls are joined into larger requests where the server accepts them.
const EVENTS_PER_CALL_MAX: usize = 200;
/// The most calls in flight. More would not make requests much larger, and the last of them would
/// have to wait for all others within its deadline.
const CALLS_AT_ONCE: usize = 10;

impl<L: Ledger> TigerBeetleLimiter<L> {
    fn events_per_call(&self) -> usize {
        EVENTS_PER_CALL_MAX.min(self.ledger.events_max())
    }

    /// The accounts that exist.
    pub(in crate::limiter) async fn rows_of(
        &self,
        accounts: Vec<AccountId>,
    ) -> Result<HashMap<AccountId, AccountRow>, Unanswered> {
        let calls = accounts.chunks(self.events_per_call()).map(<[_]>::to_vec);
        let rows =
            in_bounded_parallel(calls, |accounts| self.ledger.lookup_accounts(accounts)).await?;
        Ok(rows.into_iter().flatten().map(|row| (row.id, row)).collect())
    }

    /// Creates the accounts of these limits: at most two for each, and two that all share. Returns those
    /// that did not exist.
    pub(in crate::limiter) async fn create_accounts_of(
        &self,
        limits: &[AccountsOf<'_>],
    ) -> Result<Vec<AccountRow>, Unanswered> {
        let limits_per_call = (self.events_per_call().saturating_sub(2) / 2).max(1);
        let calls: Vec<_> = limits.chunks(limits_per_call).map(of_limits).collect();
        let made = stream::iter(calls).map(|accounts| self.create_missing(accounts));
        let made: Vec<_> = made.buffered(CALLS_AT_ONCE).try_collect().await?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Sends transfers that succeed or fail on their own; returns one result per transfer, in order.
    pub(in crate::limiter) async fn send_singly(
        &self,
        transfers: &[Transfer],
    ) -> Result<Vec<TransferResult>, Unanswered> {
        let item = |transfers: &[Transfer]| {
            transfers.iter().fold(WorkItem::new(), |item, transfer| item.with(*transfer))
        };
        let items = transfers.chunks(self.events_per_call()).map(item);
        let results = in_bounded_parallel(items, |item| self.ledger.create_transfers(item)).await?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The most transfers in flight.
    pub(super) fn events_at_once(&self) -> usize {
        CALLS_AT_ONCE * self.events_per_call()
    }

    /// Sends the chains; returns one reply per chain, in order.
    pub(super) async fn send_changes(
        &self,
        changes: &[CapacityChange],
    ) -> Result<Vec<ChangeReply>, Unanswered> {
        let events_per_call = self.events_per_call();
        let mut items: Vec<WorkItem> = Vec::new();
        for CapacityChange { chain, .. } in changes {
            let events = chain.events().iter().map(|event| event.transfer);
            match items.last_mut() {
                Some(item) if item.len() + chain.len() <= events_per_call => {
                    item.push_chain(events);
                }
                _ => items.push(WorkItem::new().with_chain(events)),
            }
        }
        let results = in_bounded_parallel(items, |item| self.ledger.create_transfers(item)).await?;
        let mut results = results.into_iter().flatten();
        let reply = |change: &CapacityChange| {
            let results: Vec<_> = results.by_ref().take(change.chain.len()).collect();
            read(&results)
        };
        Ok(changes.iter().map(reply).collect())
    }
}

/// Splits the changes, in order, into parts of at most `events_max` events.
pub(super) fn parts(changes: Vec<CapacityChange>, events_max: usize) -> Vec<Vec<CapacityChange>> {
    let (mut parts, mut events) = (Vec::<Vec<CapacityChange>>::new(), 0);
    for change in changes {
        events += change.chain.len();
        match parts.last_mut() {
            Some(part) if events <= events_max => part.push(change),
            _ => {
                events = change.chain.len();
                parts.push(vec![change]);
            }
        }
    }
    parts
}

/// Runs the calls with bounded concurrency; returns the answers in order.
async fn in_bounded_parallel<C, T, F: Future<Output = Result<T, LedgerError>>>(
    calls: impl IntoIterator<Item = C>,
    call: impl Fn(C) -> F,
) -> Result<Vec<T>, Unanswered> {
    let answers = stream::iter(calls.into_iter().map(call)).buffered(CALLS_AT_ONCE);
    answers.try_collect().await.map_err(unanswered)
}
