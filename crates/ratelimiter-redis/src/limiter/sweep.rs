//! The background work: a few leases and instances at a time.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ratelimiter::{LimitKey, Unanswered};

use super::RedisLimiter;
use crate::script::ScriptName;

/// What one tick looks at.
const LEASES_MAX: usize = 500;
const INSTANCES_MAX: usize = 200;
/// Ticks between two questions how Redis is: ten seconds at a server.
const OBSERVE_EVERY: u32 = 40;

/// Where the next tick goes on.
#[derive(Debug, Default)]
pub(super) struct SweepState {
    /// The rank of the next open lease.
    rank: u64,
    /// The templates whose instances are still to be looked at; the last one is the next.
    templates: Vec<LimitKey>,
    /// The instance after which to go on.
    after: String,
    /// Ticks until Redis is asked how it is.
    observes_in: u32,
}

impl RedisLimiter {
    /// Forgets leases that have lapsed and instances that are not in use. Call it several times a second.
    pub async fn tick(&self) {
        // A failure was logged where it was noticed, and `ready` reports it.
        let _unanswered = self.sweep_some().await;
    }

    async fn sweep_some(&self) -> Result<(), Unanswered> {
        let mut state = self.sweep.lock().await;
        match state.observes_in.checked_sub(1) {
            Some(left) => state.observes_in = left,
            None => {
                state.observes_in = OBSERVE_EVERY;
                self.redis.observe().await;
            }
        }
        if state.templates.is_empty() {
            let counts = self.count_instances().await?;
            let is_gone = |(template, _): &(LimitKey, usize)| {
                self.definitions().registry.get(template).is_none()
            };
            if counts.iter().any(is_gone) {
                // A server that deleted the template has not come to the end.
                self.realign().await?;
            }
            state.templates = counts.iter().map(|(template, _)| template.clone()).collect();
            *self.instances.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        }
        let script = ScriptName::Sweep;
        let mut call = self.redis.call(script);
        self.add_memory(&mut call);
        call.arg(LEASES_MAX).arg(state.rank).arg(INSTANCES_MAX);
        call.arg(state.templates.last().map_or("", LimitKey::as_str)).arg(&state.after);
        let reply = self.redis.run(script, &call).await?;
        self.open_leases.store(reply.number(2)?, Ordering::Relaxed);
        state.rank = reply.number(3)?;
        state.after = reply.text(4)?.to_owned();
        if state.after.is_empty() {
            state.templates.pop();
        }
        Ok(())
    }

    /// The number of open leases, as of the last tick.
    pub fn open_leases(&self) -> u64 {
        self.open_leases.load(Ordering::Relaxed)
    }

    /// The number of limits made from each template, as last counted by a tick.
    pub fn instances_by_template(&self) -> Vec<(LimitKey, usize)> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
