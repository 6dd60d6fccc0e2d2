//! A call that was read and checked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Uri};
use ratelimiter::clock::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::access::{CallerTenant, Keys};
use crate::api::Operation;
use crate::attempt::CallContext;
use crate::call::Call;
use crate::destination::{Destination, Place, places};
use crate::estimate::Estimate;
use crate::headers::to_provider;
use crate::limiter::GatewayLimiter;
use crate::limits::Scope;
use crate::reasoning::reasons_unless_told;
use crate::refusal::{Refusal, RefusalKind};
use crate::request_body::HeldBody;
use crate::retry::RETRIES_MAX;
use crate::settings::{Model, Provider};
use crate::shared::{ProviderContext, Shared};
use crate::upstream::BoxError;

const WAIT_HEADER: &str = "x-ratelimiter-wait-ms";
const RETRIES_HEADER: &str = "x-ratelimiter-retries";
/// Longer bodies are read off the threads that answer requests.
const QUICK_BODY_BYTES_MAX: usize = 16 * 1_024;

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
pub(crate) struct CallerWishes {
    pub(crate) wait: Duration,
    pub(crate) retries_max: u32,
}

/// A call that was read and checked.
pub(crate) struct Prepared {
    pub(crate) call: Call,
    /// The model's position in the list of the provider of the call's path.
    pub(crate) listed: Option<usize>,
    /// Where it can be made; at least one.
    pub(crate) destinations: Vec<Destination>,
    pub(crate) tenant: Option<Box<str>>,
    pub(crate) wishes: CallerWishes,
    pub(crate) started: Timestamp,
    /// Counts the body as held until the provider answers.
    _share: Option<OwnedSemaphorePermit>,
}

impl<L: GatewayLimiter> Shared<L> {
    /// Reads and checks a call; nothing is reserved yet.
    pub(crate) async fn prepare<B>(
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
        let (parts, body) = request.into_parts();
        let HeldBody { bytes, share } = self.bodies.read(&parts.headers, body).await?;
        let is_long = bytes.len() > QUICK_BODY_BYTES_MAX;
        let shared = Arc::clone(self);
        let parse = move || {
            Call::parse(operation, bytes, |model| {
                shared.providers[provider].settings.encoding(model)
            })
        };
        let call = match is_long {
            true => {
                tokio::task::spawn_blocking(parse).await.expect("reading a body does not panic")
            }
            false => parse(),
        };
        let call = call.map_err(|error| Refusal::new(RefusalKind::Invalid, error.to_string()))?;
        let listed = listed(settings, &call.model, &tenant)?;
        let destination =
            |place: &Place<'_>| self.destination(place, &call, &keys, &tenant, rest, &parts);
        let places = places(&self.providers, provider, &call.model, listed);
        let destinations = places.iter().map(destination).collect::<Result<_, _>>()?;
        let started = self.clock.now();
        let tenant = tenant.name;
        Ok(Prepared { call, listed, destinations, tenant, wishes, started, _share: share })
    }

    /// What the call needs to be made at a place.
    fn destination(
        &self,
        place: &Place<'_>,
        call: &Call,
        keys: &Keys,
        tenant: &CallerTenant,
        rest: &str,
        parts: &Parts,
    ) -> Result<Destination, Refusal> {
        let Place { provider, model, listed, ref settings, weight } = *place;
        let of_model = settings.as_deref();
        let ProviderContext { settings, accounts, .. } = &self.providers[provider];
        let api_key = keys.api_keys[provider].as_ref();
        let headers = to_provider(&parts.headers, settings.api, api_key);
        let scope = Scope {
            provider: settings.name.as_str().into(),
            model: listed.map_or(model, |at| &settings.listed()[at].name).into(),
            tenant: tenant.name.clone(),
        };
        let keys = self.keys.get(&scope).ok_or_else(|| {
            let message = "the names of provider, model and tenant are too long together for the key of a limit";
            Refusal::new(RefusalKind::Invalid, message)
        })?;
        let ratio = self.ratios.get(provider, model);
        let (estimate, certain) = Estimate::of(call, of_model, ratio, settings.hidden_input_tokens);
        let account = accounts.get(&scope.model, &headers, Instant::now());
        let context = CallContext {
            provider,
            model: model.into(),
            name: scope.model,
            account,
            listed,
            price: of_model.and_then(|model| model.price.clone()),
            is_stream: call.is_stream,
            may_reason: call.is_stream
                && call.reasons.unwrap_or_else(|| reasons_unless_told(model)),
            estimate,
        };
        Ok(Destination {
            context: Arc::new(context),
            certain,
            keys,
            uri: target_uri(settings, rest, parts.uri.query())?,
            headers,
            has_api_key: api_key.is_some(),
            model: weight.map(|_| model.into()),
            weight: weight.unwrap_or(1),
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
}

/// The model's position in the provider's list, if there is one and the tenant may call it.
fn listed(
    settings: &Provider,
    model: &str,
    tenant: &CallerTenant,
) -> Result<Option<usize>, Refusal> {
    let position = |models: &Vec<Model>| models.iter().position(|one| one.is_named(model));
    let listed = settings.models.as_ref().map(position);
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
    let name = found.map(|at| &*settings.listed()[at].name);
    if !tenant.may_call(&[model, name.unwrap_or(model)]) {
        let message =
            "this key may not call this model; see gateway.tenants in the gateway's config";
        return Err(Refusal::new(RefusalKind::ModelNotAllowed, message));
    }
    Ok(found)
}

pub(crate) fn target_uri(
    settings: &Provider,
    rest: &str,
    query: Option<&str>,
) -> Result<Uri, Refusal> {
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
