//! Responses of a server, and whether they follow the protocol.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use hyper::http::response::Parts;
use ratelimiter::admission::WAIT_MAX;
use ratelimiter_wire::ErrorBody;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::HttpError;
use super::url::BaseUrl;

/// How much of an unexpected response an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A whole response with a status of the protocol.
#[derive(Debug)]
pub(super) struct ServerResponse {
    url: BaseUrl,
    pub(super) status: u16,
    content_type: String,
    body: Bytes,
}

/// The body of a response that says that the server is unavailable.
#[derive(Deserialize)]
struct UnavailableBody {
    #[serde(default)]
    error: String,
    #[serde(default)]
    message: String,
    retry_after_ms: Option<u64>,
}

impl ServerResponse {
    /// Returns an error if the status means that this is no answer to the request.
    pub(super) fn of(url: &BaseUrl, parts: &Parts, body: Bytes) -> Result<Self, HttpError> {
        let status = parts.status.as_u16();
        let answer =
            Self { url: url.clone(), status, content_type: content_type(&parts.headers), body };
        match status {
            401 => Err(HttpError::Unauthorized { url: url.to_string(), message: answer.message() }),
            403 => Err(HttpError::Forbidden { url: url.to_string(), message: answer.message() }),
            300..=399 => {
                let location = parts.headers.get(LOCATION);
                let location = location.and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
                let (url, location) = (url.to_string(), location.to_owned());
                Err(HttpError::Redirected { url, status, location })
            }
            // The server did not process the request, or the outcome is unknown; a proxy answers the same way.
            408 | 425 | 429 | 502..=504 => Err(answer.unavailable(&parts.headers)),
            500..=599 if !answer.is_error_body() => Err(answer.unavailable(&parts.headers)),
            _ => Ok(answer),
        }
    }

    /// Parses the body.
    pub(super) fn read<A: DeserializeOwned>(&self) -> Result<A, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            if error.is_eof() && !self.body.is_empty() {
                let reason = format!("after {} bytes of JSON", self.body.len());
                return HttpError::Incomplete { url: self.url.to_string(), reason };
            }
            self.unexpected(self.content_type.clone())
        })
    }

    /// The body of a successful answer that is text.
    pub(super) fn text(&self) -> Result<String, HttpError> {
        match std::str::from_utf8(&self.body) {
            Ok(text) if self.status == 200 && self.content_type.starts_with("text/plain") => {
                Ok(text.to_owned())
            }
            Ok(_) | Err(_) => Err(self.unexpected(self.content_type.clone())),
        }
    }

    fn is_error_body(&self) -> bool {
        serde_json::from_slice::<ErrorBody>(&self.body).is_ok()
    }

    fn message(&self) -> String {
        let body = serde_json::from_slice::<ErrorBody>(&self.body);
        body.map_or_else(|_| String::new(), |body| body.message)
    }

    fn unavailable(&self, headers: &HeaderMap) -> HttpError {
        let body = serde_json::from_slice::<UnavailableBody>(&self.body).ok();
        let retry_after_ms = body.as_ref().and_then(|body| body.retry_after_ms);
        // The body has milliseconds and the header seconds, so the body is preferred.
        let retry_after = match retry_after_ms {
            Some(ms) if ms > 0 => Some(Duration::from_millis(ms)),
            _ => retry_after(headers),
        };
        let message =
            body.map_or_else(String::new, |UnavailableBody { error, message, .. }| {
                [error, message]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(": ")
            });
        HttpError::Unavailable {
            url: self.url.to_string(),
            status: self.status,
            message,
            // Bounded, so that adding to it cannot overflow.
            retry_after: retry_after.map(|after| after.min(WAIT_MAX)),
        }
    }

    pub(super) fn unexpected(&self, content: String) -> HttpError {
        let text = String::from_utf8_lossy(&self.body);
        let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
        HttpError::UnexpectedResponse {
            url: self.url.to_string(),
            status: self.status,
            content,
            excerpt: shown.chars().take(SHOWN_CHARACTERS_MAX).collect(),
        }
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("no content type").to_owned()
}

/// The header's seconds. A date, which only a proxy would send, is ignored: its clock may differ from ours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
