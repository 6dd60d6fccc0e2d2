//! `POST /v1/reserve` and its batch.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use ratelimiter::{Decision, LeaseId, Limiter, ReserveError, ReserveRequest};
use ratelimiter_wire::{BatchAnswer, Refusal, ReserveAnswer, ReserveBody, read, read_batch};

use super::App;
use crate::answer;
use crate::auth::Need;
use crate::hosted::HostedBackend;
use crate::metrics::Route;

pub(super) async fn one<B: HostedBackend>(
    State(app): State<Arc<App<B>>>,
    request: Request,
) -> Response {
    let started = app.metrics.start();
    let answer = answer_one(&app, request).await;
    app.metrics.count_reserve(&answer);
    app.metrics.stop(Route::Reserve, started);
    answer::json_with_hint(answer.http_status(), answer.retry_after_ms, &answer)
}

async fn answer_one<B: HostedBackend>(app: &App<B>, request: Request) -> ReserveAnswer {
    let read = match app.admit(request, Need::Client).await {
        Ok((_, bytes)) => read::<ReserveBody>(&bytes),
        Err(refusal) => Err(refusal),
    };
    match read {
        Ok(request) => {
            let result = app.within_time(app.backend.reserve(&request)).await;
            tell(&request, &result);
            ReserveAnswer::of(result)
        }
        Err(refusal) => refusal.into(),
    }
}

pub(super) async fn batch<B: HostedBackend>(
    State(app): State<Arc<App<B>>>,
    request: Request,
) -> Response {
    let started = app.metrics.start();
    let response = match answer_batch(&app, request).await {
        Ok(answer) => answer::json(200, &answer),
        Err(refusal) => answer::error(&refusal.into()),
    };
    app.metrics.stop(Route::ReserveBatch, started);
    response
}

async fn answer_batch<B: HostedBackend>(
    app: &App<B>,
    request: Request,
) -> Result<BatchAnswer<ReserveAnswer>, Refusal> {
    let (_, bytes) = app.admit(request, Need::Client).await?;
    let items = read_batch::<ReserveBody>(&bytes)?;
    let requests: Vec<ReserveRequest> = items.iter().flatten().cloned().collect();
    let asked = async { Ok::<_, ReserveError>(app.backend.reserve_batch(&requests).await) };
    let mut decided = match app.within_time(asked).await {
        Ok(results) => results.into_iter(),
        Err(error) => vec![Err(error); requests.len()].into_iter(),
    };
    let answer = |item: Result<ReserveRequest, Refusal>| match item {
        Ok(request) => {
            let result = decided.next().expect("a backend answers each request of a batch");
            tell(&request, &result);
            ReserveAnswer::of(result)
        }
        Err(refusal) => refusal.into(),
    };
    let results: Vec<_> = items.into_iter().map(answer).collect();
    for answer in &results {
        app.metrics.count_reserve(answer);
    }
    Ok(BatchAnswer { results })
}

fn tell(request: &ReserveRequest, result: &Result<Decision, ReserveError>) {
    let ReserveRequest { lease, job, requirements: _ } = request;
    let lease: &LeaseId = lease;
    let job = job.as_ref().map(ratelimiter::JobId::as_str);
    match result {
        Ok(Decision::Allowed { .. }) => tracing::debug!(%lease, job, "reserve allowed"),
        Ok(Decision::Denied(denial)) => {
            tracing::debug!(%lease, job, keys = ?denial.keys(), retry_after = ?denial.retry_after, "reserve denied");
        }
        Err(ReserveError::Unanswered(error)) => {
            tracing::warn!(%lease, job, %error, "reserve unanswered");
        }
        Err(error) => tracing::debug!(%lease, job, %error, "reserve refused"),
    }
}
