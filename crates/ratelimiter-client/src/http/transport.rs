//! HTTP requests: connections, timeouts, retries.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ratelimiter::admission::no_answer_pause;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::error::HttpError;
use super::options::{BearerToken, Cleartext, HttpOptions, TrustedRoots};
use super::response::ServerResponse;
use super::url::{BaseUrl, UrlError};

/// The most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// After how long an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of HTTP/2 keep-alive pings, so that a dead connection is soon closed.
const PING_EVERY: Duration = Duration::from_secs(10);
/// The most requests that wait at the server at a time. One HTTP/2 connection carries at most 256.
const WAITING_MAX: usize = 200;

/// Why an HTTP limiter could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum HttpSetupError {
    /// The URL is not valid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The trusted certificates could not be read.
    #[error("no certificates to trust: {reason}")]
    Certificates { reason: String },
}

/// Whether a request is retried when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// It is idempotent.
    Retry,
    /// A repeated request would be answered differently.
    Once,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The connections to one server.
pub(super) struct Transport {
    client: HttpClient,
    /// For requests that wait at the server: on one HTTP/2 connection they would keep out the completes for which they wait.
    waiting_client: HttpClient,
    waiting_slots: Semaphore,
    pub(super) base: BaseUrl,
    token: Option<BearerToken>,
    pub(super) timeout: Duration,
    repeat_for: Duration,
}

impl Transport {
    pub(super) fn new(url: &str, options: HttpOptions) -> Result<Self, HttpSetupError> {
        let HttpOptions { timeout, repeat_for, token, cleartext, roots, idle_connections_max } =
            options;
        let base = BaseUrl::parse(url)?;
        // Reading the system's certificates is slow, and without encryption they are not needed.
        let roots = if base.is_https() { read_roots(roots)? } else { RootCertStore::empty() };
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(roots)?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(idle_connections_max)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_only(!base.is_https() && cleartext == Cleartext::Http2);
        let (client, waiting_client) = (builder.build(connector.clone()), builder.build(connector));
        let waiting_slots = Semaphore::new(WAITING_MAX);
        Ok(Self { client, waiting_client, waiting_slots, base, token, timeout, repeat_for })
    }

    /// Sends a request, and retries while there is no answer, if `retry` allows it, for at most `repeat_for`.
    pub(super) async fn send<T>(
        &self,
        method: &Method,
        uri: &Uri,
        body: Bytes,
        retry: RetryPolicy,
        read: impl Fn(&ServerResponse) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        self.send_with(&self.client, self.timeout, method, uri, body, retry, read).await
    }

    /// As [`Self::send`], with another timeout for each attempt.
    pub(super) async fn send_within<T>(
        &self,
        timeout: Duration,
        method: &Method,
        uri: &Uri,
        body: Bytes,
        retry: RetryPolicy,
        read: impl Fn(&ServerResponse) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        self.send_with(&self.client, timeout, method, uri, body, retry, read).await
    }

    /// As [`Self::send`], for a request that waits at the server for so long.
    pub(super) async fn send_waiting<T>(
        &self,
        wait: Duration,
        uri: &Uri,
        body: Bytes,
        read: impl Fn(&ServerResponse) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let (client, timeout) = (&self.waiting_client, wait + self.timeout);
        let _slot = self.waiting_slots.acquire().await.expect("the semaphore is never closed");
        self.send_with(client, timeout, &Method::POST, uri, body, RetryPolicy::Retry, read).await
    }

    #[expect(clippy::too_many_arguments, reason = "each caller fixes some of them")]
    async fn send_with<T>(
        &self,
        client: &HttpClient,
        timeout: Duration,
        method: &Method,
        uri: &Uri,
        body: Bytes,
        retry: RetryPolicy,
        read: impl Fn(&ServerResponse) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let begun = Instant::now();
        loop {
            let answer = self.send_once(client, timeout, method, uri, body.clone()).await;
            let error = match answer.and_then(|answer| read(&answer)) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let wait = no_answer_pause(1, error.retry_after(), fastrand::f64());
            let in_time = begun.elapsed() + wait < self.repeat_for;
            if retry == RetryPolicy::Once || !error.is_unanswered() || !in_time {
                return Err(error);
            }
            tracing::debug!(%error, "no response, retrying");
            tokio::time::sleep_until(Instant::now() + wait).await;
        }
    }

    async fn send_once(
        &self,
        client: &HttpClient,
        timeout: Duration,
        method: &Method,
        uri: &Uri,
        body: Bytes,
    ) -> Result<ServerResponse, HttpError> {
        let answer = tokio::time::timeout(timeout, self.exchange(client, method, uri, body)).await;
        answer.unwrap_or_else(|_| Err(HttpError::TimedOut { url: self.base.to_string(), timeout }))
    }

    async fn exchange(
        &self,
        client: &HttpClient,
        method: &Method,
        uri: &Uri,
        body: Bytes,
    ) -> Result<ServerResponse, HttpError> {
        let response = client.request(self.request(method, uri, body)).await;
        let response = response.map_err(|error| {
            let url = self.base.to_string();
            let reason = error_chain(&error);
            if error.is_connect() {
                HttpError::Unreachable { url, reason }
            } else {
                HttpError::Incomplete { url, reason }
            }
        })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| HttpError::Incomplete {
            url: self.base.to_string(),
            reason: error_chain(&*error),
        })?;
        ServerResponse::of(&self.base, &parts, body.to_bytes())
    }

    fn request(&self, method: &Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(ACCEPT, json.clone());
        headers.insert(CONTENT_TYPE, json);
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.header().clone());
        }
        request
    }
}

fn read_roots(roots: TrustedRoots) -> Result<RootCertStore, HttpSetupError> {
    let mut store = RootCertStore::empty();
    let problem = match roots {
        TrustedRoots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            found.errors.first().map(ToString::to_string)
        }
        TrustedRoots::Pem(pem) => {
            let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
            store.add_parsable_certificates(read.map_err(invalid_certificates)?);
            None
        }
    };
    if store.is_empty() {
        return Err(invalid_certificates(problem.as_deref().unwrap_or("none was found")));
    }
    Ok(store)
}

fn invalid_certificates(reason: impl fmt::Display) -> HttpSetupError {
    HttpSetupError::Certificates { reason: reason.to_string() }
}

fn tls_config(roots: RootCertStore) -> Result<ClientConfig, HttpSetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(invalid_certificates)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The error with all its sources; the outermost message alone is too general.
fn error_chain(error: &dyn Error) -> String {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason.push_str(": ");
        reason.push_str(&error.to_string());
        cause = error.source();
    }
    reason
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("base", &self.base)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
