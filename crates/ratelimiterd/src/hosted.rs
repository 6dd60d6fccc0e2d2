//! What a backend must do, beyond deciding, so that a server can host it.

use std::future::Future;
use std::sync::Arc;

use ratelimiter::{Backend, DefineError, LimitStatus, MemoryLimiter, RegisteredLimit};

/// A backend that a server can host.
pub trait HostedBackend: Backend + 'static {
    /// Puts a limit back as it was registered, a decrease under way included. Called at the start of a server.
    ///
    /// # Errors
    /// The backend could not be provisioned.
    fn restore(
        &self,
        registered: RegisteredLimit,
    ) -> impl Future<Output = Result<LimitStatus, DefineError>> + Send;

    /// Whether servers beside this one work on the same backend. They then share the limits file too, and this one
    /// follows what the others write there; and it starts without the backend, which may come later.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether the backend answers.
    ///
    /// # Errors
    /// Why it does not.
    fn ready(&self) -> impl Future<Output = Result<(), NotReady>> + Send;

    /// Called several times a second: returns what has expired, and applies decreases that have become possible.
    fn tick(&self) -> impl Future<Output = ()> + Send;

    /// How many leases are open, where the backend knows it.
    fn open_leases(&self) -> Option<u64>;

    /// Adds the backend's own metrics in Prometheus' text format.
    fn write_metrics(&self, _text: &mut String) {}
}

/// The backend does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the backend does not answer: {reason}")]
pub struct NotReady {
    /// Why, for people.
    pub reason: String,
}

impl HostedBackend for MemoryLimiter {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        self.check_sound()?;
        Ok(MemoryLimiter::restore(self, registered))
    }

    async fn ready(&self) -> Result<(), NotReady> {
        self.check_sound().map_err(|unanswered| NotReady { reason: unanswered.reason })
    }

    async fn tick(&self) {
        // A sweep takes as long as there is to sweep, so it must not hold up the threads that answer requests.
        let limiter = self.clone();
        let swept = tokio::task::spawn_blocking(move || limiter.sweep()).await;
        if let Err(error) = swept {
            // The next tick may fare better; if not, `ready` tells.
            tracing::error!(%error, "a sweep of the limits did not come to its end");
        }
    }

    fn open_leases(&self) -> Option<u64> {
        Some(MemoryLimiter::open_leases(self) as u64)
    }
}

impl<B: HostedBackend> HostedBackend for Arc<B> {
    fn restore(
        &self,
        registered: RegisteredLimit,
    ) -> impl Future<Output = Result<LimitStatus, DefineError>> + Send {
        (**self).restore(registered)
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }

    fn ready(&self) -> impl Future<Output = Result<(), NotReady>> + Send {
        (**self).ready()
    }

    fn tick(&self) -> impl Future<Output = ()> + Send {
        (**self).tick()
    }

    fn open_leases(&self) -> Option<u64> {
        (**self).open_leases()
    }

    fn write_metrics(&self, text: &mut String) {
        (**self).write_metrics(text);
    }
}
