//! Timeout for the first bytes of a connection.
//!
//! hyper detects the protocol from the first bytes, and until then no protocol's timeout runs: without this one, a
//! connection that sends nothing would stay open forever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The HTTP/2 connection preface. A connection that starts differently speaks HTTP/1.1.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail if its first bytes do not arrive in time.
pub(super) struct FirstByteTimeout<S> {
    stream: S,
    /// `None` once the protocol is known.
    detection: Option<ProtocolDetection>,
}

struct ProtocolDetection {
    deadline: Pin<Box<Sleep>>,
    /// The rest of the preface; all bytes so far matched its beginning.
    preface_left: &'static [u8],
}

impl<S> FirstByteTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + timeout));
        Self {
            stream,
            detection: Some(ProtocolDetection { deadline, preface_left: HTTP2_PREFACE }),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstByteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(detection) = &mut this.detection else { return polled };
        match polled {
            Poll::Ready(result) => {
                let received = buffer.filled().get(before..).unwrap_or_default();
                match detection.preface_left.strip_prefix(received) {
                    Some(left) if !left.is_empty() => detection.preface_left = left,
                    Some(_) | None => this.detection = None,
                }
                Poll::Ready(result)
            }
            Poll::Pending => detection.deadline.as_mut().poll(context).map(|()| {
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the first bytes did not arrive in time",
                ))
            }),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstByteTimeout<S> {
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
