//! What a provider answers, and the one way in which it fails: it gave no answer.

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

/// What came of a call to a provider.
pub type Result<T, E = ProviderError> = std::result::Result<T, E>;

/// What a method of a provider returns: a future of a [`Result`] that may move between threads.
///
/// Every such future is one, so a provider writes `async fn`.
pub trait Answer<T, E = ProviderError>: Future<Output = Result<T, E>> + Send {}

impl<T, E, F: Future<Output = Result<T, E>> + Send> Answer<T, E> for F {}

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
