//! The `Limiter` and `Backend` traits.

use std::future::Future;
use std::sync::Arc;

use crate::decision::Decision;
use crate::error::{CompleteError, DefineError, DeleteError, ReserveError, StateError};
use crate::key::LimitKey;
use crate::limit::Limit;
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
}
