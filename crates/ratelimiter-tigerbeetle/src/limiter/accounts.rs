//! Account creation and current usage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratelimiter::clock::Timestamp;
use ratelimiter::{Capacity, Limit, LimitKey, LimitState, RegisteredLimit, Unanswered, Usage};

use super::TigerBeetleLimiter;
use super::codes::AccountCode;
use super::table::{KnownLimit, LimitAccount};
use super::unanswered::{RETRY_AFTER, unanswered};
use crate::ids;
use crate::ledger::{AccountId, AccountRow, AccountStatus, Balances, Ledger, NewAccount, UserData};

/// Accounts of one limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum AccountsOf<'a> {
    /// All of a rolling or concurrency limit.
    Limit(&'a LimitKey),
    /// Those that all periods of a calendar limit share.
    Calendar(&'a LimitKey),
    /// That of one period, once those that they share exist.
    Period { account: AccountId, ends_at: Timestamp },
}

/// The accounts of limits, shared ones included. They are created in this order, so that a limit's
/// account exists only after all others.
pub(super) fn of_limits(limits: &[AccountsOf<'_>]) -> Vec<NewAccount> {
    let mut accounts = vec![
        new_account(ids::operator_account(), AccountCode::Operator),
        new_account(ids::marker_account(), AccountCode::Marker),
    ];
    for limit in limits {
        match *limit {
            AccountsOf::Limit(key) => accounts.extend([
                new_account(ids::debt_account(key), AccountCode::Debt),
                new_account(ids::limit_account(key), AccountCode::Limit),
            ]),
            AccountsOf::Calendar(key) => accounts.extend([
                new_account(ids::debt_account(key), AccountCode::Debt),
                new_account(ids::period_end_account(key), AccountCode::PeriodEnd),
            ]),
            AccountsOf::Period { account, ends_at } => {
                let user_data = UserData { data_64: ends_at.unix_ms(), ..UserData::default() };
                accounts
                    .push(NewAccount { user_data, ..new_account(account, AccountCode::Period) });
            }
        }
    }
    accounts
}

/// The accounts that one server's expiry probes need.
pub(super) fn of_probe(id: AccountId) -> Vec<NewAccount> {
    let operator = new_account(ids::operator_account(), AccountCode::Operator);
    vec![operator, new_account(id, AccountCode::Probe)]
}

fn new_account(id: AccountId, code: AccountCode) -> NewAccount {
    NewAccount {
        id,
        code: code.number(),
        debits_must_not_exceed_credits: matches!(code, AccountCode::Limit | AccountCode::Period),
        user_data: UserData::default(),
    }
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Creates the accounts that do not exist, and returns them. A closed account is reported as
    /// existing with other flags.
    pub(super) async fn create_missing(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountRow>, Unanswered> {
        let results = self.ledger.create_accounts(accounts.clone()).await.map_err(unanswered)?;
        let mut created = Vec::new();
        for (account, result) in accounts.iter().zip(results) {
            if result.status == AccountStatus::Created {
                created.push(account.row(result.timestamp));
            }
            let is_there = matches!(
                result.status,
                AccountStatus::Created
                    | AccountStatus::Exists
                    | AccountStatus::ExistsWithDifferentFlags
            );
            if !is_there {
                let (id, status) = (account.id.get(), result.status);
                let reason = format!("the account {id:032x} cannot be created: {status:?}");
                return Err(Unanswered { reason, retry_after: RETRY_AFTER });
            }
        }
        if accounts.iter().any(|account| account.id == ids::marker_account()) {
            self.has_marker_accounts.store(true, Ordering::Relaxed);
        }
        Ok(created)
    }

    /// Makes sure that gates can be created, also where no limit ever was: a gate without its accounts is
    /// refused for ever.
    pub(super) async fn create_marker_accounts(&self) -> Result<(), Unanswered> {
        if !self.has_marker_accounts.load(Ordering::Relaxed) {
            self.create_missing(of_limits(&[])).await?;
        }
        Ok(())
    }

    /// The limits with current usage, in the given order.
    pub(super) async fn states_of(
        &self,
        limits: &[Arc<KnownLimit>],
    ) -> Result<Vec<LimitState>, Unanswered> {
        let (accounts, rows) = self.rows_in_course(limits).await?;
        limits.iter().zip(accounts).map(|(limit, account)| state(limit, account, &rows)).collect()
    }

    /// The accounts of the limits, in the given order, and the rows of these and of their debts.
    pub(super) async fn rows_in_course(
        &self,
        limits: &[Arc<KnownLimit>],
    ) -> Result<(Vec<LimitAccount>, HashMap<AccountId, AccountRow>), Unanswered> {
        let accounts = self.accounts_in_course(limits).await?;
        let ids = limits.iter().zip(&accounts);
        let ids = ids.flat_map(|(limit, account)| [account.id, limit.debt_account]);
        let rows = self.rows_of(ids.collect()).await?;
        Ok((accounts, rows))
    }
}

/// The limit with the usage of its account.
pub(super) fn state(
    limit: &KnownLimit,
    account: LimitAccount,
    rows: &HashMap<AccountId, AccountRow>,
) -> Result<LimitState, Unanswered> {
    let missing = || {
        let reason = format!("the accounts of {} do not exist", limit.key());
        Unanswered { reason, retry_after: RETRY_AFTER }
    };
    let is_made = limit.is_made();
    let balances = match rows.get(&account.id).map(|row| row.balances) {
        // The account of a new period, or of an instance, is created and funded when it is needed.
        None | Some(Balances { credits_posted: 0, .. }) if account != limit.account || !is_made => {
            let credits_posted = limit.registered.target().get().into();
            Balances { credits_posted, ..Balances::default() }
        }
        balances => balances.ok_or_else(missing)?,
    };
    let debt = match rows.get(&limit.debt_account) {
        None if !is_made => Balances::default(),
        row => row.ok_or_else(missing)?.balances,
    };
    let (registered, balances) = match is_made {
        true => (limit.registered.clone(), balances),
        false => once_checked(limit, balances)?,
    };
    let taken = balances.debits_posted + balances.debits_pending;
    let free = balances.credits_posted.checked_sub(taken);
    let free = free.expect("the account's debits never exceed its credits");
    let (used, capacity) = (units(balances.debits_pending), registered.limit.capacity.get());
    let owed = debt.debits_posted.checked_sub(debt.credits_posted);
    let usage = Usage {
        used,
        available: match limit.is_shadow() {
            true => capacity.saturating_sub(used),
            false => units(free),
        },
        debt: owed.expect("no more is forgiven than is owed"),
        uncovered: limit.counts.uncovered(),
    };
    let resets_at = account.ends_at;
    Ok(LimitState { limit: registered.limit, status: registered.status, usage, resets_at })
}

/// An instance that is not known here, as it would be once its account was brought to the capacity of
/// its template.
fn once_checked(
    limit: &KnownLimit,
    balances: Balances,
) -> Result<(RegisteredLimit, Balances), Unanswered> {
    let definition = limit.registered.limit.clone();
    let (used, to) = (balances.debits_pending, u128::from(definition.ceiling().get()));
    let in_force = balances.credits_posted - balances.debits_posted;
    if used <= to {
        let balances = Balances { credits_posted: to, debits_posted: 0, ..balances };
        return Ok((RegisteredLimit::in_force(definition), balances));
    }
    Ok((decreasing_from(definition, in_force)?, balances))
}

/// A limit that waits for units to return: its account still has the capacity `in_force`.
pub(super) fn decreasing_from(limit: Limit, in_force: u128) -> Result<RegisteredLimit, Unanswered> {
    let Some(Ok(capacity)) = u64::try_from(in_force).ok().map(Capacity::new) else {
        let key = &limit.key;
        let reason = format!("the account of {key} has an impossible capacity of {in_force}");
        return Err(Unanswered { reason, retry_after: RETRY_AFTER });
    };
    let to = limit.capacity;
    Ok(RegisteredLimit::going_down(Limit { capacity, ..limit }, to))
}

/// No limit has more than 2^63-1 units. An account with more was funded by another program, and is
/// shown with the largest value.
fn units(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}
