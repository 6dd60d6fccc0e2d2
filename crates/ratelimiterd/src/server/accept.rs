//! Accepting connections, a bounded number at a time, and closing them when the server stops.
//!
//! This is not `axum::serve`, which does not let one set the bounds: the time and the size of a request's head, and the
//! number of connections.

use std::convert::Infallible;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ratelimiter_wire::{ErrorBody, ErrorWord};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::as_usize;
use super::first_bytes::FirstBytes;
use super::handshake::handshake;
use super::lazy_timer::LazyTimer;
use super::stalled_writes::StalledWrites;
use crate::answer;
use crate::config::ServerConfig;
use crate::hosted::HostedBackend;
use crate::routes::{AnswerBody, ApiService};
use crate::tls::Tls;

/// The most bytes of a request's head over HTTP/1.1.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most headers of a request over HTTP/1.1.
const HEADERS_MAX: usize = 100;
/// The most bytes of a request's headers over HTTP/2.
const HTTP2_HEADER_BYTES_MAX: u32 = 64 * 1024;
/// The most requests under way on one connection over HTTP/2.
const HTTP2_STREAMS_MAX: u32 = 256;
/// How often a silent HTTP/2 connection is asked whether it is still there.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(30);
/// How long to wait when the system has no room for another connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The connections of a server.
pub(super) struct Connections<B> {
    api: Arc<ApiService<B>>,
    protocol: auto::Builder<TokioExecutor>,
    tls: Option<Arc<Tls>>,
    header_read_timeout: Duration,
    write_timeout: Duration,
    shutdown_timeout: Duration,
    room: Arc<Semaphore>,
    open: TaskTracker,
}

impl<B: HostedBackend> Connections<B> {
    pub(super) fn new(config: &ServerConfig, api: ApiService<B>, tls: Option<Arc<Tls>>) -> Self {
        let header_read_timeout = Duration::from_millis(config.header_read_timeout_ms);
        let mut protocol = auto::Builder::new(TokioExecutor::new());
        protocol
            .http1()
            .header_read_timeout(header_read_timeout)
            // Who has said all may still be waiting for the answer.
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
            room: Arc::new(Semaphore::new(connections_max)),
            open: TaskTracker::new(),
        }
    }

    /// Waits for room, then for a connection.
    async fn next(&self, listener: &TcpListener) -> (OwnedSemaphorePermit, io::Result<TcpStream>) {
        let permit = Arc::clone(&self.room).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        (permit, listener.accept().await.map(|(stream, _)| stream))
    }

    /// Serves one connection in the background: until it ends, until the server stops and what is open on it is done,
    /// or until `give_up`.
    fn serve(
        self: &Arc<Self>,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        stop: CancellationToken,
        give_up: CancellationToken,
    ) {
        // A denial is one small packet each way; waiting to fill a larger one only adds delay.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection closed before it was served");
            return;
        }
        let connections = Arc::clone(self);
        self.open.spawn(async move {
            let _permit = permit;
            let Some(tls) = &connections.tls else {
                return connections.speak(stream, stop, give_up).await;
            };
            // Nothing was asked before the handshake is over, so a stop need not wait for it.
            let agreed = handshake(stream, tls.current(), connections.header_read_timeout);
            match stop.run_until_cancelled(agreed).await {
                Some(Ok(stream)) => connections.speak(stream, stop, give_up).await,
                Some(Err(error)) => tracing::debug!(%error, "connection not encrypted"),
                None => {}
            }
        });
    }

    /// Speaks HTTP on a connection to its end.
    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        stop: CancellationToken,
        give_up: CancellationToken,
    ) {
        let stream = StalledWrites::new(stream, self.write_timeout);
        let stream = TokioIo::new(FirstBytes::new(stream, self.header_read_timeout));
        let api = Arc::clone(&self.api);
        let service = service_fn(move |request| answer_anyway(Arc::clone(&api), request));
        let mut protocol = self.protocol.clone();
        protocol.http1().timer(LazyTimer::default());
        let connection = protocol.serve_connection(stream, service).into_owned();
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match give_up.run_until_cancelled(connection).await {
                    Some(ended) => ended,
                    None => Err("the server stopped before it was done".into()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection broken");
        }
    }
}

/// Answers a request. If that fails by a mistake of ours, the caller is told so, instead of being hung up on: the outcome
/// is unknown, and with the same lease ID it can be asked for again.
async fn answer_anyway<B: HostedBackend>(
    api: Arc<ApiService<B>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<AnswerBody>, Infallible> {
    let answering = AssertUnwindSafe(api.answer(request)).catch_unwind();
    Ok(answering.await.unwrap_or_else(|_| {
        tracing::error!("a request was not answered because of a mistake in the server");
        let message = "a mistake in the server; its log says more".to_owned();
        let error = ErrorBody { error: ErrorWord::BackendError, message };
        answer::error(&error).map(Either::Left)
    }))
}

/// Accepts connections until the server stops, then waits for those that are open.
pub(super) async fn accept<B: HostedBackend>(
    listener: TcpListener,
    connections: Connections<B>,
    stop: CancellationToken,
) {
    let connections = Arc::new(connections);
    let give_up = CancellationToken::new();
    while let Some((permit, accepted)) = stop.run_until_cancelled(connections.next(&listener)).await
    {
        match accepted {
            // Each has a token of its own, or all of them would meet at one lock on every request.
            Ok(stream) => {
                connections.serve(stream, permit, stop.child_token(), give_up.child_token());
            }
            Err(error) => {
                // One that went away before it was accepted concerns nobody; a system without room needs a moment.
                tracing::warn!(%error, "connection not accepted");
                drop(tokio::time::timeout(ACCEPT_AGAIN_AFTER, stop.cancelled()).await);
            }
        }
    }
    drop(listener);
    connections.open.close();
    let open = connections.open.len();
    tracing::info!(open, "stopping");
    if tokio::time::timeout(connections.shutdown_timeout, connections.open.wait()).await.is_err() {
        tracing::warn!(open = connections.open.len(), "stopping with requests still open");
        give_up.cancel();
        connections.open.wait().await;
    }
}
