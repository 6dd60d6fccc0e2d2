//! The listening provider.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::calls::SeenCall;
use crate::fault::Fault;
use crate::options::{MockOptions, OUTPUT_TOKENS_MAX};
use crate::service::answer;
use crate::state::State;

/// Streams at a time on one connection of HTTP/2.
const STREAMS_MAX: u32 = 10_000;

/// After an error to accept, which is mostly a lack of file descriptors.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(100);

/// A fake LLM provider that listens in the background. Dropping it closes all connections.
#[derive(Debug)]
pub struct MockProvider {
    local_addr: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl MockProvider {
    /// Listens from here on.
    ///
    /// # Errors
    /// The address cannot be bound, or an option is out of its bounds (`InvalidInput`).
    pub async fn start(options: MockOptions) -> io::Result<Self> {
        options.check()?;
        let listener = TcpListener::bind(options.listen).await?;
        let local_addr = listener.local_addr()?;
        let state = Arc::new(State::new(options));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { local_addr, state, accepting })
    }

    /// The address that it listens on.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What an OpenAI SDK takes as `base_url`.
    pub fn base_url_openai(&self) -> String {
        format!("http://{}/v1", self.local_addr)
    }

    /// What an Anthropic SDK takes as `base_url`.
    pub fn base_url_anthropic(&self) -> String {
        format!("http://{}", self.local_addr)
    }

    /// The newest calls, oldest first; see [`CALLS_KEPT_MAX`](crate::CALLS_KEPT_MAX). A call is seen when its body is read.
    pub fn calls(&self) -> Vec<SeenCall> {
        self.state.calls.calls()
    }

    /// Resolves when `count` calls were seen since the start.
    pub async fn wait_for_calls(&self, count: u64) {
        self.state.calls.wait_for_seen(count).await;
    }

    /// Resolves when `count` calls have ended since the start.
    pub async fn wait_for_ended(&self, count: u64) {
        self.state.calls.wait_for_ended(count).await;
    }

    /// Replaces the faults, of calls that come from here on.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.state.set_faults(faults);
    }

    /// Replaces the tokens of answers, of calls that come from here on.
    ///
    /// # Panics
    /// Above [`OUTPUT_TOKENS_MAX`].
    pub fn set_output_tokens(&self, tokens: u64) {
        assert!(tokens <= OUTPUT_TOKENS_MAX, "an answer has at most {OUTPUT_TOKENS_MAX} tokens");
        self.state.output_tokens.store(tokens, Ordering::Relaxed);
    }

    /// Replaces the limits by ones that nobody has used yet.
    pub fn set_limits(&self, requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) {
        self.state.limits.set(requests_per_minute, tokens_per_minute);
    }

    /// Headers of all answers from here on, in place of its own with the same names: what other providers say.
    pub fn set_headers(&self, headers: HeaderMap) {
        self.state.set_headers(headers);
    }

    /// Closes all connections and frees the address.
    pub async fn stop(mut self) {
        self.accepting.abort();
        // It ends as aborted, or had panicked, which is in the output already.
        drop((&mut self.accepting).await);
    }
}

impl Drop for MockProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Runs until it is aborted, which closes the connections too.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, Arc::clone(&state)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep_until(Instant::now() + ACCEPT_RETRY_AFTER).await;
            }
        }
        // Those that have ended.
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    // Without it, small events wait for the acknowledgement of those before them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot turn off Nagle's algorithm");
    }
    let service = service_fn(move |request| answer(Arc::clone(&state), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let served = builder.serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(error, "connection ended with an error");
    }
}
