//! `/v1/admin/limits`: defines, deletes and shows limits.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use ratelimiter::{Backend, StateError};
use ratelimiter_wire::{
    DEFINITIONS_BYTES_MAX, DefineAnswer, DefineRequest, DeleteAnswer, ErrorBody, ErrorCode,
    ListAnswer, Refusal, StateAnswer, StateBody, read_define,
};
use serde::Serialize;
use tracing::Instrument;

use super::AppState;
use super::uri::{key_of, page_of};
use crate::admin::ChangeError;
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::metrics::Route;
use crate::response::{self, Response};

pub(super) async fn put<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let answer = timed(&app, answer_put(&app, request)).await.unwrap_or_else(Into::into);
    response::json(answer.http_status(), &answer)
}

async fn answer_put<B: HostedBackend>(
    app: &AppState<B>,
    request: Request,
) -> Result<DefineAnswer, Refusal> {
    let (caller, bytes) =
        app.admit_up_to(DEFINITIONS_BYTES_MAX, request, Permission::Admin).await?;
    match read_define(&bytes)? {
        DefineRequest::One(limit) => {
            caller.check_key(&limit.key)?;
            let change = app.admin.define(*limit, app.request_timeout);
            let defined = change.instrument(caller.change_span()).await;
            Ok(DefineAnswer::of(backend_result(defined)?))
        }
        DefineRequest::Many(limits) => {
            limits.iter().try_for_each(|limit| caller.check_key(&limit.key))?;
            let keys = limits.iter().map(|limit| limit.key.clone()).collect();
            let change = app.admin.define_all(limits, app.request_timeout);
            let defined = change.instrument(caller.change_span()).await;
            Ok(DefineAnswer::of_all(keys, backend_result(defined)?))
        }
    }
}

pub(super) async fn delete<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    let answer = async {
        let caller = app.access.check(&parts.headers, Permission::Admin)?;
        let key = key_of(&parts.uri)?;
        caller.check_key(&key)?;
        let change = app.admin.delete(key, app.request_timeout);
        backend_result(change.instrument(caller.change_span()).await)
    };
    let answer = timed(&app, answer).await.map_or_else(Into::into, DeleteAnswer::of);
    response::json(answer.http_status(), &answer)
}

/// Separates the backend's result (`Ok`) from refusals of the server itself (`Err`).
fn backend_result<T, E: std::error::Error>(
    result: Result<T, ChangeError<E>>,
) -> Result<Result<T, E>, Refusal> {
    let error = match result {
        Ok(changed) => return Ok(Ok(changed)),
        Err(error) => error,
    };
    let message = error.to_string();
    let error = match error {
        ChangeError::Backend(error) => return Ok(Err(error)),
        ChangeError::TooManyLimits { .. } => ErrorCode::TooManyLimits,
        ChangeError::ReadOnly { .. } => ErrorCode::LimitsReadOnly,
    };
    Err(Refusal { error, message })
}

/// Records how long an answer takes.
pub(super) async fn timed<B: HostedBackend, T>(
    app: &AppState<B>,
    answer: impl Future<Output = T>,
) -> T {
    let started = app.metrics.start();
    let answer = answer.await;
    app.metrics.stop(Route::Admin, started);
    answer
}

/// The answer, or an error in the format that all routes share.
pub(super) fn respond(answer: Result<impl Serialize, ErrorBody>) -> Response {
    match answer {
        Ok(answer) => response::json(StatusCode::OK.as_u16(), &answer),
        Err(error) => response::error(&error),
    }
}

pub(super) async fn list<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    timed(&app, async { respond(answer_list(&app, &parts).await) }).await
}

async fn answer_list<B: HostedBackend>(
    app: &AppState<B>,
    parts: &Parts,
) -> Result<ListAnswer, ErrorBody> {
    let caller = app.access.check(&parts.headers, Permission::Read)?;
    let page = page_of(&parts.uri)?;
    let states =
        app.with_timeout(app.backend.visible_states(&page, |key| caller.may_use(key))).await?;
    Ok(ListAnswer { limits: states.iter().map(StateBody::from).collect() })
}

pub(super) async fn get<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    timed(&app, async { respond(answer_get(&app, &parts).await) }).await
}

async fn answer_get<B: HostedBackend>(
    app: &AppState<B>,
    parts: &Parts,
) -> Result<StateAnswer, ErrorBody> {
    let caller = app.access.check(&parts.headers, Permission::Read)?;
    let key = key_of(&parts.uri)?;
    caller.check_key(&key)?;
    let state: Result<_, StateError> = app.with_timeout(app.backend.state(&key)).await;
    match state? {
        Some(state) => Ok(StateAnswer { limit: StateBody::from(&state) }),
        None => {
            let message = format!("no limit is defined for {key}");
            Err(Refusal { error: ErrorCode::NotFound, message }.into())
        }
    }
}
