//! HTTP responses.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use http_body_util::Full;
use ratelimiter_wire::{ErrorBody, ErrorCode};
use serde::Serialize;

/// A response that is complete before its first byte is sent.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Initial buffer size for one answer; nearly all answers are shorter.
const BODY_BYTES_TYPICAL: usize = 128;

pub(crate) fn json(status: u16, body: &impl Serialize) -> Response {
    json_batch(status, 1, body)
}

/// A JSON response with `count` answers.
pub(crate) fn json_batch(status: u16, count: usize, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES_TYPICAL * count);
    serde_json::to_writer(&mut bytes, body).expect("wire types are JSON");
    let mut response = Response::new(bytes.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("the wire's statuses are valid");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == ErrorCode::Unauthorized.http_status() {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A JSON response with `Retry-After` in whole seconds, rounded up.
pub(crate) fn json_with_hint(status: u16, retry_after_ms: u64, body: &impl Serialize) -> Response {
    let mut response = json(status, body);
    if retry_after_ms > 0 {
        let seconds = HeaderValue::from(retry_after_ms.div_ceil(1_000));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// An error in the format that all routes share.
pub(crate) fn error(body: &ErrorBody) -> Response {
    json(body.error.http_status(), body)
}

pub(crate) fn text(content_type: &'static str, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
