//! A bound on the time to a connection's first bytes.
//!
//! Which protocol a connection speaks is seen from its first bytes, and until it is known no protocol's own timeout
//! runs: without this, a connection that sends nothing would be kept for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// What an HTTP/2 connection begins with. Whatever differs from it is HTTP/1.1.
const HTTP2_GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail when its first bytes do not come in time.
pub(super) struct FirstBytes<S> {
    stream: S,
    /// Gone when enough bytes have come to tell the protocol.
    waiting: Option<Waiting>,
}

struct Waiting {
    deadline: Pin<Box<Sleep>>,
    /// What is still to come of HTTP/2's greeting; all that has come so far was part of it.
    greeting_left: &'static [u8],
}

impl<S> FirstBytes<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + within));
        Self { stream, waiting: Some(Waiting { deadline, greeting_left: HTTP2_GREETING }) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(waiting) = &mut this.waiting else { return polled };
        match polled {
            Poll::Ready(result) => {
                let came = buffer.filled().get(before..).unwrap_or_default();
                match waiting.greeting_left.strip_prefix(came) {
                    Some(left) if !left.is_empty() => waiting.greeting_left = left,
                    Some(_) | None => this.waiting = None,
                }
                Poll::Ready(result)
            }
            Poll::Pending => waiting.deadline.as_mut().poll(context).map(|()| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the first bytes did not come in time"))
            }),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
