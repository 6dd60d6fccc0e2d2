//! Reserves that wait for room (`TB-17`).
//!
//! A refused chain burns an ID, so each attempt has its own. The first one is the ordinary chain. No
//! caller waits before all IDs of that chain are burned: it can never be admitted any more, and whoever
//! repeats it learns that the gate decides. Every other attempt begins with the *gate* of the lease, one transfer that all attempts at all servers share, so
//! that one of them is admitted at most. Giving up creates the gate alone: then none is.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::try_join;
use ratelimiter::admission::{Turn, TurnAnswer, TurnBackend};
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Denial, DenialReason, LeaseId, LimitKey, RenewError,
    RenewRequest, Renewal, ReserveError, ReserveRequest, Unanswered,
};

use super::chain::{self, Refusal};
use super::{AT_ONCE, ChainReply, Reader, ReservePlan, transfers_of};
use crate::ledger::{
    AccountId, AccountRow, Ledger, LedgerError, Transfer, TransferId, TransferStatus, WorkItem,
};
use crate::limiter::TigerBeetleLimiter;
use crate::limiter::codes::{gate, reading, withdrawal};
use crate::limiter::lease::{Claim, Lease, LeaseLookup};
use crate::limiter::reservation::Reservation;
use crate::limiter::table::{KnownLimit, ResolvedRequirement};
use crate::limiter::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::lock::lock;

/// How often a server looks for room that others have freed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The leases of which an attempt, not the first, has no answer. At most as many as wait, and those for which
/// a server has given up in vain for as long as it tries.
#[derive(Debug, Default)]
pub(in crate::limiter) struct UnansweredAttempts(Mutex<HashSet<LeaseId>>);

/// Who created a transfer of which a lease has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CreatedBy {
    ThisCall,
    Another,
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

impl<L: Ledger> TurnBackend for TigerBeetleLimiter<L> {
    async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        // Boxed, so that a caller that waits does not keep room for it (`WAIT-05`).
        Box::pin(self.reserve_attempt(request, turn)).await
    }

    async fn give_up(
        &self,
        request: &ReserveRequest,
        denial: Denial,
    ) -> Result<TurnAnswer, ReserveError> {
        let denied = Ok(TurnAnswer::last(Decision::Denied(denial)));
        let answer = self.refuse_for_good(request, Reader::Waiter, denied).await;
        if !matches!(answer, Err(ReserveError::Unanswered(_))) {
            self.unanswered_attempts.forget(request.lease);
        }
        answer
    }

    fn may_be_admitted(&self, lease: LeaseId) -> bool {
        self.unanswered_attempts.has(lease)
    }

    async fn return_lease(&self, request: &ReserveRequest) -> Result<Vec<LimitKey>, CompleteError> {
        Ok(Self::return_lease(self, request.lease).await?)
    }

    fn looks_every(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    async fn limits_with_room(
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

    async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let ended = self.end_lease(request.lease, &request.actuals).await?;
        Ok(ended.map(|lease| self.freed_by(&lease, &request.actuals)).unwrap_or_default())
    }

    async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        Self::renew_freeing(self, request).await
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    async fn reserve_attempt(
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

    /// Answers with this refusal once no attempt of the lease can be admitted any more, or from the lease
    /// if one was.
    async fn refuse_for_good(
        &self,
        request: &ReserveRequest,
        reader: Reader,
        refused: Result<TurnAnswer, ReserveError>,
    ) -> Result<TurnAnswer, ReserveError> {
        if self.close_gate(request.lease).await? == CreatedBy::ThisCall {
            return refused;
        }
        match self.look_up_lease(request.lease).await? {
            LeaseLookup::Denied | LeaseLookup::Unknown => refused,
            LeaseLookup::Completed => Err(ReserveError::LeaseEnded),
            LeaseLookup::Open(known) => self.reply_from_open(request, *known, reader).await,
        }
    }

    /// The answer to a first chain. If its lease waits by it, the IDs of the limits that did not refuse it
    /// are burned too: a chain is refused at its first key without room, and a repeat of this one must meet
    /// a burned ID whichever key that is then.
    pub(super) async fn burn_others(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        turn: Turn<'_>,
        answer: Result<TurnAnswer, ReserveError>,
    ) -> Result<TurnAnswer, ReserveError> {
        let denial = match &answer {
            Ok(TurnAnswer { decision, ask_again_after: Some(_), .. }) => decision.denial(),
            Ok(_) | Err(_) => None,
        };
        let Some(denial) = denial.filter(|_| turn.attempt.is_some()) else { return answer };
        let is_other = |need: &&ResolvedRequirement| !denial.keys().contains(need.limit.key());
        let others: Vec<_> = requirements.iter().filter(is_other).cloned().collect();
        if others.is_empty() {
            return answer;
        }
        let burned = self.ledger.create_transfers(chain::burn(request.lease, &others)).await;
        match chain::read_probe(&burned.map_err(unanswered)?) {
            None => answer,
            // It was denied before; or this request was sent twice, and others may be told so.
            Some(Refusal::DeniedBefore { .. }) => {
                let denied = TurnAnswer::last(Decision::Denied(denial.clone()));
                self.refuse_for_good(request, Reader::Repeat, Ok(denied)).await
            }
            Some(refusal) => self.refuse(refusal, request, &others).await,
        }
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
        let denied = || Ok(self.deny_again(&self.read_table().find(&request.requirements)?[0]));
        let known = self.reply_from_lease(request, lookup, Reader::Waiter, denied).await;
        if let Some(answer) = known {
            return answer;
        }
        match self.try_again(request, number, turn).await {
            // The earlier attempt may still arrive.
            Ok(TurnAnswer { decision, ask_again_after: Some(after), .. }) => {
                Ok(TurnAnswer::not_now(decision, after.min(RETRY_AFTER)))
            }
            Ok(allowed) if allowed.decision.is_allowed() => Ok(allowed),
            Err(ReserveError::Unanswered(unanswered)) => Err(unanswered.into()),
            refused => self.refuse_for_good(request, Reader::Waiter, refused).await,
        }
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
                self.replay(request, &requirements, Reader::Waiter).await
            }
            ReservePlan::Answered(answer) => answer,
            ReservePlan::DeniedByDefinition { otherwise, .. } => {
                let ask_again_after =
                    burns(&otherwise, turn).then_some(self.options.hints.decreasing);
                Ok(TurnAnswer { ask_again_after, ..TurnAnswer::last(otherwise?) })
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
        let ask_again_after = self.room_after(scarce.iter().copied());
        let keys = scarce.iter().map(|need| need.limit.key().clone()).collect();
        let reason = DenialReason::NoRoom { keys };
        let decision = Decision::Denied(Denial { reason, retry_after });
        Ok(Some(TurnAnswer::not_now(decision, ask_again_after)))
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
        let item = chain::attempt(self.gate_number(), number, lease, requirements);
        let transfers: Vec<_> = transfers_of(&item).skip(1).collect();
        let is_first_unanswered = self.unanswered_attempts.add(lease);
        let results = self.ledger.create_transfers(item).await;
        let may_be_applied = results.as_ref().is_err_and(LedgerError::may_be_applied);
        if is_first_unanswered && !may_be_applied {
            self.unanswered_attempts.forget(lease);
        }
        let results = results.map_err(unanswered)?;
        let (gate, results) = results.split_first().expect("one result an event");
        if gate.status.exists() {
            return self.replay(request, requirements, Reader::Waiter).await;
        }
        match chain::read(results) {
            Ok(()) => {
                if let Some(conflict) = self.conflict(lease, &transfers).await {
                    self.withdraw(lease, &transfers).await?;
                    return Err(conflict);
                }
                self.counters.lease_transfers.add(1);
                let shadow_denied = self.shadow_denied_by(requirements, results).await;
                let reply = ChainReply { transfers: &transfers, results, shadow_denied };
                Ok(TurnAnswer::admitted(self.allow(request, requirements, reply)))
            }
            // Another server, or a request that was sent twice, has burned an ID of this attempt. The
            // next one has others.
            Err(Refusal::DeniedBefore { at }) => {
                Ok(TurnAnswer::not_now(self.deny_again(&requirements[at]), AT_ONCE))
            }
            Err(refusal) => self.refuse(refusal, request, requirements).await,
        }
    }

    /// Why an attempt that was admitted does not stand: another server has admitted the lease with other
    /// requirements, of which no ID was burned when this caller began to wait, and perhaps completed it.
    /// Without an answer, what was admitted here stands.
    async fn conflict(&self, lease: LeaseId, own: &[TransferId]) -> Option<ReserveError> {
        let is_other = |held: &Reservation| !own.contains(&held.transfer);
        match self.look_up_lease(lease).await {
            Ok(LeaseLookup::Open(known)) => {
                known.reservations.iter().any(is_other).then_some(ReserveError::LeaseConflict)
            }
            Ok(LeaseLookup::Completed) => Some(ReserveError::LeaseEnded),
            Ok(LeaseLookup::Denied | LeaseLookup::Unknown) | Err(_) => None,
        }
    }

    /// Takes back what an attempt has reserved.
    async fn withdraw(&self, lease: LeaseId, reserved: &[TransferId]) -> Result<(), Unanswered> {
        let voids = reserved.iter().map(|pending| withdrawal(lease, *pending));
        let voids = voids.fold(WorkItem::new(), WorkItem::with);
        self.ledger.create_transfers(voids).await.map(drop).map_err(unanswered)
    }

    /// The first chain of a lease was denied before, because of the requirement `at`. Another attempt may
    /// have been admitted, or may still be: the gate decides.
    pub(super) async fn deny_for_good(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        at: usize,
    ) -> Result<TurnAnswer, ReserveError> {
        let lease = request.lease;
        let (gate, lookup) = try_join(self.close_gate(lease), self.look_up_lease(lease)).await?;
        let lookup = match (gate, lookup) {
            (CreatedBy::ThisCall, _) => LeaseLookup::Denied,
            // It was read before the gate was closed.
            (CreatedBy::Another, LeaseLookup::Unknown) => self.look_up_lease(lease).await?,
            (CreatedBy::Another, lookup) => lookup,
        };
        let denied = || Ok(self.deny_again(&requirements[at]));
        let reply = self.reply_from_lease(request, lookup, Reader::Repeat, denied).await;
        reply.unwrap_or_else(|| Ok(TurnAnswer::last(denied()?)))
    }

    /// Makes sure that the server that admitted a lease does not return it, since somebody else is told
    /// that it is allowed. False if it was returned before.
    pub(super) async fn keep(&self, lease: &Lease) -> Result<bool, Unanswered> {
        if lease.claim == Claim::Kept {
            return Ok(true);
        }
        match self.create_once(lease.id, reading(lease.id)).await? {
            CreatedBy::ThisCall => Ok(true),
            // Another one keeps it, or its server has returned it.
            CreatedBy::Another => {
                Ok(matches!(self.look_up_lease(lease.id).await?, LeaseLookup::Open(_)))
            }
        }
    }

    /// From now on no attempt is admitted. One was, or somebody has given up, if another created the gate.
    async fn close_gate(&self, lease: LeaseId) -> Result<CreatedBy, Unanswered> {
        self.create_marker_accounts().await?;
        self.create_once(lease, gate(lease, self.gate_number())).await
    }

    /// The number of this server in the gates that it creates.
    pub(super) fn gate_number(&self) -> u64 {
        u64::try_from(self.number >> 64).expect("64 bits")
    }

    async fn create_once(&self, lease: LeaseId, one: Transfer) -> Result<CreatedBy, Unanswered> {
        let item = WorkItem::new().with(one);
        let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
        let status = results[0].status;
        if status == TransferStatus::Created {
            return Ok(CreatedBy::ThisCall);
        }
        if status.exists() {
            return Ok(CreatedBy::Another);
        }
        tracing::error!(%lease, ?status, "tigerbeetle refused a marker unexpectedly");
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
