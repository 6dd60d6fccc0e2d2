//! Timeouts for the first bytes of a connection and for writes that make no progress.
//!
//! hyper detects the protocol from the first bytes, and until then no protocol's timeout runs: without a timeout of our
//! own, a connection that sends nothing would stay open forever. So would one that sends requests and never reads, along
//! with its responses.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The HTTP/2 connection preface. A connection that starts differently speaks HTTP/1.1.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail if its first bytes do not arrive in time, and whose writes fail if the client accepts no
/// byte in time.
pub(super) struct StreamTimeouts<S> {
    stream: S,
    /// `None` once the protocol is known.
    detection: Option<ProtocolDetection>,
    write_timeout: Duration,
    /// Set by the first pending write, cleared by the next completed one.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

struct ProtocolDetection {
    deadline: Pin<Box<Sleep>>,
    /// The rest of the preface; all bytes so far matched its beginning.
    preface_left: &'static [u8],
}

impl<S> StreamTimeouts<S> {
    pub(super) fn new(stream: S, first_bytes_timeout: Duration, write_timeout: Duration) -> Self {
        let deadline = start(first_bytes_timeout);
        let detection = Some(ProtocolDetection { deadline, preface_left: HTTP2_PREFACE });
        Self { stream, detection, write_timeout, write_deadline: None }
    }
}

impl<S: AsyncWrite + Unpin> StreamTimeouts<S> {
    fn write_in_time<T>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let polled = write(Pin::new(&mut self.stream), context);
        if polled.is_ready() {
            self.write_deadline = None;
            return polled;
        }
        let timeout = self.write_timeout;
        let deadline = self.write_deadline.get_or_insert_with(|| start(timeout));
        deadline
            .as_mut()
            .poll(context)
            .map(|()| Err(timed_out("the client does not read its response")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StreamTimeouts<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(detection) = &mut this.detection else { return polled };
        if polled.is_pending() {
            let deadline = detection.deadline.as_mut().poll(context);
            return deadline.map(|()| Err(timed_out("the first bytes did not arrive in time")));
        }
        let received = buffer.filled().get(before..).unwrap_or_default();
        match detection.preface_left.strip_prefix(received) {
            Some(left) if !left.is_empty() => detection.preface_left = left,
            Some(_) | None => this.detection = None,
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StreamTimeouts<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_in_time(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_in_time(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_in_time(context, AsyncWrite::poll_shutdown)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_in_time(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

fn start(timeout: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(Instant::now() + timeout))
}

fn timed_out(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, message)
}
