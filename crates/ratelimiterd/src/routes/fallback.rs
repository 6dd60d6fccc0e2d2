//! Responses to unknown paths and methods.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::ALLOW;
use ratelimiter_wire::{ErrorBody, ErrorCode};

use super::LimiterRoute;
use crate::response::{self, Response};

pub(super) async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    if LimiterRoute::at(path).is_some() {
        let mut response = method_not_allowed(request).await;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let message = format!("{path} does not exist; see /openapi.json");
    response::error(&ErrorBody { error: ErrorCode::NotFound, message })
}

pub(super) async fn method_not_allowed(request: Request) -> Response {
    let message = format!("{} does not support {}", request.uri().path(), request.method());
    response::error(&ErrorBody { error: ErrorCode::MethodNotAllowed, message })
}
