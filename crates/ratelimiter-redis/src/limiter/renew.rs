//! Renew.

use ratelimiter::{
    Denial, DenialReason, LimitKey, LimitKind, RenewError, RenewRequest, Renewal, Unanswered,
};
use redis::{Cmd, Value};

use super::RedisLimiter;
use super::denial::{LackingLimit, no_room, time_of};
use super::reserve::template_key;
use crate::definitions::{Definitions, add_undefined};
use crate::reply::{Reply, text};
use crate::script::ScriptName;

impl RedisLimiter {
    /// As a renew; also returns the limits that have room again.
    pub(super) async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        // Holds that the request does not name, whose timeouts are needed.
        let mut holds: Vec<LimitKey> = Vec::new();
        loop {
            let build = |known: &Definitions, call| {
                Ok::<_, Unanswered>(self.renew_call(known, request, &holds, call))
            };
            let reply = self.ask(ScriptName::Renew, build).await?;
            let key = |at| key_of(reply.text(at)?, &reply);
            return match reply.status() {
                "lives" => {
                    holds = keys_of(reply.list(2)?, &reply)?;
                    continue;
                }
                "undefined" => {
                    let key = key(2)?;
                    if !self.has_present_definitions().await? {
                        continue;
                    }
                    Err(RenewError::UnknownKey { key })
                }
                "ended" => Err(RenewError::LeaseEnded),
                "superseded" => Err(RenewError::Superseded),
                "invalid" => Err(RenewError::InvalidAmount { key: key(2)? }),
                "over" => Err(RenewError::AmountExceedsCapacity { key: key(2)? }),
                "repeated" => Ok((self.renewal(&reply.within(2)?, Vec::new())?, Vec::new())),
                "answered" => {
                    let shadow_denied = match reply.len() {
                        0..=4 => Vec::new(),
                        _ => keys_of(reply.list(4)?, &reply)?,
                    };
                    let renewal = self.renewal(&reply.within(2)?, shadow_denied)?;
                    Ok((renewal, keys_of(reply.list(3)?, &reply)?))
                }
                _ => Err(reply.unexpected().into()),
            };
        }
    }

    fn renew_call(
        &self,
        definitions: &Definitions,
        request: &RenewRequest,
        holds: &[LimitKey],
        mut call: Cmd,
    ) -> Cmd {
        call.arg(request.lease.to_string()).arg(&definitions.generation);
        self.add_memory(&mut call);
        self.add_bounds(&mut call);
        call.arg(request.number.get()).arg(request.amounts.len());
        for amount in request.amounts.iter() {
            call.arg(amount.amount);
            match definitions.find(&amount.key) {
                Some(known) => known.add_to(&mut call, &amount.key, self.redis_now()),
                None => add_undefined(&mut call, &amount.key),
            }
        }
        for key in holds {
            let seconds = definitions.find(key).and_then(|known| match known.limit.kind {
                LimitKind::Concurrency { timeout } => Some(u64::from(timeout.seconds())),
                LimitKind::Rolling { .. } | LimitKind::Calendar { .. } => None,
            });
            call.arg(key.as_str()).arg(seconds.unwrap_or(0) * 1_000_000);
        }
        call
    }

    /// The answer to a renew, as it was stored.
    fn renewal(&self, reply: &Reply, shadow_denied: Vec<LimitKey>) -> Result<Renewal, Unanswered> {
        let retry_after = self.options.hints.decreasing;
        let key = || key_of(reply.text(2)?, reply);
        let reason = match reply.status() {
            "renewed" => {
                let lapses_at = reply.moment(2).ok_or_else(|| reply.unexpected())?;
                let renewed_at = time_of(reply)?;
                return Ok(Renewal::Renewed { renewed_at, lapses_at, shadow_denied });
            }
            "paused" => DenialReason::Paused { key: key()? },
            "decreasing" => DenialReason::Decreasing { key: key()? },
            "too_many" => {
                DenialReason::TooManyInstances { template: template_key(reply.text(2)?, reply)? }
            }
            "denied" => {
                let definitions = self.definitions();
                let named = |row: &Reply| {
                    let key = LimitKey::new(row.text(0).ok()?).ok()?;
                    let kind = definitions.find(&key).map(|known| known.limit.kind);
                    Some((key, kind))
                };
                let rows = (2..reply.len()).map(|at| LackingLimit::read(&reply.within(at)?, named));
                let lacking = rows.collect::<Result<Vec<_>, _>>()?;
                let denial = no_room(time_of(reply)?, lacking, &self.options.hints);
                return Ok(Renewal::Denied(denial));
            }
            _ => return Err(reply.unexpected()),
        };
        Ok(Renewal::Denied(Denial { reason, retry_after }))
    }
}

fn key_of(text: &str, reply: &Reply) -> Result<LimitKey, Unanswered> {
    LimitKey::new(text).map_err(|_| reply.unexpected())
}

fn keys_of(values: &[Value], reply: &Reply) -> Result<Vec<LimitKey>, Unanswered> {
    let texts = values.iter().map(|value| text(Some(value)).ok_or_else(|| reply.unexpected()));
    texts.map(|text| key_of(text?, reply)).collect()
}
