//! Keys, which are never shown.

use std::fmt;

use hyper::header::HeaderValue;
use subtle::ConstantTimeEq;

/// A key of a tenant or of a provider. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// A text cannot be sent in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key has 1 to 4096 visible ASCII characters")]
pub struct SecretError;

/// The most bytes of a key.
const SECRET_BYTES_MAX: usize = 4_096;

impl Secret {
    /// Checks a key.
    ///
    /// # Errors
    /// It cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let fits = (1..=SECRET_BYTES_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretError);
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }

    /// As the value of a header, after a prefix.
    pub(crate) fn header_value(&self, prefix: &str) -> HeaderValue {
        let text = format!("{prefix}{}", self.0);
        let mut value = HeaderValue::try_from(text).expect("the key is visible ASCII");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
