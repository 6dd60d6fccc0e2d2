//! Mounts the gateway: its limiter is the server's, its callers are the server's connections.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response, Version};
use ratelimiter::clock::MonotonicClock;
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, Limit, LimitKey, LimitState, Limiter, RenewError,
    RenewRequest, Renewal, ReserveError, ReserveRequest, StateError, Unanswered, Wait,
};
use ratelimiter_gateway::{Caller, Gateway, GatewayError, GatewayLimiter, GatewayParts, Settings};

use crate::config::HintsConfig;
use crate::hosted::HostedBackend;
use crate::metrics::GatewayMetrics;
use crate::routes::{AppState, Client};

/// The gateway of a server.
pub(crate) type MountedGateway<B> = Gateway<HostedLimiter<B>>;

/// The limiter of a server, as its HTTP API uses it: with its timeouts and metrics.
pub(crate) struct HostedLimiter<B: HostedBackend>(Arc<AppState<B>>);

/// A gateway whose keys can be replaced.
pub(crate) trait ReloadKeys: fmt::Debug + Send + Sync {
    fn reload_keys(&self, settings: &Settings);
}

/// The client of a connection.
#[derive(Debug, Clone)]
struct ConnectedCaller<C>(C);

pub(crate) fn mount<B: HostedBackend>(
    settings: Settings,
    app: &Arc<AppState<B>>,
    metrics: Arc<GatewayMetrics>,
    hints: &HintsConfig,
) -> Result<Arc<MountedGateway<B>>, GatewayError> {
    let longest_ms = (hints.concurrency_max_ms + hints.concurrency_jitter_ms)
        .max(hints.rolling_max_ms + hints.rolling_jitter_ms);
    let parts = GatewayParts {
        limiter: HostedLimiter(Arc::clone(app)),
        clock: Arc::new(MonotonicClock::new()),
        open_streams: metrics.open_streams(),
        observer: metrics,
        longest_backoff: Duration::from_millis(longest_ms),
    };
    Gateway::new(settings, parts).map(Arc::new)
}

/// Answers a request whose path is that of a provider.
pub(crate) async fn call_provider<B: HostedBackend>(
    gateway: &MountedGateway<B>,
    request: Request<Incoming>,
    client: impl Client,
) -> Response<Body> {
    // Over HTTP/2, hyper drops what nobody waits for.
    let caller = (request.version() != Version::HTTP_2).then_some(ConnectedCaller(client));
    gateway.answer(request, caller).await.map(Body::new)
}

impl<C: Client> Caller for ConnectedCaller<C> {
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_gone(context)
    }
}

impl<B: HostedBackend> fmt::Debug for HostedLimiter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostedLimiter")
    }
}

impl<B: HostedBackend> Limiter for HostedLimiter<B> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let app = &self.0;
        let wait = request.wait.as_ref().map(Wait::at_most).unwrap_or_default();
        let (decision, _) = app.with_timeout_after(wait, app.limiter.reserve(request)).await?;
        app.metrics.count_decision(&decision, |key| app.backend.metrics_key(key));
        Ok(decision)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.0.with_timeout(self.0.limiter.renew(request)).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.0.with_timeout(self.0.limiter.complete(request)).await
    }

    fn can_wait(&self) -> bool {
        true
    }
}

impl<B: HostedBackend> GatewayLimiter for HostedLimiter<B> {
    async fn governing(&self, keys: &[LimitKey]) -> Result<Vec<Option<Limit>>, Unanswered> {
        self.0.with_timeout(self.0.backend.governing(keys)).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        self.0.with_timeout(self.0.backend.state(key)).await
    }
}

impl<B: HostedBackend> ReloadKeys for MountedGateway<B> {
    fn reload_keys(&self, settings: &Settings) {
        Gateway::reload_keys(self, settings);
    }
}
