//! The gateway: finds out whose call it is and where it leads.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::Body;
use hyper::header::UPGRADE;
use hyper::{HeaderMap, Method, Request, Response};
use ratelimiter::clock::Clock;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::answer_body::GatewayBody;
use crate::api::Api;
use crate::caller::Caller;
use crate::encoding::Encoding;
use crate::held_back::HeldBack;
use crate::limiter::GatewayLimiter;
use crate::limits::KeyCache;
use crate::observer::Observer;
use crate::prepared::Target;
use crate::ratios::Ratios;
use crate::refusal::{Refusal, RefusalKind};
use crate::renewals::Renewals;
use crate::request_body::BodyBounds;
use crate::route::{Route, first_segment};
use crate::settings::{Provider, Settings};
use crate::shared::{ProviderContext, Shared};
use crate::upstream::{BoxError, Upstream, UpstreamError};

/// A reverse proxy for LLM providers: each call is reserved, made, streamed back and settled.
pub struct Gateway<L: GatewayLimiter> {
    shared: Arc<Shared<L>>,
    renewing: JoinHandle<()>,
}

/// What a gateway is built on.
#[derive(Debug)]
pub struct GatewayParts<L> {
    /// Decides whether calls may go ahead.
    pub limiter: L,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Is told what becomes of calls.
    pub observer: Arc<dyn Observer>,
    /// Counts open streams.
    pub open_streams: Arc<AtomicUsize>,
    /// The longest hint of a denial that is not exact.
    pub longest_backoff: Duration,
}

/// Why a gateway cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gateway.providers[{at}].ca_file: {error}")]
pub struct GatewayError {
    /// The position of the provider.
    pub at: usize,
    /// What is wrong.
    pub error: UpstreamError,
}

impl<L: GatewayLimiter> Gateway<L> {
    /// Starts a gateway with settings that were [checked](Settings::check).
    ///
    /// # Errors
    /// The certificates to trust cannot be read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(settings: Settings, parts: GatewayParts<L>) -> Result<Self, GatewayError> {
        let Settings {
            wait,
            tenants,
            allow_anonymous: _,
            on_backend_error,
            body_bytes_max,
            buffered_bytes_max,
            providers,
        } = settings;
        let GatewayParts { limiter, clock, observer, open_streams, longest_backoff } = parts;
        if providers.iter().any(|provider| provider.api == Api::OpenAi) {
            Encoding::load();
        }
        let api_keys = providers.iter().map(|provider| provider.api_key.clone()).collect();
        let stopping = CancellationToken::new();
        let context = |(at, settings): (usize, Provider)| {
            let is_encrypted = settings.base_url.is_encrypted();
            let upstream = Upstream::new(
                is_encrypted,
                settings.ca_file.as_deref(),
                settings.https_proxy.as_ref(),
            )
            .map_err(|error| GatewayError { at, error })?;
            let accounts = Accounts::default();
            let holding = Mutex::new(stopping.child_token());
            let without_usage = Mutex::default();
            Ok(ProviderContext { settings, upstream, accounts, holding, without_usage })
        };
        let providers = providers.into_iter().enumerate().map(context);
        let shared = Arc::new(Shared {
            limiter,
            clock,
            observer,
            runtime: Handle::current(),
            wait,
            longest_backoff,
            on_backend_error,
            access: Access::new(tenants, api_keys),
            providers: providers.collect::<Result<_, _>>()?,
            bodies: BodyBounds::new(body_bytes_max, buffered_bytes_max),
            keys: KeyCache::default(),
            ratios: Ratios::default(),
            renewals: Renewals::default(),
            held_back: HeldBack::default(),
            tasks: TaskTracker::new(),
            stopping: stopping.clone(),
            open_streams,
        });
        let renewed = Arc::clone(&shared);
        let renewing = tokio::spawn(async move { renewed.renewals.run(&renewed.limiter).await });
        Ok(Self { shared, renewing })
    }

    /// Whether a path is below the name of a provider.
    pub fn serves(&self, path: &str) -> bool {
        self.shared.provider_of(path).is_some()
    }

    /// Takes the keys of tenants and providers from settings that were read again; calls under way keep theirs.
    pub fn reload_keys(&self, settings: &Settings) {
        let key_of = |provider: &ProviderContext| {
            let mut all = settings.providers.iter();
            let same = all.find(|other| other.name == provider.settings.name);
            match same {
                Some(same) => same.api_key.clone(),
                None => provider.settings.api_key.clone(),
            }
        };
        let api_keys: Vec<_> = self.shared.providers.iter().map(key_of).collect();
        let earlier = self.shared.access.current();
        let of_providers = self.shared.providers.iter().zip(&earlier.api_keys).zip(&api_keys);
        for ((provider, earlier), new) in of_providers {
            if earlier != new {
                provider.forget_key(&self.shared.stopping);
            }
        }
        self.shared.access.replace(settings.tenants.clone(), api_keys);
    }

    /// Resolves when all calls that have ended are settled, and nothing is held back. No more calls may come.
    pub async fn settled(&self) {
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Answers a request whose path is below the name of a provider. Without a `caller`, whoever drops the future or the answer says
    /// that the caller has gone away.
    pub async fn answer<B, C: Caller>(
        &self,
        request: Request<B>,
        caller: Option<C>,
    ) -> Response<impl Body<Data = Bytes, Error: Into<BoxError>> + Send + use<L, B, C>>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Some(provider) = self.shared.provider_of(request.uri().path()) else {
            let refusal = Refusal::new(RefusalKind::NotFound, "no provider has this name");
            return refusal.response(Api::OpenAi).map(Either::Left);
        };
        let api = self.shared.providers[provider].settings.api;
        match self.shared.route(provider, request, caller).await {
            Ok(response) => response,
            Err(refusal) => refusal.response(api).map(Either::Left),
        }
    }
}

impl<L: GatewayLimiter> Shared<L> {
    async fn route<B, C: Caller>(
        self: &Arc<Self>,
        provider: usize,
        request: Request<B>,
        caller: Option<C>,
    ) -> Result<Response<GatewayBody<L, C>>, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let settings = &self.providers[provider].settings;
        let path = request.uri().path().to_owned();
        let (_, below) = first_segment(&path).expect("a provider was found by it");
        if switches_protocols(request.headers()) || request.method() == Method::CONNECT {
            let message = "the gateway does not switch protocols; use plain HTTP or a stream";
            return Err(Refusal::new(RefusalKind::NotImplemented, message));
        }
        let method = request.method();
        match Route::find(settings.api, method, below, &settings.pass_through_paths) {
            Route::Metered { operation, rest } => {
                let to = Target { provider, operation, rest };
                self.metered(to, request, caller).await
            }
            Route::Passed { rest } => self.passed(provider, rest, request, caller).await,
            Route::NotFound => {
                let served = Route::served(settings.api);
                let name = settings.name.as_str();
                let message = format!(
                    "{method} {path} is not served. Below /{name}/ there are {served}, and pass_through_paths of this provider \
                     in the gateway's config"
                );
                Err(Refusal::new(RefusalKind::NotFound, message))
            }
            Route::DotSegment => {
                let message = "a path must not have `.` or `..` as a segment, encoded or not";
                Err(Refusal::new(RefusalKind::Invalid, message))
            }
        }
    }
}

/// Whether a client asks for another protocol. HTTP/2 is only an offer, which some clients make with every request.
fn switches_protocols(headers: &HeaderMap) -> bool {
    let values = headers.get_all(UPGRADE).into_iter();
    let is_offer = |name: &str| name.trim().eq_ignore_ascii_case("h2c");
    !values
        .into_iter()
        .all(|value| value.to_str().is_ok_and(|value| value.split(',').all(is_offer)))
}

impl<L: GatewayLimiter> fmt::Debug for Gateway<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<L: GatewayLimiter> Drop for Gateway<L> {
    fn drop(&mut self) {
        self.renewing.abort();
        self.shared.stopping.cancel();
    }
}
