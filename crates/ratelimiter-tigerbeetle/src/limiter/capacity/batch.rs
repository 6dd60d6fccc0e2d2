//! Many accounts at a time: as few requests as the ledger takes, whatever its largest one is.

use std::collections::HashMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use ratelimiter::{LimitKey, Unanswered};

use super::Change;
use super::plan::{ChangeReply, read};
use crate::ledger::{AccountId, AccountRow, Ledger, LedgerError, WorkItem};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::accounts::of_limits;
use crate::limiter::unanswered::unanswered;

/// How many accounts or transfers go together in one call, unless the settings allow fewer: within what
/// any server takes. Calls that are under way at the same time join each other in larger requests, where
/// the server takes them.
const EVENTS_PER_CALL_MAX: usize = 200;
/// How many calls are under way at a time. More would not make requests much larger, and the last of them would
/// have to wait for all others within the time that a call has.
const CALLS_AT_ONCE: usize = 10;

impl<L: Ledger> TigerBeetleLimiter<L> {
    fn events_per_call(&self) -> usize {
        EVENTS_PER_CALL_MAX.min(self.ledger.events_max())
    }

    /// Those of the accounts that are there.
    pub(in crate::limiter) async fn rows_of(
        &self,
        accounts: Vec<AccountId>,
    ) -> Result<HashMap<AccountId, AccountRow>, Unanswered> {
        let calls = accounts.chunks(self.events_per_call()).map(<[_]>::to_vec);
        let rows = in_turn(calls, |accounts| self.ledger.lookup_accounts(accounts)).await?;
        Ok(rows.into_iter().flatten().map(|row| (row.id, row)).collect())
    }

    /// Makes the accounts of these limits: each has two of its own, and shares two.
    pub(super) async fn make_accounts_of(&self, keys: &[&LimitKey]) -> Result<(), Unanswered> {
        let limits_per_call = (self.events_per_call().saturating_sub(2) / 2).max(1);
        let calls: Vec<_> = keys.chunks(limits_per_call).map(of_limits).collect();
        let made = stream::iter(calls).map(|accounts| self.make_missing(accounts));
        made.buffered(CALLS_AT_ONCE).try_collect().await
    }

    /// How many transfers are under way at a time.
    pub(super) fn events_at_once(&self) -> usize {
        CALLS_AT_ONCE * self.events_per_call()
    }

    /// Sends the chains; what became of each, in their order.
    pub(super) async fn carry_out(
        &self,
        changes: &[Change],
    ) -> Result<Vec<ChangeReply>, Unanswered> {
        let events_per_call = self.events_per_call();
        let mut items: Vec<WorkItem> = Vec::new();
        for Change { chain, .. } in changes {
            let events = chain.events().iter().map(|event| event.transfer);
            match items.last_mut() {
                Some(item) if item.len() + chain.len() <= events_per_call => {
                    item.push_chain(events);
                }
                _ => items.push(WorkItem::new().with_chain(events)),
            }
        }
        let results = in_turn(items, |item| self.ledger.create_transfers(item)).await?;
        let mut results = results.into_iter().flatten();
        let reply = |change: &Change| {
            let results: Vec<_> = results.by_ref().take(change.chain.len()).collect();
            read(&results)
        };
        Ok(changes.iter().map(reply).collect())
    }
}

/// Parts of the changes, in their order, each with at most as many events.
pub(super) fn parts(changes: Vec<Change>, events_max: usize) -> Vec<Vec<Change>> {
    let (mut parts, mut events) = (Vec::<Vec<Change>>::new(), 0);
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

/// Calls several times, with a bounded number of calls under way; the answers in their order.
async fn in_turn<C, T, F: Future<Output = Result<T, LedgerError>>>(
    calls: impl IntoIterator<Item = C>,
    call: impl Fn(C) -> F,
) -> Result<Vec<T>, Unanswered> {
    let answers = stream::iter(calls.into_iter().map(call)).buffered(CALLS_AT_ONCE);
    answers.try_collect().await.map_err(unanswered)
}
