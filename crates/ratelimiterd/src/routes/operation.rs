//! Health, readiness, metrics and the `OpenAPI` description.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::{Request, State};
use ratelimiter::Page;
use ratelimiter_wire::{ErrorBody, ErrorCode};

use super::AppState;
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::metrics::{Gauges, MetricsView};
use crate::openapi;
use crate::response::{self, Response};

pub(super) async fn healthz() -> Response {
    response::text("text/plain; charset=utf-8", "ok\n")
}

pub(super) async fn readyz<B: HostedBackend>(State(app): State<Arc<AppState<B>>>) -> Response {
    let ready = tokio::time::timeout(app.request_timeout, app.backend.ready()).await;
    let message = match ready {
        Ok(Ok(())) => match app.admin.not_started() {
            None => return response::text("text/plain; charset=utf-8", "ok\n"),
            Some(unanswered) => unanswered.reason,
        },
        Ok(Err(not_ready)) => not_ready.to_string(),
        Err(_) => app.timeout_error().to_string(),
    };
    response::error(&ErrorBody { error: ErrorCode::BackendError, message })
}

pub(super) async fn metrics<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let caller = match app.access.check(request.headers(), Permission::Read) {
        Ok(caller) => caller,
        Err(refusal) => return response::error(&refusal.into()),
    };
    let page = Page { count_max: Some(app.metrics.keys_max()), ..Page::default() };
    // Still export the server's own metrics when the backend does not answer.
    let states =
        app.with_timeout(app.backend.visible_states(&page, |key| caller.may_use(key))).await;
    let callers = app.access.callers_shown_to(&caller);
    let view = MetricsView {
        callers: callers.iter().map(|shown| (shown.name(), shown.calls())).collect(),
        shows_key: &|key| caller.may_use(key),
    };
    let gauges = Gauges {
        states: &states.unwrap_or_default(),
        instances: &app.backend.instances(),
        open_leases: app.backend.open_leases(),
        waiters: app.limiter.count(),
    };
    let mut text = app.metrics.render(&view, &gauges);
    if let Some(gateway) = &app.gateway_metrics {
        text.push_str(&gateway.render());
    }
    app.admin.write_metrics(&mut text);
    app.backend.write_metrics(&mut text);
    response::text("text/plain; version=0.0.4; charset=utf-8", text)
}

pub(super) async fn openapi<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    static DESCRIPTION: LazyLock<Bytes> =
        LazyLock::new(|| openapi::description().to_string().into());
    match app.access.identify(request.headers()) {
        Ok(_) => response::text("application/json", DESCRIPTION.clone()),
        Err(refusal) => response::error(&refusal.into()),
    }
}
