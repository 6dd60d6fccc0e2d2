//! `POST /v1/complete` and `/v1/complete/batch`.

use std::future::Future;
use std::time::Duration;

use ratelimiter::{CompleteError, CompleteRequest, JobId, LimitKey};
use ratelimiter_waiting::Waiting;
use ratelimiter_wire::{CompleteAnswer, CompleteBody};

use super::call::{BatchedCall, LimiterCall};
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, OutcomeCounters, Route};

pub(super) enum Complete {}

impl LimiterCall for Complete {
    type Body = CompleteBody;
    type Request = CompleteRequest;
    type Answered = ();
    type Error = CompleteError;
    type Answer = CompleteAnswer;

    const ONE: Route = Route::Complete;

    fn wait(_: &CompleteRequest) -> Duration {
        Duration::ZERO
    }

    fn keys(request: &CompleteRequest) -> impl Iterator<Item = &LimitKey> {
        request.actuals.iter().map(|actual| &actual.key)
    }

    fn call<B: HostedBackend>(
        limiter: &Waiting<B>,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<(), CompleteError>> + Send {
        limiter.complete(request)
    }

    fn log(request: &CompleteRequest, result: &Result<(), CompleteError>) {
        let CompleteRequest { lease, job, actuals: _ } = request;
        let job = job.as_ref().map(JobId::as_str);
        match result {
            Ok(()) => tracing::debug!(%lease, job, "complete done"),
            Err(CompleteError::Unanswered(error)) => {
                tracing::warn!(%lease, job, %error, "complete failed: no answer from the backend");
            }
            Err(error) => tracing::debug!(%lease, job, %error, "complete refused"),
        }
    }

    fn answer(result: Result<(), CompleteError>) -> CompleteAnswer {
        CompleteAnswer::of(result)
    }

    fn count<B: HostedBackend>(
        metrics: &Metrics,
        _: &B,
        caller: Option<&OutcomeCounters>,
        answer: &CompleteAnswer,
    ) {
        metrics.count_complete(caller, answer);
    }

    fn status_and_retry_after_ms(answer: &CompleteAnswer) -> (u16, u64) {
        (answer.http_status(), answer.retry_after_ms.unwrap_or(0))
    }
}

impl BatchedCall for Complete {
    const BATCH: Route = Route::CompleteBatch;

    fn call_batch<B: HostedBackend>(
        limiter: &Waiting<B>,
        requests: &[CompleteRequest],
    ) -> impl Future<Output = Vec<Result<(), CompleteError>>> + Send {
        limiter.complete_batch(requests)
    }
}
