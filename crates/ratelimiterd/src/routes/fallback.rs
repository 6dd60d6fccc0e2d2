//! Responses to unknown paths and methods.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::ALLOW;
use ratelimiter_wire::{ErrorBody, ErrorCode};

use super::LimiterRoute;
use crate::response::{self, Response};

/// What an SDK asks for whose base URL has no provider.
const PROVIDERS_PATHS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/models",
];

pub(super) async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    if LimiterRoute::at(path).is_some() {
        let mut response = method_not_allowed(request).await;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let message = if PROVIDERS_PATHS.contains(&path) {
        format!(
            "{path} does not exist; a gateway serves it below the name of a provider, such as /openai{path} (docs/gateway.md)"
        )
    } else {
        format!("{path} does not exist; see /openapi.json")
    };
    response::error(&ErrorBody { error: ErrorCode::NotFound, message })
}

pub(super) async fn method_not_allowed(request: Request) -> Response {
    let message = format!("{} does not support {}", request.uri().path(), request.method());
    response::error(&ErrorBody { error: ErrorCode::MethodNotAllowed, message })
}
