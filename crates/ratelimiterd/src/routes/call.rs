//! What reserve and complete have in common: read, ask the backend, tell, count, answer; one by one and in batches.

use std::future::Future;

use hyper::Request;
use ratelimiter::Unanswered;
use ratelimiter_wire::{BatchAnswer, Body, Refusal, read, read_batch};
use serde::Serialize;

use super::App;
use super::body::ReadBody;
use crate::answer::{self, Response};
use crate::auth::Need;
use crate::hosted::HostedBackend;
use crate::metrics::{Metrics, Route};

/// A call of the limiter, as it comes over HTTP.
pub(super) trait Call: 'static {
    /// Its JSON form.
    type Body: Body<Request = Self::Request>;
    /// What it asks.
    type Request: Send + Sync;
    /// What the backend says when it answers.
    type Answered: Clone + Send;
    /// What it says when it does not, or refuses.
    type Error: From<Unanswered> + Clone + Send;
    /// The answer's JSON form.
    type Answer: From<Refusal> + Serialize + Send;

    /// Where one is asked.
    const ONE: Route;
    /// Where several are.
    const BATCH: Route;

    /// Asks the backend.
    fn ask<B: HostedBackend>(
        backend: &B,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Answered, Self::Error>> + Send;

    /// Asks the backend several at once; one result per request, in order.
    fn ask_batch<B: HostedBackend>(
        backend: &B,
        requests: &[Self::Request],
    ) -> impl Future<Output = Vec<Result<Self::Answered, Self::Error>>> + Send;

    /// Tells the log.
    fn tell(request: &Self::Request, result: &Result<Self::Answered, Self::Error>);

    /// The answer that says what the backend said.
    fn answer(result: Result<Self::Answered, Self::Error>) -> Self::Answer;

    /// Counts the answer.
    fn count(metrics: &Metrics, answer: &Self::Answer);

    /// The HTTP status of an answer, and when to ask again; 0 if that does not help.
    fn status_and_retry_after_ms(answer: &Self::Answer) -> (u16, u64);
}

pub(super) async fn one<C: Call, B: HostedBackend>(
    app: &App<B>,
    request: Request<impl ReadBody>,
) -> Response {
    let started = app.metrics.start();
    let answer = match answer_one::<C, B>(app, request).await {
        Ok(result) => C::answer(result),
        Err(refusal) => refusal.into(),
    };
    C::count(&app.metrics, &answer);
    app.metrics.stop(C::ONE, started);
    let (status, retry_after_ms) = C::status_and_retry_after_ms(&answer);
    answer::json_with_hint(status, retry_after_ms, &answer)
}

async fn answer_one<C: Call, B: HostedBackend>(
    app: &App<B>,
    request: Request<impl ReadBody>,
) -> Result<Result<C::Answered, C::Error>, Refusal> {
    let bytes = app.admit(request, Need::Client).await?;
    let request = read::<C::Body>(&bytes)?;
    let result = app.within_time(C::ask(&*app.backend, &request)).await;
    C::tell(&request, &result);
    Ok(result)
}

pub(super) async fn batch<C: Call, B: HostedBackend>(
    app: &App<B>,
    request: Request<impl ReadBody>,
) -> Response {
    let started = app.metrics.start();
    let response = match answer_batch::<C, B>(app, request).await {
        Ok(answer) => answer::json_of_many(200, answer.results.len(), &answer),
        Err(refusal) => answer::error(&refusal.into()),
    };
    app.metrics.stop(C::BATCH, started);
    response
}

async fn answer_batch<C: Call, B: HostedBackend>(
    app: &App<B>,
    request: Request<impl ReadBody>,
) -> Result<BatchAnswer<C::Answer>, Refusal> {
    let bytes = app.admit(request, Need::Client).await?;
    let items = read_batch::<C::Body>(&bytes)?;
    let mut requests = Vec::with_capacity(items.len());
    let mut asked_or_refused = Vec::with_capacity(items.len());
    for item in items {
        asked_or_refused.push(item.map(|request| requests.push(request)));
    }
    let asked = async { Ok::<_, C::Error>(C::ask_batch(&*app.backend, &requests).await) };
    let results = match app.within_time(asked).await {
        Ok(results) => results,
        Err(error) => vec![Err(error); requests.len()],
    };
    let mut answered = requests.iter().zip(results);
    let answer = |item: Result<(), Refusal>| match item {
        Ok(()) => {
            let (request, result) =
                answered.next().expect("a backend answers each request of a batch");
            C::tell(request, &result);
            C::answer(result)
        }
        Err(refusal) => refusal.into(),
    };
    let results: Vec<_> = asked_or_refused.into_iter().map(answer).collect();
    for answer in &results {
        C::count(&app.metrics, answer);
    }
    Ok(BatchAnswer { results })
}
