//! What a server sent back, and whether it is an answer of the protocol.

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

/// How much of an answer that is not ours an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A whole answer with a status that the protocol knows.
#[derive(Debug)]
pub(super) struct Answer {
    url: BaseUrl,
    pub(super) status: u16,
    kind: String,
    body: Bytes,
}

/// What a server says when it cannot answer now.
#[derive(Deserialize)]
struct Excuse {
    #[serde(default)]
    error: String,
    #[serde(default)]
    message: String,
    retry_after_ms: Option<u64>,
}

impl Answer {
    /// Sorts out what is no answer to the request, by its status.
    pub(super) fn of(url: &BaseUrl, parts: &Parts, body: Bytes) -> Result<Self, HttpError> {
        let status = parts.status.as_u16();
        let answer = Self { url: url.clone(), status, kind: content_type(&parts.headers), body };
        match status {
            401 => Err(HttpError::Unauthorized { url: url.to_string(), message: answer.message() }),
            403 => Err(HttpError::Forbidden { url: url.to_string(), message: answer.message() }),
            300..=399 => {
                let location = parts.headers.get(LOCATION);
                let location = location.and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
                let (url, location) = (url.to_string(), location.to_owned());
                Err(HttpError::Redirected { url, status, location })
            }
            // The server did not begin, or nobody knows how far it came; whoever stands between says the same.
            408 | 425 | 429 | 502..=504 => Err(answer.unavailable(&parts.headers)),
            500..=599 if !answer.is_error_body() => Err(answer.unavailable(&parts.headers)),
            _ => Ok(answer),
        }
    }

    /// Reads the body as the protocol's answer.
    pub(super) fn read<A: DeserializeOwned>(&self) -> Result<A, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            if error.is_eof() && !self.body.is_empty() {
                let reason = format!("after {} bytes of JSON", self.body.len());
                return HttpError::CutShort { url: self.url.to_string(), reason };
            }
            self.not_ours(self.kind.clone())
        })
    }

    /// The body of a successful answer that is text.
    pub(super) fn text(&self) -> Result<String, HttpError> {
        match std::str::from_utf8(&self.body) {
            Ok(text) if self.status == 200 => Ok(text.to_owned()),
            Ok(_) | Err(_) => Err(self.not_ours(self.kind.clone())),
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
        let excuse = serde_json::from_slice::<Excuse>(&self.body).ok();
        let said_ms = excuse.as_ref().and_then(|excuse| excuse.retry_after_ms);
        // The body counts in milliseconds, the header in seconds, so the body says it better where it says it.
        let retry_after = match said_ms {
            Some(ms) if ms > 0 => Some(Duration::from_millis(ms)),
            _ => retry_after(headers),
        };
        let message = excuse.map_or_else(String::new, |Excuse { error, message, .. }| {
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
            // Whoever waits adds to it.
            retry_after: retry_after.map(|after| after.min(WAIT_MAX)),
        }
    }

    pub(super) fn not_ours(&self, kind: String) -> HttpError {
        let text = String::from_utf8_lossy(&self.body);
        let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
        HttpError::NotOurs {
            url: self.url.to_string(),
            status: self.status,
            kind,
            begins: shown.chars().take(SHOWN_CHARACTERS_MAX).collect(),
        }
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("no content type").to_owned()
}

/// The header's seconds. A date, which only a server between us and ours would send, is no duration we can trust.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
