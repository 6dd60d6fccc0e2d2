//! The interface between the server and its backend.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use ratelimiter::admission::TurnBackend;
use ratelimiter::{
    DefineError, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus, MemoryLimiter,
    OpenLease, Page, Refused, RegisteredLimit, Registry, StateError, Unanswered,
};
use ratelimiter_waiting::Runtime;
use tokio::sync::Notify;

/// Retry hint when a backend refuses to say which limits exist.
const GOVERNING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A backend that a server can host. Servers on a [shared](TurnBackend::is_shared) one share the limits file too, and each applies what
/// the others write there. They start even if the backend does not answer yet.
pub trait HostedBackend: TurnBackend {
    /// Restores a limit as it was registered, including a pending decrease. Called when a server starts.
    ///
    /// # Errors
    /// The backend could not be provisioned.
    fn restore(
        &self,
        registered: RegisteredLimit,
    ) -> impl Future<Output = Result<LimitStatus, DefineError>> + Send;

    /// Restores limits as they were registered, and returns their statuses in the same order. A change of the limits in
    /// `unconfirmed` was begun, by this or another server, and not confirmed: a shared backend makes sure that it does
    /// not take effect later. They need not be in `limits`.
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

    /// Whether definitions would be accepted now. A backend that is shared is not asked: its answer would say nothing of others.
    ///
    /// # Errors
    /// As for [`Backend::define_all`](ratelimiter::Backend::define_all).
    fn check(&self, _limits: &[Limit]) -> impl Future<Output = Result<(), DefineError>> + Send {
        async { Ok(()) }
    }

    /// A page of the limits that a caller may see (`OPS-04`).
    ///
    /// # Errors
    /// As for [`Backend::states`](ratelimiter::Backend::states).
    fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Vec<LimitState>, StateError>> + Send;

    /// A page of the open leases of which a caller may see something, with the amounts that it may see.
    ///
    /// # Errors
    /// As for [`Backend::leases`](ratelimiter::Backend::leases).
    fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Vec<OpenLease>, LeasesError>> + Send;

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

    /// Whether the backend keeps its definitions itself, so that all servers on it share them without a document. Nothing is restored
    /// then: a change is [`Backend::define_all`](ratelimiter::Backend::define_all) or [`Backend::delete`](ratelimiter::Backend::delete) alone.
    fn keeps_definitions(&self) -> bool {
        false
    }

    /// The definitions that the backend keeps, if it does.
    ///
    /// # Errors
    /// The backend gave no answer.
    fn definitions(&self) -> impl Future<Output = Result<Registry, Unanswered>> + Send {
        async { Ok(Registry::new()) }
    }

    /// Notifies of changes of definitions that other servers make, for as long as it runs, so that those who wait for room ask again. By default
    /// there is nothing to follow: on a shared document, the administration notices them.
    fn follow_changes(&self, _changed: &Notify) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The definition that governs each key: its own, or that of the template from which its limit is or would be made. The gateway asks
    /// before every call, so a backend answers from what it knows; by default it is asked for the state of each.
    ///
    /// # Errors
    /// The definitions are not known, and the backend gave no answer.
    fn governing(
        &self,
        keys: &[LimitKey],
    ) -> impl Future<Output = Result<Vec<Option<Limit>>, Unanswered>> + Send {
        async move {
            let mut limits = Vec::with_capacity(keys.len());
            for key in keys {
                let state = self.state(key).await.map_err(|error| match error {
                    StateError::Unanswered(unanswered) => unanswered,
                    StateError::Refused(Refused { reason }) => {
                        Unanswered { reason, retry_after: GOVERNING_RETRY_AFTER }
                    }
                })?;
                limits.push(state.map(|state| state.limit));
            }
            Ok(limits)
        }
    }

    /// Whether the backend answers.
    ///
    /// # Errors
    /// Why it does not.
    fn ready(&self) -> impl Future<Output = Result<(), NotReady>> + Send;

    /// Called several times a second: releases what has expired, and applies decreases that have become possible.
    fn tick(&self, runtime: &dyn Runtime) -> impl Future<Output = ()> + Send;

    /// Number of open leases, if the backend knows it.
    fn open_leases(&self) -> Option<u64>;

    /// The key for which metrics of a limit are kept: its own, or that of the template that governs it (`TPL-06`); `None` if neither
    /// a definition nor a template governs it any more.
    fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        Some(key.clone())
    }

    /// The number of limits that were made from each template.
    fn instances(&self) -> Vec<(LimitKey, usize)> {
        Vec::new()
    }

    /// Adds the backend's own metrics in Prometheus' text format.
    fn write_metrics(&self, _text: &mut String) {}
}

/// The backend does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the backend does not answer: {reason}")]
pub struct NotReady {
    /// Why, as text.
    pub reason: String,
}

impl HostedBackend for MemoryLimiter {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        self.check_poisoned()?;
        Ok(MemoryLimiter::restore(self, registered))
    }

    async fn check(&self, limits: &[Limit]) -> Result<(), DefineError> {
        self.check_definitions(limits)
    }

    async fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, is_visible)
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases_where(page, is_visible)
    }

    async fn governing(&self, keys: &[LimitKey]) -> Result<Vec<Option<Limit>>, Unanswered> {
        self.check_poisoned()?;
        Ok(keys.iter().map(|key| MemoryLimiter::governing(self, key)).collect())
    }

    async fn ready(&self) -> Result<(), NotReady> {
        self.check_poisoned().map_err(|unanswered| NotReady { reason: unanswered.reason })
    }

    async fn tick(&self, runtime: &dyn Runtime) {
        // A sweep may take long, so it must not block the threads that answer requests.
        let limiter = self.clone();
        if runtime.run_blocking(move || limiter.sweep()).await.is_err() {
            // The next tick may succeed; if not, `ready` reports it.
            tracing::error!("sweep failed");
        }
    }

    fn open_leases(&self) -> Option<u64> {
        Some(MemoryLimiter::open_leases(self) as u64)
    }

    fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        MemoryLimiter::metrics_key(self, key)
    }

    fn instances(&self) -> Vec<(LimitKey, usize)> {
        self.instances_by_template()
    }
}
