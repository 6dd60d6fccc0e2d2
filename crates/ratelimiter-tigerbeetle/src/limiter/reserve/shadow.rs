//! Which limits in shadow mode would have denied a chain that was allowed (`TB-20`).
//!
//! The account of such a limit never refuses, so its use is read afterwards. Reserves that came in
//! between count too, so under concurrency a limit may be named for a reserve that just fitted,
//! never the other way round unless units have returned.

use std::collections::HashMap;

use ratelimiter::{LimitKey, Unanswered};

use super::chain;
use crate::ledger::{AccountId, Ledger, TransferResult};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::table::ResolvedRequirement;

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// The limits in shadow mode that would have denied a chain; none if it was refused.
    pub(in crate::limiter) async fn shadow_denied_by(
        &self,
        requirements: &[ResolvedRequirement],
        results: &[TransferResult],
    ) -> Vec<LimitKey> {
        self.shadow_denied(&[(requirements, results)]).await.remove(0)
    }

    /// The same for the chains of one item, in order, with at most one read; with none if no allowed
    /// chain has a limit in shadow mode.
    pub(super) async fn shadow_denied(
        &self,
        chains: &[(&[ResolvedRequirement], &[TransferResult])],
    ) -> Vec<Vec<LimitKey>> {
        let mut denied = vec![Vec::new(); chains.len()];
        let counted = |(requirements, results): &(&[ResolvedRequirement], &[TransferResult])| {
            requirements.iter().any(|need| need.limit.is_shadow()) && chain::read(results).is_ok()
        };
        let counted: Vec<usize> = (0..chains.len()).filter(|at| counted(&chains[*at])).collect();
        if counted.is_empty() {
            return denied;
        }
        let needs_of = |at: usize| chains[at].0.iter().filter(|need| need.limit.is_shadow());
        let mut accounts: Vec<AccountId> =
            counted.iter().flat_map(|at| needs_of(*at)).map(|need| need.limit.account.id).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let mut used = match self.used_of(accounts).await {
            Ok(used) => used,
            Err(Unanswered { reason, .. }) => {
                // What was reserved stands, and the answer is only less informative.
                tracing::warn!(%reason, "the use of limits in shadow mode cannot be read");
                return denied;
            }
        };
        // What later chains of the item took does not count for an earlier one.
        for at in counted.into_iter().rev() {
            for need in needs_of(at) {
                let Some(used) = used.get_mut(&need.limit.account.id) else { continue };
                if *used > u128::from(need.limit.registered.limit.capacity.get()) {
                    denied[at].push(need.limit.key().clone());
                }
                // Some of it may have returned since.
                *used = used.saturating_sub(need.amount.into());
            }
        }
        denied
    }

    async fn used_of(
        &self,
        accounts: Vec<AccountId>,
    ) -> Result<HashMap<AccountId, u128>, Unanswered> {
        let rows = self.rows_of(accounts).await?;
        Ok(rows.into_iter().map(|(id, row)| (id, row.balances.debits_pending)).collect())
    }
}
