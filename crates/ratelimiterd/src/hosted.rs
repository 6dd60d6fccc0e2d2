//! The interface between the server and its backend.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use ratelimiter::admission::{Turn, TurnAnswer};
use ratelimiter::{
    Actual, Actuals, Backend, CompleteError, CompleteRequest, Decision, DefineError, Denial,
    LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus, MemoryLimiter,
    OpenLease, Page, Refused, RegisteredLimit, Registry, RenewError, RenewRequest, Renewal,
    Requirement, ReserveError, ReserveRequest, StateError, Unanswered,
};
use tokio::sync::Notify;

use crate::runtime::Runtime;

/// Retry hint when a backend refuses to say which limits exist.
const GOVERNING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A backend that a server can host.
pub trait HostedBackend: Backend + 'static {
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

    /// As [`reserve`](ratelimiter::Limiter::reserve), for a server that lets requests wait. By default every answer is final, so
    /// that nobody waits.
    ///
    /// # Errors
    /// As for a reserve.
    fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        _turn: Turn<'_>,
    ) -> impl Future<Output = Result<TurnAnswer, ReserveError>> + Send {
        async { self.reserve(request).await.map(TurnAnswer::last) }
    }

    /// A request that waited ends without having been admitted, perhaps because its caller went away. Called for a shared backend: it
    /// makes sure that no attempt for the lease is admitted later, here or elsewhere. Returns this denial, unless the lease was decided
    /// meanwhile.
    ///
    /// # Errors
    /// As for a reserve.
    fn give_up(
        &self,
        _request: &ReserveRequest,
        denial: Denial,
    ) -> impl Future<Output = Result<TurnAnswer, ReserveError>> + Send {
        async { Ok(TurnAnswer::last(Decision::Denied(denial))) }
    }

    /// Whether an attempt for a lease that had no answer may be admitted all the same. Then giving up is tried until there is an answer.
    fn may_be_admitted(&self, _lease: LeaseId) -> bool {
        false
    }

    /// Returns all that a lease has that was [newly](TurnAnswer::is_new) admitted, because its callers have gone away before they were
    /// told. If the lease was repeated at another server, it stays. Returns the limits that may have room again.
    ///
    /// # Errors
    /// As for a complete.
    fn return_lease(
        &self,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Vec<LimitKey>, CompleteError>> + Send {
        async {
            let mut unused = Vec::new();
            for Requirement { key, .. } in request.requirements.iter() {
                if let Ok(Some(state)) = self.state(key).await
                    && !state.limit.kind.is_concurrency()
                {
                    unused.push(Actual { key: key.clone(), amount: 0 });
                }
            }
            let actuals =
                Actuals::new(unused).expect("as many as the requirements, with their keys");
            self.complete_freeing(&CompleteRequest::new(request.lease, actuals)).await
        }
    }

    /// How often a server looks for room that others have freed; by default never, since there are no others.
    fn looks_every(&self) -> Option<Duration> {
        None
    }

    /// Those of the limits that may have room for these amounts, at one look for all of them. By default none.
    ///
    /// # Errors
    /// The backend gave no answer.
    fn limits_with_room(
        &self,
        _amounts: &[(LimitKey, u64)],
    ) -> impl Future<Output = Result<Vec<LimitKey>, Unanswered>> + Send {
        async { Ok(Vec::new()) }
    }

    /// As [`complete`](ratelimiter::Limiter::complete); returns the limits that may have room again. By default none.
    ///
    /// # Errors
    /// As for a complete.
    fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<Vec<LimitKey>, CompleteError>> + Send {
        async { self.complete(request).await.map(|()| Vec::new()) }
    }

    /// As [`renew`](ratelimiter::Limiter::renew); also returns the limits that have room again. By default none.
    ///
    /// # Errors
    /// As for a renew.
    fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> impl Future<Output = Result<(Renewal, Vec<LimitKey>), RenewError>> + Send {
        async { self.renew(request).await.map(|renewal| (renewal, Vec::new())) }
    }

    /// Whether definitions would be accepted now. A backend that is shared is not asked: its answer would say nothing of others.
    ///
    /// # Errors
    /// As for [`Backend::define_all`].
    fn check(&self, _limits: &[Limit]) -> impl Future<Output = Result<(), DefineError>> + Send {
        async { Ok(()) }
    }

    /// A page of the limits that a caller may see (`OPS-04`).
    ///
    /// # Errors
    /// As for [`Backend::states`].
    fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Vec<LimitState>, StateError>> + Send;

    /// A page of the open leases of which a caller may see something, with the amounts that it may see.
    ///
    /// # Errors
    /// As for [`Backend::leases`].
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

    /// Whether several servers use the same backend. They then share the limits file too, and each applies what the
    /// others write there. A server on a shared backend starts even if the backend does not answer yet.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether the backend keeps its definitions itself, so that all servers on it share them without a document. Nothing is restored
    /// then: a change is [`Backend::define_all`] or [`Backend::delete`] alone.
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

    async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        Self::reserve_in_turn(self, request, turn)
    }

    async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        Self::complete_freeing(self, request)
    }

    async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        Self::renew_freeing(self, request)
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
