//! The `Limiter` and `Backend` traits.

use std::future::Future;
use std::sync::Arc;

use crate::decision::Decision;
use crate::error::{
    CompleteError, DefineError, DeleteError, ForgiveError, LeasesError, ReleaseError, ReserveError,
    StateError,
};
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::limit::Limit;
use crate::open_lease::{LeasePage, OpenLease};
use crate::registry::{LimitState, LimitStatus, Page};
use crate::request::{CompleteRequest, ReserveRequest};

/// Admits a call only if all its limits have room, and accounts for its actual use afterwards.
///
/// The memory backend, the TigerBeetle backend, the HTTP client and the batcher are all limiters, so code written
/// against this trait moves from one process to a cluster by changing one line.
///
/// ```
/// use ratelimiter::{Decision, Limiter, ReserveError, ReserveRequest};
///
/// async fn may_go_ahead(limiter: &impl Limiter, request: &ReserveRequest) -> Result<bool, ReserveError> {
///     match limiter.reserve(request).await? {
///         Decision::Allowed { .. } => Ok(true),
///         Decision::Denied(denial) => {
///             eprintln!("retry in {:?}, with a new lease ID", denial.retry_after);
///             Ok(false)
///         }
///     }
/// }
/// ```
pub trait Limiter: Send + Sync {
    /// Reserves all requirements of the request, or nothing.
    ///
    /// # Errors
    /// See [`ReserveError`]. After [`ReserveError::Unanswered`] repeat the request with the same lease ID.
    fn reserve(
        &self,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Decision, ReserveError>> + Send;

    /// Ends a lease: releases its holds and corrects its reservations to the actual use.
    ///
    /// # Errors
    /// See [`CompleteError`]. An unknown or ended lease is not an error: complete is idempotent.
    fn complete(
        &self,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<(), CompleteError>> + Send;

    /// Whether a reserve may [wait](crate::Wait) for room. If not, it is answered at once, whatever it asks for.
    fn can_wait(&self) -> bool {
        false
    }

    /// Several independent reserves; one result per request, in order.
    fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> impl Future<Output = Vec<Result<Decision, ReserveError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                answers.push(self.reserve(request).await);
            }
            answers
        }
    }

    /// Several independent completes; one result per request, in order.
    fn complete_batch(
        &self,
        requests: &[CompleteRequest],
    ) -> impl Future<Output = Vec<Result<(), CompleteError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                answers.push(self.complete(request).await);
            }
            answers
        }
    }
}

/// A limiter whose limits can be defined and listed.
pub trait Backend: Limiter {
    /// Creates or changes a limit. A capacity below the current use applies when enough units have been returned.
    ///
    /// # Errors
    /// See [`DefineError`]; nothing is changed then.
    fn define(&self, limit: Limit)
    -> impl Future<Output = Result<LimitStatus, DefineError>> + Send;

    /// Creates or changes several limits with distinct keys; one status per limit, in order.
    ///
    /// # Errors
    /// See [`DefineError`]. The limits before the one that failed may have been changed, unless the backend says
    /// otherwise; the call may be repeated.
    fn define_all(
        &self,
        limits: Vec<Limit>,
    ) -> impl Future<Output = Result<Vec<LimitStatus>, DefineError>> + Send {
        async move {
            let mut statuses = Vec::with_capacity(limits.len());
            for limit in limits {
                statuses.push(self.define(limit).await?);
            }
            Ok(statuses)
        }
    }

    /// Deletes a limit. Leases that hold it complete without error.
    ///
    /// # Errors
    /// See [`DeleteError`]; nothing is changed then.
    fn delete(&self, key: &LimitKey) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// One limit with its current usage; `None` if it is not defined.
    ///
    /// # Errors
    /// See [`StateError`].
    fn state(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<LimitState>, StateError>> + Send;

    /// Limits with their current usage, sorted by key.
    ///
    /// # Errors
    /// See [`StateError`].
    fn states(
        &self,
        page: &Page,
    ) -> impl Future<Output = Result<Vec<LimitState>, StateError>> + Send;

    /// Open leases, the oldest first. A shared backend may list only those that it knows without asking others.
    ///
    /// # Errors
    /// See [`LeasesError`].
    fn leases(
        &self,
        page: &LeasePage,
    ) -> impl Future<Output = Result<Vec<OpenLease>, LeasesError>> + Send;

    /// Ends an open lease whose caller does not: exactly as a complete without actuals.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    fn release(&self, lease: LeaseId) -> impl Future<Output = Result<(), ReleaseError>> + Send;

    /// Sets the debt of a limit to 0, and returns how much it was. Of several calls at a time, each unit is returned by one.
    ///
    /// # Errors
    /// See [`ForgiveError`].
    fn forgive(&self, key: &LimitKey) -> impl Future<Output = Result<u128, ForgiveError>> + Send;
}

impl<L: Limiter + ?Sized> Limiter for Arc<L> {
    fn reserve(
        &self,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Decision, ReserveError>> + Send {
        (**self).reserve(request)
    }

    fn complete(
        &self,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<(), CompleteError>> + Send {
        (**self).complete(request)
    }

    fn can_wait(&self) -> bool {
        (**self).can_wait()
    }

    fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> impl Future<Output = Vec<Result<Decision, ReserveError>>> + Send {
        (**self).reserve_batch(requests)
    }

    fn complete_batch(
        &self,
        requests: &[CompleteRequest],
    ) -> impl Future<Output = Vec<Result<(), CompleteError>>> + Send {
        (**self).complete_batch(requests)
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn define(
        &self,
        limit: Limit,
    ) -> impl Future<Output = Result<LimitStatus, DefineError>> + Send {
        (**self).define(limit)
    }

    fn define_all(
        &self,
        limits: Vec<Limit>,
    ) -> impl Future<Output = Result<Vec<LimitStatus>, DefineError>> + Send {
        (**self).define_all(limits)
    }

    fn delete(&self, key: &LimitKey) -> impl Future<Output = Result<(), DeleteError>> + Send {
        (**self).delete(key)
    }

    fn state(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<LimitState>, StateError>> + Send {
        (**self).state(key)
    }

    fn states(
        &self,
        page: &Page,
    ) -> impl Future<Output = Result<Vec<LimitState>, StateError>> + Send {
        (**self).states(page)
    }

    fn leases(
        &self,
        page: &LeasePage,
    ) -> impl Future<Output = Result<Vec<OpenLease>, LeasesError>> + Send {
        (**self).leases(page)
    }

    fn release(&self, lease: LeaseId) -> impl Future<Output = Result<(), ReleaseError>> + Send {
        (**self).release(lease)
    }

    fn forgive(&self, key: &LimitKey) -> impl Future<Output = Result<u128, ForgiveError>> + Send {
        (**self).forgive(key)
    }
}
