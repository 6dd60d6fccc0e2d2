//! HTTP client of a ratelimiter server.

mod admin;
mod error;
mod options;
mod response;
mod transport;
mod url;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{join, join_all};
use hyper::body::Bytes;
use hyper::{Method, Uri};
use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, Decision, LeaseId, Limiter, Refused, ReserveError,
    ReserveRequest, Unanswered,
};
use ratelimiter_wire::{
    BATCH_ITEMS_MAX, BatchAnswer, BatchBody, CompleteAnswer, CompleteBody, ReserveAnswer,
    ReserveBody,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

pub use error::HttpError;
pub use options::{BearerToken, Cleartext, HttpOptions, TokenError, TrustedRoots};
use response::ServerResponse;
pub use transport::HttpSetupError;
use transport::{RetryPolicy, Transport};
pub use url::UrlError;

/// How long no request waits at a server that refused one, which may be replaced by a newer one.
const WAITING_REFUSED_FOR: Duration = Duration::from_secs(60);

/// The limiter of a server, over HTTP. Clones share the connections.
///
/// A request without an answer is retried for a while, with the same lease ID, and then reported as [`Unanswered`]; a
/// request that the server refuses is [`Refused`], with the reason. Must be used within a tokio runtime.
///
/// ```no_run
/// use ratelimiter_client::{HttpLimiter, LeaseId, LimitKey, Limiter, Requirements, ReserveRequest};
/// use ratelimiter_client::clock::{Clock, MonotonicClock};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = HttpLimiter::new("http://ratelimiter:8080")?;
/// let lease = LeaseId::generate(MonotonicClock::new().now());
/// let requirements = Requirements::of([(LimitKey::llm_rpm("openai", "gpt-4o")?, 1)])?;
/// let decision = limiter.reserve(&ReserveRequest::new(lease, requirements)).await?;
/// println!("{decision:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct HttpLimiter {
    transport: Arc<Transport>,
    routes: Arc<Routes>,
    /// When the server refused a request that may wait, because it is of the first edition.
    waiting_refused_at: Arc<Mutex<Option<Instant>>>,
}

/// The URLs of the frequent calls, parsed once.
#[derive(Debug)]
struct Routes {
    reserve: Uri,
    complete: Uri,
    reserve_batch: Uri,
    complete_batch: Uri,
}

impl HttpLimiter {
    /// A limiter for the server at this URL, such as `http://ratelimiter:8080`. Does not connect yet.
    ///
    /// # Errors
    /// The URL is not valid, or it is `https` and the system has no trusted certificates.
    pub fn new(url: &str) -> Result<Self, HttpSetupError> {
        Self::with_options(url, HttpOptions::default())
    }

    /// A limiter for the server at this URL, with these options.
    ///
    /// # Errors
    /// As [`HttpLimiter::new`], and when the certificates of [`TrustedRoots::Pem`] cannot be read.
    pub fn with_options(url: &str, options: HttpOptions) -> Result<Self, HttpSetupError> {
        let transport = Transport::new(url, options)?;
        let routes = Routes {
            reserve: transport.base.at("/v1/reserve"),
            complete: transport.base.at("/v1/complete"),
            reserve_batch: transport.base.at("/v1/reserve/batch"),
            complete_batch: transport.base.at("/v1/complete/batch"),
        };
        let (transport, routes) = (Arc::new(transport), Arc::new(routes));
        Ok(Self { transport, routes, waiting_refused_at: Arc::default() })
    }

    /// Checks that the server answers and accepts the token, by completing a lease that does not exist, which changes
    /// nothing.
    ///
    /// # Errors
    /// See [`HttpError`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = ratelimiter_client::HttpLimiter::new("http://ratelimiter:8080")?;
    /// limiter.check().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self) -> Result<(), HttpError> {
        let unknown = CompleteRequest::new(LeaseId::from_u128(0), Actuals::none());
        let body = json(&CompleteBody::from(&unknown));
        let read = |answer: &ServerResponse| {
            let complete = answer.read::<CompleteAnswer>()?;
            complete.into_result().map_err(|error| answer.unexpected(error.to_string()))
        };
        self.transport
            .send(&Method::POST, &self.routes.complete, body, RetryPolicy::Retry, read)
            .await
    }

    /// The server's metrics in Prometheus' text format. Where the server has tokens, this needs one that may read. A request
    /// that fails is not repeated.
    ///
    /// # Errors
    /// The server did not answer with its metrics.
    pub async fn metrics(&self) -> Result<String, HttpError> {
        let uri = self.transport.base.at("/metrics");
        self.transport
            .send(&Method::GET, &uri, Bytes::new(), RetryPolicy::Once, ServerResponse::text)
            .await
    }

    async fn send<A, T, E>(
        &self,
        method: &Method,
        uri: &Uri,
        body: Bytes,
        retry: RetryPolicy,
        into_result: impl FnOnce(A) -> Result<T, E>,
    ) -> Result<T, E>
    where
        A: DeserializeOwned,
        E: From<Unanswered> + From<Refused>,
    {
        match self.transport.send(method, uri, body, retry, ServerResponse::read).await {
            Ok(answer) => into_result(answer),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Sends batches of at most [`BATCH_ITEMS_MAX`] requests. An error of a batch is the error of each of its requests.
    async fn send_batches<R, B, A, T, E>(
        &self,
        uri: &Uri,
        requests: &[R],
        to_body: impl Fn(&R) -> B,
        into_result: impl Fn(A) -> Result<T, E>,
    ) -> Vec<Result<T, E>>
    where
        B: Serialize,
        A: DeserializeOwned,
        E: From<Unanswered> + From<Refused>,
    {
        let mut all = Vec::with_capacity(requests.len());
        for some in requests.chunks(BATCH_ITEMS_MAX) {
            let count = some.len();
            let body = json(&BatchBody { requests: some.iter().map(&to_body).collect() });
            let read = |answer: &ServerResponse| {
                let BatchAnswer { results } = answer.read::<BatchAnswer<A>>()?;
                if results.len() != count {
                    let content = format!("{} results for {count} requests", results.len());
                    return Err(answer.unexpected(content));
                }
                Ok(results)
            };
            let answer = self.transport.send(&Method::POST, uri, body, RetryPolicy::Retry, read);
            match answer.await {
                Ok(results) => all.extend(results.into_iter().map(&into_result)),
                Err(error) => all.extend((0..count).map(|_| Err(error.clone().into_error()))),
            }
        }
        all
    }
}

impl Limiter for HttpLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        if let Some(wait) = &request.wait
            && self.can_wait()
        {
            let body = json(&ReserveBody::from(request));
            let (uri, read) = (&self.routes.reserve, ServerResponse::read);
            let sent = self.transport.send_waiting(wait.at_most(), uri, body, read).await;
            let answer: ReserveAnswer = sent.map_err(HttpError::into_error::<ReserveError>)?;
            if !answer.refuses_waiting() {
                return answer.into_result();
            }
            *self.waiting_refused_at.lock().expect("no panic with the lock held") =
                Some(Instant::now());
        }
        let body = json(&ReserveBody { wait_ms: None, queue: String::new(), ..request.into() });
        let (uri, into_result) = (&self.routes.reserve, ReserveAnswer::into_result);
        self.send(&Method::POST, uri, body, RetryPolicy::Retry, into_result).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let body = json(&CompleteBody::from(request));
        let (uri, into_result) = (&self.routes.complete, CompleteAnswer::into_result);
        self.send(&Method::POST, uri, body, RetryPolicy::Retry, into_result).await
    }

    fn can_wait(&self) -> bool {
        let refused_at = *self.waiting_refused_at.lock().expect("no panic with the lock held");
        refused_at.is_none_or(|refused_at| refused_at.elapsed() >= WAITING_REFUSED_FOR)
    }

    /// Requests that may wait are sent each on their own, because a batch is answered when the last of its requests is.
    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let (waiting, others): (Vec<_>, Vec<_>) =
            requests.iter().partition(|request| request.wait.is_some());
        let waited = join_all(waiting.into_iter().map(|request| self.reserve(request)));
        let (uri, into_result) = (&self.routes.reserve_batch, ReserveAnswer::into_result);
        let batched = self.send_batches(uri, &others, |one| ReserveBody::from(*one), into_result);
        let (waited, batched) = join(waited, batched).await;
        let (mut waited, mut batched) = (waited.into_iter(), batched.into_iter());
        let answer = |request: &ReserveRequest| match request.wait {
            Some(_) => waited.next(),
            None => batched.next(),
        };
        requests.iter().map(answer).map(|answer| answer.expect("one answer per request")).collect()
    }

    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        let (uri, into_result) = (&self.routes.complete_batch, CompleteAnswer::into_result);
        self.send_batches(uri, requests, |one| CompleteBody::from(one), into_result).await
    }
}

fn json(body: &impl Serialize) -> Bytes {
    let bytes =
        serde_json::to_vec(body).expect("bodies of the protocol have text and numbers only");
    bytes.into()
}
