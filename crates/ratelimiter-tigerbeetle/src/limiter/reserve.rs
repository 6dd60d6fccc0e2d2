//! Reserve: what can be known here is answered here, and all else is one chain (`TB-03`).

mod batch;
mod chain;

use std::time::Duration;

use ratelimiter::{Decision, Denial, DenialReason, LeaseId, ReserveError, ReserveRequest};

pub(super) use self::batch::PartSize;
use self::chain::Reply;
use super::TigerBeetleLimiter;
use super::lease::{Lease, ReadBack};
use super::table::Need;
use super::unanswered::{not_foreseen, unanswered};
use crate::ledger::{Ledger, TransferId, TransferResult, WorkItem};

/// What is suggested when a lease was denied long ago: a new lease ID may be tried at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// What a reserve needs, and how the ledger is asked for it.
enum Question {
    /// By its chain. The needs are sorted by key.
    Chain(Vec<Need>),
    /// The lease was allowed here. Another server may have completed it, so the ledger says what became of it.
    Known(Vec<Need>),
    /// The capacity of one of the limits is on its way down, so nothing new is admitted.
    Decreasing {
        needs: Vec<Need>,
        /// Which one.
        at: usize,
    },
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn reserve_one(
        &self,
        request: &ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        let lease = request.lease;
        match self.question(request)? {
            Question::Chain(needs) => {
                let mut item = WorkItem::new();
                chain::push(&mut item, lease, &needs);
                let transfers: Vec<_> = transfers_of(&item).collect();
                let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
                self.hear(lease, &needs, &transfers, &results).await
            }
            Question::Known(needs) => self.replay(lease, &needs).await,
            Question::Decreasing { needs, at } => {
                self.deny_unless_known(lease, &needs, &needs[at]).await
            }
        }
    }

    /// What can be known here is answered here, and all else is a question to the ledger.
    fn question(&self, request: &ReserveRequest) -> Result<Question, ReserveError> {
        let mut needs = self.read_table().find(&request.requirements)?;
        if self.cache.has(request.lease) {
            return Ok(Question::Known(needs));
        }
        if let Some(need) = needs.iter().find(|need| need.exceeds_capacity()) {
            let key = need.limit.key().clone();
            return Err(ReserveError::AmountExceedsCapacity { key });
        }
        if let Some(at) = needs.iter().position(|need| need.limit.is_decreasing()) {
            return Ok(Question::Decreasing { needs, at });
        }
        self.turn_away_when_expiry_lags()?;
        needs.sort_unstable_by(|a, b| a.limit.key().cmp(b.limit.key()));
        Ok(Question::Chain(needs))
    }

    /// What the ledger's answer to a chain means.
    async fn hear(
        &self,
        lease: LeaseId,
        needs: &[Need],
        transfers: &[TransferId],
        results: &[TransferResult],
    ) -> Result<Decision, ReserveError> {
        match chain::read(results) {
            Reply::Allowed => Ok(self.allow(lease, needs, transfers, results)),
            Reply::NoRoom { at } => {
                let streak = needs[at].limit.counts.note_denial();
                Ok(self.deny(&needs[at], streak))
            }
            Reply::DeniedBefore { at } => Ok(self.deny_again(&needs[at])),
            Reply::Decreasing { at } => Ok(self.deny_decreasing(&needs[at])),
            Reply::Known => self.replay(lease, needs).await,
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

/// The IDs of an item's transfers, in their order.
fn transfers_of(item: &WorkItem) -> impl Iterator<Item = TransferId> {
    item.events().iter().map(|event| event.transfer.id)
}
