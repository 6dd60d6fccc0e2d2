//! Results of provider calls.

use std::error::Error;
use std::fmt;

/// A provider could not answer: no connection, a full disk, a deadlock.
///
/// The types refuse bad input, and "too late" is an answer, so this error always means that the
/// outcome is unknown. The operation may be repeated (`PRIM-GEN-E`). The memory provider never
/// returns it.
#[derive(Debug)]
pub struct ProviderError {
    operation: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

/// The result of a call to a provider.
pub type Result<T, E = ProviderError> = std::result::Result<T, E>;

/// The return type of a provider's methods: a `Send` future of a [`Result`].
///
/// Every such future implements it, so a provider writes `async fn`.
pub trait Answer<T, E = ProviderError>: Future<Output = Result<T, E>> + Send {}

impl<T, E, F: Future<Output = Result<T, E>> + Send> Answer<T, E> for F {}

impl ProviderError {
    /// The `operation` (such as `outbox claim`) failed because of `source`.
    pub fn new(
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> ProviderError {
        ProviderError { operation, source: source.into() }
    }

    /// The operation.
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
