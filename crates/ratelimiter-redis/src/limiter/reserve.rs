//! Reserve.

use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Decision, Denial, DenialReason, LimitKey, LimitKind, Requirement, ReserveError, ReserveRequest,
    Unanswered,
};
use redis::Cmd;

use super::RedisLimiter;
use super::denial::{AT_ONCE, LackingLimit, no_room, time_of};
use crate::definitions::Definitions;
use crate::reply::Reply;
use crate::script::ScriptName;

impl RedisLimiter {
    pub(super) async fn reserve_one(
        &self,
        request: &ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        self.reserve_in_turn(request, Turn::default()).await.map(|answer| answer.decision)
    }

    pub(super) async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        if !turn.may_return {
            return self.try_reserve(request, turn).await;
        }
        let answer = self.try_reserve(request, turn).await;
        let mut unanswered = self.lock_unanswered();
        match &answer {
            Err(ReserveError::Unanswered(_)) => unanswered.insert(request.lease),
            _ => unanswered.remove(&request.lease),
        };
        answer
    }

    async fn try_reserve(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        loop {
            let build = |known: &Definitions, call| self.reserve_call(known, request, turn, call);
            match self.ask(ScriptName::Reserve, build).await {
                Err(ReserveError::UnknownKey { key }) => {
                    if self.has_present_definitions().await? {
                        return Err(ReserveError::UnknownKey { key });
                    }
                }
                reply => {
                    let mut answer = self.decide(request, &reply?)?;
                    answer.ask_again_after.take_if(|_| turn.attempt.is_none());
                    return Ok(answer);
                }
            }
        }
    }

    /// Several reserves, pipelined.
    pub(super) async fn reserve_many(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let build = |known: &Definitions, at: usize, call| {
            self.reserve_call(known, &requests[at], Turn::default(), call).ok()
        };
        let replies = self.ask_all(ScriptName::Reserve, requests.len(), build).await;
        let mut answers = Vec::with_capacity(requests.len());
        for (request, reply) in requests.iter().zip(replies) {
            answers.push(match reply {
                Some(reply) => match reply {
                    Ok(reply) => self.decide(request, &reply).map(|answer| answer.decision),
                    Err(unanswered) => Err(unanswered.into()),
                },
                // A key is not defined, as far as is known.
                None => self.reserve_one(request).await,
            });
        }
        answers
    }

    /// The bytes that a reserve sends, for a benchmark that sends them by itself. `None` if a key is not defined, as far as is known.
    #[doc(hidden)]
    pub fn packed_reserve(&self, request: &ReserveRequest) -> Option<Vec<u8>> {
        let call = self.redis.call(ScriptName::Reserve);
        let call = self.reserve_call(&self.definitions(), request, Turn::default(), call).ok()?;
        Some(call.get_packed_command())
    }

    fn reserve_call(
        &self,
        definitions: &Definitions,
        request: &ReserveRequest,
        turn: Turn<'_>,
        mut call: Cmd,
    ) -> Result<Cmd, ReserveError> {
        let behind = turn.behind.and_then(|behind| {
            request.requirements.iter().position(|need| need.key == *behind).map(|at| at + 1)
        });
        call.arg(request.lease.to_string()).arg(&definitions.generation);
        self.add_memory(&mut call);
        self.add_bounds(&mut call);
        call.arg(behind.unwrap_or(0))
            .arg(u8::from(turn.attempt.is_some()))
            .arg(if turn.may_return { self.name.as_str() } else { "" })
            .arg(request.job.as_ref().map_or("", |job| job.as_str()))
            .arg(u8::from(turn.may_return && self.lock_unanswered().contains(&request.lease)));
        let now = self.redis_now();
        for Requirement { key, amount } in request.requirements.iter() {
            let known = definitions.find(key);
            let known = known.ok_or_else(|| ReserveError::UnknownKey { key: key.clone() })?;
            call.arg(amount.get());
            known.add_to(&mut call, key, now);
        }
        Ok(call)
    }

    /// Interprets the answer to a reserve.
    fn decide(&self, request: &ReserveRequest, reply: &Reply) -> Result<TurnAnswer, ReserveError> {
        let key = |at: usize| -> Result<LimitKey, Unanswered> {
            let index = usize::try_from(reply.number(at)?).unwrap_or(0);
            let need = index.checked_sub(1).and_then(|at| request.requirements.get(at));
            need.map(|need| need.key.clone()).ok_or_else(|| reply.unexpected())
        };
        let retry_after = self.options.hints.decreasing;
        let reason = match reply.status() {
            "allowed" => {
                let reserved_at = reply.moment(2).ok_or_else(|| reply.unexpected())?;
                let shadow_denied = (4..reply.len()).map(key).collect::<Result<_, _>>()?;
                let decision = Decision::Allowed { reserved_at, shadow_denied };
                let is_new = reply.number(3)? == 1;
                return Ok(TurnAnswer { decision, ask_again_after: None, is_new });
            }
            "ended" => return Err(ReserveError::LeaseEnded),
            "conflict" => return Err(ReserveError::LeaseConflict),
            "over" => return Err(ReserveError::AmountExceedsCapacity { key: key(2)? }),
            "too_many" => {
                let template = template_key(reply.text(2)?, reply)?;
                let reason = DenialReason::TooManyInstances { template };
                return Ok(last(Denial { reason, retry_after }));
            }
            "denied_before" => {
                let reason = DenialReason::NoRoom { keys: vec![key(2)?] };
                return Ok(last(Denial { reason, retry_after: AT_ONCE }));
            }
            "paused" => DenialReason::Paused { key: key(3)? },
            "decreasing" => DenialReason::Decreasing { key: key(3)? },
            "denied" => {
                let denial = self.full(request, reply)?;
                return self.not_now(reply, denial);
            }
            "denied_again" => return Ok(last(self.full(request, reply)?)),
            _ => return Err(reply.unexpected().into()),
        };
        self.not_now(reply, Denial { reason, retry_after })
    }

    /// A denial for lack of room.
    fn full(&self, request: &ReserveRequest, reply: &Reply) -> Result<Denial, Unanswered> {
        let definitions = self.definitions();
        let named = |row: &Reply| -> Option<(LimitKey, Option<LimitKind>)> {
            let index = usize::try_from(row.number(0).ok()?).ok()?.checked_sub(1)?;
            let key = &request.requirements.get(index)?.key;
            // If the definition has gone meanwhile, any backoff will do.
            let kind = definitions.find(key).map(|known| known.limit.kind);
            Some((key.clone(), kind))
        };
        let rows = (3..reply.len()).map(|at| LackingLimit::read(&reply.within(at)?, named));
        let lacking = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(no_room(time_of(reply)?, lacking, &self.options.hints))
    }

    /// A denial that asking again with the same lease may change, if the caller waits.
    fn not_now(&self, reply: &Reply, denial: Denial) -> Result<TurnAnswer, ReserveError> {
        let now = time_of(reply)?;
        let lapse = reply.moment(2).map(|moment: Timestamp| moment.since(now));
        let lapse = lapse.or(Some(self.options.hints.decreasing));
        let decision = Decision::Denied(denial);
        Ok(TurnAnswer { decision, ask_again_after: lapse, is_new: false })
    }
}

fn last(denial: Denial) -> TurnAnswer {
    TurnAnswer::last(Decision::Denied(denial))
}

pub(super) fn template_key(text: &str, reply: &Reply) -> Result<LimitKey, Unanswered> {
    LimitKey::new(text).map_err(|_| reply.unexpected())
}
