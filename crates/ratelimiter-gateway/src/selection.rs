//! Which destination gets a call: one that has room now, or else the first that has (`GW-08`).

use std::sync::Arc;

use futures::future::select_all;
use ratelimiter::clock::Timestamp;
use tokio::time::Instant;

use crate::admission::Asking;
use crate::attempt::{Attempt, CallContext};
use crate::destination::shuffled;
use crate::limiter::GatewayLimiter;
use crate::limits::Use;
use crate::prepared::Prepared;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// The destination that gets a call.
pub(crate) struct Chosen<L: GatewayLimiter> {
    /// Its position.
    pub(crate) at: usize,
    pub(crate) attempt: Attempt<L>,
    /// Another one, which was not tried, may have room now.
    pub(crate) has_other_now: bool,
}

impl<L: GatewayLimiter> Shared<L> {
    /// Reserves what a call needs at one of its destinations that were not `tried`; if none of them has room now, it waits for all.
    pub(crate) async fn admit_to_one(
        self: &Arc<Self>,
        prepared: &Prepared,
        tried: &[bool],
        deadline: Timestamp,
    ) -> Result<Chosen<L>, Refusal> {
        if let [_] = prepared.destinations[..] {
            return self.admit_when_open(prepared, 0, deadline).await;
        }
        let account = |at: usize| &prepared.destinations[at].context.account;
        let weights = prepared.destinations.iter().map(|destination| destination.weight);
        let mut order = shuffled(weights);
        order.retain(|at| !tried[*at]);
        // Those that fail come last.
        order.sort_by_cached_key(|at| account(*at).failing_for(Instant::now()).is_some());
        let now = self.clock.now();
        let mut refusal = None;
        for at in &order {
            match self.admit_when_open(prepared, *at, now).await {
                Ok(chosen) => return Ok(Chosen { has_other_now: order.len() > 1, ..chosen }),
                Err(refused) => refusal = Some(sooner(refusal, refused)),
            }
        }
        let left = deadline.since(now);
        // One that has just failed is asked again after its pause.
        let wait = |at: usize| {
            let failing_for = account(at).failing_for(Instant::now()).filter(|_| tried[at]);
            let pause = failing_for.unwrap_or_default();
            (pause <= left).then(|| {
                Box::pin(async move {
                    tokio::time::sleep_until(Instant::now() + pause).await;
                    self.admit_when_open(prepared, at, deadline).await
                })
            })
        };
        let mut waiting: Vec<_> = (0..prepared.destinations.len()).filter_map(wait).collect();
        // The others are dropped when one is admitted; the limiter returns what they may have got.
        while !left.is_zero() && !waiting.is_empty() {
            let (chosen, _, others) = select_all(waiting).await;
            match chosen {
                Ok(chosen) => return Ok(chosen),
                Err(refused) => refusal = Some(sooner(refusal, refused)),
            }
            waiting = others;
        }
        Err(refusal.expect("a call has a destination that was not tried"))
    }

    /// Reserves what a call needs at a destination, as soon as the provider wants calls.
    async fn admit_when_open(
        self: &Arc<Self>,
        prepared: &Prepared,
        at: usize,
        deadline: Timestamp,
    ) -> Result<Chosen<L>, Refusal> {
        let Prepared { call, tenant, started, .. } = prepared;
        let destination = &prepared.destinations[at];
        let context = &destination.context;
        self.wait_until_open(context, deadline).await?;
        let using = Use {
            estimate: context.estimate,
            certain: destination.certain,
            price: context.price.as_ref(),
            is_background: call.is_background,
        };
        let (keys, queue) = (&destination.keys, tenant.as_deref().unwrap_or_default());
        let asking = Asking { context, keys, using, queue, started: *started, deadline };
        Ok(Chosen { at, attempt: self.admit(&asking).await?, has_other_now: false })
    }

    /// Waits while the provider wants no call, unless that takes too long.
    async fn wait_until_open(
        &self,
        context: &CallContext,
        deadline: Timestamp,
    ) -> Result<(), Refusal> {
        while let Some(closed_for) = context.account.closed_for(Instant::now()) {
            if closed_for > deadline.since(self.clock.now()) {
                let settings = &self.providers[context.provider].settings;
                return Err(Refusal::closed(settings, &context.name, closed_for));
            }
            tokio::time::sleep_until(Instant::now() + closed_for).await;
        }
        Ok(())
    }
}

/// Of the refusals of several destinations, the one after which the call may go soonest.
fn sooner(earlier: Option<Refusal>, refusal: Refusal) -> Refusal {
    match earlier {
        Some(earlier) if refusal.retry_after.is_none() => earlier,
        Some(earlier)
            if earlier.retry_after.is_some() && earlier.retry_after <= refusal.retry_after =>
        {
            earlier
        }
        Some(_) | None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::refusal::RefusalKind;

    /// GW-08
    #[test]
    fn gw_08_the_refusal_that_ends_soonest_is_told() {
        let never = || Refusal::new(RefusalKind::NeverFits, "never");
        let after = |seconds| {
            Refusal::new(RefusalKind::NoRoom, "later").retry_after(Duration::from_secs(seconds))
        };
        for (refusals, expected) in [
            (vec![never(), never()], never()),
            (vec![never(), after(9)], after(9)),
            (vec![after(9), never()], after(9)),
            (vec![after(9), after(2), after(5)], after(2)),
        ] {
            let told = refusals.into_iter().fold(None, |told, next| Some(sooner(told, next)));
            assert_eq!(told, Some(expected));
        }
    }
}
