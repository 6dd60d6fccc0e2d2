//! `POST /v1/complete` and its batch.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use ratelimiter::{CompleteError, CompleteRequest, Limiter};
use ratelimiter_wire::{BatchAnswer, CompleteAnswer, CompleteBody, Refusal, read, read_batch};

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
    app.metrics.count_complete(&answer);
    app.metrics.stop(Route::Complete, started);
    let retry_after_ms = answer.retry_after_ms.unwrap_or(0);
    answer::json_with_hint(answer.http_status(), retry_after_ms, &answer)
}

async fn answer_one<B: HostedBackend>(app: &App<B>, request: Request) -> CompleteAnswer {
    let read = match app.admit(request, Need::Client).await {
        Ok((_, bytes)) => read::<CompleteBody>(&bytes),
        Err(refusal) => Err(refusal),
    };
    match read {
        Ok(request) => {
            let result = app.within_time(app.backend.complete(&request)).await;
            tell(&request, &result);
            CompleteAnswer::of(result)
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
    app.metrics.stop(Route::CompleteBatch, started);
    response
}

async fn answer_batch<B: HostedBackend>(
    app: &App<B>,
    request: Request,
) -> Result<BatchAnswer<CompleteAnswer>, Refusal> {
    let (_, bytes) = app.admit(request, Need::Client).await?;
    let items = read_batch::<CompleteBody>(&bytes)?;
    let requests: Vec<CompleteRequest> = items.iter().flatten().cloned().collect();
    let asked = async { Ok::<_, CompleteError>(app.backend.complete_batch(&requests).await) };
    let mut done = match app.within_time(asked).await {
        Ok(results) => results.into_iter(),
        Err(error) => vec![Err(error); requests.len()].into_iter(),
    };
    let answer = |item: Result<CompleteRequest, Refusal>| match item {
        Ok(request) => {
            let result = done.next().expect("a backend answers each request of a batch");
            tell(&request, &result);
            CompleteAnswer::of(result)
        }
        Err(refusal) => refusal.into(),
    };
    let results: Vec<_> = items.into_iter().map(answer).collect();
    for answer in &results {
        app.metrics.count_complete(answer);
    }
    Ok(BatchAnswer { results })
}

fn tell(request: &CompleteRequest, result: &Result<(), CompleteError>) {
    let CompleteRequest { lease, job, actuals: _ } = request;
    let job = job.as_ref().map(ratelimiter::JobId::as_str);
    match result {
        Ok(()) => tracing::debug!(%lease, job, "complete done"),
        Err(CompleteError::Unanswered(error)) => {
            tracing::warn!(%lease, job, %error, "complete unanswered");
        }
        Err(error) => tracing::debug!(%lease, job, %error, "complete refused"),
    }
}
