//! Reserve: what can be known here is answered here, and all else is one chain (`TB-03`).

mod chain;

use std::time::Duration;

use ratelimiter::{Decision, Denial, DenialReason, LeaseId, ReserveError, ReserveRequest};
use smallvec::SmallVec;

use self::chain::Reply;
use super::TigerBeetleLimiter;
use super::lease::{Lease, ReadBack};
use super::table::Need;
use super::unanswered::{not_foreseen, unanswered};
use crate::ledger::{Ledger, TransferId, TransferResult};

/// What is suggested when a lease was denied long ago: a new lease ID may be tried at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The transfers of one chain.
type Transfers = SmallVec<[TransferId; 4]>;

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn reserve_one(
        &self,
        request: &ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        let needs = self.read_table().find(&request.requirements)?;
        let lease = request.lease;
        if self.cache.has(lease) {
            // Another server may have completed it, so the ledger is asked all the same.
            return self.replay(lease, &needs).await;
        }
        if let Some(need) = needs.iter().find(|need| need.exceeds_capacity()) {
            let key = need.limit.key().clone();
            return Err(ReserveError::AmountExceedsCapacity { key });
        }
        if let Some(need) = needs.iter().find(|need| need.limit.is_decreasing()) {
            return self.deny_unless_known(lease, &needs, need).await;
        }
        self.turn_away_when_expiry_lags()?;
        self.send(lease, needs).await
    }

    async fn send(&self, lease: LeaseId, mut needs: Vec<Need>) -> Result<Decision, ReserveError> {
        needs.sort_unstable_by(|a, b| a.limit.key().cmp(b.limit.key()));
        let item = chain::chain(lease, &needs);
        let transfers: Transfers = item.events().iter().map(|event| event.transfer.id).collect();
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        match chain::read(&results) {
            Reply::Allowed => Ok(self.allow(lease, &needs, &transfers, &results)),
            Reply::NoRoom { at } => {
                let streak = needs[at].limit.counts.note_denial();
                Ok(self.deny(&needs[at], streak))
            }
            Reply::DeniedBefore { at } => Ok(self.deny_again(&needs[at])),
            Reply::Decreasing { at } => Ok(self.deny_decreasing(&needs[at])),
            Reply::Known => self.replay(lease, &needs).await,
            Reply::Unexpected(status) => {
                let reason = not_foreseen("reserve", status);
                tracing::error!(%lease, ?status, "tigerbeetle refused a reserve unexpectedly");
                Err(reason.into())
            }
        }
    }

    fn allow(
        &self,
        lease: LeaseId,
        needs: &[Need],
        transfers: &[TransferId],
        results: &[TransferResult],
    ) -> Decision {
        for need in needs {
            need.limit.counts.note_allow();
        }
        self.time.observe(results, self.options.clock.now());
        let created_at = results.iter().map(|result| result.timestamp);
        let lease = Lease::allowed(lease, needs, transfers.iter().copied().zip(created_at));
        let reserved_at = lease.reserved_at;
        self.counters.leases_allowed.add(1);
        self.counters.lease_transfers.add(results.len() as u64);
        self.cache.insert(lease);
        Decision::Allowed { reserved_at }
    }

    /// The lease is there already, or may be: the ledger says what became of it.
    async fn replay(&self, lease: LeaseId, needs: &[Need]) -> Result<Decision, ReserveError> {
        match self.read_back(lease).await? {
            ReadBack::Open(known) => {
                let decision = known.replay(needs, self.cluster_now());
                if decision.is_ok() {
                    self.cache.insert(*known);
                }
                decision
            }
            ReadBack::Completed => {
                self.cache.remove(lease);
                Err(ReserveError::LeaseEnded)
            }
            // Two leases would have to agree in 80 bits of a hash and in a millisecond.
            ReadBack::Unknown => {
                tracing::error!(%lease, "a lease's transfers exist, but not under its name");
                Err(ReserveError::LeaseConflict)
            }
        }
    }

    /// Nothing new is admitted while a capacity is on its way down; but a lease that was allowed
    /// before, perhaps at another server, must not be told that it has nothing.
    async fn deny_unless_known(
        &self,
        lease: LeaseId,
        needs: &[Need],
        decreasing: &Need,
    ) -> Result<Decision, ReserveError> {
        match self.read_back(lease).await? {
            ReadBack::Open(known) => known.replay(needs, self.cluster_now()),
            ReadBack::Completed => Err(ReserveError::LeaseEnded),
            ReadBack::Unknown => Ok(self.deny_decreasing(decreasing)),
        }
    }

    fn deny(&self, need: &Need, streak: u32) -> Decision {
        let kind = need.limit.registered.limit.kind;
        let retry_after = self.options.hints.delay(kind, streak, self.random_f64());
        no_room(need, retry_after)
    }

    /// Denied before: the streak is that of the others, if there is one.
    fn deny_again(&self, need: &Need) -> Decision {
        match need.limit.counts.denial_streak() {
            0 => no_room(need, AT_ONCE),
            streak => self.deny(need, streak),
        }
    }

    fn deny_decreasing(&self, need: &Need) -> Decision {
        let reason = DenialReason::Decreasing { key: need.limit.key().clone() };
        Decision::Denied(Denial { reason, retry_after: self.options.hints.decreasing })
    }
}

fn no_room(need: &Need, retry_after: Duration) -> Decision {
    let reason = DenialReason::NoRoom { keys: vec![need.limit.key().clone()] };
    Decision::Denied(Denial { reason, retry_after })
}
