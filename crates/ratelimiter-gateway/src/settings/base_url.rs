//! Where a provider is.

use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};

/// A URL with scheme, host and perhaps a path, such as `https://api.openai.com/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// Empty, or begins with `/` and does not end with it.
    path: Box<str>,
}

/// Why a text is not a base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each variant is")]
pub enum BaseUrlError {
    #[error("must be a URL such as https://api.openai.com/v1, without a fragment")]
    Shape,
    #[error("must begin with https:// or http://")]
    Scheme,
    #[error("must not have a user or password; a key belongs into api_key")]
    Credentials,
    #[error("must not have a query")]
    Query,
}

impl BaseUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, BaseUrlError> {
        if text.contains('#') {
            return Err(BaseUrlError::Shape);
        }
        let uri: Uri = text.parse().map_err(|_| BaseUrlError::Shape)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(BaseUrlError::Shape);
        };
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err(BaseUrlError::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(BaseUrlError::Credentials);
        }
        let path = parts.path_and_query.as_ref();
        if path.is_some_and(|path| path.query().is_some()) {
            return Err(BaseUrlError::Query);
        }
        let path = path.map_or("", |path| path.path()).trim_end_matches('/');
        Ok(Self { scheme, authority, path: path.into() })
    }

    /// Whether its path ends with `/v1`.
    pub(crate) fn ends_with_version(&self) -> bool {
        self.path.ends_with("/v1")
    }

    /// True for https.
    pub fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host, with its port if the URL names one.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The URL of a path below this one; `rest` has no leading slash. `None` if it is no path.
    pub(crate) fn join(&self, rest: &str, query: Option<&str>) -> Option<Uri> {
        let path = match query {
            Some(query) => format!("{}/{rest}?{query}", self.path),
            None => format!("{}/{rest}", self.path),
        };
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        builder.path_and_query(path).build().ok()
    }
}
