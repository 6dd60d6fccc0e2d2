//! A call from its body to the head of its answer.

use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either as Race, select};
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use ratelimiter::clock::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use crate::access::CallerTenant;
use crate::admission::Asking;
use crate::answer::{PlainMeter, StreamMeter};
use crate::answer_body::{AnswerBody, Meter, OpenStream};
use crate::api::Operation;
use crate::attempt::{Attempt, CallContext};
use crate::call::Call;
use crate::estimate::Estimate;
use crate::gateway::{Caller, GatewayBody, Shared};
use crate::headers::{to_caller, to_provider};
use crate::limiter::GatewayLimiter;
use crate::limits::{Scope, Use};
use crate::observer::{CallOutcome, CallReport};
use crate::refusal::{Refusal, RefusalKind};
use crate::request_body::HeldBody;
use crate::retry::{RETRIES_MAX, pause_before_retry};
use crate::settings::{Model, Provider};
use crate::settle::AttemptEnd;
use crate::upstream::{BoxError, SendError, UpstreamBody, passing_body, read_body};

const LEASE_HEADER: HeaderName = HeaderName::from_static("x-ratelimiter-lease");
const WAITED_HEADER: HeaderName = HeaderName::from_static("x-ratelimiter-waited-ms");
const WAIT_HEADER: &str = "x-ratelimiter-wait-ms";
const RETRIES_HEADER: &str = "x-ratelimiter-retries";
/// Longer bodies are read off the threads that answer requests.
const QUICK_BODY_BYTES_MAX: usize = 16 * 1_024;
/// The most bytes of an error that are read to find out what it is about.
const ERROR_BYTES_MAX: usize = 64 * 1_024;
/// Time for an error's body to arrive.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);
/// The most models of a provider that are remembered not to take `stream_options`.
const WITHOUT_USAGE_MAX: usize = 1_000;

/// Where a call leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) provider: usize,
    pub(crate) operation: Operation,
    /// The path below the base URL.
    pub(crate) rest: &'a str,
}

/// What a caller may say about its call in headers.
#[derive(Debug, Clone, Copy)]
struct CallerWishes {
    wait: Duration,
    retries_max: u32,
}

/// A call that was read and checked.
struct Prepared {
    call: Call,
    context: Arc<CallContext>,
    certain: crate::estimate::Certain,
    keys: Arc<crate::limits::ScopeKeys>,
    tenant: Option<Box<str>>,
    wishes: CallerWishes,
    started: Timestamp,
    uri: Uri,
    headers: HeaderMap,
    /// Counts the body as held until the provider answers.
    _share: Option<OwnedSemaphorePermit>,
}

/// What came of an attempt: an answer for the caller, or a reason to try again.
enum Tried<L: GatewayLimiter, C> {
    Answer(Response<GatewayBody<L, C>>),
    Again {
        after: Duration,
    },
    /// The provider does not take `stream_options`.
    WithoutUsage,
}

impl<L: GatewayLimiter> Shared<L> {
    /// Makes a call and passes its answer on.
    pub(crate) async fn metered<B, C: Caller>(
        self: &Arc<Self>,
        target: Target<'_>,
        request: Request<B>,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let started = self.clock.now();
        let prepared = self.prepare(target, request).await;
        let prepared =
            prepared.inspect_err(|refusal| self.report(target, None, started, refusal))?;
        let (listed, asked_at) = (prepared.context.listed, prepared.started);
        // Only from here on nobody reads from the connection.
        let gone = caller.clone();
        let calling = Box::pin(self.call(target, prepared, caller));
        let answered = match gone {
            None => calling.await,
            Some(gone) => match select(calling, poll_fn(|context| gone.poll_gone(context))).await {
                Race::Left((answered, _)) => answered,
                // Nobody reads this. What was reserved is settled as the call is dropped.
                Race::Right(_) => {
                    Err(Refusal::new(RefusalKind::CallerGone, "the caller went away"))
                }
            },
        };
        answered.inspect_err(|refusal| self.report(target, listed, asked_at, refusal))
    }

    /// A request that is not counted.
    pub(crate) async fn passed<B, C: Caller>(
        self: &Arc<Self>,
        provider: usize,
        rest: &str,
        request: Request<B>,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let keys = self.access.current();
        keys.identify(request.headers())?;
        let context = &self.providers[provider];
        let settings = &context.settings;
        let (parts, body) = request.into_parts();
        let api_key = keys.api_keys[provider].as_ref();
        let headers = to_provider(&parts.headers, settings.api, api_key);
        let uri = target_uri(settings, rest, parts.uri.query())?;
        let mut sent = Request::new(passing_body(body));
        *sent.method_mut() = parts.method;
        *sent.uri_mut() = uri;
        *sent.headers_mut() = headers;
        let sending = tokio::time::timeout(settings.upstream_timeout, context.upstream.send(sent));
        match sending.await {
            Ok(Ok(answer)) => {
                let (parts, body) = answer.into_parts();
                let body = AnswerBody::new(
                    body,
                    Meter::None,
                    None,
                    caller,
                    settings.upstream_timeout,
                    None,
                );
                let mut response = Response::new(Either::Right(body));
                *response.status_mut() = parts.status;
                *response.headers_mut() = to_caller(&parts.headers);
                Ok(response)
            }
            Ok(Err(SendError::NotSent(reason) | SendError::NoAnswer(reason))) => {
                tracing::warn!(
                    provider = settings.name.as_str(),
                    reason,
                    "a request was not answered"
                );
                Err(no_answer(settings))
            }
            Err(_) => Err(timed_out(settings)),
        }
    }

    /// Reads and checks a call; nothing is reserved yet.
    async fn prepare<B>(
        self: &Arc<Self>,
        target: Target<'_>,
        request: Request<B>,
    ) -> Result<Prepared, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Target { provider, operation, rest } = target;
        let settings = &self.providers[provider].settings;
        let keys = self.access.current();
        let tenant = keys.identify(request.headers())?;
        let wishes = self.wishes(request.headers())?;
        let uri = target_uri(settings, rest, request.uri().query())?;
        let headers =
            to_provider(request.headers(), settings.api, keys.api_keys[provider].as_ref());
        let (parts, body) = request.into_parts();
        let HeldBody { bytes, share } = self.bodies.read(&parts.headers, body).await?;
        let is_long = bytes.len() > QUICK_BODY_BYTES_MAX;
        let parse = move || Call::parse(operation, bytes);
        let call = match is_long {
            true => tokio::task::spawn_blocking(parse).await.unwrap_or_else(|_| parse_panicked()),
            false => parse(),
        };
        let call = call.map_err(|error| Refusal::new(RefusalKind::Invalid, error.to_string()))?;
        let listed = listed(settings, &call.model, &tenant)?;
        let model = listed.map(|at| &settings.models.as_ref().expect("it is listed")[at]);
        let name = model.map_or(&*call.model, |model| &model.name);
        let scope = Scope {
            provider: settings.name.as_str().into(),
            model: name.into(),
            tenant: tenant.name.clone(),
        };
        let keys = self.keys.get(&scope).ok_or_else(|| {
            let message = "the names of provider, model and tenant are too long together for the key of a limit";
            Refusal::new(RefusalKind::Invalid, message)
        })?;
        let ratio = self.ratios.get(provider, &call.model);
        let (estimate, certain) = Estimate::of(&call, model, ratio, settings.hidden_input_tokens);
        let context = Arc::new(CallContext {
            provider,
            model: call.model.clone(),
            listed,
            price: model.and_then(|model| model.price.clone()),
            is_stream: call.is_stream,
            estimate,
        });
        let tenant = tenant.name;
        let started = self.clock.now();
        Ok(Prepared {
            call,
            context,
            certain,
            keys,
            tenant,
            wishes,
            started,
            uri,
            headers,
            _share: share,
        })
    }

    fn wishes(&self, headers: &HeaderMap) -> Result<CallerWishes, Refusal> {
        let wait = number(headers, WAIT_HEADER)?.map(Duration::from_millis);
        let retries = number(headers, RETRIES_HEADER)?;
        Ok(CallerWishes {
            wait: wait.unwrap_or(self.wait).min(self.wait),
            retries_max: retries.map_or(RETRIES_MAX, |retries| {
                u32::try_from(retries).unwrap_or(RETRIES_MAX).min(RETRIES_MAX)
            }),
        })
    }

    /// Waits for room and asks the provider, again where that helps.
    async fn call<C: Caller>(
        self: &Arc<Self>,
        target: Target<'_>,
        prepared: Prepared,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal> {
        let Prepared { call, context, certain, keys, tenant, wishes, started, .. } = &prepared;
        let deadline = started.after(wishes.wait);
        let mut asks_for_usage = self.asks_for_usage(target.provider, call);
        let mut retries = 0;
        loop {
            let using = Use {
                estimate: context.estimate,
                certain: *certain,
                price: context.price.as_ref(),
                is_background: call.is_background,
            };
            let queue = tenant.as_deref().unwrap_or_default();
            let asking = Asking { context, keys, using, queue, started: *started, deadline };
            let mut waiting = Waiting { shared: self, context, started: *started, is_over: false };
            let admitted = self.admit(&asking).await;
            waiting.is_over = true;
            let attempt = admitted?;
            let left = deadline.since(self.clock.now());
            let retry = (retries < wishes.retries_max).then_some((retries, left));
            let trial = Trial { target, prepared: &prepared, asks_for_usage, retry };
            match self.try_once(trial, attempt, caller.clone()).await? {
                Tried::Answer(response) => return Ok(response),
                Tried::WithoutUsage => {
                    self.remember_without_usage(target.provider, &call.model);
                    asks_for_usage = false;
                }
                Tried::Again { after } => {
                    retries += 1;
                    tokio::time::sleep_until(tokio::time::Instant::now() + after).await;
                }
            }
        }
    }

    fn asks_for_usage(&self, provider: usize, call: &Call) -> bool {
        let without = self.providers[provider].without_usage.lock();
        let without = without.unwrap_or_else(PoisonError::into_inner);
        call.body_with_usage.is_some() && !without.contains(&call.model)
    }

    fn remember_without_usage(&self, provider: usize, model: &str) {
        let without = self.providers[provider].without_usage.lock();
        let mut without = without.unwrap_or_else(PoisonError::into_inner);
        if without.len() < WITHOUT_USAGE_MAX {
            without.insert(model.into());
        }
    }

    /// Counts a call that the gateway refused itself.
    fn report(
        &self,
        target: Target<'_>,
        listed: Option<usize>,
        started: Timestamp,
        refusal: &Refusal,
    ) {
        let Some(outcome) = outcome_of(refusal.kind) else { return };
        self.report_unsent(target.provider, listed, started, outcome);
    }

    /// Counts a call that was not sent.
    fn report_unsent(
        &self,
        provider: usize,
        listed: Option<usize>,
        started: Timestamp,
        outcome: CallOutcome,
    ) {
        let settings = &self.providers[provider].settings;
        let model = listed.map(|at| &*settings.models.as_ref().expect("it is listed")[at].name);
        self.observer.call_ended(&CallReport {
            provider: settings.name.as_str(),
            model,
            outcome,
            usage: None,
            cost: 0,
            waited: self.clock.now().since(started),
            first_byte_after: None,
            took: None,
        });
    }
}

/// A call that asks the limiter. Dropped before that is over, its caller has gone away.
struct Waiting<'a, L: GatewayLimiter> {
    shared: &'a Shared<L>,
    context: &'a CallContext,
    started: Timestamp,
    is_over: bool,
}

impl<L: GatewayLimiter> Drop for Waiting<'_, L> {
    fn drop(&mut self) {
        if !self.is_over {
            let CallContext { provider, listed, .. } = *self.context;
            self.shared.report_unsent(provider, listed, self.started, CallOutcome::CallerGone);
        }
    }
}
/// How a call ended that the gateway refused itself; `None` if it was counted before.
fn outcome_of(kind: RefusalKind) -> Option<CallOutcome> {
    Some(match kind {
        RefusalKind::NoRoom => CallOutcome::NoRoom,
        RefusalKind::Unavailable => CallOutcome::BackendError,
        // They were counted.
        RefusalKind::BadGateway | RefusalKind::GatewayTimeout | RefusalKind::CallerGone => {
            return None;
        }
        RefusalKind::Invalid
        | RefusalKind::NoPrice
        | RefusalKind::NeverFits
        | RefusalKind::Unauthorized
        | RefusalKind::ModelNotAllowed
        | RefusalKind::ModelNotFound
        | RefusalKind::NotFound
        | RefusalKind::TooLarge
        | RefusalKind::TooSlow
        | RefusalKind::NotImplemented => CallOutcome::Invalid,
    })
}

/// One attempt at the provider.
struct Trial<'a> {
    target: Target<'a>,
    prepared: &'a Prepared,
    asks_for_usage: bool,
    /// How often the call was repeated, and the wait that is left; `None` if it is not repeated any more.
    retry: Option<(u32, Duration)>,
}

impl Trial<'_> {
    fn request(&self) -> Request<UpstreamBody> {
        let Prepared { call, uri, headers, .. } = self.prepared;
        let with_usage = call.body_with_usage.as_ref().filter(|_| self.asks_for_usage);
        let body = with_usage.unwrap_or(&call.body).clone();
        let mut request = Request::post(uri.clone()).body(read_body(body));
        let request = request.as_mut().expect("the URL was checked");
        *request.headers_mut() = headers.clone();
        std::mem::replace(request, Request::new(read_body(Bytes::new())))
    }

    fn pause(&self, headers: Option<&HeaderMap>, now: Timestamp) -> Option<Duration> {
        let (retries, left) = self.retry?;
        pause_before_retry(headers, now, retries, left)
    }
}

impl<L: GatewayLimiter> Shared<L> {
    async fn try_once<C: Caller>(
        &self,
        trial: Trial<'_>,
        mut attempt: Attempt<L>,
        caller: Option<C>,
    ) -> Result<Tried<L, C>, Refusal> {
        let context = &self.providers[trial.target.provider];
        let settings = &context.settings;
        attempt.sends();
        let sending = context.upstream.send(trial.request());
        let answer = match tokio::time::timeout(settings.upstream_timeout, sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(SendError::NotSent(reason))) => {
                if let Some(after) = trial.pause(None, self.clock.now()) {
                    attempt.settle(AttemptEnd::NeverSent);
                    return Ok(Tried::Again { after });
                }
                tracing::warn!(provider = settings.name.as_str(), reason, "a call was not sent");
                attempt.end(AttemptEnd::NeverSent, CallOutcome::NoAnswer);
                return Err(no_answer(settings));
            }
            Ok(Err(SendError::NoAnswer(reason))) => {
                tracing::warn!(
                    provider = settings.name.as_str(),
                    reason,
                    "a call was not answered"
                );
                attempt.end(AttemptEnd::NoAnswer, CallOutcome::NoAnswer);
                return Err(no_answer(settings));
            }
            Err(_) => {
                attempt.end(AttemptEnd::NoAnswer, CallOutcome::NoAnswer);
                return Err(timed_out(settings));
            }
        };
        if answer.status().is_success() {
            return Ok(Tried::Answer(self.pass_on(&trial, attempt, answer, caller)));
        }
        self.refused(&trial, attempt, answer, caller).await
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
            Encoding::Plain => (Meter::Plain(PlainMeter::new(trial.target.operation)), None),
            Encoding::Stream => {
                // What is withheld was announced.
                headers.remove(CONTENT_LENGTH);
                let meter = StreamMeter::new(trial.target.operation, trial.asks_for_usage);
                (Meter::Stream(meter), Some(OpenStream::new(&self.open_streams)))
            }
        };
        let silence_max = self.providers[trial.target.provider].settings.upstream_timeout;
        let body = AnswerBody::new(body, meter, Some(attempt), caller, silence_max, open);
        let mut response = Response::new(Either::Right(body));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        response
    }

    /// The provider refuses the call: it is made again where that helps, else its caller gets the refusal as it is.
    async fn refused<C: Caller>(
        &self,
        trial: &Trial<'_>,
        mut attempt: Attempt<L>,
        answer: Response<Incoming>,
        caller: Option<C>,
    ) -> Result<Tried<L, C>, Refusal> {
        let (parts, body) = answer.into_parts();
        let mut headers = to_caller(&parts.headers);
        add_own_headers(&mut headers, &attempt);
        let is_rate = parts.status == StatusCode::TOO_MANY_REQUESTS;
        let may_retry = is_rate || parts.status == StatusCode::SERVICE_UNAVAILABLE;
        let rejects_usage = parts.status == StatusCode::BAD_REQUEST && trial.asks_for_usage;
        let outcome = if is_rate { CallOutcome::RefusedRate } else { CallOutcome::Refused };
        if !may_retry && !rejects_usage {
            attempt.end(AttemptEnd::Refused, outcome);
            let silence_max = self.providers[trial.target.provider].settings.upstream_timeout;
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
        if may_retry
            && !contains(&body, b"insufficient_quota")
            && let Some(after) = trial.pause(Some(&parts.headers), self.clock.now())
        {
            attempt.settle(AttemptEnd::Refused);
            return Ok(Tried::Again { after });
        }
        attempt.end(AttemptEnd::Refused, outcome);
        headers.remove(CONTENT_LENGTH);
        let mut response = Response::new(Either::Left(body.into()));
        *response.status_mut() = parts.status;
        *response.headers_mut() = headers;
        Ok(Tried::Answer(response))
    }
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
        match text("content-encoding") {
            Some(encoding) if !encoding.trim().eq_ignore_ascii_case("identity") => Self::Unreadable,
            Some(_) | None if is_stream => Self::Stream,
            Some(_) | None => Self::Plain,
        }
    }
}

/// The model's position in the provider's list, if there is one and the tenant may call it.
fn listed(
    settings: &Provider,
    model: &str,
    tenant: &CallerTenant,
) -> Result<Option<usize>, Refusal> {
    let is_named = |one: &Model| one.name == model || one.aliases.iter().any(|name| name == model);
    let listed = settings.models.as_ref().map(|models| models.iter().position(is_named));
    let provider = settings.name.as_str();
    let found = match listed {
        None => None,
        Some(Some(at)) => Some(at),
        Some(None) => {
            let message = format!(
                "the model is not one of those that may be called at {provider}; see gateway.providers in the gateway's config"
            );
            return Err(Refusal::new(RefusalKind::ModelNotFound, message));
        }
    };
    let name = found.map(|at| &*settings.models.as_ref().expect("it is listed")[at].name);
    if !tenant.may_call(&[model, name.unwrap_or(model)]) {
        let message =
            "this key may not call this model; see gateway.tenants in the gateway's config";
        return Err(Refusal::new(RefusalKind::ModelNotAllowed, message));
    }
    Ok(found)
}

fn target_uri(settings: &Provider, rest: &str, query: Option<&str>) -> Result<Uri, Refusal> {
    settings.base_url.join(rest, query).ok_or_else(|| {
        Refusal::new(RefusalKind::Invalid, "the path is not one that can be sent to a provider")
    })
}

fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        Refusal::new(RefusalKind::Invalid, format!("{name} must be a whole number from 0"))
    })
}

fn add_own_headers<L: GatewayLimiter>(headers: &mut HeaderMap, attempt: &Attempt<L>) {
    if let Some(lease) = attempt.lease() {
        let lease = HeaderValue::try_from(lease.to_string());
        headers.insert(LEASE_HEADER, lease.expect("a ULID is visible ASCII"));
    }
    let waited = u64::try_from(attempt.waited.as_millis()).unwrap_or(u64::MAX);
    headers.insert(WAITED_HEADER, waited.into());
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

fn no_answer(settings: &Provider) -> Refusal {
    let message =
        format!("the provider {} gave no answer; see the server's log", settings.name.as_str());
    Refusal::new(RefusalKind::BadGateway, message)
}

fn timed_out(settings: &Provider) -> Refusal {
    let ms = settings.upstream_timeout.as_millis();
    let message = format!("the provider {} sent no byte for {ms} ms", settings.name.as_str());
    Refusal::new(RefusalKind::GatewayTimeout, message)
}

fn parse_panicked() -> Result<Call, crate::call::CallError> {
    Err(crate::call::CallError::NotJson("the gateway failed to read it".to_owned()))
}
