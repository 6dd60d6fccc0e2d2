//! Accepts connections, a bounded number at a time, and closes them on shutdown.
//!
//! `axum::serve` is not used because it cannot bound the time and size of a request's head and the number of connections.

use std::convert::Infallible;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use futures::FutureExt;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use ratelimiter_wire::{ErrorBody, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::as_usize;
use super::handshake::handshake;
use super::lazy_timer::LazyTimer;
use super::stream_timeouts::StreamTimeouts;
use super::watched_stream::WatchedStream;
use crate::config::ServerConfig;
use crate::hosted::HostedBackend;
use crate::response;
use crate::routes::{AnswerBody, ApiService, Client};
use crate::tls::Tls;

/// The most bytes of a request's head over HTTP/1.1.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most headers of a request over HTTP/1.1.
const HEADERS_MAX: usize = 100;
/// The most bytes of a request's headers over HTTP/2.
const HTTP2_HEADER_BYTES_MAX: u32 = 64 * 1024;
/// The most concurrent requests on one connection over HTTP/2.
const HTTP2_STREAMS_MAX: u32 = 256;
/// Keep-alive interval of an idle HTTP/2 connection.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example when out of file descriptors.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(100);

/// The connections of a server, and how to serve them.
pub(super) struct Connections<B: HostedBackend> {
    api: Arc<ApiService<B>>,
    protocol: auto::Builder<TokioExecutor>,
    tls: Option<Arc<Tls>>,
    header_read_timeout: Duration,
    write_timeout: Duration,
    shutdown_timeout: Duration,
    permits: Arc<Semaphore>,
    open: TaskTracker,
}

impl<B: HostedBackend> Connections<B> {
    pub(super) fn new(config: &ServerConfig, api: ApiService<B>, tls: Option<Arc<Tls>>) -> Self {
        let header_read_timeout = Duration::from_millis(config.header_read_timeout_ms);
        let mut protocol = auto::Builder::new(TokioExecutor::new());
        protocol
            .http1()
            .header_read_timeout(header_read_timeout)
            // A client may close its sending half and still wait for the response.
            .half_close(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        protocol
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(HTTP2_HEADER_BYTES_MAX)
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .keep_alive_interval(HTTP2_PING_EVERY)
            .keep_alive_timeout(header_read_timeout);
        let connections_max = as_usize(config.connections_max).min(Semaphore::MAX_PERMITS);
        Self {
            api: Arc::new(api),
            protocol,
            tls,
            header_read_timeout,
            write_timeout: Duration::from_millis(config.write_timeout_ms),
            shutdown_timeout: Duration::from_millis(config.shutdown_timeout_ms),
            permits: Arc::new(Semaphore::new(connections_max)),
            open: TaskTracker::new(),
        }
    }

    /// Waits for a permit, then for a connection.
    async fn next(&self, listener: &TcpListener) -> (OwnedSemaphorePermit, io::Result<TcpStream>) {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        (permit, listener.accept().await.map(|(stream, _)| stream))
    }

    /// Serves one connection in the background. After `stop` it finishes the open requests, and `abort` closes it at once.
    fn serve(
        self: &Arc<Self>,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        // Responses are small: waiting to fill a packet (Nagle) would only add latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection closed before it was served");
            return;
        }
        let connections = Arc::clone(self);
        self.open.spawn(async move {
            let _permit = permit;
            match &connections.tls {
                None => connections.serve_http(stream, stop, abort).await,
                // Boxed, so that connections without TLS stay small.
                Some(tls) => Box::pin(connections.serve_tls(tls, stream, stop, abort)).await,
            }
        });
    }

    /// Serves HTTP over TLS on a connection until it ends.
    async fn serve_tls(
        &self,
        tls: &Tls,
        stream: TcpStream,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        // There is no request before the end of the handshake, so a shutdown need not wait for it.
        let negotiated = handshake(stream, tls.current(), self.header_read_timeout);
        match stop.run_until_cancelled(negotiated).await {
            Some(Ok(stream)) => self.serve_http(stream, stop, abort).await,
            Some(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            None => {}
        }
    }

    /// Serves HTTP on a connection until it ends.
    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        stop: CancellationToken,
        abort: CancellationToken,
    ) {
        let mut connection = std::pin::pin!(self.connection(stream));
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match abort.run_until_cancelled(connection).await {
                    Some(ended) => ended,
                    None => Err("closed by shutdown".into()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection failed");
        }
    }

    /// Not part of `serve_http`, whose future would keep the room of everything that this moves.
    fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
    ) -> impl GracefulConnection<Error = BoxError> + use<S, B> {
        let stream = StreamTimeouts::new(stream, self.header_read_timeout, self.write_timeout);
        let stream = WatchedStream::new(stream);
        let (api, client) = (Arc::clone(&self.api), stream.clone());
        let service =
            service_fn(move |request| catch_panic(Arc::clone(&api), request, client.clone()));
        let mut protocol = self.protocol.clone();
        protocol.http1().timer(LazyTimer::default());
        protocol.serve_connection(TokioIo::new(stream), service).into_owned()
    }
}

/// Answers a request, with 503 if the handler panics: the outcome is unknown, and the caller can retry with the same
/// lease ID. Otherwise hyper would close the connection without a response.
async fn catch_panic<B: HostedBackend>(
    api: Arc<ApiService<B>>,
    request: hyper::Request<Incoming>,
    client: impl Client,
) -> Result<hyper::Response<AnswerBody>, Infallible> {
    // Boxed, because hyper keeps the room of a request as long as its connection.
    let answering = Box::pin(AssertUnwindSafe(api.answer(request, &client)).catch_unwind());
    Ok(answering.await.unwrap_or_else(|_| {
        tracing::error!("request handler panicked");
        let message = "internal error; see the server's log".to_owned();
        let error = ErrorBody { error: ErrorCode::BackendError, message };
        response::error(&error).map(Either::Left)
    }))
}

/// Accepts connections until the server stops, then waits for the open ones.
pub(super) async fn accept<B: HostedBackend>(
    listener: TcpListener,
    connections: Connections<B>,
    stop: CancellationToken,
) {
    let connections = Arc::new(connections);
    let abort = CancellationToken::new();
    while let Some((permit, accepted)) = stop.run_until_cancelled(connections.next(&listener)).await
    {
        match accepted {
            // A child token per connection, because all requests would contend for the lock of a shared one.
            Ok(stream) => {
                connections.serve(stream, permit, stop.child_token(), abort.child_token());
            }
            Err(error) => {
                // An aborted connection can be ignored; when out of file descriptors, back off.
                tracing::warn!(%error, "accept failed");
                drop(tokio::time::timeout(ACCEPT_RETRY_AFTER, stop.cancelled()).await);
            }
        }
    }
    drop(listener);
    connections.api.end_waiting();
    connections.open.close();
    let open = connections.open.len();
    tracing::info!(open, "waiting for open connections");
    if tokio::time::timeout(connections.shutdown_timeout, connections.open.wait()).await.is_err() {
        tracing::warn!(
            open = connections.open.len(),
            "shutdown timeout passed, closing open connections"
        );
        abort.cancel();
        connections.open.wait().await;
    }
    connections.api.settle_calls(connections.shutdown_timeout).await;
}
