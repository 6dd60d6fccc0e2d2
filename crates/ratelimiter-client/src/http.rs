//! The limiter behind a URL: many clients, one server.

mod admin;
mod answer;
mod error;
mod options;
mod transport;
mod url;

use std::sync::Arc;

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

use answer::Answer;
pub use error::HttpError;
pub use options::{BearerToken, Cleartext, HttpOptions, TokenError, TrustedRoots};
pub use transport::HttpSetupError;
use transport::{Repeat, Transport};
pub use url::UrlError;

/// The limiter behind a URL. Clones share one set of connections.
///
/// A request that gets no answer is repeated for a while, with the same lease ID, and then reported as
/// [`Unanswered`]; what a server refuses is [`Refused`], and says why. Must be used within a tokio runtime.
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
}

/// The URLs of the calls that are made often.
#[derive(Debug)]
struct Routes {
    reserve: Uri,
    complete: Uri,
    reserve_batch: Uri,
    complete_batch: Uri,
}

impl HttpLimiter {
    /// A limiter behind this URL: `http://ratelimiter:8080`. Nothing is asked yet.
    ///
    /// # Errors
    /// The URL is not one of a server, or it is `https` and the machine trusts nobody.
    pub fn new(url: &str) -> Result<Self, HttpSetupError> {
        Self::with_options(url, HttpOptions::default())
    }

    /// A limiter behind this URL, with these options.
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
        Ok(Self { transport: Arc::new(transport), routes: Arc::new(routes) })
    }

    /// Finds out whether the URL leads to a server that accepts the token and answers, by completing a lease that
    /// nobody has, which changes nothing.
    ///
    /// # Errors
    /// What stands in the way.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = ratelimiter_client::HttpLimiter::new("http://ratelimiter:8080")?;
    /// limiter.check().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self) -> Result<(), HttpError> {
        let nobodys = CompleteRequest::new(LeaseId::from_u128(0), Actuals::none());
        let body = json(&CompleteBody::from(&nobodys));
        let read = |answer: &Answer| {
            let complete = answer.read::<CompleteAnswer>()?;
            complete.into_result().map_err(|error| answer.not_ours(error.to_string()))
        };
        self.transport.ask(&Method::POST, &self.routes.complete, body, Repeat::Safe, read).await
    }

    /// The server's metrics in Prometheus' text format. Where the server has tokens, this needs an admin token. A request
    /// that fails is not repeated.
    ///
    /// # Errors
    /// The server did not answer with its metrics.
    pub async fn metrics(&self) -> Result<String, HttpError> {
        let uri = self.transport.base.at("/metrics");
        self.transport.ask(&Method::GET, &uri, Bytes::new(), Repeat::Unsafe, Answer::text).await
    }

    /// Asks for one thing.
    async fn send<A, T, E>(
        &self,
        method: &Method,
        uri: &Uri,
        body: Bytes,
        repeat: Repeat,
        into_result: impl FnOnce(A) -> Result<T, E>,
    ) -> Result<T, E>
    where
        A: DeserializeOwned,
        E: From<Unanswered> + From<Refused>,
    {
        match self.transport.ask(method, uri, body, repeat, Answer::read).await {
            Ok(answer) => into_result(answer),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Asks for many things, at most [`BATCH_ITEMS_MAX`] at once. What fails as a whole fails each of them.
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
            let read = |answer: &Answer| {
                let BatchAnswer { results } = answer.read::<BatchAnswer<A>>()?;
                if results.len() != count {
                    let kind = format!("{} results for {count} requests", results.len());
                    return Err(answer.not_ours(kind));
                }
                Ok(results)
            };
            let answer = self.transport.ask(&Method::POST, uri, body, Repeat::Safe, read);
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
        let body = json(&ReserveBody::from(request));
        let (uri, into_result) = (&self.routes.reserve, ReserveAnswer::into_result);
        self.send(&Method::POST, uri, body, Repeat::Safe, into_result).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let body = json(&CompleteBody::from(request));
        let (uri, into_result) = (&self.routes.complete, CompleteAnswer::into_result);
        self.send(&Method::POST, uri, body, Repeat::Safe, into_result).await
    }

    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        let (uri, into_result) = (&self.routes.reserve_batch, ReserveAnswer::into_result);
        self.send_batches(uri, requests, |one| ReserveBody::from(one), into_result).await
    }

    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        let (uri, into_result) = (&self.routes.complete_batch, CompleteAnswer::into_result);
        self.send_batches(uri, requests, |one| CompleteBody::from(one), into_result).await
    }
}

/// A body of the protocol as bytes.
fn json(body: &impl Serialize) -> Bytes {
    let bytes =
        serde_json::to_vec(body).expect("bodies of the protocol have text and numbers only");
    bytes.into()
}
