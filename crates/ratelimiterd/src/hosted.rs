//! What a backend must do, beyond deciding, so that a server can host it.

use std::collections::BTreeSet;
use std::future::Future;

use ratelimiter::{
    Backend, DefineError, LimitKey, LimitStatus, MemoryLimiter, RegisteredLimit, StateError,
};

use crate::runtime::Runtime;

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

    /// Puts limits back as they were registered; how each of them is then, in their order. `unconfirmed` are limits of
    /// which a change was begun, here or elsewhere, and not confirmed: a shared backend takes care that it does not
    /// arrive later. They need not be among `limits`.
    ///
    /// # Errors
    /// The backend could not be provisioned; it may have some of the limits.
    fn restore_all(
        &self,
        limits: Vec<RegisteredLimit>,
        _unconfirmed: &BTreeSet<LimitKey>,
    ) -> impl Future<Output = Result<Vec<LimitStatus>, DefineError>> + Send {
        async move {
            let mut statuses = Vec::with_capacity(limits.len());
            for registered in limits {
                statuses.push(self.restore(registered).await?);
            }
            Ok(statuses)
        }
    }

    /// Whether a lower capacity of the limit waits for units to return; `None` if the limit is not defined.
    ///
    /// # Errors
    /// The backend gave no answer.
    fn waits(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<bool>, StateError>> + Send {
        async { Ok(self.state(key).await?.map(|state| state.waits())) }
    }

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
    fn tick(&self, runtime: &dyn Runtime) -> impl Future<Output = ()> + Send;

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
        self.check_poisoned()?;
        Ok(MemoryLimiter::restore(self, registered))
    }

    async fn ready(&self) -> Result<(), NotReady> {
        self.check_poisoned().map_err(|unanswered| NotReady { reason: unanswered.reason })
    }

    async fn tick(&self, runtime: &dyn Runtime) {
        // A sweep takes as long as there is to sweep, so it must not hold up the threads that answer requests.
        let limiter = self.clone();
        if runtime.run_blocking(move || limiter.sweep()).await.is_err() {
            // The next tick may fare better; if not, `ready` tells.
            tracing::error!("a sweep of the limits did not come to its end");
        }
    }

    fn open_leases(&self) -> Option<u64> {
        Some(MemoryLimiter::open_leases(self) as u64)
    }
}
