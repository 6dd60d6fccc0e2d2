//! Reads request bodies within a size and a time limit.

use std::time::Duration;

use axum::BoxError;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use ratelimiter_wire::{ErrorCode, Refusal};

use super::timeout::within;

/// The most bytes of a request body, except that of definitions.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A body from the router or directly from the connection.
pub(super) trait ReadBody: Body<Data = Bytes, Error: Into<BoxError>> + Send {}

impl<D: Body<Data = Bytes, Error: Into<BoxError>> + Send> ReadBody for D {}

pub(super) async fn read_body(
    request: hyper::Request<impl ReadBody>,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Bytes, Refusal> {
    if content_length(request.headers()).is_some_and(|length| length > bytes_max as u64) {
        return Err(body_too_large(bytes_max));
    }
    let body = Limited::new(request.into_body(), bytes_max);
    match within(timeout, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(body_too_large(bytes_max)),
        Ok(Err(error)) => {
            Err(Refusal::of_field("body", format!("the body cannot be read: {error}")))
        }
        Err(_) => {
            let message = format!("the body did not arrive within {} ms", timeout.as_millis());
            Err(Refusal { error: ErrorCode::RequestTimeout, message })
        }
    }
}

fn body_too_large(bytes_max: usize) -> Refusal {
    let message = format!("a body has at most {bytes_max} bytes here");
    Refusal { error: ErrorCode::BodyTooLarge, message }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
