//! One attempt of a call at its provider, up to the head of its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::Instant;

use crate::answer::{PlainMeter, StreamMeter};
use crate::answer_body::{AnswerBody, GatewayBody, Meter, OpenStream};
use crate::api::Operation;
use crate::attempt::{Attempt, CallContext};
use crate::call::Call;
use crate::caller::Caller;
use crate::destination::Destination;
use crate::headers::{set_waited, to_caller};
use crate::limiter::GatewayLimiter;
use crate::observer::CallOutcome;
use crate::rate_figures::{RateFigure, rate_figures};
use crate::refusal::Refusal;
use crate::retry::{Retry, is_in_vain, pause_before_retry, retry_after, retry_after_in_message};
use crate::settle::AttemptEnd;
use crate::shared::Shared;
use crate::upstream::{SentFlag, TrackedBody, UpstreamBody, refuses_the_gateway};

const LEASE_HEADER: HeaderName = HeaderName::from_static("x-ratelimiter-lease");
/// The most bytes of an error that are read to find out what it is about.
const ERROR_BYTES_MAX: usize = 64 * 1_024;
/// The provider has no capacity now: 529 is Anthropic's.
const OVERLOADED: [u16; 2] = [503, 529];
/// Time for an error's body to arrive.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// One attempt at the provider.
pub(crate) struct Trial<'a> {
    pub(crate) operation: Operation,
    pub(crate) call: &'a Call,
    pub(crate) destination: &'a Destination,
    pub(crate) asks_for_usage: bool,
    /// `None` if the call is not repeated any more.
    pub(crate) retry: Option<Retry>,
    /// It can be repeated elsewhere.
    pub(crate) has_other: bool,
}

/// What came of an attempt: an answer for the caller, or a reason to try again.
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and none is kept")]
pub(crate) enum Tried<L: GatewayLimiter, C> {
    Answer(Response<GatewayBody<L, C>>),
    Again {
        after: Duration,
    },
    /// The provider does not take `stream_options`.
    WithoutUsage,
}

impl Trial<'_> {
    fn request(&self, sent: SentFlag) -> Request<UpstreamBody> {
        let Self { call, destination, .. } = self;
        let Destination { uri, headers, model, .. } = destination;
        let with_usage = call.body_with_usage.as_ref().filter(|_| self.asks_for_usage);
        let body = with_usage.unwrap_or(&call.body).with_model(model.as_deref());
        let mut request = Request::new(Either::Left(TrackedBody::new(body, sent)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        request
    }

    fn pause(&self, named: Option<Duration>) -> Option<Duration> {
        let retry = self.retry?;
        if self.has_other { Some(Duration::ZERO) } else { pause_before_retry(retry, named) }
    }
}

impl<L: GatewayLimiter> Shared<L> {
    pub(crate) async fn try_once<C: Caller>(
        self: &Arc<Self>,
        trial: Trial<'_>,
        mut attempt: Attempt<L>,
        caller: Option<C>,
    ) -> Result<Tried<L, C>, Refusal> {
        let CallContext { provider, name, account, listed, .. } = &*trial.destination.context;
        let context = &self.providers[*provider];
        let settings = &context.settings;
        let sent_at = Instant::now();
        let compares =
            account.begins_comparison(sent_at) && context.accounts.is_only(name, account, sent_at);
        let when_sent = compares.then(|| self.own_rates_now(&attempt));
        let sending = context.upstream.send(trial.request(attempt.sent_flag()));
        let answer = match tokio::time::timeout(settings.upstream_timeout, sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) if !attempt.is_sent() => {
                return self.not_sent(&trial, attempt, &reason);
            }
            Err(_) if !attempt.is_sent() => {
                return self.not_sent(&trial, attempt, "no connection within upstream_timeout_ms");
            }
            Ok(Err(reason)) => {
                tracing::warn!(
                    provider = settings.name.as_str(),
                    reason,
                    "a call was not answered"
                );
                attempt.end(AttemptEnd::NoAnswer, CallOutcome::NoAnswer);
                return Err(Refusal::no_answer(settings));
            }
            Err(_) => {
                let refusal = Refusal::timed_out(settings);
                tracing::warn!(provider = settings.name.as_str(), "{}", refusal.message);
                attempt.end(AttemptEnd::NoAnswer, CallOutcome::NoAnswer);
                return Err(refusal);
            }
        };
        let status = answer.status();
        attempt.answer_begins();
        let is_limited = status == StatusCode::TOO_MANY_REQUESTS;
        if is_limited {
            self.observer.call_limited(settings.name.as_str(), listed.map(|_| &**name));
        }
        let figures = match compares || is_limited || account.is_shared(Instant::now()) {
            true => rate_figures(answer.headers(), self.clock.now()),
            false => Vec::new(),
        };
        if let Some(sent) = attempt.sent() {
            account.learn(&figures, sent);
        }
        if status.is_success() {
            account.taken();
            if compares {
                self.compare(&attempt, figures, when_sent, None);
            }
            return Ok(Tried::Answer(self.pass_on(&trial, attempt, answer, caller)));
        }
        if let Some(reason) = refuses_the_gateway(status, trial.destination.has_api_key) {
            attempt.end(AttemptEnd::Refused, CallOutcome::Refused);
            return Err(Refusal::bad_gateway(settings, reason));
        }
        self.refused(&trial, attempt, Said { sent_at, figures }, answer, caller).await
    }

    /// The provider cannot be reached: the call is made again where that helps.
    fn not_sent<C: Caller>(
        &self,
        trial: &Trial<'_>,
        mut attempt: Attempt<L>,
        reason: &str,
    ) -> Result<Tried<L, C>, Refusal> {
        let CallContext { provider, account, .. } = &*trial.destination.context;
        let settings = &self.providers[*provider].settings;
        let provider = settings.name.as_str();
        // The first says it for those that follow, which may all be made elsewhere.
        if account.fails(None, Instant::now()) {
            tracing::warn!(provider, reason, "a provider cannot be reached");
        }
        if let Some(after) = trial.pause(None) {
            attempt.settle(AttemptEnd::NeverSent);
            return Ok(Tried::Again { after });
        }
        tracing::warn!(provider, reason, "a call was not sent");
        attempt.end(AttemptEnd::NeverSent, CallOutcome::NoAnswer);
        Err(Refusal::unreachable(settings))
    }

    /// The provider answers: its answer passes, and is read on its way.
    fn pass_on<C: Caller>(
        &self,
        trial: &Trial<'_>,
        attempt: Attempt<L>,
        answer: Response<Incoming>,
        caller: Option<C>,
    ) -> Response<GatewayBody<L, C>> {
        let (parts, body) = answer.into_parts();
        let mut headers = to_caller(&parts.headers);
        add_own_headers(&mut headers, &attempt);
        let (meter, open) = match Encoding::of(&parts.headers) {
            Encoding::Unreadable => (Meter::Unreadable, None),
            Encoding::Plain => (Meter::Plain(PlainMeter::new(trial.operation)), None),
            Encoding::Stream => {
                // What is withheld was announced.
                headers.remove(CONTENT_LENGTH);
                let meter = StreamMeter::new(trial.operation, trial.asks_for_usage);
                (Meter::Stream(meter), Some(OpenStream::new(&self.open_streams)))
            }
        };
        let provider = attempt.context.provider;
        let silence_max = self.providers[provider].settings.upstream_timeout;
        let body = AnswerBody::new(body, meter, Some(attempt), caller, silence_max, open);
        let mut response = Response::new(Either::Right(body));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        response
    }

    /// The provider refuses the call: it is made again where that helps, else its caller gets the refusal as it is.
    async fn refused<C: Caller>(
        self: &Arc<Self>,
        trial: &Trial<'_>,
        mut attempt: Attempt<L>,
        said: Said,
        answer: Response<Incoming>,
        caller: Option<C>,
    ) -> Result<Tried<L, C>, Refusal> {
        let (parts, body) = answer.into_parts();
        let mut headers = to_caller(&parts.headers);
        add_own_headers(&mut headers, &attempt);
        let is_rate = parts.status == StatusCode::TOO_MANY_REQUESTS;
        let may_retry = is_rate || OVERLOADED.contains(&parts.status.as_u16());
        let rejects_usage = parts.status == StatusCode::BAD_REQUEST && trial.asks_for_usage;
        let outcome = if is_rate { CallOutcome::RefusedRate } else { CallOutcome::Refused };
        if !may_retry && !rejects_usage {
            attempt.end(AttemptEnd::Refused, outcome);
            let provider = attempt.context.provider;
            let silence_max = self.providers[provider].settings.upstream_timeout;
            let body = AnswerBody::new(body, Meter::None, None, caller, silence_max, None);
            let mut response = Response::new(Either::Right(body));
            *response.status_mut() = parts.status;
            *response.headers_mut() = headers;
            return Ok(Tried::Answer(response));
        }
        // The body decides. It is short, or nobody needs it.
        let reading = Limited::new(body, ERROR_BYTES_MAX).collect();
        let body = match tokio::time::timeout(ERROR_TIMEOUT, reading).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        if rejects_usage && contains(&body, b"stream_options") {
            attempt.settle(AttemptEnd::Refused);
            return Ok(Tried::WithoutUsage);
        }
        // Without money left, waiting does not help.
        let is_limited = is_rate && !contains(&body, b"insufficient_quota");
        let named = retry_after(&parts.headers, self.clock.now());
        let named = named.or_else(|| retry_after_in_message(&body).filter(|_| is_limited));
        let pause = match is_limited {
            true => trial.pause(Some(self.close(&attempt, said.sent_at, named))),
            false if is_rate || !may_retry => None,
            false => {
                attempt.context.account.fails(named, Instant::now());
                trial.pause(named)
            }
        };
        let after = pause.filter(|_| !is_in_vain(&parts.headers));
        match after {
            Some(_) => drop(attempt.settle(AttemptEnd::Refused)),
            None => attempt.end(AttemptEnd::Refused, outcome),
        }
        let CallContext { provider, name, account, .. } = &*trial.destination.context;
        if is_limited && self.providers[*provider].accounts.is_only(name, account, Instant::now()) {
            // What it had reserved is room again here, and not there.
            self.compare(&attempt, said.figures, None, named);
        }
        if let Some(after) = after {
            return Ok(Tried::Again { after });
        }
        headers.remove(CONTENT_LENGTH);
        let mut response = Response::new(Either::Left(body.into()));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        Ok(Tried::Answer(response))
    }

    /// The provider has refused a call for its own limits, which closes the key and model (`GW-07`). Returns for how long.
    fn close(&self, attempt: &Attempt<L>, sent_at: Instant, named: Option<Duration>) -> Duration {
        let CallContext { provider, account, .. } = &*attempt.context;
        let closing = account.close(sent_at, named, Instant::now());
        let provider = self.providers[*provider].settings.name.as_str();
        if closing.is_new {
            let pause = closing.pause;
            tracing::info!(provider, ?pause, "a provider has refused a call for its own limits");
        }
        closing.pause
    }
}

/// What the head of an answer says about the provider's limits.
struct Said {
    sent_at: Instant,
    figures: Vec<RateFigure>,
}

/// How an answer can be read.
enum Encoding {
    Plain,
    Stream,
    /// It is compressed, although that was not asked for.
    Unreadable,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_stream = text(CONTENT_TYPE.as_str()).is_some_and(|kind| {
            kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
        });
        match text(CONTENT_ENCODING.as_str()) {
            Some(encoding) if !encoding.trim().eq_ignore_ascii_case("identity") => Self::Unreadable,
            Some(_) | None if is_stream => Self::Stream,
            Some(_) | None => Self::Plain,
        }
    }
}

fn add_own_headers<L: GatewayLimiter>(headers: &mut HeaderMap, attempt: &Attempt<L>) {
    if let Some(lease) = attempt.lease() {
        let lease = HeaderValue::try_from(lease.to_string());
        headers.insert(LEASE_HEADER, lease.expect("a ULID is visible ASCII"));
    }
    set_waited(headers, attempt.waited);
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}
