//! Definitions that take instances over.

use ratelimiter::{DefineError, Limit, LimitKey, LimitKind};

use crate::ids;
use crate::ledger::{AccountId, Ledger};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::table::LimitAccount;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// A definition takes the instance of its key over, with what is reserved (`TPL-03`). If the
    /// template is of another kind, nothing may be reserved or owed.
    pub(super) async fn check_instances_of_other_kinds(
        &self,
        limits: &[Limit],
    ) -> Result<(), DefineError> {
        let others: Vec<(&LimitKey, LimitKind)> = {
            let table = self.read_table();
            let instance_of_other_kind = |limit: &Limit| {
                let known = table.get(&limit.key);
                let is_defined = known.is_some_and(|known| known.mark().is_none());
                let instance = table.definition_of(&limit.key).filter(|_| !is_defined)?;
                Some(instance.kind).filter(|is| !is.is_same_kind(limit.kind))
            };
            let of_other_kind = limits
                .iter()
                .filter_map(|limit| Some((&limit.key, instance_of_other_kind(limit)?)));
            of_other_kind.collect()
        };
        let keys: Vec<_> = others.iter().map(|(key, _)| LimitKey::clone(key)).collect();
        let periods = self.announced_accounts(&keys).await?;
        let used_by = |(key, is): &(&LimitKey, LimitKind), period: Option<LimitAccount>| match is {
            LimitKind::Calendar { .. } => period.map(|account| account.id),
            LimitKind::Rolling { .. } | LimitKind::Concurrency { .. } => {
                Some(ids::limit_account(key))
            }
        };
        let accounts = others.iter().zip(periods).map(|(other, period)| used_by(other, period));
        let accounts: Vec<_> = accounts.collect();
        let debts = keys.iter().map(ids::debt_account);
        let rows = self.rows_of(accounts.iter().copied().flatten().chain(debts).collect()).await?;
        let is_used = |account: AccountId| {
            rows.get(&account).is_some_and(|row| row.balances.debits_pending > 0)
        };
        let owes = |key: &LimitKey| {
            let row = rows.get(&ids::debt_account(key));
            row.is_some_and(|row| row.balances.debits_posted > row.balances.credits_posted)
        };
        for ((key, is), account) in others.into_iter().zip(accounts) {
            if account.is_some_and(is_used) || owes(key) {
                return Err(DefineError::KindConflict { key: key.clone(), is: is.name() });
            }
        }
        Ok(())
    }
}
