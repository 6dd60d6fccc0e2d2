//! Reserves that wait for room (`TB-17`).
//!
//! A refused chain burns its IDs, so each attempt has its own. The first one is the ordinary chain. No
//! caller waits before that chain can never be admitted any more: one of its IDs is burned. Every other
//! attempt begins with the *gate* of the lease, one transfer that all attempts at all servers share, so
//! that one of them is admitted at most. Giving up creates the gate alone: then none is.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::try_join;
use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::{
    Decision, Denial, DenialReason, LeaseId, LimitKey, ReserveError, ReserveRequest, Unanswered,
};

use super::chain::{self, Refusal};
use super::{AT_ONCE, ChainReply, ReservePlan, transfers_of};
use crate::ledger::{AccountId, AccountRow, Ledger, TransferStatus, WorkItem};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::codes::gate;
use crate::limiter::lease::LeaseLookup;
use crate::limiter::table::{KnownLimit, ResolvedRequirement};
use crate::limiter::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::lock::lock;

/// How often a server looks for room that others have freed.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The leases of which an attempt, not the first, has no answer. At most as many as wait.
#[derive(Debug, Default)]
pub(in crate::limiter) struct UnansweredAttempts(Mutex<HashSet<LeaseId>>);

/// What creating a gate found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    /// It was open: nothing is admitted any more.
    Closed,
    /// An attempt was admitted, or somebody gave up.
    ClosedBefore,
}

impl UnansweredAttempts {
    fn has(&self, lease: LeaseId) -> bool {
        lock(&self.0).contains(&lease)
    }

    /// False if it has the lease already.
    fn add(&self, lease: LeaseId) -> bool {
        lock(&self.0).insert(lease)
    }

    fn forget(&self, lease: LeaseId) {
        lock(&self.0).remove(&lease);
    }
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    /// Reserves for a server that lets requests wait.
    ///
    /// # Errors
    /// As for [`Limiter::reserve`](ratelimiter::Limiter::reserve).
    pub async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        let answer = match number(turn) {
            None => self.reserve_first(request, turn).await,
            Some(number) => self.reserve_again(request, number, turn).await,
        };
        let may_ask_again = match &answer {
            Ok(answer) => answer.ask_again_after.is_some(),
            Err(error) => matches!(error, ReserveError::Unanswered(_)),
        };
        if !may_ask_again {
            self.unanswered_attempts.forget(request.lease);
        }
        self.remember_job(request, answer.as_ref().ok().map(|answer| &answer.decision));
        answer
    }

    /// A request that waited ends without having been admitted: it is denied for good with this denial,
    /// unless it was decided meanwhile.
    ///
    /// # Errors
    /// As for [`Limiter::reserve`](ratelimiter::Limiter::reserve).
    pub async fn give_up(
        &self,
        request: &ReserveRequest,
        denial: Denial,
    ) -> Result<Decision, ReserveError> {
        self.unanswered_attempts.forget(request.lease);
        if self.close_gate(request.lease).await? == Gate::Closed {
            return Ok(Decision::Denied(denial));
        }
        let lookup = self.look_up_lease(request.lease).await?;
        if lookup == LeaseLookup::Denied {
            return Ok(Decision::Denied(denial));
        }
        let requirements = self.read_table().find(&request.requirements)?;
        let reply = self.reply_from_lease(request.lease, &requirements, lookup);
        reply.unwrap_or(Ok(Decision::Denied(denial)))
    }

    /// Those of the limits that may have room for these amounts: whoever waits for them asks again.
    ///
    /// # Errors
    /// The cluster gave no answer.
    pub async fn limits_with_room(
        &self,
        amounts: &[(LimitKey, u64)],
    ) -> Result<Vec<LimitKey>, Unanswered> {
        let mut with_room = Vec::new();
        let mut looked_at = Vec::new();
        {
            let (now, table) = (self.cluster_now(), self.read_table());
            for (key, amount) in amounts {
                match table.resolve(key) {
                    Some(limit) if limit.is_paused() || limit.is_decreasing() => {}
                    Some(limit) if limit.is_made() && !limit.account.has_ended(now) => {
                        looked_at.push(ResolvedRequirement { limit, amount: *amount });
                    }
                    // It is made, its period begun or its key refused when somebody asks.
                    Some(_) | None => with_room.push(key.clone()),
                }
            }
        }
        let rows = self.rows_of(accounts_of(&looked_at)).await?;
        let fits = looked_at
            .iter()
            .filter(|need| need.exceeds_capacity() || has_room(&need.limit, need.amount, &rows));
        with_room.extend(fits.map(|need| need.limit.key().clone()));
        Ok(with_room)
    }

    /// Another attempt of a lease that waits. If an earlier one has no answer, the lease is read back
    /// first: it may have been admitted, and take the very room that a look would find missing.
    async fn reserve_again(
        &self,
        request: &ReserveRequest,
        number: NonZeroU32,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        if !self.unanswered_attempts.has(request.lease) {
            return self.try_again(request, number, turn).await;
        }
        let lookup = self.look_up_lease(request.lease).await?;
        if lookup != LeaseLookup::Unknown {
            let requirements = self.read_table().find(&request.requirements)?;
            let reply = self.reply_from_lease(request.lease, &requirements, lookup);
            return reply.expect("it is known").map(TurnAnswer::last);
        }
        let mut answer = self.try_again(request, number, turn).await?;
        // The earlier attempt may still arrive.
        answer.ask_again_after = answer.ask_again_after.map(|after| after.min(RETRY_AFTER));
        Ok(answer)
    }

    async fn try_again(
        &self,
        request: &ReserveRequest,
        number: NonZeroU32,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        match self.plan_in_course(request, turn).await? {
            ReservePlan::SendChain(requirements) => match self.deny_scarce(&requirements).await? {
                Some(denied) => Ok(denied),
                None => self.send_attempt(request, number, &requirements).await,
            },
            ReservePlan::Replay(requirements) => {
                self.replay(request.lease, &requirements).await.map(TurnAnswer::last)
            }
            ReservePlan::Answered(answer) => answer,
            ReservePlan::DeniedByDefinition { otherwise, .. } => {
                let ask_again_after =
                    burns(&otherwise, turn).then_some(self.options.hints.decreasing);
                Ok(TurnAnswer { decision: otherwise?, ask_again_after })
            }
            ReservePlan::BeginPeriods(_) | ReservePlan::MakeInstances(_) => {
                unreachable!("they have begun, and were made")
            }
        }
    }

    /// A look at all limits of a lease; `None` if all have room.
    pub(super) async fn deny_scarce(
        &self,
        requirements: &[ResolvedRequirement],
    ) -> Result<Option<TurnAnswer>, Unanswered> {
        let rows = self.rows_of(accounts_of(requirements)).await?;
        let is_scarce = |need: &&ResolvedRequirement| !has_room(&need.limit, need.amount, &rows);
        let scarce: Vec<_> = requirements.iter().filter(is_scarce).collect();
        if scarce.is_empty() {
            return Ok(None);
        }
        let hint =
            |need: &&ResolvedRequirement| self.hint(need, need.limit.counts.denial_streak().max(1));
        let retry_after = scarce.iter().map(hint).max().expect("at least one is scarce");
        let ask_again_after = Some(self.room_after(scarce.iter().copied()));
        let keys = scarce.iter().map(|need| need.limit.key().clone()).collect();
        let reason = DenialReason::NoRoom { keys };
        let decision = Decision::Denied(Denial { reason, retry_after });
        Ok(Some(TurnAnswer { decision, ask_again_after }))
    }

    /// When a waiter asks again, if no look finds room before: at the end of a period.
    pub(super) fn room_after<'a>(
        &self,
        scarce: impl IntoIterator<Item = &'a ResolvedRequirement>,
    ) -> Duration {
        let resets = scarce.into_iter().filter_map(|need| self.reset_after(need));
        resets.fold(self.options.hints.decreasing, Duration::min)
    }

    async fn send_attempt(
        &self,
        request: &ReserveRequest,
        number: NonZeroU32,
        requirements: &[ResolvedRequirement],
    ) -> Result<TurnAnswer, ReserveError> {
        let lease = request.lease;
        let item = chain::attempt(number, lease, requirements);
        let transfers: Vec<_> = transfers_of(&item).skip(1).collect();
        let is_first_unanswered = self.unanswered_attempts.add(lease);
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        if is_first_unanswered {
            self.unanswered_attempts.forget(lease);
        }
        let (gate, results) = results.split_first().expect("one result an event");
        if gate.status.exists() {
            return self.replay(lease, requirements).await.map(TurnAnswer::last);
        }
        match chain::read(results) {
            Ok(()) => {
                self.counters.lease_transfers.add(1);
                let shadow_denied = self.shadow_denied_by(requirements, results).await;
                let reply = ChainReply { transfers: &transfers, results, shadow_denied };
                Ok(TurnAnswer::last(self.allow(request, requirements, reply)))
            }
            // Another server, or a request that was sent twice, has burned an ID of this attempt. The
            // next one has others.
            Err(Refusal::DeniedBefore { at }) => {
                let decision = self.deny_again(&requirements[at]);
                Ok(TurnAnswer { decision, ask_again_after: Some(AT_ONCE) })
            }
            Err(refusal) => self.refuse(refusal, lease, requirements).await,
        }
    }

    /// The first chain of a lease was denied before, because of the requirement `at`. Another attempt may
    /// have been admitted, or may still be: the gate decides.
    pub(super) async fn deny_for_good(
        &self,
        lease: LeaseId,
        requirements: &[ResolvedRequirement],
        at: usize,
    ) -> Result<Decision, ReserveError> {
        let (gate, lookup) = try_join(self.close_gate(lease), self.look_up_lease(lease)).await?;
        let lookup = match (gate, lookup) {
            (Gate::Closed, _) => LeaseLookup::Denied,
            // It was read before the gate was closed.
            (Gate::ClosedBefore, LeaseLookup::Unknown) => self.look_up_lease(lease).await?,
            (Gate::ClosedBefore, lookup) => lookup,
        };
        let denied = || Ok(self.deny_again(&requirements[at]));
        if lookup == LeaseLookup::Denied {
            return denied();
        }
        self.reply_from_lease(lease, requirements, lookup).unwrap_or_else(denied)
    }

    async fn close_gate(&self, lease: LeaseId) -> Result<Gate, Unanswered> {
        let item = WorkItem::new().with(gate(lease));
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        let status = results[0].status;
        if status == TransferStatus::Created {
            return Ok(Gate::Closed);
        }
        if status.exists() {
            return Ok(Gate::ClosedBefore);
        }
        tracing::error!(%lease, ?status, "tigerbeetle refused a gate unexpectedly");
        Err(unexpected_status("reserve", status))
    }

    /// Others wait for room of the limit `behind`, so nothing new is admitted.
    pub(super) fn plan_behind(
        &self,
        request: &ReserveRequest,
        behind: &LimitKey,
    ) -> Result<ReservePlan, ReserveError> {
        let requirements = self.read_table().find(&request.requirements)?;
        if self.cache.has(request.lease) {
            return Ok(ReservePlan::Replay(requirements));
        }
        let otherwise = self.refuse_by_definition(&requirements).unwrap_or_else(|| {
            let is_behind = |need: &&ResolvedRequirement| need.limit.key() == behind;
            let need = requirements.iter().find(is_behind).unwrap_or(&requirements[0]);
            Ok(self.deny(need, need.limit.counts.record_denial()))
        });
        Ok(ReservePlan::DeniedByDefinition { requirements, otherwise })
    }
}

/// The number of an attempt that is not the first.
pub(super) fn number(turn: Turn<'_>) -> Option<NonZeroU32> {
    turn.attempt.and_then(NonZeroU32::new)
}

/// Whether a lease that is denied by its definitions, or because others wait, must not be admitted by
/// its first chain later: it is denied for good, or its caller waits.
pub(super) fn burns(denied: &Result<Decision, ReserveError>, turn: Turn<'_>) -> bool {
    let Ok(Decision::Denied(Denial { reason, .. })) = denied else { return false };
    match reason {
        DenialReason::NoRoom { .. } => true,
        DenialReason::Paused { .. } | DenialReason::Decreasing { .. } => turn.attempt.is_some(),
        DenialReason::TooManyInstances { .. } | DenialReason::TooManyWaiters { .. } => false,
    }
}

fn accounts_of(requirements: &[ResolvedRequirement]) -> Vec<AccountId> {
    requirements.iter().map(|need| need.limit.account.id).collect()
}

/// Whether the account of a limit has room for an amount. One that is missing refuses whoever asks.
fn has_room(limit: &KnownLimit, amount: u64, rows: &HashMap<AccountId, AccountRow>) -> bool {
    let Some(AccountRow { balances, closed, .. }) = rows.get(&limit.account.id) else {
        return true;
    };
    let taken = balances.debits_posted + balances.debits_pending + u128::from(amount);
    !closed && taken <= balances.credits_posted
}
