//! Errors of HTTP requests, and which of them leave the outcome unknown.

use std::time::Duration;

use ratelimiter::{Refused, Unanswered};

/// The retry delay after an error without a hint.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Why a request got no valid answer from a ratelimiter server.
///
/// As part of a limiter's error it is the `reason` of an [`Unanswered`] or a [`Refused`];
/// [`HttpLimiter::check`](super::HttpLimiter::check) returns it directly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum HttpError {
    /// No connection: the name is unknown, the port is closed, or the certificate is not trusted.
    #[error("cannot connect to {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The server did not answer in time.
    #[error("{url} did not answer within {timeout:?}")]
    TimedOut { url: String, timeout: Duration },
    /// The connection ended before the response did.
    #[error("the response of {url} is incomplete: {reason}")]
    Incomplete { url: String, reason: String },
    /// The server, or a proxy, is temporarily unavailable. `retry_after` is the hint that it sent, if any.
    #[error("{url} is not available: status {status}{}", message_suffix(message))]
    Unavailable { url: String, status: u16, message: String, retry_after: Option<Duration> },
    /// The request has no token that the server accepts.
    #[error(
        "{url} does not accept the token (401){}; give the client a token that is in the server's configuration",
        message_suffix(message)
    )]
    Unauthorized { url: String, message: String },
    /// The token does not allow this request.
    #[error(
        "{url} does not allow this with this token (403){}; use a token that permits it",
        message_suffix(message)
    )]
    Forbidden { url: String, message: String },
    /// The response is a redirect. The client does not follow it: the token is for this server only.
    #[error(
        "{url} redirects to {location} (status {status}), and the client does not follow; give it the URL of the server itself"
    )]
    Redirected { url: String, status: u16, location: String },
    /// The response is not our protocol: an HTML page or other JSON.
    #[error(
        "{url} answers with {content} (status {status}), which is no answer of a ratelimiter server; check the URL, and any proxy before it: {excerpt}"
    )]
    UnexpectedResponse { url: String, status: u16, content: String, excerpt: String },
}

fn message_suffix(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl HttpError {
    /// True if the outcome is unknown, so that the request should be retried with the same lease ID.
    pub const fn is_unanswered(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Incomplete { .. }
            | Self::Unavailable { .. } => true,
            Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Redirected { .. }
            | Self::UnexpectedResponse { .. } => false,
        }
    }

    /// The retry delay, if the request should be retried.
    pub fn retry_after(&self) -> Duration {
        if let Self::Unavailable { retry_after: Some(hint), .. } = self {
            (*hint).max(RETRY_AFTER)
        } else {
            RETRY_AFTER
        }
    }

    /// Converts to the error of an operation.
    pub(super) fn into_error<E: From<Unanswered> + From<Refused>>(self) -> E {
        let reason = self.to_string();
        if self.is_unanswered() {
            E::from(Unanswered { reason, retry_after: self.retry_after() })
        } else {
            E::from(Refused { reason })
        }
    }
}
