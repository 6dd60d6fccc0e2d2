//! Writing answers.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use http_body_util::Full;
use ratelimiter_wire::{ErrorBody, ErrorWord};
use serde::Serialize;

/// An answer, which is whole before its first byte is sent.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Nearly all answers to one call are shorter, and so are their parts in the answer to a batch.
const BODY_BYTES_USUAL: usize = 128;

/// A JSON answer.
pub(crate) fn json(status: u16, body: &impl Serialize) -> Response {
    json_of_many(status, 1, body)
}

/// A JSON answer with so many parts.
pub(crate) fn json_of_many(status: u16, count: usize, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES_USUAL * count);
    serde_json::to_writer(&mut bytes, body).expect("wire types are JSON");
    let mut response = Response::new(bytes.into());
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
pub(crate) fn text(content_type: &'static str, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
