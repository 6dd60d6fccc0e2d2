//! Answers to a path or a method that is not in the table.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::ALLOW;
use ratelimiter_wire::{ErrorBody, ErrorWord};

use super::LimiterCall;
use crate::answer::{self, Response};

pub(super) async fn no_route(request: Request) -> Response {
    let path = request.uri().path();
    if LimiterCall::at(path).is_some() {
        let mut response = method_not_allowed(request).await;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let message = format!("there is no {path}; see /openapi.json");
    answer::error(&ErrorBody { error: ErrorWord::NotFound, message })
}

pub(super) async fn method_not_allowed(request: Request) -> Response {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    answer::error(&ErrorBody { error: ErrorWord::MethodNotAllowed, message })
}
