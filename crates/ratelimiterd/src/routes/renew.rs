//! `POST /v1/renew`.

use std::future::Future;
use std::time::Duration;

use ratelimiter::{Denial, DenialReason, KeyPattern, LimitKey, RenewError, RenewRequest, Renewal};
use ratelimiter_waiting::Waiting;
use ratelimiter_wire::{RenewAnswer, RenewBody};

use super::call::LimiterCall;
use crate::auth::Caller;
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, OutcomeCounters, Route};

pub(super) enum Renew {}

impl LimiterCall for Renew {
    type Body = RenewBody;
    type Request = RenewRequest;
    type Answered = Renewal;
    type Error = RenewError;
    type Answer = RenewAnswer;

    const ONE: Route = Route::Renew;

    fn wait(_: &RenewRequest) -> Duration {
        Duration::ZERO
    }

    fn keys(request: &RenewRequest) -> impl Iterator<Item = &LimitKey> {
        request.amounts.iter().map(|amount| &amount.key)
    }

    fn call<B: HostedBackend>(
        limiter: &Waiting<B>,
        request: &RenewRequest,
    ) -> impl Future<Output = Result<Renewal, RenewError>> + Send {
        limiter.renew(request)
    }

    /// `OPS-04`: a repeated number gets its first denial, whatever keys the repeat names.
    fn shown_to(caller: &Caller, request: &RenewRequest, renewal: Renewal) -> Renewal {
        match renewal {
            Renewal::Denied(Denial { reason, retry_after }) if caller.keys().is_some() => {
                let reason = reason_shown_to(caller, request, reason);
                Renewal::Denied(Denial { reason, retry_after })
            }
            renewal @ (Renewal::Renewed { .. } | Renewal::Denied(_)) => renewal,
        }
    }

    fn log(request: &RenewRequest, result: &Result<Renewal, RenewError>) {
        let RenewRequest { lease, number, amounts: _ } = request;
        let number = number.get();
        match result {
            Ok(Renewal::Renewed { .. }) => tracing::debug!(%lease, number, "renew done"),
            Ok(Renewal::Denied(denial)) => {
                tracing::debug!(%lease, number, keys = ?denial.keys(), retry_after = ?denial.retry_after, "renew denied");
            }
            Err(RenewError::Unanswered(error)) => {
                tracing::warn!(%lease, number, %error, "renew failed: no answer from the backend");
            }
            Err(error) => tracing::debug!(%lease, number, %error, "renew refused"),
        }
    }

    fn answer(result: Result<Renewal, RenewError>) -> RenewAnswer {
        RenewAnswer::of(result)
    }

    fn count<B: HostedBackend>(
        metrics: &Metrics,
        backend: &B,
        caller: Option<&OutcomeCounters>,
        answer: &RenewAnswer,
    ) {
        metrics.count_renew(caller, answer, |key| backend.metrics_key(key));
    }

    fn status_and_retry_after_ms(answer: &RenewAnswer) -> (u16, u64) {
        (answer.http_status(), answer.retry_after_ms)
    }
}

/// Why a renew was denied, without the keys that its caller may not see.
fn reason_shown_to(caller: &Caller, request: &RenewRequest, reason: DenialReason) -> DenialReason {
    let is_shown = match &reason {
        DenialReason::NoRoom { keys } | DenialReason::TooManyWaiters { keys } => {
            keys.iter().all(|key| caller.may_use(key))
        }
        DenialReason::Paused { key } | DenialReason::Decreasing { key } => caller.may_use(key),
        DenialReason::TooManyInstances { template } => KeyPattern::new(template)
            .is_ok_and(|template| request.amounts.iter().any(|new| template.matches(&new.key))),
    };
    if is_shown {
        return reason;
    }
    let keys = match reason {
        DenialReason::NoRoom { keys } | DenialReason::TooManyWaiters { keys } => keys,
        DenialReason::Paused { .. }
        | DenialReason::Decreasing { .. }
        | DenialReason::TooManyInstances { .. } => Vec::new(),
    };
    DenialReason::NoRoom { keys: keys.into_iter().filter(|key| caller.may_use(key)).collect() }
}
