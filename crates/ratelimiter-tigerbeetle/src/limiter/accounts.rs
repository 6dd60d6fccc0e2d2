//! The accounts: making those that are missing, and reading the figures of the moment from them.

use std::collections::HashMap;
use std::sync::Arc;

use ratelimiter::{LimitKey, LimitState, Unanswered, Usage};

use super::TigerBeetleLimiter;
use super::codes::AccountCode;
use super::table::KnownLimit;
use super::unanswered::{RETRY_AFTER, unanswered};
use crate::ids;
use crate::ledger::{AccountId, AccountRow, AccountStatus, Ledger, NewAccount, UserData};

/// How many limits are looked at in one request: two accounts each, within what any server takes.
const LIMITS_PER_LOOKUP: usize = 100;

/// The accounts that a limit needs, those that all limits share included.
pub(super) fn of_limit(key: &LimitKey) -> [NewAccount; 4] {
    [
        new_account(ids::operator_account(), AccountCode::Operator),
        new_account(ids::marker_account(), AccountCode::Marker),
        new_account(ids::limit_account(key), AccountCode::Limit),
        new_account(ids::debt_account(key), AccountCode::Debt),
    ]
}

/// The account that one server's probes come from.
pub(super) fn of_probe(id: AccountId) -> [NewAccount; 2] {
    let operator = new_account(ids::operator_account(), AccountCode::Operator);
    [operator, new_account(id, AccountCode::Probe)]
}

fn new_account(id: AccountId, code: AccountCode) -> NewAccount {
    NewAccount {
        id,
        code: code.number(),
        debits_must_not_exceed_credits: code == AccountCode::Limit,
        user_data: UserData::default(),
    }
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Creates those of the accounts that are not there. A closed account says that it is there with
    /// other flags.
    pub(super) async fn make_missing(&self, accounts: &[NewAccount]) -> Result<(), Unanswered> {
        let results = self.ledger.create_accounts(accounts.to_vec()).await.map_err(unanswered)?;
        for (account, result) in accounts.iter().zip(results) {
            let is_there = matches!(
                result.status,
                AccountStatus::Created
                    | AccountStatus::Exists
                    | AccountStatus::ExistsWithDifferentFlags
            );
            if !is_there {
                let (id, status) = (account.id.get(), result.status);
                let reason = format!("the account {id:032x} cannot be made: {status:?}");
                return Err(Unanswered { reason, retry_after: RETRY_AFTER });
            }
        }
        Ok(())
    }

    /// The limits with their figures of the moment, in the order in which they are given.
    pub(super) async fn states_of(
        &self,
        limits: &[Arc<KnownLimit>],
    ) -> Result<Vec<LimitState>, Unanswered> {
        let mut states = Vec::with_capacity(limits.len());
        for limits in limits.chunks(LIMITS_PER_LOOKUP) {
            let rows = self.rows_of(limits).await?;
            for limit in limits {
                states.push(state(limit, &rows)?);
            }
        }
        Ok(states)
    }

    async fn rows_of(
        &self,
        limits: &[Arc<KnownLimit>],
    ) -> Result<HashMap<AccountId, AccountRow>, Unanswered> {
        let ids = limits.iter().flat_map(|limit| [limit.account, limit.debt_account]);
        let rows = self.ledger.lookup_accounts(ids.collect()).await.map_err(unanswered)?;
        Ok(rows.into_iter().map(|row| (row.id, row)).collect())
    }
}

fn state(
    limit: &KnownLimit,
    rows: &HashMap<AccountId, AccountRow>,
) -> Result<LimitState, Unanswered> {
    let missing = || {
        let reason = format!("the accounts of {} are not there", limit.key());
        Unanswered { reason, retry_after: RETRY_AFTER }
    };
    let balances = rows.get(&limit.account).ok_or_else(missing)?.balances;
    let debt = rows.get(&limit.debt_account).ok_or_else(missing)?.balances;
    let taken = balances.debits_posted + balances.debits_pending;
    let free = balances.credits_posted.checked_sub(taken);
    let free = free.expect("the account's debits never exceed its credits");
    let usage = Usage {
        used: units(balances.debits_pending),
        available: units(free),
        debt: debt.debits_posted,
        uncovered: limit.counts.uncovered(),
    };
    let registered = limit.registered.clone();
    Ok(LimitState { limit: registered.limit, status: registered.status, usage })
}

/// No limit has more than 2^63-1 units. An account with more was funded by somebody else, and is
/// shown as full as a figure can be.
fn units(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}
