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

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{get, post};
use ratelimiter::Unanswered;
use ratelimiter_wire::{ErrorBody, ErrorWord, Refusal};
use tokio::time::error::Elapsed;

use self::complete::Complete;
use self::reserve::Reserve;
use crate::admin::Admin;
use crate::answer;
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

/// All paths of the API.
pub(crate) fn router<B: HostedBackend>(app: Arc<App<B>>) -> Router {
    Router::new()
        .route("/v1/reserve", post(call::one::<Reserve, B>))
        .route("/v1/reserve/batch", post(call::batch::<Reserve, B>))
        .route("/v1/complete", post(call::one::<Complete, B>))
        .route("/v1/complete/batch", post(call::batch::<Complete, B>))
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
    async fn admit(&self, request: Request, need: Need) -> Result<(Parts, Bytes), Refusal> {
        let (parts, body) = request.into_parts();
        self.access.check(&parts.headers, need)?;
        let bytes = self.read_body(&parts, body).await?;
        Ok((parts, bytes))
    }

    async fn read_body(&self, parts: &Parts, body: Body) -> Result<Bytes, Refusal> {
        let length = parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
            return Err(body_too_large());
        }
        match within(self.request_timeout, to_bytes(body, BODY_BYTES_MAX)).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) if is_length_limit(&error) => Err(body_too_large()),
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

fn is_length_limit(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}
