//! `POST /v1/reserve` and `/v1/reserve/batch`.

use std::future::Future;
use std::time::Duration;

use ratelimiter::{Decision, JobId, LimitKey, ReserveError, ReserveRequest, Wait};
use ratelimiter_waiting::{TimedDecision, Waiting};
use ratelimiter_wire::{ReserveAnswer, ReserveBody};

use super::call::{BatchedCall, LimiterCall};
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, OutcomeCounters, Route};

pub(super) enum Reserve {}

impl LimiterCall for Reserve {
    type Body = ReserveBody;
    type Request = ReserveRequest;
    type Answered = TimedDecision;
    type Error = ReserveError;
    type Answer = ReserveAnswer;

    const ONE: Route = Route::Reserve;

    fn wait(request: &ReserveRequest) -> Duration {
        request.wait.as_ref().map(Wait::at_most).unwrap_or_default()
    }

    fn keys(request: &ReserveRequest) -> impl Iterator<Item = &LimitKey> {
        request.requirements.iter().map(|requirement| &requirement.key)
    }

    fn call<B: HostedBackend>(
        limiter: &Waiting<B>,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<TimedDecision, ReserveError>> + Send {
        limiter.reserve(request)
    }

    fn log(request: &ReserveRequest, result: &Result<TimedDecision, ReserveError>) {
        let ReserveRequest { lease, job, requirements: _, wait: _ } = request;
        let job = job.as_ref().map(JobId::as_str);
        match result {
            Ok((Decision::Allowed { .. }, waited)) => {
                tracing::debug!(%lease, job, ?waited, "reserve allowed");
            }
            Ok((Decision::Denied(denial), waited)) => {
                tracing::debug!(%lease, job, keys = ?denial.keys(), retry_after = ?denial.retry_after, ?waited, "reserve denied");
            }
            Err(ReserveError::Unanswered(error)) => {
                tracing::warn!(%lease, job, %error, "reserve failed: no answer from the backend");
            }
            Err(error) => tracing::debug!(%lease, job, %error, "reserve refused"),
        }
    }

    fn answer(result: Result<TimedDecision, ReserveError>) -> ReserveAnswer {
        match result {
            Ok((decision, waited)) => ReserveAnswer::of(Ok(decision)).after(waited),
            Err(error) => ReserveAnswer::of(Err(error)),
        }
    }

    fn count<B: HostedBackend>(
        metrics: &Metrics,
        backend: &B,
        caller: Option<&OutcomeCounters>,
        answer: &ReserveAnswer,
    ) {
        metrics.count_reserve(caller, answer, |key| backend.metrics_key(key));
    }

    fn status_and_retry_after_ms(answer: &ReserveAnswer) -> (u16, u64) {
        (answer.http_status(), answer.retry_after_ms)
    }
}

impl BatchedCall for Reserve {
    const BATCH: Route = Route::ReserveBatch;

    fn call_batch<B: HostedBackend>(
        limiter: &Waiting<B>,
        requests: &[ReserveRequest],
    ) -> impl Future<Output = Vec<Result<TimedDecision, ReserveError>>> + Send {
        limiter.reserve_batch(requests)
    }
}
