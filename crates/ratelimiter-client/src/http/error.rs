//! What can go wrong between a client and a server, and which of it leaves the outcome unknown.

use std::time::Duration;

use ratelimiter::{Refused, Unanswered};

/// When to repeat a request after an error that says nothing about it.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Why a request got no valid answer from a ratelimiter server.
///
/// As part of a limiter's error it is the `reason` of an [`Unanswered`] or a [`Refused`];
/// [`HttpLimiter::check`](super::HttpLimiter::check) gives it as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// No connection: the name is unknown, nobody listens, the certificate is not trusted.
    #[error("cannot connect to {url}: {reason}")]
    Unreachable {
        /// The server.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server was asked, and did not answer in time.
    #[error("{url} did not answer within {timeout:?}")]
    Silent {
        /// The server.
        url: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The connection ended before the answer did.
    #[error("the answer of {url} was cut short: {reason}")]
    CutShort {
        /// The server.
        url: String,
        /// How it ended.
        reason: String,
    },
    /// The server, or something before it, says that it cannot answer now.
    #[error("{url} is not available: status {status}{}", said(message))]
    Unavailable {
        /// The server.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it said, for people.
        message: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// The request came without a token that the server knows.
    #[error(
        "{url} does not accept the token (401){}; give the client a token that stands in the server's configuration",
        said(message)
    )]
    Unauthorized {
        /// The server.
        url: String,
        /// What it said, for people.
        message: String,
    },
    /// The token is known, but not for this request.
    #[error(
        "{url} does not allow this with this token (403){}; give the client one that may",
        said(message)
    )]
    Forbidden {
        /// The server.
        url: String,
        /// What it said, for people.
        message: String,
    },
    /// The answer leads elsewhere, and the client does not follow: the token is for this server only.
    #[error(
        "{url} redirects to {location} (status {status}), and the client does not follow; give it the URL of the server itself"
    )]
    Redirected {
        /// The server.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Where to.
        location: String,
    },
    /// The server answers in another language: a web page, another program's JSON.
    #[error(
        "{url} answers with {kind} (status {status}), which is no answer of a ratelimiter server; check the URL, and any proxy before it: {begins}"
    )]
    NotOurs {
        /// The server.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The answer's content type, or what else it is.
        kind: String,
        /// How it begins.
        begins: String,
    },
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl HttpError {
    /// True if nobody knows whether the request was carried out, so that repeating it with the same lease ID is right.
    pub const fn is_unanswered(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::CutShort { .. }
            | Self::Unavailable { .. } => true,
            Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Redirected { .. }
            | Self::NotOurs { .. } => false,
        }
    }

    /// When to repeat the request, if that is right.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Unavailable { retry_after: Some(retry_after), .. } => {
                (*retry_after).max(RETRY_AFTER)
            }
            Self::Unavailable { retry_after: None, .. }
            | Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::CutShort { .. }
            | Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Redirected { .. }
            | Self::NotOurs { .. } => RETRY_AFTER,
        }
    }

    /// As the error of the operation that was under way.
    pub(super) fn into_error<E: From<Unanswered> + From<Refused>>(self) -> E {
        let reason = self.to_string();
        if self.is_unanswered() {
            E::from(Unanswered { reason, retry_after: self.retry_after() })
        } else {
            E::from(Refused { reason })
        }
    }
}
