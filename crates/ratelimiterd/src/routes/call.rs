//! Common handling of reserve, renew and complete, single and batched.
//!
//! Check the token, parse the body, check the keys, call the backend, log, count, respond.

use std::future::Future;
use std::time::Duration;

use hyper::{Request, Version};
use ratelimiter::{LimitKey, Unanswered};
use ratelimiter_waiting::Waiting;
use ratelimiter_wire::{BatchAnswer, Body, ErrorBody, ErrorCode, Refusal, read, read_batch};
use serde::Serialize;

use super::AppState;
use super::body::{BODY_BYTES_MAX, ReadBody, read_body};
use super::client::{Client, while_connected};
use crate::auth::Caller;
use crate::config::Permission;
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, OutcomeCounters, Route};
use crate::response::{self, Response};

/// Reserve, renew or complete over HTTP.
pub(super) trait LimiterCall: 'static {
    type Body: Body<Request = Self::Request>;
    type Request: Send + Sync;
    /// The successful result of the backend.
    type Answered: Clone + Send;
    type Error: From<Unanswered> + Clone + Send;
    /// The response body.
    type Answer: From<Refusal> + Serialize + Send;

    const ONE: Route;

    /// How long a request may wait for room.
    fn wait(request: &Self::Request) -> Duration;

    /// The keys that a request names.
    fn keys(request: &Self::Request) -> impl Iterator<Item = &LimitKey>;

    fn call<B: HostedBackend>(
        limiter: &Waiting<B>,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Answered, Self::Error>> + Send;

    /// The answer without the keys that its caller may not see, if it can have some that the request does not name.
    fn shown_to(_: &Caller, _: &Self::Request, answered: Self::Answered) -> Self::Answered {
        answered
    }

    fn log(request: &Self::Request, result: &Result<Self::Answered, Self::Error>);

    fn answer(result: Result<Self::Answered, Self::Error>) -> Self::Answer;

    /// Counts an answer; a call without a valid token has no caller.
    fn count<B: HostedBackend>(
        metrics: &Metrics,
        backend: &B,
        caller: Option<&OutcomeCounters>,
        answer: &Self::Answer,
    );

    /// The HTTP status of an answer and its retry hint; 0 if retrying does not help.
    fn status_and_retry_after_ms(answer: &Self::Answer) -> (u16, u64);
}

/// A call that has a batch form.
pub(super) trait BatchedCall: LimiterCall {
    const BATCH: Route;

    /// One result per request, in order.
    fn call_batch<B: HostedBackend>(
        limiter: &Waiting<B>,
        requests: &[Self::Request],
    ) -> impl Future<Output = Vec<Result<Self::Answered, Self::Error>>> + Send;
}

pub(super) async fn one<C: LimiterCall, B: HostedBackend>(
    app: &AppState<B>,
    request: Request<impl ReadBody>,
    client: &impl Client,
) -> Response {
    let started = app.metrics.start();
    let caller = app.access.identify(request.headers());
    let answered = match &caller {
        Ok(caller) => answer_one::<C, B>(app, caller, request, client).await,
        Err(refusal) => Err(refusal.clone()),
    };
    let answer = match answered {
        Ok(Some(result)) => C::answer(result),
        Ok(None) => return unread(),
        Err(refusal) => refusal.into(),
    };
    let calls = caller.as_ref().ok().map(|caller| caller.calls());
    C::count(&app.metrics, &*app.backend, calls, &answer);
    app.metrics.stop(C::ONE, started);
    let (status, retry_after_ms) = C::status_and_retry_after_ms(&answer);
    response::json_with_hint(status, retry_after_ms, &answer)
}

async fn answer_one<C: LimiterCall, B: HostedBackend>(
    app: &AppState<B>,
    caller: &Caller,
    request: Request<impl ReadBody>,
    client: &impl Client,
) -> Result<Option<Result<C::Answered, C::Error>>, Refusal> {
    caller.check_may(Permission::Call)?;
    let version = request.version();
    let bytes = read_body(request, BODY_BYTES_MAX, app.request_timeout).await?;
    let request = with_permitted_keys::<C>(caller, read::<C::Body>(&bytes)?)?;
    let called = C::call(&app.limiter, &request);
    let wait = C::wait(&request);
    let waits = Waits { wait, client, version, calls: caller.calls(), count: 1 };
    let Some(result) = in_time(app, waits, called).await else { return Ok(None) };
    C::log(&request, &result);
    Ok(Some(result.map(|answered| C::shown_to(caller, &request, answered))))
}

/// Requests that may wait for room.
struct Waits<'a, C> {
    /// How long.
    wait: Duration,
    client: &'a C,
    version: Version,
    calls: &'a OutcomeCounters,
    count: usize,
}

/// Waits for an answer until the backend's time is over. A client that goes away while its request waits for room ends that; then
/// there is no answer.
async fn in_time<B: HostedBackend, T, E: From<Unanswered>>(
    app: &AppState<B>,
    waits: Waits<'_, impl Client>,
    answer: impl Future<Output = Result<T, E>>,
) -> Option<Result<T, E>> {
    let Waits { wait, client, version, calls, count } = waits;
    if wait.is_zero() {
        return Some(app.with_timeout(answer).await);
    }
    let mut gone = CountGone { metrics: &app.metrics, calls, count };
    let answered = while_connected(client, version, app.with_timeout_after(wait, answer)).await;
    if answered.is_some() {
        gone.count = 0;
    }
    answered
}

/// Counts requests whose client goes away. Over HTTP/2 that drops their future.
struct CountGone<'a> {
    metrics: &'a Metrics,
    calls: &'a OutcomeCounters,
    count: usize,
}

impl Drop for CountGone<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            tracing::debug!(count = self.count, "the client went away while its request waited");
            self.metrics.count_gone(self.calls, self.count);
        }
    }
}

/// The response to a client that has gone away.
fn unread() -> Response {
    let message = "the client closed the connection".to_owned();
    response::error(&ErrorBody { error: ErrorCode::BackendError, message })
}

/// Passes on a request if its caller may use all its keys.
fn with_permitted_keys<C: LimiterCall>(
    caller: &Caller,
    request: C::Request,
) -> Result<C::Request, Refusal> {
    if caller.keys().is_some() {
        C::keys(&request).try_for_each(|key| caller.check_key(key))?;
    }
    Ok(request)
}

pub(super) async fn batch<C: BatchedCall, B: HostedBackend>(
    app: &AppState<B>,
    request: Request<impl ReadBody>,
    client: &impl Client,
) -> Response {
    let started = app.metrics.start();
    let caller = app.access.identify(request.headers());
    let answered = match &caller {
        Ok(caller) => answer_batch::<C, B>(app, caller, request, client).await,
        Err(refusal) => Err(refusal.clone()),
    };
    let calls = caller.as_ref().ok().map(|caller| caller.calls());
    let response = match answered {
        Ok(None) => return unread(),
        Ok(Some(answer)) => {
            for result in &answer.results {
                C::count(&app.metrics, &*app.backend, calls, result);
            }
            response::json_batch(200, answer.results.len(), &answer)
        }
        // A refused batch is one call: how many items it has may be unknown.
        Err(refusal) => {
            C::count(&app.metrics, &*app.backend, calls, &refusal.clone().into());
            response::error(&refusal.into())
        }
    };
    app.metrics.stop(C::BATCH, started);
    response
}

async fn answer_batch<C: BatchedCall, B: HostedBackend>(
    app: &AppState<B>,
    caller: &Caller,
    request: Request<impl ReadBody>,
    client: &impl Client,
) -> Result<Option<BatchAnswer<C::Answer>>, Refusal> {
    caller.check_may(Permission::Call)?;
    let version = request.version();
    let bytes = read_body(request, BODY_BYTES_MAX, app.request_timeout).await?;
    let items = read_batch::<C::Body>(&bytes)?;
    let mut requests = Vec::with_capacity(items.len());
    let mut parsed = Vec::with_capacity(items.len());
    for item in items {
        let item = item.and_then(|request| with_permitted_keys::<C>(caller, request));
        parsed.push(item.map(|request| requests.push(request)));
    }
    let called = async { Ok::<_, C::Error>(C::call_batch(&app.limiter, &requests).await) };
    let wait = requests.iter().map(C::wait).max().unwrap_or_default();
    let count = requests.len();
    let waits = Waits { wait, client, version, calls: caller.calls(), count };
    let results = match in_time(app, waits, called).await {
        Some(Ok(results)) => results,
        Some(Err(error)) => vec![Err(error); count],
        None => return Ok(None),
    };
    let mut answered = requests.iter().zip(results);
    let answer = |item: Result<(), Refusal>| match item {
        Ok(()) => {
            let (request, result) =
                answered.next().expect("a backend answers each request of a batch");
            C::log(request, &result);
            C::answer(result.map(|answered| C::shown_to(caller, request, answered)))
        }
        Err(refusal) => refusal.into(),
    };
    Ok(Some(BatchAnswer { results: parsed.into_iter().map(answer).collect() }))
}
