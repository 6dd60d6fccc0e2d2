//! A timeout without a timer for futures that are ready at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::error::Elapsed;

/// Polls once before it sets a timer, because most futures of a request are ready.
pub(super) async fn within<F: Future>(timeout: Duration, awaited: F) -> Result<F::Output, Elapsed> {
    let mut awaited = pin!(awaited);
    match poll_fn(|context| Poll::Ready(awaited.as_mut().poll(context))).await {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => tokio::time::timeout(timeout, awaited).await,
    }
}
