//! What operators and their machines look at: health, readiness, metrics, the API's own description.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::{Request, State};
use ratelimiter::{Backend, Page};
use ratelimiter_wire::{ErrorBody, ErrorWord};

use super::App;
use crate::answer::{self, Response};
use crate::auth::Need;
use crate::hosted::HostedBackend;
use crate::openapi;

pub(super) async fn healthz() -> Response {
    answer::text("text/plain; charset=utf-8", "ok\n")
}

pub(super) async fn readyz<B: HostedBackend>(State(app): State<Arc<App<B>>>) -> Response {
    let ready = tokio::time::timeout(app.request_timeout, app.backend.ready()).await;
    let message = match ready {
        Ok(Ok(())) => match app.admin.not_started() {
            None => return answer::text("text/plain; charset=utf-8", "ok\n"),
            Some(unanswered) => unanswered.reason,
        },
        Ok(Err(not_ready)) => not_ready.to_string(),
        Err(_) => app.no_answer().to_string(),
    };
    answer::error(&ErrorBody { error: ErrorWord::BackendError, message })
}

pub(super) async fn metrics<B: HostedBackend>(
    State(app): State<Arc<App<B>>>,
    request: Request,
) -> Response {
    if let Err(refusal) = app.access.check(request.headers(), Need::Admin) {
        return answer::error(&refusal.into());
    }
    let page = Page { count_max: Some(app.metrics.keys_max()), ..Page::default() };
    // Without the backend's figures the server's own are worth the more.
    let states = app.within_time(app.backend.states(&page)).await.unwrap_or_default();
    let mut text = app.metrics.render(&states, app.backend.open_leases());
    app.backend.write_metrics(&mut text);
    answer::text("text/plain; version=0.0.4; charset=utf-8", text)
}

pub(super) async fn openapi<B: HostedBackend>(
    State(app): State<Arc<App<B>>>,
    request: Request,
) -> Response {
    static DESCRIPTION: LazyLock<Bytes> =
        LazyLock::new(|| openapi::description().to_string().into());
    match app.access.check(request.headers(), Need::Client) {
        Ok(()) => answer::text("application/json", DESCRIPTION.clone()),
        Err(refusal) => answer::error(&refusal.into()),
    }
}
