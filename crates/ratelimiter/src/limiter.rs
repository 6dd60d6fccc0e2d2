//! What every limiter does, and what a backend adds to it.

use std::future::Future;
use std::sync::Arc;

use crate::decision::Decision;
use crate::error::{CompleteError, DefineError, DeleteError, ReserveError, StateError};
use crate::key::LimitKey;
use crate::limit::Limit;
use crate::registry::{LimitState, LimitStatus, Page};
use crate::request::{CompleteRequest, ReserveRequest};

/// Lets a call go ahead only when all its limits have room, and learns afterwards what it used.
///
/// The memory backend, the TigerBeetle backend, the HTTP client and the batcher are all limiters, so code that is
/// written against this trait moves from a laptop to a cluster by changing one line.
///
/// ```
/// use ratelimiter::{Decision, Limiter, ReserveError, ReserveRequest};
///
/// async fn may_go_ahead(limiter: &impl Limiter, request: &ReserveRequest) -> Result<bool, ReserveError> {
///     match limiter.reserve(request).await? {
///         Decision::Allowed { .. } => Ok(true),
///         Decision::Denied(denial) => {
///             eprintln!("ask again in {:?}, with a new lease ID", denial.retry_after);
///             Ok(false)
///         }
///     }
/// }
/// ```
pub trait Limiter: Send + Sync {
    /// Reserves all that the request needs, or nothing.
    ///
    /// # Errors
    /// See [`ReserveError`]. After [`ReserveError::Unanswered`] repeat the request with the same lease ID.
    fn reserve(
        &self,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Decision, ReserveError>> + Send;

    /// Ends a lease: releases its holds, and makes its reservations match what was really used.
    ///
    /// # Errors
    /// See [`CompleteError`]. An unknown or ended lease is no error: completing twice is completing once.
    fn complete(
        &self,
        request: &CompleteRequest,
    ) -> impl Future<Output = Result<(), CompleteError>> + Send;

    /// Answers several reserves, independent of each other, one answer per request in order.
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

    /// Ends several leases, independent of each other, one answer per request in order.
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

/// A limiter whose limits can be defined and looked at.
pub trait Backend: Limiter {
    /// Defines a limit, or changes one. A capacity below the present use waits until enough has returned.
    ///
    /// # Errors
    /// See [`DefineError`]; nothing has changed then.
    fn define(&self, limit: Limit)
    -> impl Future<Output = Result<LimitStatus, DefineError>> + Send;

    /// Removes a limit. Leases that hold it complete without error.
    ///
    /// # Errors
    /// See [`DeleteError`]; nothing has changed then.
    fn delete(&self, key: &LimitKey) -> impl Future<Output = Result<(), DeleteError>> + Send;

    /// One limit with its figures of the moment; `None` if it is not defined.
    ///
    /// # Errors
    /// See [`StateError`].
    fn state(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<LimitState>, StateError>> + Send;

    /// Limits with their figures of the moment, sorted by key.
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
