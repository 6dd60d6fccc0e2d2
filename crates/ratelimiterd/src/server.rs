//! A server on a socket: from its start to its stop.

mod accept;
mod first_bytes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::accept::{Connections, accept};
use crate::admin::{Admin, RestoreError};
use crate::auth::Access;
use crate::config::{Config, ListenAddr, TokenError};
use crate::hosted::HostedBackend;
use crate::limits_file::LimitsFile;
use crate::metrics::Metrics;
use crate::routes::{App, router};

/// How often the backend does its regular work. A decrease is applied at most a second after it becomes possible
/// (`DEF-07`), so this is well below.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// A server that is listening. It stops when it is told to, or when it is dropped.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    limit_count: usize,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    ticking: JoinHandle<()>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another program listens there.
    #[error("{address} is in use by another program; stop it, or listen elsewhere (--listen)")]
    InUse {
        /// Where.
        address: ListenAddr,
    },
    /// It is not possible to listen there.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Where.
        address: ListenAddr,
        /// Why.
        reason: io::Error,
    },
    /// The definitions could not be taken over.
    #[error(transparent)]
    Limits(#[from] RestoreError),
    /// A token could not be read.
    #[error("a token cannot be read: {0}")]
    Token(#[from] TokenError),
}

impl Server {
    /// Takes over the definitions, begins to listen, and serves in the background.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn bind<B: HostedBackend>(config: &Config, backend: B) -> Result<Self, StartError> {
        let access = Access::new(&config.auth)?;
        let listener = listen(&config.server.listen_addr).await?;
        let local_addr = listener.local_addr().map_err(|reason| StartError::Listen {
            address: config.server.listen_addr.clone(),
            reason,
        })?;
        let backend = Arc::new(backend);
        let file = LimitsFile::new(&config.registry.path);
        let admin = Arc::new(Admin::restore(Arc::clone(&backend), file).await?);
        let limit_count = admin.limit_count();
        let stop = CancellationToken::new();
        let ticking = tokio::spawn(tick(Arc::clone(&admin), stop.clone()));
        let app = App {
            backend,
            admin,
            access,
            metrics: Metrics::new(as_usize(config.metrics.keys_max)),
            request_timeout: Duration::from_millis(config.server.request_timeout_ms),
        };
        let connections = Connections::new(&config.server, router(Arc::new(app)));
        let accepting = tokio::spawn(accept(listener, connections, stop.clone()));
        Ok(Self { local_addr, limit_count, stop, accepting, ticking })
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// How many limits it took over at its start.
    pub const fn limit_count(&self) -> usize {
        self.limit_count
    }

    /// Stops accepting, lets what is open finish until the config's deadline, and returns when all is closed.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for task in [&mut self.accepting, &mut self.ticking] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the server failed");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
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

async fn tick<B: HostedBackend>(admin: Arc<Admin<B>>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(TICK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A tick may wait for a backend that does not answer; whoever stops a server does not wait with it.
    let work = async {
        loop {
            ticks.tick().await;
            admin.tick().await;
        }
    };
    let _stopped: Option<()> = stop.run_until_cancelled(work).await;
}

pub(crate) fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
