//! From HTTP to the limiter and back.

mod call;
mod complete;
mod key_in_path;
mod limits;
mod operation;
mod page;
mod reserve;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Method};
use axum::routing::{get, post};
use axum::{BoxError, Router};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Incoming};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ratelimiter::Unanswered;
use ratelimiter_wire::{ErrorBody, ErrorWord, Refusal};
use tokio::time::error::Elapsed;

use self::complete::Complete;
use self::reserve::Reserve;
use crate::admin::Admin;
use crate::answer::{self, Response};
use crate::auth::{Access, Need};
use crate::hosted::HostedBackend;
use crate::metrics::Metrics;

/// The most bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// When to repeat a request that the backend did not answer in time.
const RETRY_AFTER_NO_ANSWER: Duration = Duration::from_millis(500);

/// What every request needs.
#[derive(Debug)]
pub(crate) struct App<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) admin: Arc<Admin<B>>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) request_timeout: Duration,
}

/// The body of a request, wherever it comes from.
trait ReadBody: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send {}

impl<D: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send> ReadBody for D {}

/// Answers requests. The calls of the limiter are nearly all there are, and their paths are known; they are answered at once, and a
/// router finds who answers the others.
#[derive(Debug)]
pub(crate) struct Routes<B> {
    app: Arc<App<B>>,
    router: TowerToHyperService<Router>,
}

/// The body of an answer.
pub(crate) type AnswerBody = Either<Full<Bytes>, Body>;

impl<B: HostedBackend> Routes<B> {
    pub(crate) fn new(app: App<B>) -> Self {
        let app = Arc::new(app);
        Self { router: TowerToHyperService::new(router(Arc::clone(&app))), app }
    }

    pub(crate) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
    ) -> hyper::Response<AnswerBody> {
        let app = &*self.app;
        let answer = match (request.method(), request.uri().path()) {
            (&Method::POST, paths::RESERVE) => call::one::<Reserve, B>(app, request).await,
            (&Method::POST, paths::RESERVE_BATCH) => call::batch::<Reserve, B>(app, request).await,
            (&Method::POST, paths::COMPLETE) => call::one::<Complete, B>(app, request).await,
            (&Method::POST, paths::COMPLETE_BATCH) => {
                call::batch::<Complete, B>(app, request).await
            }
            _ => {
                // In a box, so that what every call needs to go on stays small.
                let Ok(answer) = Box::pin(self.router.call(request)).await;
                return answer.map(Either::Right);
            }
        };
        answer.map(Either::Left)
    }
}

/// Where the limiter is called.
mod paths {
    pub(super) const RESERVE: &str = "/v1/reserve";
    pub(super) const RESERVE_BATCH: &str = "/v1/reserve/batch";
    pub(super) const COMPLETE: &str = "/v1/complete";
    pub(super) const COMPLETE_BATCH: &str = "/v1/complete/batch";
}

/// All paths of the API. A call of the limiter is answered before; what comes here has another method, and hears which one to take.
fn router<B: HostedBackend>(app: Arc<App<B>>) -> Router {
    Router::new()
        .route(paths::RESERVE, post(no_such_method))
        .route(paths::RESERVE_BATCH, post(no_such_method))
        .route(paths::COMPLETE, post(no_such_method))
        .route(paths::COMPLETE_BATCH, post(no_such_method))
        .route("/v1/admin/limits", get(limits::list::<B>).put(limits::put::<B>))
        .route("/v1/admin/limits/{*key}", get(limits::get::<B>).delete(limits::delete::<B>))
        .route("/healthz", get(operation::healthz))
        .route("/readyz", get(operation::readyz::<B>))
        .route("/metrics", get(operation::metrics::<B>))
        .route("/openapi.json", get(operation::openapi::<B>))
        .route("/", get(page::index::<B>))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(app)
}

async fn no_such_path(request: Request) -> Response {
    let message = format!("there is no {}; see /openapi.json", request.uri().path());
    answer::error(&ErrorBody { error: ErrorWord::NotFound, message })
}

async fn no_such_method(request: Request) -> Response {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    answer::error(&ErrorBody { error: ErrorWord::MethodNotAllowed, message })
}

impl<B> App<B> {
    /// Lets a request in and reads its body.
    async fn admit(
        &self,
        request: hyper::Request<impl ReadBody>,
        need: Need,
    ) -> Result<Bytes, Refusal> {
        self.access.check(request.headers(), need)?;
        if body_length(request.headers()).is_some_and(|length| length > BODY_BYTES_MAX as u64) {
            return Err(body_too_large());
        }
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
        match within(self.request_timeout, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(body_too_large()),
            Ok(Err(error)) => {
                Err(Refusal::of_field("body", format!("the body broke off: {error}")))
            }
            Err(_) => {
                let ms = self.request_timeout.as_millis();
                let message = format!("the body did not arrive within {ms} ms");
                Err(Refusal { error: ErrorWord::RequestTimeout, message })
            }
        }
    }

    /// Waits for the backend, but not for ever.
    async fn within_time<T, E: From<Unanswered>>(
        &self,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // Without its definitions a server would call every key unknown.
        if let Some(unanswered) = self.admin.not_started() {
            return Err(unanswered.into());
        }
        let answered = within(self.request_timeout, asked).await;
        answered.unwrap_or_else(|_| Err(self.no_answer().into()))
    }

    fn no_answer(&self) -> Unanswered {
        let ms = self.request_timeout.as_millis();
        let reason = format!("the backend did not answer within {ms} ms");
        Unanswered { reason, retry_after: RETRY_AFTER_NO_ANSWER }
    }
}

/// Waits, but not for ever. Most of what is waited for is there already, and then no timer is set.
async fn within<F: Future>(timeout: Duration, awaited: F) -> Result<F::Output, Elapsed> {
    let mut awaited = pin!(awaited);
    match poll_fn(|context| Poll::Ready(awaited.as_mut().poll(context))).await {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => tokio::time::timeout(timeout, awaited).await,
    }
}

fn body_too_large() -> Refusal {
    let message = format!("a body has at most {BODY_BYTES_MAX} bytes");
    Refusal { error: ErrorWord::BodyTooLarge, message }
}

/// How long the body will be, if the client says so.
fn body_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
