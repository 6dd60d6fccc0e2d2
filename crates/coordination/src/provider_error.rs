//! The one way in which a provider fails: it gave no answer.

use std::error::Error;
use std::fmt;

/// A provider could not answer: no connection, a full disk, a deadlock.
///
/// Bad input cannot get this far (the types refuse it), and "too late" is an answer, so this always
/// means that nobody knows whether the operation happened. It may be repeated (`PRIM-GEN-E`). The
/// memory provider never returns it.
#[derive(Debug)]
pub struct ProviderError {
    operation: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl ProviderError {
    /// `operation` (such as `outbox claim`) got no answer because of `source`.
    pub fn new(
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> ProviderError {
        ProviderError { operation, source: source.into() }
    }

    /// What was asked.
    pub fn operation(&self) -> &'static str {
        self.operation
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "provider_unavailable: {}: {}", self.operation, self.source)
    }
}

impl Error for ProviderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}
