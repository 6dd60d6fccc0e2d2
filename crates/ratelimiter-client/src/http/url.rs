//! Where the server is: a URL that was checked once.

use std::fmt;
use std::sync::Arc;

use hyper::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a path or a query as it is; everything else is percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server's URL: `http` or `https`, a host, and perhaps a path under which the API lies. No slash at the end.
/// Clones share the text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BaseUrl(Arc<str>);

/// Why a text is not the URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is no URL at all.
    #[error("{url:?} is not a URL: {reason}; write it like http://ratelimiter:8080")]
    Syntax {
        /// The refused text.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The text does not begin with `http://` or `https://`.
    #[error(
        "{url:?} does not begin with http:// or https://; write it like http://ratelimiter:8080"
    )]
    Scheme {
        /// The refused text.
        url: String,
    },
    /// A port that is no number from 1 to 65535.
    #[error("the port of {url:?} is not a number from 1 to 65535")]
    Port {
        /// The refused text.
        url: String,
    },
    /// A name or password before the host.
    #[error("a URL with a name or password in it is refused; give the token in the options")]
    Credentials,
    /// A query or fragment after the path.
    #[error(
        "{url:?} has a query or a fragment; give only the part under which the server's API lies"
    )]
    Query {
        /// The refused text.
        url: String,
    },
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

    /// The URL of a path of the API. Whatever comes from outside is encoded by [`encoded`] first.
    pub(super) fn at(&self, path: &str) -> Uri {
        let Self(base) = self;
        format!("{base}{path}")
            .parse()
            .expect("a checked URL with a path of plain and encoded characters")
    }
}

/// A text as a part of a path or of a query.
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
    fn cli_01_a_url_that_does_not_parse_says_what_is_wrong_with_it() {
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
    fn a_path_of_the_api_lies_under_the_url() {
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
    fn every_key_can_stand_in_a_path() {
        let encoded = encoded("a:b/c?d=e&f%g #ü").to_string();
        assert_eq!(encoded, "a%3Ab%2Fc%3Fd%3De%26f%25g%20%23%C3%BC");
    }
}
