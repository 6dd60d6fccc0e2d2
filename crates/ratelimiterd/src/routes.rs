//! The routes of the HTTP API.

mod app;
mod body;
mod call;
mod complete;
mod fallback;
mod key_in_path;
mod limits;
mod operation;
mod page;
mod reserve;
mod service;
mod timeout;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

pub(crate) use self::app::App;
pub use self::body::BODY_BYTES_MAX;
pub(crate) use self::service::{AnswerBody, ApiService};
use crate::hosted::HostedBackend;

/// The calls of the limiter. All are POST; [`ApiService`] answers them without the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimiterCall {
    Reserve,
    ReserveBatch,
    Complete,
    CompleteBatch,
}

impl LimiterCall {
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
fn router<B: HostedBackend>(app: Arc<App<B>>) -> Router {
    Router::new()
        .route("/v1/admin/limits", get(limits::list::<B>).put(limits::put::<B>))
        .route("/v1/admin/limits/{*key}", get(limits::get::<B>).delete(limits::delete::<B>))
        .route("/healthz", get(operation::healthz))
        .route("/readyz", get(operation::readyz::<B>))
        .route("/metrics", get(operation::metrics::<B>))
        .route("/openapi.json", get(operation::openapi::<B>))
        .route("/", get(page::index::<B>))
        .fallback(fallback::no_route)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .with_state(app)
}
