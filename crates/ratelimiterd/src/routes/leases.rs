//! `/v1/admin/leases` and `/v1/admin/forgive`: what an operator does about leases and debts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use ratelimiter::{Backend, ForgiveError, ReleaseError};
use ratelimiter_wire::{
    ErrorBody, ForgiveAnswer, ForgiveBody, LeasesAnswer, OpenLeaseBody, Refusal, ReleaseAnswer,
    read,
};
use tracing::Instrument;

use super::AppState;
use super::limits::{respond, timed};
use super::uri::{lease_of, lease_page_of};
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
    let leases =
        app.with_timeout(app.backend.visible_leases(&page, |key| caller.may_use(key))).await?;
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
        let backend = Arc::clone(&app.backend);
        let changed = app.admin.changed();
        let release = async move {
            let released = backend.release(lease).await;
            changed.notify_one();
            match &released {
                Ok(()) => tracing::info!(%lease, old = "open", new = "released", "lease released"),
                Err(ReleaseError::Unanswered(error)) => {
                    tracing::warn!(%lease, %error, "it is not known whether the lease was released");
                }
                Err(ReleaseError::UnknownLease { .. } | ReleaseError::Refused(_)) => {}
            }
            released
        };
        Ok::<_, Refusal>(app.run_to_end(release.instrument(caller.change_span())).await)
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
        let backend = Arc::clone(&app.backend);
        let changed = app.admin.changed();
        let forgive = async move {
            let forgiven = backend.forgive(&key).await;
            changed.notify_one();
            match &forgiven {
                // Nothing was changed.
                Ok(0) | Err(ForgiveError::UnknownKey { .. } | ForgiveError::Refused(_)) => {}
                Ok(old) => tracing::info!(%key, old, new = 0, "debt forgiven"),
                Err(ForgiveError::Unanswered(error)) => {
                    tracing::warn!(%key, %error, "it is not known whether the debt was forgiven");
                }
            }
            forgiven
        };
        Ok::<_, Refusal>(app.run_to_end(forgive.instrument(caller.change_span())).await)
    };
    let answer = timed(&app, answer).await.map_or_else(Into::into, ForgiveAnswer::of);
    response::json(answer.http_status(), &answer)
}
