//! The other end of a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use futures::future::{Either, select};
use hyper::Version;

/// A client whose request is being answered.
pub(crate) trait Client: Clone + Send + Sync + Unpin + 'static {
    /// Ready when nobody waits for the answer any more. Only for requests over HTTP/1.1: over HTTP/2, hyper drops the future of such
    /// a request itself.
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// Waits for an answer as long as the client does; `None` if it went away.
pub(super) async fn while_connected<T>(
    client: &impl Client,
    version: Version,
    answer: impl Future<Output = T>,
) -> Option<T> {
    if version == Version::HTTP_2 {
        return Some(answer.await);
    }
    match select(pin!(answer), poll_fn(|context| client.poll_gone(context))).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}
