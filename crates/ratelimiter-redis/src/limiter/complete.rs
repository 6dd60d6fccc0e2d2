//! Complete, and the other ways to end a lease.

use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::{
    Actual, Actuals, CompleteError, CompleteRequest, Decision, Denial, LeaseId, LimitKey,
    ReleaseError, ReserveError, ReserveRequest, Unanswered,
};
use redis::Cmd;

use super::RedisLimiter;
use crate::definitions::{Definitions, add_undefined};
use crate::reply::{Reply, text};
use crate::script::ScriptName;

/// Why a lease is ended.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Complete,
    Release,
    /// Its callers went away before they were told of it.
    Return,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Return => "return",
        }
    }
}

impl RedisLimiter {
    /// As a complete; returns the limits that may have room again.
    pub(super) async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let CompleteRequest { lease, actuals, .. } = request;
        let reply = self.end(*lease, Purpose::Complete, actuals).await?;
        self.freed(&reply)
    }

    /// Several completes, pipelined.
    pub(super) async fn complete_many(
        &self,
        requests: &[CompleteRequest],
    ) -> Vec<Result<(), CompleteError>> {
        let build = |known: &Definitions, at: usize, _| {
            let CompleteRequest { lease, actuals, .. } = &requests[at];
            Some(self.end_call(known, *lease, Purpose::Complete, actuals))
        };
        let replies = self.ask_all(ScriptName::Complete, requests.len(), build).await;
        let answer = |reply: Option<Result<Reply, Unanswered>>| {
            let reply = reply.expect("a complete names no key that must be defined")?;
            self.freed(&reply).map(drop)
        };
        replies.into_iter().map(answer).collect()
    }

    pub(super) async fn release_lease(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        let reply = self.end(lease, Purpose::Release, &Actuals::none()).await?;
        match reply.status() {
            "ended" => Ok(()),
            "unknown" => Err(ReleaseError::UnknownLease { lease }),
            _ => Err(reply.unexpected().into()),
        }
    }

    /// Gives back all that a lease has, unless its reserve was repeated. Returns the limits that may have room again.
    pub(super) async fn return_lease(
        &self,
        lease: LeaseId,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        let reply = self.end(lease, Purpose::Return, &Actuals::none()).await?;
        match reply.status() {
            "kept" => Ok(Vec::new()),
            _ => self.freed(&reply),
        }
    }

    /// A request that waited ends without having been admitted: no attempt for its lease is admitted later, at any server. Returns this
    /// denial, unless the lease was decided meanwhile.
    pub(super) async fn give_up(
        &self,
        request: &ReserveRequest,
        denial: Denial,
    ) -> Result<TurnAnswer, ReserveError> {
        let script = ScriptName::GiveUp;
        let mut call = self.redis.call(script);
        call.arg(request.lease.to_string());
        self.add_memory(&mut call);
        let first = denial.keys().first().unwrap_or(&request.requirements[0].key);
        call.arg(first.as_str());
        let reply = self.redis.run(script, &call).await?;
        match reply.status() {
            "given_up" => Ok(TurnAnswer::last(Decision::Denied(denial))),
            // An attempt without an answer may have been admitted.
            "decided" => {
                let turn = Turn { attempt: Some(0), may_return: true, ..Turn::default() };
                let answer = self.reserve_in_turn(request, turn).await?;
                Ok(TurnAnswer { ask_again_after: None, ..answer })
            }
            _ => Err(reply.unexpected().into()),
        }
    }

    async fn end(
        &self,
        lease: LeaseId,
        purpose: Purpose,
        actuals: &Actuals,
    ) -> Result<Reply, Unanswered> {
        let build = |known: &Definitions, _| Ok(self.end_call(known, lease, purpose, actuals));
        self.ask(ScriptName::Complete, build).await
    }

    fn end_call(
        &self,
        definitions: &Definitions,
        lease: LeaseId,
        purpose: Purpose,
        actuals: &Actuals,
    ) -> Cmd {
        let mut call = self.redis.call(ScriptName::Complete);
        call.arg(lease.to_string()).arg(&definitions.generation);
        self.add_memory(&mut call);
        call.arg(purpose.name());
        for Actual { key, amount } in actuals.iter() {
            let known = definitions.find(key);
            call.arg(*amount).arg(u8::from(known.is_some_and(|known| known.is_debt())));
            match known {
                Some(known) => known.add_to(&mut call, key, self.redis_now()),
                None => add_undefined(&mut call, key),
            }
        }
        call
    }

    /// Interprets the answer to a complete; returns the limits that may have room again.
    fn freed(&self, reply: &Reply) -> Result<Vec<LimitKey>, CompleteError> {
        let key = |text: &str| LimitKey::new(text).map_err(|_| reply.unexpected());
        match reply.status() {
            "unknown" => return Ok(Vec::new()),
            "invalid" => return Err(CompleteError::InvalidActual { key: key(reply.text(2)?)? }),
            "ended" => {}
            _ => return Err(reply.unexpected().into()),
        }
        let uncovered: Vec<_> = reply.list(3)?.iter().map(|value| text(Some(value))).collect();
        for pair in uncovered.chunks_exact(2) {
            let [Some(of), Some(excess)] = pair else { return Err(reply.unexpected().into()) };
            let excess = excess.parse().map_err(|_| reply.unexpected())?;
            self.note_uncovered(&key(of)?, excess);
        }
        let freed = reply.list(2)?.iter().filter_map(|value| text(Some(value)));
        Ok(freed.map(key).collect::<Result<_, _>>()?)
    }

    /// Counts use that no reservation covered: of an instance for its template.
    fn note_uncovered(&self, key: &LimitKey, excess: u64) {
        let definitions = self.definitions();
        match definitions.find(key).and_then(|known| known.template().cloned()) {
            Some(template) => definitions.templates.note_uncovered(&template, excess),
            None => *self.lock_uncovered().entry(key.clone()).or_default() += u128::from(excess),
        }
    }
}
