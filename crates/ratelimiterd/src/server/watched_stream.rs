//! A stream on which a request that waits notices that its client has gone away.
//!
//! hyper does not read on an HTTP/1.1 connection while a request is being answered, because a client may close its sending half and
//! still wait for the response. For a reserve that waits for room that would be too long (`WAIT-04`): there, a client that has
//! closed its sending half has gone away.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::routes::Client;

/// The most bytes that are read ahead. A client that sends more is still there.
const READ_AHEAD_BYTES_MAX: usize = 1024;
/// Read at a time. Nearly always there is nothing, and each call asks.
const READ_AHEAD_BYTES: usize = 64;

/// A stream that a connection shares with its requests.
pub(super) struct WatchedStream<S>(Arc<Mutex<ReadAhead<S>>>);

struct ReadAhead<S> {
    stream: S,
    /// Bytes that the connection has not read yet.
    bytes: Vec<u8>,
    is_at_end: bool,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(ReadAhead { stream, bytes: Vec::new(), is_at_end: false })))
    }

    fn lock(&self) -> MutexGuard<'_, ReadAhead<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for WatchedStream<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncRead + Unpin + Send + 'static> Client for WatchedStream<S> {
    /// Polled by the task of the connection, which does not read in the meantime.
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        let ReadAhead { stream, bytes, is_at_end } = &mut *self.lock();
        while !*is_at_end {
            if bytes.len() == READ_AHEAD_BYTES_MAX {
                return Poll::Pending;
            }
            let room = READ_AHEAD_BYTES.min(READ_AHEAD_BYTES_MAX - bytes.len());
            let mut chunk = [0; READ_AHEAD_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk[..room]);
            match Pin::new(&mut *stream).poll_read(context, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => {
                    bytes.extend_from_slice(chunk.filled());
                }
                Poll::Ready(_) => *is_at_end = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ReadAhead { stream, bytes, is_at_end } = &mut *self.lock();
        if !bytes.is_empty() {
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            bytes.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match is_at_end {
            true => Poll::Ready(Ok(())),
            false => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    async fn is_gone(stream: &WatchedStream<impl AsyncRead + Unpin + Send + 'static>) -> bool {
        poll_fn(|context| stream.poll_gone(context)).now_or_never().is_some()
    }

    #[tokio::test]
    async fn what_was_read_ahead_is_not_lost() {
        let (mut client, server) = duplex(4 * READ_AHEAD_BYTES_MAX);
        let mut server = WatchedStream::new(server);
        assert!(!is_gone(&server).await, "it is silent");
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(2 * READ_AHEAD_BYTES_MAX).collect();
        client.write_all(&sent[..7]).await.unwrap();
        assert!(!is_gone(&server).await, "it sends");
        client.write_all(&sent[7..]).await.unwrap();
        assert!(!is_gone(&server).await, "it sends more than is read ahead");
        drop(client);
        assert!(!is_gone(&server).await, "what it sent is not read yet");
        let mut received = vec![0; sent.len()];
        server.read_exact(&mut received).await.unwrap();
        assert_eq!(received, sent);
        assert!(is_gone(&server).await);
        assert_eq!(server.read(&mut received).await.unwrap(), 0, "and the connection ends");
    }
}
