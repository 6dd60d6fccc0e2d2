//! `/v1/admin/leases` and `/v1/admin/forgive`: what an operator does about leases and debts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use ratelimiter::Backend;
use ratelimiter_wire::{
    ErrorBody, ForgiveAnswer, ForgiveBody, LeasesAnswer, OpenLeaseBody, Refusal, ReleaseAnswer,
    read,
};

use super::AppState;
use super::limits::{respond, timed};
use super::uri::{lease_of, lease_page_of};
use super::visible::visible_leases;
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::response::{self, Response};

pub(super) async fn list<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    timed(&app, async { respond(answer_list(&app, &parts).await) }).await
}

async fn answer_list<B: HostedBackend>(
    app: &AppState<B>,
    parts: &Parts,
) -> Result<LeasesAnswer, ErrorBody> {
    let caller = app.access.check(&parts.headers, Permission::Read)?;
    let page = lease_page_of(&parts.uri)?;
    page.key.iter().try_for_each(|key| caller.check_key(key))?;
    let leases = app.with_timeout(visible_leases(&*app.backend, &caller, &page)).await?;
    Ok(LeasesAnswer { leases: leases.iter().map(OpenLeaseBody::from).collect() })
}

pub(super) async fn release<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    parts: Parts,
) -> Response {
    let answer = async {
        let caller = app.access.check(&parts.headers, Permission::Admin)?;
        caller.check_unbounded()?;
        let lease = lease_of(&parts.uri)?;
        let released = app.with_timeout(app.backend.release(lease)).await;
        if released.is_ok() {
            caller.change_span().in_scope(|| tracing::info!(%lease, "lease released"));
        }
        Ok::<_, Refusal>(released)
    };
    let answer = timed(&app, answer).await.map_or_else(Into::into, ReleaseAnswer::of);
    response::json(answer.http_status(), &answer)
}

pub(super) async fn forgive<B: HostedBackend>(
    State(app): State<Arc<AppState<B>>>,
    request: Request,
) -> Response {
    let answer = async {
        let (caller, bytes) = app.admit(request, Permission::Admin).await?;
        let key = read::<ForgiveBody>(&bytes)?;
        caller.check_key(&key)?;
        let forgiven = app.with_timeout(app.backend.forgive(&key)).await;
        if let Ok(old) = &forgiven {
            caller.change_span().in_scope(|| tracing::info!(%key, old, new = 0, "debt forgiven"));
        }
        Ok::<_, Refusal>(forgiven)
    };
    let answer = timed(&app, answer).await.map_or_else(Into::into, ForgiveAnswer::of);
    response::json(answer.http_status(), &answer)
}
