//! The server: start, reload of tokens and certificate, shutdown.

mod accept;
mod handshake;
mod lazy_timer;
mod stream_timeouts;
mod watched_stream;

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ratelimiter::clock::MonotonicClock;
use ratelimiter_gateway::{GatewayError, Settings};
use ratelimiter_waiting::{Runtime, TokioRuntime, Waiting};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::accept::{Connections, accept};
use crate::admin::{Admin, RestoreError};
use crate::auth::Access;
use crate::config::{AuthConfig, Config, ListenAddr, ValueError};
use crate::gateway::{ReloadKeys, mount};
use crate::hosted::HostedBackend;
use crate::metrics::{GatewayMetrics, Metrics};
use crate::routes::{ApiService, AppState};
use crate::tls::{Tls, TlsError};

/// Interval of the background work. A decrease must apply at most 1 s after it fits (`DEF-07`), so this is well below.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// A listening server. Dropping it starts a shutdown without waiting for its end.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    limit_count: Option<usize>,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    ticking: JoinHandle<()>,
    following: JoinHandle<()>,
    tls: Option<Arc<Tls>>,
    access: Arc<Access>,
    gateway: Option<Arc<dyn ReloadKeys>>,
}

/// What [`Server::reload`] has reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Reloaded {
    /// The certificate and its key; new connections use them.
    Certificate,
    /// The server has no certificate.
    Nothing,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum StartError {
    /// The address is in use.
    #[error("{address} is in use by another program; stop it, or listen elsewhere (--listen)")]
    InUse { address: ListenAddr },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: ListenAddr, reason: io::Error },
    /// The limits cannot be loaded.
    #[error(transparent)]
    Limits(#[from] RestoreError),
    /// A token cannot be used.
    #[error("a token cannot be used: {0}")]
    Token(#[from] ValueError),
    /// A setting of the gateway cannot be used.
    #[error(transparent)]
    Gateway(ValueError),
    /// The certificates that a provider is trusted by cannot be used.
    #[error(transparent)]
    Upstream(#[from] GatewayError),
    /// The certificate or its key cannot be used.
    #[error("{field}: {0}", field = .0.field.path())]
    Tls(#[from] TlsError),
}

impl Server {
    /// Binds the address, loads the limits, and serves in the background.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn bind<B: HostedBackend>(config: &Config, backend: B) -> Result<Self, StartError> {
        let access = Arc::new(Access::new(&config.auth)?);
        let tls = Tls::new(&config.server.tls)?.map(Arc::new);
        let listener = listen(&config.server.listen_addr).await?;
        let local_addr = listener.local_addr().map_err(|reason| StartError::Listen {
            address: config.server.listen_addr.clone(),
            reason,
        })?;
        let backend = Arc::new(backend);
        let place = config.registry_place();
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
        let admin =
            Admin::restore(Arc::clone(&backend), place, local_addr, Arc::clone(&runtime)).await?;
        let admin = Arc::new(admin);
        let limit_count = admin.limit_count();
        let waiters_max = as_usize(config.server.waiters_max);
        let clock = Arc::new(MonotonicClock::new());
        let limiter =
            Waiting::new(Arc::clone(&backend), clock, &runtime, waiters_max, admin.changed());
        let stop = CancellationToken::new();
        let answered = CancellationToken::new();
        let ticking = tokio::spawn(tick(Arc::clone(&admin), stop.clone(), answered.clone()));
        let changed = admin.changed();
        let following = tokio::spawn(follow(Arc::clone(&backend), changed, stop.clone()));
        let gateway = read_gateway(config, local_addr)?;
        let gateway_metrics =
            gateway.as_ref().map(|settings| Arc::new(GatewayMetrics::new(settings)));
        let app = Arc::new(AppState {
            backend,
            limiter,
            admin,
            access: Arc::clone(&access),
            metrics: Metrics::new(as_usize(config.metrics.keys_max)),
            gateway_metrics: gateway_metrics.clone(),
            request_timeout: Duration::from_millis(config.server.request_timeout_ms),
        });
        let gateway = match gateway.zip(gateway_metrics) {
            Some((settings, metrics)) => Some(mount(settings, &app, metrics, &config.hints)?),
            None => None,
        };
        let api = ApiService::new(app, gateway.clone());
        let gateway = gateway.map(|gateway| gateway as Arc<dyn ReloadKeys>);
        let connections = Connections::new(&config.server, api, tls.clone());
        let accepting = accept(listener, connections, stop.clone());
        let accepting = tokio::spawn(async move {
            let _answered = answered.drop_guard();
            accepting.await;
        });
        Ok(Self {
            local_addr,
            limit_count,
            stop,
            accepting,
            ticking,
            following,
            tls,
            access,
            gateway,
        })
    }

    /// The address that the server listens on.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Number of limits at the start; `None` if the backend keeps them and did not answer.
    pub const fn limit_count(&self) -> Option<usize> {
        self.limit_count
    }

    /// True if the server speaks TLS only.
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads the certificate and its key again. Open connections are not affected.
    ///
    /// # Errors
    /// The files cannot be used; the old certificate stays in force.
    ///
    /// # Panics
    /// Never: reading two files does not panic.
    pub async fn reload(&self) -> Result<Reloaded, TlsError> {
        let Some(tls) = self.tls.clone() else { return Ok(Reloaded::Nothing) };
        let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
        reloaded.expect("reading two files does not panic")?;
        Ok(Reloaded::Certificate)
    }

    /// Replaces all tokens by those of a config, which it reads from their files; returns how many there are. Requests that were
    /// admitted before are not affected.
    ///
    /// # Errors
    /// A token cannot be used, or there are none and others can reach this server; the old tokens stay valid.
    pub fn reload_tokens(&self, config: &AuthConfig) -> Result<usize, ValueError> {
        // The address of a config that is read again does not apply.
        let addr = self.local_addr;
        if !config.has_tokens() && !config.allow_anonymous && !addr.ip().is_loopback() {
            let message = format!(
                "has no tokens, and this server listens on {addr}, where others can reach it; set \
                 auth.allow_anonymous: true if this is intended"
            );
            return Err(ValueError { path: "auth".to_owned(), message });
        }
        self.access.reload(config)
    }

    /// Replaces the gateway's keys of tenants and providers by those of a config; returns whether there is a gateway. Calls that were
    /// admitted before are not affected.
    ///
    /// # Errors
    /// A setting cannot be used; the old keys stay valid.
    pub fn reload_gateway(&self, config: &Config) -> Result<bool, ValueError> {
        let Some(gateway) = &self.gateway else { return Ok(false) };
        let is_loopback = self.local_addr.ip().is_loopback();
        let settings = config.gateway.settings(is_loopback).map_err(first_error)?;
        let removed = || ValueError {
            path: "gateway".to_owned(),
            message: "cannot be removed while the server runs; restart it".to_owned(),
        };
        gateway.reload_keys(&settings.ok_or_else(removed)?);
        Ok(true)
    }

    /// Stops accepting, waits for open requests at most for `server.shutdown_timeout_ms`, and closes all connections.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for task in [&mut self.accepting, &mut self.ticking, &mut self.following] {
            if let Err(error) = task.await {
                tracing::error!(%error, "server task failed");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The settings of the gateway, if there is one, with its keys.
fn read_gateway(config: &Config, addr: SocketAddr) -> Result<Option<Settings>, StartError> {
    let settings = config.gateway.settings(addr.ip().is_loopback());
    settings.map_err(|errors| StartError::Gateway(first_error(errors)))
}

fn first_error(errors: Vec<ValueError>) -> ValueError {
    errors.into_iter().next().expect("a failure has an error")
}

async fn listen(address: &ListenAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address.host_and_port()).await.map_err(|reason| {
        let address = address.clone();
        if reason.kind() == io::ErrorKind::AddrInUse {
            return StartError::InUse { address };
        }
        StartError::Listen { address, reason }
    })
}

/// Runs the background work until the server stops. Closes the registry when all requests are `answered`.
async fn tick<B: HostedBackend>(
    admin: Arc<Admin<B>>,
    stop: CancellationToken,
    answered: CancellationToken,
) {
    let mut ticks = tokio::time::interval(TICK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        // The next tick may succeed. A backend that a panic left half-updated reports that itself (`/readyz`).
        if AssertUnwindSafe(admin.tick(&stop)).catch_unwind().await.is_err() {
            tracing::error!("background task panicked; it runs again at the next tick");
        }
    }
    answered.cancelled().await;
    admin.close().await;
}

async fn follow<B: HostedBackend>(backend: Arc<B>, changed: Arc<Notify>, stop: CancellationToken) {
    // It may end by itself.
    let _ended = stop.run_until_cancelled(backend.follow_changes(&changed)).await;
}

pub(crate) fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
