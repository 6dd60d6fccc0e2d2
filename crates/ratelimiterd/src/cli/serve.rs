//! `ratelimiterd [serve]`

use std::io;
use std::process::ExitCode;

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{Backoff, HintPolicy, MemoryLimiter};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::config::{BackendChoice, Config, HintsConfig};
use crate::server::as_usize;
use crate::{Server, logs, tigerbeetle};

pub(super) async fn run(config: Config) -> Result<ExitCode, Failure> {
    logs::start(&config.log);
    let stopped = Stopped::listen().map_err(Failure::of)?;
    let server = match config.server.backend {
        BackendChoice::Memory => Server::bind(&config, memory_backend(&config)).await,
        BackendChoice::TigerBeetle => {
            let hints = hint_policy(&config.hints);
            let backend = tigerbeetle::open(&config.tigerbeetle, hints).map_err(Failure::of)?;
            Server::bind(&config, backend).await
        }
    };
    let server = server.map_err(Failure::of)?;
    let (addr, limits) = (server.local_addr(), server.limit_count());
    let registry = config.registry.path.display();
    tracing::info!(%addr, limits, %registry, version = env!("CARGO_PKG_VERSION"), "listening");
    let signal = stopped.wait().await;
    tracing::info!(signal, "asked to stop");
    server.stop().await;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn memory_backend(config: &Config) -> MemoryLimiter {
    let options = MemoryOptions {
        hints: hint_policy(&config.hints),
        remember_for: std::time::Duration::from_secs(config.memory.remember_seconds),
        remember_max: as_usize(config.memory.remember_max),
        // The server's own tick sweeps.
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

/// The signals that stop a server.
struct Stopped {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stopped {
    /// From here on a signal is waited for, and no longer ends the process at once.
    fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    async fn wait(mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
