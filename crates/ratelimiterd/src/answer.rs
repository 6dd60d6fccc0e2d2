//! Writing answers.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use ratelimiter_wire::{ErrorBody, ErrorWord};
use serde::Serialize;

/// Nearly all answers are shorter.
const BODY_BYTES_USUAL: usize = 128;

/// A JSON answer.
pub(crate) fn json(status: u16, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES_USUAL);
    serde_json::to_writer(&mut bytes, body).expect("wire types are JSON");
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::from_u16(status).expect("the wire's statuses are valid");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == ErrorWord::Unauthorized.http_status() {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A JSON answer that says when to ask again, in whole seconds, rounded up.
pub(crate) fn json_with_hint(status: u16, retry_after_ms: u64, body: &impl Serialize) -> Response {
    let mut response = json(status, body);
    if retry_after_ms > 0 {
        let seconds = HeaderValue::from(retry_after_ms.div_ceil(1_000));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// A refusal in the shape that all paths share.
pub(crate) fn error(body: &ErrorBody) -> Response {
    json(body.error.http_status(), body)
}

/// A text.
pub(crate) fn text(content_type: &'static str, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
