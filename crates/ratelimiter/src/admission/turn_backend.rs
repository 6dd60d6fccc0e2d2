//! How a reserve that waits asks its backend.

use std::future::Future;
use std::time::Duration;

use super::{Turn, TurnAnswer};
use crate::{
    Actual, Actuals, Backend, CompleteError, CompleteRequest, Decision, Denial, LeaseId, LimitKey,
    RenewError, RenewRequest, Renewal, Requirement, ReserveError, ReserveRequest, Unanswered,
};

/// A backend whose reserves may wait for room: each is asked for in its [turn](Turn), again and again.
pub trait TurnBackend: Backend + 'static {
    /// As [`reserve`](crate::Limiter::reserve), for a server that lets requests wait. By default every answer is final, so
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

    /// As [`complete`](crate::Limiter::complete); returns the limits that may have room again. By default none.
    ///
    /// # Errors
    /// As for a complete.
    fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<Vec<LimitKey>, CompleteError>> + Send {
        async { self.complete(request).await.map(|()| Vec::new()) }
    }

    /// As [`renew`](crate::Limiter::renew); also returns the limits that have room again. By default none.
    ///
    /// # Errors
    /// As for a renew.
    fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> impl Future<Output = Result<(Renewal, Vec<LimitKey>), RenewError>> + Send {
        async { self.renew(request).await.map(|renewal| (renewal, Vec::new())) }
    }

    /// Whether several servers use the same backend. An attempt without an answer may then be admitted later.
    fn is_shared(&self) -> bool {
        false
    }
}
