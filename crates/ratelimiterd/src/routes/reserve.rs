//! `POST /v1/reserve` and `/v1/reserve/batch`.

use std::future::Future;

use ratelimiter::{Decision, JobId, LimitKey, ReserveError, ReserveRequest};
use ratelimiter_wire::{ReserveAnswer, ReserveBody};

use super::call::LimiterCall;
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, OutcomeCounters, Route};

pub(super) enum Reserve {}

impl LimiterCall for Reserve {
    type Body = ReserveBody;
    type Request = ReserveRequest;
    type Answered = Decision;
    type Error = ReserveError;
    type Answer = ReserveAnswer;

    const ONE: Route = Route::Reserve;
    const BATCH: Route = Route::ReserveBatch;

    fn keys(request: &ReserveRequest) -> impl Iterator<Item = &LimitKey> {
        request.requirements.iter().map(|requirement| &requirement.key)
    }

    fn call<B: HostedBackend>(
        backend: &B,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Decision, ReserveError>> + Send {
        backend.reserve(request)
    }

    fn call_batch<B: HostedBackend>(
        backend: &B,
        requests: &[ReserveRequest],
    ) -> impl Future<Output = Vec<Result<Decision, ReserveError>>> + Send {
        backend.reserve_batch(requests)
    }

    fn log(request: &ReserveRequest, result: &Result<Decision, ReserveError>) {
        let ReserveRequest { lease, job, requirements: _ } = request;
        let job = job.as_ref().map(JobId::as_str);
        match result {
            Ok(Decision::Allowed { .. }) => tracing::debug!(%lease, job, "reserve allowed"),
            Ok(Decision::Denied(denial)) => {
                tracing::debug!(%lease, job, keys = ?denial.keys(), retry_after = ?denial.retry_after, "reserve denied");
            }
            Err(ReserveError::Unanswered(error)) => {
                tracing::warn!(%lease, job, %error, "reserve failed: no answer from the backend");
            }
            Err(error) => tracing::debug!(%lease, job, %error, "reserve refused"),
        }
    }

    fn answer(result: Result<Decision, ReserveError>) -> ReserveAnswer {
        ReserveAnswer::of(result)
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
