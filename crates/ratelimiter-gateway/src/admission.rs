//! Asks the limiter whether a call may go ahead, and waits for room (`GW-06`).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actual, Actuals, CompleteRequest, Decision, Denial, DenialReason, LeaseId, ReserveError,
    ReserveRequest, Unanswered, Wait,
};
use tokio::sync::oneshot;

use crate::attempt::{Admitted, Attempt, CallContext};
use crate::limiter::GatewayLimiter;
use crate::limits::{Needs, NeedsError, ScopeKeys, Use, needs};
use crate::refusal::{Refusal, RefusalKind};
use crate::settings::OnBackendError;
use crate::settle::{AttemptEnd, Reserved};
use crate::shared::Shared;

/// How often the limits of a call are looked up again because one was deleted in between.
const LOOKUPS_MAX: usize = 3;

/// What a call asks for.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) context: &'a Arc<CallContext>,
    pub(crate) keys: &'a ScopeKeys,
    pub(crate) using: Use<'a>,
    /// Whose turn it is among those that wait.
    pub(crate) queue: &'a str,
    pub(crate) started: Timestamp,
    /// The call waits no longer than until then.
    pub(crate) deadline: Timestamp,
}

impl<L: GatewayLimiter> Shared<L> {
    /// Reserves what a call needs, and waits for room.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        asking: &Asking<'_>,
    ) -> Result<Attempt<L>, Refusal> {
        for _ in 0..LOOKUPS_MAX {
            let limits = match self.limiter.governing(&asking.keys.keys).await {
                Ok(limits) => limits,
                Err(unanswered) => return self.without_backend(asking, None, &unanswered),
            };
            let needs = needs(asking.keys, &limits, asking.using);
            let Some(needs) = needs.map_err(|error| never(asking, &error))? else {
                return Ok(self.attempt(asking, Admitted::Ungoverned, None));
            };
            match self.reserve(asking, &needs).await {
                Ok((lease, Decision::Allowed { .. })) => {
                    if let Some(timeout) = needs.hold_timeout {
                        self.renewals.add(lease, timeout);
                    }
                    let lease = Some((lease, needs.reserved));
                    return Ok(self.attempt(asking, Admitted::Limited, lease));
                }
                Ok((_, Decision::Denied(denial))) => return Err(no_room(&denial)),
                Err((_, ReserveError::UnknownKey { .. })) => {}
                Err((_, ReserveError::AmountExceedsCapacity { key })) => {
                    let message = format!(
                        "this call needs more of {key} than its whole capacity; waiting cannot help: send less, state a \
                         smaller output, or ask for a larger limit"
                    );
                    return Err(Refusal::new(RefusalKind::NeverFits, message));
                }
                Err((lease, ReserveError::Unanswered(unanswered))) => {
                    let lease = Some((lease, needs.reserved));
                    return self.without_backend(asking, lease, &unanswered);
                }
                Err((_, error)) => {
                    tracing::error!(%error, "reserve of a call failed");
                    let message = "the limiter refused the call; see the server's log";
                    return Err(Refusal::new(RefusalKind::Unavailable, message));
                }
            }
        }
        let message = "the limits of this call are being changed; send it again";
        Err(Refusal::new(RefusalKind::Unavailable, message).retry_after(Duration::from_secs(1)))
    }

    fn attempt(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        admitted: Admitted,
        lease: Option<(LeaseId, Arc<[Reserved]>)>,
    ) -> Attempt<L> {
        let waited = self.clock.now().since(asking.started);
        Attempt::new(Arc::clone(self), Arc::clone(asking.context), admitted, lease, waited)
    }

    /// Reserves at once, or else waits with another lease. Without room within the wait, as far as that is known, it is denied at once.
    async fn reserve(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        needs: &Needs,
    ) -> Result<(LeaseId, Decision), (LeaseId, ReserveError)> {
        let now = self.clock.now();
        let lease = LeaseId::generate(now);
        let request = ReserveRequest::new(lease, needs.requirements.clone());
        let reserved = Arc::clone(&needs.reserved);
        let decision = self.reserve_to_end(request, reserved).await;
        let decision = decision.map_err(|error| (lease, error))?;
        let Decision::Denied(denial) = &decision else { return Ok((lease, decision)) };
        let left = asking.deadline.since(now);
        if left.is_zero() || self.is_in_vain(denial, left) {
            return Ok((lease, decision));
        }
        let lease = LeaseId::generate(now);
        let wait = Wait::new(left, asking.queue).expect("a name of a tenant, and a minute at most");
        let request = ReserveRequest {
            wait: Some(wait),
            ..ReserveRequest::new(lease, needs.requirements.clone())
        };
        // If the caller goes away while this waits, it is dropped, and the limiter returns what it may have got.
        let decision = self.limiter.reserve(&request).await.map_err(|error| (lease, error))?;
        Ok((lease, decision))
    }

    /// Whether there will be no room within this time. A hint above the longest backoff is exact.
    fn is_in_vain(&self, denial: &Denial, left: Duration) -> bool {
        match &denial.reason {
            DenialReason::NoRoom { .. } => {
                denial.retry_after > left && denial.retry_after > self.longest_backoff
            }
            DenialReason::TooManyWaiters { .. } | DenialReason::TooManyInstances { .. } => true,
            DenialReason::Paused { .. } | DenialReason::Decreasing { .. } => false,
        }
    }

    /// Reserves; if the caller goes away meanwhile, what it got is given back.
    async fn reserve_to_end(
        self: &Arc<Self>,
        request: ReserveRequest,
        reserved: Arc<[Reserved]>,
    ) -> Result<Decision, ReserveError> {
        let shared = Arc::clone(self);
        let (sender, receiver) = oneshot::channel();
        let mut reserving = Box::pin(async move {
            let answer = shared.limiter.reserve(&request).await;
            let is_admitted =
                matches!(answer, Ok(Decision::Allowed { .. }) | Err(ReserveError::Unanswered(_)));
            if sender.send(answer).is_err() && is_admitted {
                shared.give_back(request.lease, &reserved).await;
            }
        });
        // A backend in memory answers at once.
        if (&mut reserving).now_or_never().is_none() {
            self.tasks.spawn_on(reserving, &self.runtime);
        }
        receiver.await.unwrap_or_else(|_| {
            let reason = "the request was interrupted".to_owned();
            Err(Unanswered { reason, retry_after: Duration::from_secs(1) }.into())
        })
    }

    async fn give_back(&self, lease: LeaseId, reserved: &[Reserved]) {
        let unused = reserved.iter().filter(|reserved| !reserved.is_hold);
        let nothing = unused.map(|reserved| Actual { key: reserved.key.clone(), amount: 0 });
        let actuals = Actuals::new(nothing.collect::<Vec<_>>());
        let actuals = actuals.expect("as many as the requirements, with their keys");
        let completed = self.limiter.complete(&CompleteRequest::new(lease, actuals)).await;
        if let Err(error) = completed {
            tracing::warn!(%lease, %error, "the lease of a caller that left lapses by itself");
        }
    }

    /// The backend gave no answer (`GW-15`).
    fn without_backend(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        lease: Option<(LeaseId, Arc<[Reserved]>)>,
        unanswered: &Unanswered,
    ) -> Result<Attempt<L>, Refusal> {
        tracing::warn!(reason = unanswered.reason, "no answer from the backend for a call");
        // It may have been admitted; the attempt settles it.
        let mut attempt = self.attempt(asking, Admitted::Unlimited, lease);
        if self.on_backend_error == OnBackendError::Allow {
            return Ok(attempt);
        }
        attempt.settle(AttemptEnd::NeverSent);
        let message =
            "the limiter does not answer, so no call can go ahead now; send it again later";
        let refusal = Refusal::new(RefusalKind::Unavailable, message);
        Err(refusal.retry_after(unanswered.retry_after.max(Duration::from_secs(1))))
    }
}

fn no_room(denial: &Denial) -> Refusal {
    let keys =
        denial.keys().iter().map(ratelimiter::LimitKey::as_str).collect::<Vec<_>>().join(", ");
    let message = match &denial.reason {
        DenialReason::NoRoom { .. } => format!("no room in {keys}"),
        DenialReason::Paused { .. } => format!("{keys} is paused"),
        DenialReason::Decreasing { .. } => format!("{keys} is decreasing"),
        DenialReason::TooManyInstances { template } => {
            format!("too many limits are made from {template}")
        }
        DenialReason::TooManyWaiters { .. } => format!("too many calls wait for room in {keys}"),
    };
    let message = format!("{message}; retry after {} ms", denial.retry_after_ms());
    Refusal::new(RefusalKind::NoRoom, message).retry_after(denial.retry_after)
}

fn never(asking: &Asking<'_>, error: &NeedsError) -> Refusal {
    let model = &asking.context.model;
    match error {
        NeedsError::NoPrice => {
            let message = format!(
                "no_price:{model}: a limit in dollars governs this call, and the gateway's config has no price for the model"
            );
            Refusal::new(RefusalKind::NoPrice, message)
        }
        NeedsError::TooMany { count } => {
            let message = format!("{count} limits govern this call; at most 32 may");
            Refusal::new(RefusalKind::Invalid, message)
        }
        NeedsError::NeverFits { key, amount, capacity } => {
            let message = format!(
                "this call needs at least {amount} of {key}, whose capacity is {capacity}; waiting cannot help: send less, \
                 state a smaller output, or ask for a larger limit"
            );
            Refusal::new(RefusalKind::NeverFits, message)
        }
        NeedsError::Background { key } => {
            let message = format!(
                "`background: true` cannot be counted, and {key} governs this call; send it without"
            );
            Refusal::new(RefusalKind::Invalid, message)
        }
    }
}
