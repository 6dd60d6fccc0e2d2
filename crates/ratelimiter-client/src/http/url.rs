//! The validated URL of a server.

use std::fmt;
use std::sync::Arc;

use hyper::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server's URL: `http` or `https`, a host, and optionally a path prefix. No slash at the end. Clones share the text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BaseUrl(Arc<str>);

/// Why a text is no valid URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum UrlError {
    /// The text is no URL.
    #[error("{url:?} is not a URL: {reason}; write it like http://ratelimiter:8080")]
    Syntax { url: String, reason: String },
    /// The text does not begin with `http://` or `https://`.
    #[error(
        "{url:?} does not begin with http:// or https://; write it like http://ratelimiter:8080"
    )]
    Scheme { url: String },
    /// A port that is no number from 1 to 65535.
    #[error("the port of {url:?} is not a number from 1 to 65535")]
    Port { url: String },
    /// A name or password before the host.
    #[error("a URL with a name or password in it is refused; give the token in the options")]
    Credentials,
    /// A query or fragment after the path.
    #[error("{url:?} has a query or a fragment; give only the server's address and path prefix")]
    Query { url: String },
}

impl BaseUrl {
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let url = || text.to_owned();
        let lower = text.to_ascii_lowercase();
        if !lower.starts_with("http://") && !lower.starts_with("https://") {
            return Err(UrlError::Scheme { url: url() });
        }
        if text.contains(['?', '#']) {
            return Err(UrlError::Query { url: url() });
        }
        let uri: Uri = text
            .parse()
            .map_err(|error| UrlError::Syntax { url: url(), reason: format!("{error}") })?;
        let authority = uri.authority().ok_or_else(|| UrlError::Syntax {
            url: url(),
            reason: "it names no host".to_owned(),
        })?;
        if authority.as_str().contains('@') {
            return Err(UrlError::Credentials);
        }
        let has_port = authority.as_str().len() > authority.host().len();
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(UrlError::Port { url: url() });
        }
        Ok(Self(text.trim_end_matches('/').into()))
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.to_ascii_lowercase().starts_with("https://")
    }

    /// The URL of a path of the API. Callers encode variable parts with [`encoded`].
    pub(super) fn at(&self, path: &str) -> Uri {
        let Self(base) = self;
        format!("{base}{path}")
            .parse()
            .expect("a checked URL with a path of plain and encoded characters")
    }
}

/// Percent-encodes a text for a path or a query.
pub(super) fn encoded(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, ENCODED)
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLI-01
    #[test]
    fn cli_01_an_invalid_url_is_refused_with_the_reason() {
        for (text, expected) in [
            ("", "does not begin with http://"),
            ("ratelimiter:8080", "does not begin with http://"),
            ("ftp://ratelimiter", "does not begin with http://"),
            ("http://", "is not a URL"),
            ("http:///v1", "is not a URL"),
            ("http://two words", "is not a URL"),
            ("http://host:99999", "port"),
            ("http://host:0", "port"),
            ("http://host:", "port"),
            ("http://user:secret@host", "name or password"),
            ("http://host/?a=b", "query"),
            ("http://host#top", "fragment"),
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_path_of_the_api_is_appended_to_the_url() {
        for (text, expected) in [
            ("http://ratelimiter:8080", "http://ratelimiter:8080/v1/reserve"),
            ("http://ratelimiter:8080/", "http://ratelimiter:8080/v1/reserve"),
            ("HTTPS://example.org/limits/", "https://example.org/limits/v1/reserve"),
            ("http://[::1]:8080", "http://[::1]:8080/v1/reserve"),
            ("http://[::1]", "http://[::1]/v1/reserve"),
        ] {
            let base = BaseUrl::parse(text).unwrap();
            assert_eq!(base.at("/v1/reserve").to_string(), expected);
        }
        assert!(BaseUrl::parse("HTTPS://x").unwrap().is_https());
    }

    #[test]
    fn every_key_can_be_encoded_in_a_path() {
        let encoded = encoded("a:b/c?d=e&f%g #ü").to_string();
        assert_eq!(encoded, "a%3Ab%2Fc%3Fd%3De%26f%25g%20%23%C3%BC");
    }
}
