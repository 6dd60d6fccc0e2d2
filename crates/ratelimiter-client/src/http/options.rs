//! Options of an HTTP limiter.

use std::fmt;
use std::time::Duration;

use hyper::header::HeaderValue;

/// Options of an HTTP limiter.
///
/// ```
/// use std::time::Duration;
/// use ratelimiter_client::{BearerToken, HttpLimiter, HttpOptions};
///
/// let options = HttpOptions {
///     token: Some(BearerToken::new("3c0ffee")?),
///     timeout: Duration::from_millis(500),
///     ..HttpOptions::default()
/// };
/// let limiter = HttpLimiter::with_options("https://ratelimiter.example.org", options)?;
/// # drop(limiter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// How long one request may take, from connecting to the last byte of the response.
    pub timeout: Duration,
    /// How long a request without an answer is retried, with the same lease ID. Zero for callers with their own retries.
    pub repeat_for: Duration,
    /// The token to send.
    pub token: Option<BearerToken>,
    /// The HTTP version for `http://` URLs. With `https://` it is negotiated.
    pub cleartext: Cleartext,
    /// The root certificates for `https://` URLs.
    pub roots: TrustedRoots,
    /// The most idle connections that are kept open.
    pub idle_connections_max: usize,
}

/// The HTTP version of unencrypted connections, where it cannot be negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cleartext {
    /// HTTP/1.1: one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 from the first byte: many requests at a time on one connection. The server must speak it.
    Http2,
}

/// The root certificates that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TrustedRoots {
    /// Those of the system.
    #[default]
    System,
    /// These, in PEM form, and no others.
    Pem(Vec<u8>),
}

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(HeaderValue);

/// The text is no valid bearer token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a bearer token is one word of visible ASCII characters")]
pub struct TokenError;

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(2),
            repeat_for: Duration::from_secs(2),
            token: None,
            cleartext: Cleartext::default(),
            roots: TrustedRoots::default(),
            idle_connections_max: 64,
        }
    }
}

impl BearerToken {
    /// A token from its text.
    ///
    /// # Errors
    /// The text is empty, or has characters other than visible ASCII.
    pub fn new(text: impl AsRef<str>) -> Result<Self, TokenError> {
        let text = text.as_ref();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| TokenError)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The value of the `Authorization` header.
    pub(super) const fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLI-01
    #[test]
    fn cli_01_a_token_is_one_word_and_is_never_printed() {
        for text in ["", "two words", "line\n", "schlüssel"] {
            assert_eq!(BearerToken::new(text), Err(TokenError), "{text:?}");
        }
        let token = BearerToken::new("3c0ffee").unwrap();
        let options = HttpOptions { token: Some(token), ..HttpOptions::default() };
        assert!(!format!("{options:?}").contains("3c0ffee"));
    }
}
