//! Reserve: answered locally where possible, otherwise one chain (`TB-03`).

mod batch;
mod chain;
mod shadow;
mod turns;

use std::time::Duration;

use futures::future::try_join;
use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::{
    Decision, Denial, DenialReason, LimitKey, ReserveError, ReserveRequest, Unanswered,
};

pub(super) use self::batch::PartSize;
use self::chain::Refusal;
pub(super) use self::turns::UnansweredAttempts;
use super::TigerBeetleLimiter;
use super::due_instances::{InstanceClaim, first_error};
use super::lease::{Claim, Lease, LeaseLookup};
use super::table::ResolvedRequirement;
use super::unanswered::{RETRY_AFTER, unanswered, unexpected_status};
use crate::ledger::{Ledger, TransferId, TransferResult, WorkItem};

/// Retry hint for a lease that was denied long ago: a new lease ID may be tried at once.
pub(super) const AT_ONCE: Duration = Duration::from_millis(1);

/// The most times that one reserve is planned: again once instances were made or periods have begun,
/// and if a period ends or an instance is forgotten meanwhile.
const PLANS_MAX: usize = 6;

/// How a reserve is answered.
pub(super) enum ReservePlan {
    /// Send the chain. The requirements are sorted by key.
    SendChain(Vec<ResolvedRequirement>),
    /// The lease was allowed here. Another server may have completed it, so ask the ledger.
    Replay(Vec<ResolvedRequirement>),
    /// The periods of these calendar limits have ended: begin the next ones, and plan again.
    BeginPeriods(Vec<LimitKey>),
    /// Templates match some of these keys, and their limits are not ready: make them, and plan again.
    MakeInstances(Vec<ResolvedRequirement>),
    /// This is the answer.
    Answered(Result<TurnAnswer, ReserveError>),
    /// The definitions deny a new lease, so only an existing one can be allowed (`RES-06`).
    DeniedByDefinition {
        requirements: Vec<ResolvedRequirement>,
        /// The answer if the lease is unknown.
        otherwise: Result<Decision, ReserveError>,
    },
}

/// What a reserve needs whose limits are not all ready.
pub(super) enum NeededInstances<'a> {
    /// Check these, and plan it again.
    Check(InstanceClaim<'a>),
    /// Nothing: this answers it.
    None(ReservePlan),
}

/// For whom a lease is read that may have been admitted before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    /// For a caller that waits: an attempt for it may have had no answer.
    Waiter,
    /// For one that repeats its request, perhaps at another server.
    Repeat,
}

/// The ledger's reply to a chain.
struct ChainReply<'a> {
    transfers: &'a [TransferId],
    results: &'a [TransferResult],
    /// The limits in shadow mode that would have denied it, in any order.
    shadow_denied: Vec<LimitKey>,
}

impl<L: Ledger> TigerBeetleLimiter<L> {
    pub(super) async fn reserve_one(
        &self,
        request: &ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        Ok(self.reserve_first(request, Turn::default()).await?.decision)
    }

    /// The first attempt of a lease.
    async fn reserve_first(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        let plan = match turn.behind {
            Some(key) => self.plan_behind(request, key)?,
            None => self.plan_in_course(request, turn).await?,
        };
        match plan {
            ReservePlan::SendChain(requirements) => {
                let item = chain::first(request.lease, &requirements, turn.may_return);
                let transfers: Vec<_> = transfers_of(&item).collect();
                let results = self.ledger.create_transfers(item).await.map_err(unanswered)?;
                let reply = ChainReply {
                    shadow_denied: self.shadow_denied_by(&requirements, &results).await,
                    transfers: &transfers,
                    results: &results,
                };
                let answer = self.interpret_reply(request, &requirements, reply).await;
                self.burn_others(request, &requirements, turn, answer).await
            }
            ReservePlan::Replay(requirements) => {
                self.replay(request, &requirements, Reader::Repeat).await
            }
            ReservePlan::Answered(answer) => answer,
            ReservePlan::BeginPeriods(_) | ReservePlan::MakeInstances(_) => {
                unreachable!("they have begun, and were made")
            }
            ReservePlan::DeniedByDefinition { requirements, otherwise } => {
                let is_burned = turns::burns(&otherwise, turn);
                let probe = match is_burned {
                    true => chain::burn(request.lease, &requirements),
                    false => chain::probe(request.lease, &requirements),
                };
                let existing = self.find_existing_lease(request, &requirements, probe).await;
                existing.unwrap_or_else(|| {
                    let may_ask_again = is_burned && turn.attempt.is_some();
                    let ask_again_after = may_ask_again.then_some(self.options.hints.decreasing);
                    Ok(TurnAnswer { ask_again_after, ..TurnAnswer::last(otherwise?) })
                })
            }
        }
    }

    /// As [`plan_reserve`](Self::plan_reserve), after the instances that are needed were made and the
    /// periods have begun.
    async fn plan_in_course(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<ReservePlan, ReserveError> {
        for _ in 0..PLANS_MAX {
            match self.plan_reserve(request)? {
                ReservePlan::BeginPeriods(keys) => self.begin_periods(keys).await?,
                ReservePlan::MakeInstances(requirements) => {
                    match self.needed_instances(request, requirements, turn).await? {
                        NeededInstances::Check(claim) => {
                            first_error(self.check_instances(&claim.keys).await)?;
                        }
                        NeededInstances::None(plan) => return Ok(plan),
                    }
                }
                plan @ (ReservePlan::SendChain(_)
                | ReservePlan::Replay(_)
                | ReservePlan::Answered(_)
                | ReservePlan::DeniedByDefinition { .. }) => return Ok(plan),
            }
        }
        let reason = "the limits change as soon as they are known".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER }.into())
    }

    /// Tries a lease without the limits that are not ready, so that none is made for a lease that is
    /// denied anyhow. Nothing is reserved. Returns the answer if it is known then.
    pub(super) async fn try_ready_limits(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        turn: Turn<'_>,
    ) -> Result<Option<Result<TurnAnswer, ReserveError>>, Unanswered> {
        let now = self.cluster_now();
        let is_ready = |need: &&ResolvedRequirement| {
            need.limit.is_made() && !need.limit.account.has_ended(now)
        };
        let mut ready: Vec<_> = requirements.iter().filter(is_ready).cloned().collect();
        if ready.is_empty() {
            return Ok(None);
        }
        ready.sort_unstable_by(|a, b| a.limit.key().cmp(b.limit.key()));
        if turns::number(turn).is_some() {
            return Ok(self.deny_scarce(&ready).await?.map(Ok));
        }
        let trial = chain::trial(request.lease, &ready);
        let results = self.ledger.create_transfers(trial).await.map_err(unanswered)?;
        Ok(match chain::read_trial(&results) {
            None => None,
            Some(Refusal::Known) => Some(self.replay(request, requirements, Reader::Repeat).await),
            Some(Refusal::DeniedBefore { at }) => {
                let is_it = |need: &ResolvedRequirement| need.limit.key() == ready[at].limit.key();
                let at = requirements.iter().position(is_it).expect("it is one of them");
                Some(self.deny_for_good(request, requirements, at).await)
            }
            Some(refusal) => {
                let answer = self.refuse(refusal, request, &ready).await;
                Some(self.burn_others(request, requirements, turn, answer).await)
            }
        })
    }

    /// Answers locally where possible; otherwise plans the ledger request.
    fn plan_reserve(&self, request: &ReserveRequest) -> Result<ReservePlan, ReserveError> {
        let mut requirements = self.read_table().find(&request.requirements)?;
        if self.cache.has(request.lease) {
            return Ok(ReservePlan::Replay(requirements));
        }
        if requirements.iter().any(|need| !need.limit.is_made()) {
            return Ok(ReservePlan::MakeInstances(requirements));
        }
        let ended = self.ended_periods(&requirements);
        if !ended.is_empty() {
            return Ok(ReservePlan::BeginPeriods(ended));
        }
        if let Some(otherwise) = self.refuse_by_definition(&requirements) {
            return Ok(ReservePlan::DeniedByDefinition { requirements, otherwise });
        }
        self.reject_when_expiry_lags()?;
        requirements.sort_unstable_by(|a, b| a.limit.key().cmp(b.limit.key()));
        Ok(ReservePlan::SendChain(requirements))
    }

    /// The calendar limits whose last known period has ended.
    fn ended_periods(&self, requirements: &[ResolvedRequirement]) -> Vec<LimitKey> {
        let mut calendar =
            requirements.iter().filter(|need| need.limit.account.ends_at.is_some()).peekable();
        if calendar.peek().is_none() {
            return Vec::new();
        }
        let now = self.cluster_now();
        let ended = calendar.filter(|need| need.limit.account.has_ended(now));
        ended.map(|need| need.limit.key().clone()).collect()
    }

    /// The refusal by the definitions alone, in the order of the checks; `None` if there may be
    /// room.
    pub(super) fn refuse_by_definition(
        &self,
        requirements: &[ResolvedRequirement],
    ) -> Option<Result<Decision, ReserveError>> {
        if let Some(requirement) =
            requirements.iter().find(|requirement| requirement.limit.is_paused())
        {
            let reason = DenialReason::Paused { key: requirement.limit.key().clone() };
            return Some(Ok(self.deny_closed(reason)));
        }
        if let Some(requirement) =
            requirements.iter().find(|requirement| requirement.exceeds_capacity())
        {
            let key = requirement.limit.key().clone();
            return Some(Err(ReserveError::AmountExceedsCapacity { key }));
        }
        let decreasing =
            requirements.iter().find(|requirement| requirement.limit.is_decreasing())?;
        Some(Ok(self.deny_decreasing(decreasing)))
    }

    /// Interprets the ledger's reply to a chain.
    async fn interpret_reply(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        reply: ChainReply<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        match chain::read(reply.results) {
            Ok(()) => Ok(TurnAnswer::admitted(self.allow(request, requirements, reply))),
            Err(refusal) => self.refuse(refusal, request, requirements).await,
        }
    }

    /// Maps a failed chain to the answer.
    async fn refuse(
        &self,
        refusal: Refusal,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
    ) -> Result<TurnAnswer, ReserveError> {
        match refusal {
            Refusal::NoRoom { at } => {
                let streak = requirements[at].limit.counts.record_denial();
                let denied = self.deny(&requirements[at], streak);
                Ok(TurnAnswer::not_now(denied, self.room_after([&requirements[at]])))
            }
            Refusal::DeniedBefore { at } => self.deny_for_good(request, requirements, at).await,
            Refusal::Decreasing { at } => {
                let denied = self.deny_decreasing(&requirements[at]);
                Ok(TurnAnswer::not_now(denied, self.options.hints.decreasing))
            }
            Refusal::Known => self.replay(request, requirements, Reader::Repeat).await,
            Refusal::Unexpected(status) => {
                let (lease, reason) = (request.lease, unexpected_status("reserve", status));
                tracing::error!(%lease, ?status, "tigerbeetle refused a reserve unexpectedly");
                Err(reason.into())
            }
        }
    }

    fn allow(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        ChainReply { transfers, results, mut shadow_denied }: ChainReply<'_>,
    ) -> Decision {
        let now = self.options.clock.now();
        for requirement in requirements {
            requirement.limit.counts.record_allow();
            requirement.limit.record_use(now);
        }
        self.time.observe(results, now);
        let created_at = results.iter().map(|result| result.timestamp);
        let transfers = transfers.iter().copied().zip(created_at);
        let lease = Lease::allowed(request.lease, requirements, transfers);
        let reserved_at = lease.reserved_at;
        self.counters.leases_allowed.add(1);
        self.counters.lease_transfers.add(results.len() as u64);
        self.cache.insert(lease);
        shadow_denied.sort_by_key(|key| request.requirements.iter().position(|r| r.key == *key));
        Decision::Allowed { reserved_at, shadow_denied }
    }

    /// The lease exists, or may exist: the ledger decides.
    async fn replay(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        reader: Reader,
    ) -> Result<TurnAnswer, ReserveError> {
        let lookup = self.look_up_lease(request.lease).await?;
        let denied = || Ok(self.deny_again(&requirements[0]));
        self.reply_from_lease(request, lookup, reader, denied).await.unwrap_or_else(|| {
            // Two leases would have to agree in 80 bits of a hash and in a millisecond.
            let lease = request.lease;
            tracing::error!(%lease, "transfers of the lease exist with other user data");
            Err(ReserveError::LeaseConflict)
        })
    }

    /// The answer for a lease that the ledger knows; `None` if it was never allowed.
    async fn reply_from_lease(
        &self,
        request: &ReserveRequest,
        lookup: LeaseLookup,
        reader: Reader,
        denied: impl FnOnce() -> Result<Decision, ReserveError>,
    ) -> Option<Result<TurnAnswer, ReserveError>> {
        match lookup {
            LeaseLookup::Open(known) => Some(self.reply_from_open(request, *known, reader).await),
            LeaseLookup::Completed => {
                self.cache.remove(request.lease);
                Some(Err(ReserveError::LeaseEnded))
            }
            LeaseLookup::Denied => Some(denied().map(TurnAnswer::last)),
            LeaseLookup::Unknown => None,
        }
    }

    async fn reply_from_open(
        &self,
        request: &ReserveRequest,
        known: Lease,
        reader: Reader,
    ) -> Result<TurnAnswer, ReserveError> {
        let own = Claim::Returnable { by: Some(self.gate_number()) };
        let is_new = reader == Reader::Waiter && known.claim == own;
        let decision = match known.replay(&request.requirements, self.cluster_now()) {
            // It was admitted without an answer, and a part has expired: nobody holds the others.
            Err(ReserveError::LeaseEnded) if is_new => {
                self.return_lease(request.lease).await?;
                return Err(ReserveError::LeaseEnded);
            }
            decision => decision?,
        };
        if !is_new && !self.keep(&known).await? {
            self.cache.remove(request.lease);
            return Err(ReserveError::LeaseEnded);
        }
        self.cache.insert(known);
        Ok(TurnAnswer { is_new, ..TurnAnswer::last(decision) })
    }

    /// A lease that was allowed or denied before, perhaps at another server, gets the same answer
    /// even if its limits have changed since (`RES-06`). An allowed lease has transfers; a denied
    /// one has burned an ID, and may have a gate. Neither check changes anything, unless the probe
    /// burns an ID. `None` if the lease is unknown.
    async fn find_existing_lease(
        &self,
        request: &ReserveRequest,
        requirements: &[ResolvedRequirement],
        probe: WorkItem,
    ) -> Option<Result<TurnAnswer, ReserveError>> {
        let probe = async { self.ledger.create_transfers(probe).await.map_err(unanswered) };
        let (lookup, probed) = match try_join(self.look_up_lease(request.lease), probe).await {
            Ok(seen) => seen,
            Err(unanswered) => return Some(Err(unanswered.into())),
        };
        let probed = chain::read_probe(&probed);
        let at = if let Some(Refusal::DeniedBefore { at }) = probed { at } else { 0 };
        let denied = || Ok(self.deny_again(&requirements[at]));
        let reply = self.reply_from_lease(request, lookup, Reader::Repeat, denied).await;
        match reply {
            Some(answer) => Some(answer),
            None => Some(self.refuse(probed?, request, requirements).await),
        }
    }

    pub(super) fn deny(&self, requirement: &ResolvedRequirement, streak: u32) -> Decision {
        no_room(requirement, self.hint(requirement, streak))
    }

    /// The backoff after so many denials in a row; at most until the period ends.
    fn hint(&self, requirement: &ResolvedRequirement, streak: u32) -> Duration {
        let kind = requirement.limit.registered.limit.kind;
        let backoff = self.options.hints.delay(kind, streak, self.random_f64());
        let reset_after = self.reset_after(requirement);
        reset_after.map_or(backoff, |reset_after| backoff.min(reset_after))
    }

    /// When the period of a calendar limit ends.
    fn reset_after(&self, requirement: &ResolvedRequirement) -> Option<Duration> {
        let ends_at = requirement.limit.account.ends_at?;
        Some(ends_at.since(self.cluster_now()).max(AT_ONCE))
    }

    /// Denied before: the hint uses the key's current streak of denials, if there is one.
    pub(super) fn deny_again(&self, requirement: &ResolvedRequirement) -> Decision {
        match requirement.limit.counts.denial_streak() {
            0 => no_room(requirement, AT_ONCE),
            streak => self.deny(requirement, streak),
        }
    }

    pub(super) fn deny_decreasing(&self, requirement: &ResolvedRequirement) -> Decision {
        self.deny_closed(DenialReason::Decreasing { key: requirement.limit.key().clone() })
    }

    /// Denied by a definition: the hint is fixed (`HINT-04`).
    pub(super) fn deny_closed(&self, reason: DenialReason) -> Decision {
        Decision::Denied(Denial { reason, retry_after: self.options.hints.decreasing })
    }
}

fn no_room(requirement: &ResolvedRequirement, retry_after: Duration) -> Decision {
    let reason = DenialReason::NoRoom { keys: vec![requirement.limit.key().clone()] };
    Decision::Denied(Denial { reason, retry_after })
}

/// The IDs of an item's transfers, in order.
fn transfers_of(item: &WorkItem) -> impl Iterator<Item = TransferId> {
    item.events().iter().map(|event| event.transfer.id)
}
