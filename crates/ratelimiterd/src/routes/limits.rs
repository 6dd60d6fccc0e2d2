//! `/v1/admin/limits`: defines, deletes and shows limits.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use ratelimiter::{Backend, StateError};
use ratelimiter_wire::{
    DefineAnswer, DefinitionBody, DeleteAnswer, ErrorBody, ErrorCode, ListAnswer, Refusal,
    StateAnswer, StateBody, read,
};

use super::AppState;
use super::uri::{key_of, page_of};
use crate::admin::ChangeError;
use crate::auth::RequiredAccess;
use crate::hosted::HostedBackend;
use crate::metrics::Route;
use crate::response::{self, Response};

pub(super) async fn put<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let started = app.metrics.start();
    let read = match app.admit(request, RequiredAccess::Admin).await {
        Ok(bytes) => read::<DefinitionBody>(&bytes),
        Err(refusal) => Err(refusal),
    };
    let answer = match read {
        Ok(limit) => match app.admin.define(limit, app.request_timeout).await {
            Ok(status) => DefineAnswer::of(Ok(status)),
            Err(error) => match refused(error) {
                Ok(error) => DefineAnswer::of(Err(error)),
                Err(refusal) => refusal.into(),
            },
        },
        Err(refusal) => refusal.into(),
    };
    app.metrics.stop(Route::Admin, started);
    response::json(answer.http_status(), &answer)
}

pub(super) async fn delete<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let started = app.metrics.start();
    let key = match app.access.check(request.headers(), RequiredAccess::Admin) {
        Ok(()) => key_of(request.uri()),
        Err(refusal) => Err(refusal),
    };
    let answer = match key {
        Ok(key) => match app.admin.delete(key, app.request_timeout).await {
            Ok(()) => DeleteAnswer::of(Ok(())),
            Err(error) => match refused(error) {
                Ok(error) => DeleteAnswer::of(Err(error)),
                Err(refusal) => refusal.into(),
            },
        },
        Err(refusal) => refusal.into(),
    };
    app.metrics.stop(Route::Admin, started);
    response::json(answer.http_status(), &answer)
}

/// Separates errors of the backend (`Ok`) from refusals of the server itself (`Err`).
fn refused<E: std::error::Error>(error: ChangeError<E>) -> Result<E, Refusal> {
    let message = error.to_string();
    let error = match error {
        ChangeError::Backend(error) => return Ok(error),
        ChangeError::TooManyLimits { .. } => ErrorCode::TooManyLimits,
        ChangeError::ReadOnly { .. } => ErrorCode::LimitsReadOnly,
    };
    Err(Refusal { error, message })
}

pub(super) async fn list<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    let started = app.metrics.start();
    let response = match answer_list(&app, &parts).await {
        Ok(answer) => response::json(StatusCode::OK.as_u16(), &answer),
        Err(error) => response::error(&error),
    };
    app.metrics.stop(Route::Admin, started);
    response
}

async fn answer_list<B: HostedBackend>(
    app: &AppState<B>,
    parts: &Parts,
) -> Result<ListAnswer, ErrorBody> {
    app.access.check(&parts.headers, RequiredAccess::Admin)?;
    let page = page_of(&parts.uri)?;
    let states = app.with_timeout(app.backend.states(&page)).await?;
    Ok(ListAnswer { limits: states.iter().map(StateBody::from).collect() })
}

pub(super) async fn get<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    let started = app.metrics.start();
    let response = match answer_get(&app, &parts).await {
        Ok(answer) => response::json(StatusCode::OK.as_u16(), &answer),
        Err(error) => response::error(&error),
    };
    app.metrics.stop(Route::Admin, started);
    response
}

async fn answer_get<B: HostedBackend>(
    app: &AppState<B>,
    parts: &Parts,
) -> Result<StateAnswer, ErrorBody> {
    app.access.check(&parts.headers, RequiredAccess::Admin)?;
    let key = key_of(&parts.uri)?;
    let state: Result<_, StateError> = app.with_timeout(app.backend.state(&key)).await;
    match state? {
        Some(state) => Ok(StateAnswer { limit: StateBody::from(&state) }),
        None => {
            let message = format!("no limit is defined for {key}");
            Err(Refusal { error: ErrorCode::NotFound, message }.into())
        }
    }
}
