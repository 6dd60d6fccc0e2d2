//! What can be chosen about a limiter behind a URL.

use std::fmt;
use std::time::Duration;

use hyper::header::HeaderValue;

/// What can be chosen about a limiter behind a URL.
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
    /// How long one request may take, from connecting to the answer's last byte.
    pub timeout: Duration,
    /// For how long a request without an answer is repeated, with the same lease ID, before that is reported. Zero
    /// for callers that repeat by themselves.
    pub repeat_for: Duration,
    /// What is shown to the server as the right to ask.
    pub token: Option<BearerToken>,
    /// What is spoken to an `http://` server. With `https://` the two ends agree on HTTP/2 or HTTP/1.1 by themselves.
    pub cleartext: Cleartext,
    /// Whose certificates an `https://` server may show.
    pub roots: TrustedRoots,
    /// How many connections that nobody uses are kept for the next request.
    pub idle_connections_max: usize,
}

/// What is spoken to a server without encryption, where the two ends cannot agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cleartext {
    /// HTTP/1.1: one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 from the first byte: many requests at a time on one connection. The server must speak it.
    Http2,
}

/// Whose certificates a server may show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TrustedRoots {
    /// The machine's own.
    #[default]
    System,
    /// These, in PEM form, and no others.
    Pem(Vec<u8>),
}

/// The secret that a server knows a client by. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(HeaderValue);

/// A text is no bearer token.
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
    /// Checks a text and makes it a token.
    ///
    /// # Errors
    /// Empty, or with white space or other characters that a header cannot carry.
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
