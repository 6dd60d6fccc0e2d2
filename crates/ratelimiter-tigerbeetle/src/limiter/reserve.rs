//! Reserve: what can be known here is answered here, and all else is one chain (`TB-03`).

mod batch;
mod chain;

use std::time::Duration;

use futures::future::try_join;
use ratelimiter::{Decision, Denial, DenialReason, LeaseId, ReserveError, ReserveRequest};

pub(super) use self::batch::PartSize;
use self::chain::Refusal;
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
    /// The definitions admit nothing new, so only what is known of the lease counts (`RES-06`).
    Closed {
        needs: Vec<Need>,
        /// What a lease hears of which nothing is known.
        otherwise: Result<Decision, ReserveError>,
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
            Question::Closed { needs, otherwise } => {
                self.look_for_known(lease, &needs).await.unwrap_or(otherwise)
            }
        }
    }

    /// What can be known here is answered here, and all else is a question to the ledger.
    fn question(&self, request: &ReserveRequest) -> Result<Question, ReserveError> {
        let mut needs = self.read_table().find(&request.requirements)?;
        if self.cache.has(request.lease) {
            return Ok(Question::Known(needs));
        }
        if let Some(otherwise) = self.refuse_by_definition(&needs) {
            return Ok(Question::Closed { needs, otherwise });
        }
        self.turn_away_when_expiry_lags()?;
        needs.sort_unstable_by(|a, b| a.limit.key().cmp(b.limit.key()));
        Ok(Question::Chain(needs))
    }

    /// What the definitions alone refuse, in the order of the checks; none if there may be room.
    fn refuse_by_definition(&self, needs: &[Need]) -> Option<Result<Decision, ReserveError>> {
        if let Some(need) = needs.iter().find(|need| need.limit.is_paused()) {
            let reason = DenialReason::Paused { key: need.limit.key().clone() };
            return Some(Ok(self.deny_closed(reason)));
        }
        if let Some(need) = needs.iter().find(|need| need.exceeds_capacity()) {
            let key = need.limit.key().clone();
            return Some(Err(ReserveError::AmountExceedsCapacity { key }));
        }
        let decreasing = needs.iter().find(|need| need.limit.is_decreasing())?;
        Some(Ok(self.deny_decreasing(decreasing)))
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
            Ok(()) => Ok(self.allow(lease, needs, transfers, results)),
            Err(refusal) => self.refuse(refusal, lease, needs).await,
        }
    }

    /// What a lease hears that reserved nothing new.
    async fn refuse(
        &self,
        refusal: Refusal,
        lease: LeaseId,
        needs: &[Need],
    ) -> Result<Decision, ReserveError> {
        match refusal {
            Refusal::NoRoom { at } => {
                let streak = needs[at].limit.counts.note_denial();
                Ok(self.deny(&needs[at], streak))
            }
            Refusal::DeniedBefore { at } => Ok(self.deny_again(&needs[at])),
            Refusal::Decreasing { at } => Ok(self.deny_decreasing(&needs[at])),
            Refusal::Known => self.replay(lease, needs).await,
            Refusal::Unexpected(status) => {
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
        let read_back = self.read_back(lease).await?;
        self.answer_known(lease, needs, read_back).unwrap_or_else(|| {
            // Two leases would have to agree in 80 bits of a hash and in a millisecond.
            tracing::error!(%lease, "a lease's transfers exist, but not under its name");
            Err(ReserveError::LeaseConflict)
        })
    }

    /// What a lease hears that the ledger knows; none if it was never allowed.
    fn answer_known(
        &self,
        lease: LeaseId,
        needs: &[Need],
        read_back: ReadBack,
    ) -> Option<Result<Decision, ReserveError>> {
        match read_back {
            ReadBack::Open(known) => {
                let decision = known.replay(needs, self.cluster_now());
                if decision.is_ok() {
                    self.cache.insert(*known);
                }
                Some(decision)
            }
            ReadBack::Completed => {
                self.cache.remove(lease);
                Some(Err(ReserveError::LeaseEnded))
            }
            ReadBack::Unknown => None,
        }
    }

    /// A lease that was allowed or denied before, perhaps at another server, hears so whatever has become of the limits
    /// since (`RES-06`). An allowed one shows in its transfers, a denied one only in an ID that it burned; neither look
    /// changes anything. None if nothing is known of it.
    async fn look_for_known(
        &self,
        lease: LeaseId,
        needs: &[Need],
    ) -> Option<Result<Decision, ReserveError>> {
        let probe = async {
            let probed = self.ledger.create_transfers(chain::probe(lease, needs)).await;
            probed.map_err(unanswered)
        };
        let (read_back, probed) = match try_join(self.read_back(lease), probe).await {
            Ok(seen) => seen,
            Err(unanswered) => return Some(Err(unanswered.into())),
        };
        if let Some(answer) = self.answer_known(lease, needs, read_back) {
            return Some(answer);
        }
        Some(self.refuse(chain::read_probe(&probed)?, lease, needs).await)
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
        self.deny_closed(DenialReason::Decreasing { key: need.limit.key().clone() })
    }

    /// Denied by a definition: the hint is fixed (`HINT-04`).
    fn deny_closed(&self, reason: DenialReason) -> Decision {
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
