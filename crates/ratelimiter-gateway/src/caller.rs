//! The other end of a connection.

use std::task::{Context, Poll};

/// The other end of a connection whose call is being answered.
pub trait Caller: Clone + Send + Sync + Unpin + 'static {
    /// Ready when nobody waits for the answer any more. Polled when the call's body has been read.
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()>;
}
