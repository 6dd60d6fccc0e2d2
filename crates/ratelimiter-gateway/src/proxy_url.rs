//! A proxy through which a provider is reached.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;
use percent_encoding::percent_decode_str;

/// A proxy that opens tunnels with CONNECT, such as `http://proxy:3128`, perhaps with a user and password. `Debug` does not show these.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// Why a text is not the URL of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each variant is")]
pub enum ProxyUrlError {
    #[error("must be a URL such as http://proxy:3128 or http://user:password@proxy:3128")]
    Shape,
    #[error(
        "must begin with http://: the connection to the proxy is not encrypted, what passes it is"
    )]
    Scheme,
}

impl ProxyUrl {
    /// Parses a URL. What is not a letter or digit in the user and password is percent-encoded.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, ProxyUrlError> {
        let parts = text.parse::<Uri>().map_err(|_| ProxyUrlError::Shape)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ProxyUrlError::Shape);
        };
        if scheme != Scheme::HTTP {
            return Err(ProxyUrlError::Scheme);
        }
        let path = parts.path_and_query.as_ref().map_or("/", |path| path.as_str());
        if !matches!(path, "" | "/") || text.contains('#') {
            return Err(ProxyUrlError::Shape);
        }
        let (user, host) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority.as_str()),
        };
        let builder = Uri::builder().scheme(Scheme::HTTP).authority(host).path_and_query("/");
        let uri = builder.build().map_err(|_| ProxyUrlError::Shape)?;
        // Without a port, nothing follows the host.
        let has_port = uri.port_u16().is_some_and(|port| port > 0);
        let is_host = uri.host().is_some_and(|name| !name.is_empty() && (has_port || name == host));
        if !is_host || user.is_some_and(|user| user.contains('@')) {
            return Err(ProxyUrlError::Shape);
        }
        Ok(Self { uri, authorization: user.map(basic) })
    }

    /// Where it is.
    pub(crate) const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What it wants to know of who asks.
    pub(crate) const fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

/// `Basic` credentials of a user and password as they stand in a URL.
fn basic(user: &str) -> HeaderValue {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let mut plain: Vec<u8> = percent_decode_str(user).collect();
    plain.push(b':');
    plain.extend(percent_decode_str(password));
    let value = format!("Basic {}", STANDARD.encode(plain));
    let mut value = HeaderValue::try_from(value).expect("base64 is visible ASCII");
    value.set_sensitive(true);
    value
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyUrl({})", self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-16
    #[test]
    fn gw_16_a_proxy_has_a_host_and_perhaps_a_user() {
        for (text, uri, authorization) in [
            ("http://proxy:3128", "http://proxy:3128/", None),
            ("http://10.0.0.1/", "http://10.0.0.1/", None),
            ("http://[::1]", "http://[::1]/", None),
            ("http://[::1]:3128", "http://[::1]:3128/", None),
            ("http://a:b@proxy:3128", "http://proxy:3128/", Some("Basic YTpi")),
            ("http://a:p%40ss%3A@proxy", "http://proxy/", Some("Basic YTpwQHNzOg==")),
            ("http://a@proxy", "http://proxy/", Some("Basic YTo=")),
        ] {
            let proxy = ProxyUrl::new(text).unwrap();
            assert_eq!(*proxy.uri(), uri);
            let authorization = authorization.map(HeaderValue::from_static);
            assert_eq!(proxy.authorization(), authorization.as_ref(), "{text}");
            assert!(!format!("{proxy:?}").contains('@'));
        }
    }

    /// GW-16
    #[test]
    fn gw_16_what_is_no_proxy_is_refused() {
        for (text, error) in [
            ("", ProxyUrlError::Shape),
            ("proxy:3128", ProxyUrlError::Shape),
            ("http://", ProxyUrlError::Shape),
            ("http://proxy:0", ProxyUrlError::Shape),
            ("http://proxy:", ProxyUrlError::Shape),
            ("http://proxy:99999", ProxyUrlError::Shape),
            ("http://proxy:abc", ProxyUrlError::Shape),
            ("http://a:b@@proxy", ProxyUrlError::Shape),
            ("http://proxy/path", ProxyUrlError::Shape),
            ("http://proxy/?a", ProxyUrlError::Shape),
            ("http://proxy#a", ProxyUrlError::Shape),
            ("https://proxy", ProxyUrlError::Scheme),
            ("socks5://proxy", ProxyUrlError::Scheme),
        ] {
            assert_eq!(ProxyUrl::new(text), Err(error), "{text:?}");
        }
    }
}
