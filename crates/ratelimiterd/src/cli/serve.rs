//! `ratelimiterd [serve]`: runs the server until a signal.

use std::io;
use std::process::ExitCode;

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{Backoff, HintPolicy, MemoryLimiter};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CliError;
use crate::config::{AuthConfig, BackendChoice, Config, ConfigError, GatewayConfig, HintsConfig};
use crate::server::as_usize;
use crate::{Reloaded, Server, logs, redis, tigerbeetle};

/// Runs until a signal stops it. SIGHUP calls `read_config` again, for the tokens.
pub(super) async fn run(
    config: Config,
    read_config: impl Fn() -> Result<Config, ConfigError>,
) -> Result<ExitCode, CliError> {
    logs::start(&config.log);
    let mut signals = Signals::listen().map_err(CliError::of)?;
    let server = match config.server.backend {
        BackendChoice::Memory => Server::bind(&config, memory_backend(&config)).await,
        BackendChoice::TigerBeetle => {
            let hints = hint_policy(&config.hints);
            let backend = tigerbeetle::open(&config, hints).map_err(CliError::of)?;
            Server::bind(&config, backend).await
        }
        BackendChoice::Redis => {
            Server::bind(&config, redis::open(&config, hint_policy(&config.hints))).await
        }
    };
    let server = server.map_err(CliError::of)?;
    let (addr, limits) = (server.local_addr(), server.limit_count());
    let registry = config.registry_place();
    let tls = server.is_encrypted();
    tracing::info!(%addr, tls, limits, %registry, version = env!("CARGO_PKG_VERSION"), "listening");
    if !tls && config.auth.has_tokens() && !addr.ip().is_loopback() {
        tracing::warn!("tokens are sent unencrypted unless a proxy terminates TLS; set server.tls");
    }
    let Config { mut auth, gateway, .. } = config;
    let signal = loop {
        match signals.next().await {
            SignalAction::Stop { signal } => break signal,
            SignalAction::Reload => reload(&server, &mut auth, &gateway, &read_config).await,
        }
    };
    tracing::info!(signal, "shutting down");
    server.stop().await;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn memory_backend(config: &Config) -> MemoryLimiter {
    let options = MemoryOptions {
        hints: hint_policy(&config.hints),
        remember_for: std::time::Duration::from_secs(config.memory.remember_seconds),
        remember_max: as_usize(config.memory.remember_max),
        instances_max: as_usize(config.registry.instances_max),
        new_instances_per_second_max: as_usize(config.registry.new_instances_per_second_max),
        // The server's tick sweeps.
        sweep_every: None,
        ..MemoryOptions::default()
    };
    MemoryLimiter::with_options(options)
}

fn hint_policy(config: &HintsConfig) -> HintPolicy {
    let ms = std::time::Duration::from_millis;
    let HintsConfig {
        concurrency_base_ms,
        concurrency_factor,
        concurrency_max_ms,
        concurrency_jitter_ms,
        rolling_base_ms,
        rolling_factor,
        rolling_max_ms,
        rolling_jitter_ms,
        decreasing_ms,
    } = *config;
    HintPolicy {
        concurrency: Backoff {
            base: ms(concurrency_base_ms),
            factor: concurrency_factor,
            max: ms(concurrency_max_ms),
            jitter: ms(concurrency_jitter_ms),
        },
        rolling: Backoff {
            base: ms(rolling_base_ms),
            factor: rolling_factor,
            max: ms(rolling_max_ms),
            jitter: ms(rolling_jitter_ms),
        },
        decreasing: ms(decreasing_ms),
    }
}

/// Reads the tokens, the keys of the gateway and the certificate again, each on its own: one may be bad and the others good.
async fn reload(
    server: &Server,
    auth: &mut AuthConfig,
    gateway: &GatewayConfig,
    read_config: &impl Fn() -> Result<Config, ConfigError>,
) {
    // Blocks, but only the task that waits for signals.
    let is_about_keys = match read_config() {
        Ok(config) => {
            let has_gateway_keys = reload_gateway(server, gateway, &config);
            reload_tokens(server, auth, config.auth) || has_gateway_keys
        }
        Err(ConfigError { errors }) => {
            for error in errors.iter().map(ToString::to_string) {
                tracing::error!(error, "tokens not reloaded; the old ones stay valid");
            }
            true
        }
    };
    match server.reload().await {
        Ok(Reloaded::Certificate) => tracing::info!("certificate reloaded"),
        Ok(Reloaded::Nothing) if is_about_keys => {}
        Ok(Reloaded::Nothing) => {
            tracing::info!("nothing to reload; server.tls is not set, and there are no tokens");
        }
        Err(error) => {
            let value = error.field.path();
            tracing::error!(value, %error, "certificate not reloaded; the old one stays in force");
        }
    }
}

/// Whether there are tokens, or were before.
fn reload_tokens(server: &Server, auth: &mut AuthConfig, new: AuthConfig) -> bool {
    match server.reload_tokens(&new) {
        Ok(tokens) => {
            let had_tokens = auth.has_tokens();
            *auth = new;
            if had_tokens || tokens > 0 {
                tracing::info!(tokens, "tokens reloaded");
            }
            had_tokens || tokens > 0
        }
        Err(error) => {
            let error = error.to_string();
            tracing::error!(error, "tokens not reloaded; the old ones stay valid");
            true
        }
    }
}

/// Whether there is a gateway. `started` is its section of the config that the server was started with.
fn reload_gateway(server: &Server, started: &GatewayConfig, config: &Config) -> bool {
    match server.reload_gateway(config) {
        Ok(true) => {
            tracing::info!("keys of the gateway reloaded");
            if config.gateway.without_keys() != started.without_keys() {
                tracing::warn!(
                    "settings of the gateway other than tenants and keys have changed; they take effect after a restart"
                );
            }
        }
        Ok(false) => return false,
        Err(error) => {
            tracing::error!(%error, "keys of the gateway not reloaded; the old ones stay valid");
        }
    }
    true
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

enum SignalAction {
    Stop { signal: &'static str },
    Reload,
}

impl Signals {
    /// Installs the handlers. From here on, these signals no longer end the process at once.
    fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { terminate, interrupt, hangup })
    }

    async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop { signal: "SIGTERM" },
            _ = self.interrupt.recv() => SignalAction::Stop { signal: "SIGINT" },
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}
