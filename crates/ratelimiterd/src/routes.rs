//! The routes of the HTTP API.

mod app_state;
mod body;
mod call;
mod client;
mod complete;
mod fallback;
mod leases;
mod limits;
mod operation;
mod page;
mod reserve;
mod service;
mod timeout;
mod uri;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};

pub(crate) use self::app_state::AppState;
pub use self::body::BODY_BYTES_MAX;
pub(crate) use self::client::Client;
pub(crate) use self::service::{AnswerBody, ApiService};
use crate::hosted::HostedBackend;

/// The routes of reserve and complete. All are POST; [`ApiService`] serves them without the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimiterRoute {
    Reserve,
    ReserveBatch,
    Complete,
    CompleteBatch,
}

impl LimiterRoute {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/reserve" => Some(Self::Reserve),
            "/v1/reserve/batch" => Some(Self::ReserveBatch),
            "/v1/complete" => Some(Self::Complete),
            "/v1/complete/batch" => Some(Self::CompleteBatch),
            _ => None,
        }
    }
}

/// All other routes.
fn router<B: HostedBackend>(app: Arc<AppState<B>>) -> Router {
    Router::new()
        .route("/v1/admin/limits", get(limits::list::<B>).put(limits::put::<B>))
        .route("/v1/admin/limits/{*key}", get(limits::get::<B>).delete(limits::delete::<B>))
        .route("/v1/admin/leases", get(leases::list::<B>))
        .route("/v1/admin/leases/{lease}", delete(leases::release::<B>))
        .route("/v1/admin/forgive", post(leases::forgive::<B>))
        .route("/healthz", get(operation::healthz))
        .route("/readyz", get(operation::readyz::<B>))
        .route("/metrics", get(operation::metrics::<B>))
        .route("/openapi.json", get(operation::openapi::<B>))
        .route("/", get(page::index::<B>))
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .with_state(app)
}
