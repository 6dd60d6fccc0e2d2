//! A type-erased fixture with its limiter.
//!
//! Facts are compiled once and not once per implementer.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, ForgiveError,
    LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus, Limiter, OpenLease,
    Page, ReleaseError, RenewError, RenewRequest, Renewal, ReserveError, ReserveRequest,
    StateError,
};

use crate::fixture::{Capabilities, Fixture};

type Reply<'a, T, E> = LocalBoxFuture<'a, Result<T, E>>;

/// [`Fixture`] and [`Backend`] as one object-safe trait.
pub(crate) trait World {
    fn capabilities(&self) -> Capabilities;
    fn prefix(&self) -> String;
    fn lease(&self) -> LeaseId;
    fn now(&self) -> Option<Timestamp>;
    fn advance(&self, by: Duration) -> LocalBoxFuture<'_, ()>;
    fn restart(&mut self) -> LocalBoxFuture<'_, ()>;
    fn move_to_another_server(&mut self) -> LocalBoxFuture<'_, ()>;

    fn reserve<'a>(&'a self, request: &'a ReserveRequest) -> Reply<'a, Decision, ReserveError>;
    fn renew<'a>(&'a self, request: &'a RenewRequest) -> Reply<'a, Renewal, RenewError>;
    fn complete<'a>(&'a self, request: &'a CompleteRequest) -> Reply<'a, (), CompleteError>;
    fn reserve_batch<'a>(
        &'a self,
        requests: &'a [ReserveRequest],
    ) -> LocalBoxFuture<'a, Vec<Result<Decision, ReserveError>>>;
    fn complete_batch<'a>(
        &'a self,
        requests: &'a [CompleteRequest],
    ) -> LocalBoxFuture<'a, Vec<Result<(), CompleteError>>>;

    fn define(&self, limit: Limit) -> Reply<'_, LimitStatus, DefineError>;
    fn define_all(&self, limits: Vec<Limit>) -> Reply<'_, Vec<LimitStatus>, DefineError>;
    fn delete<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, (), DeleteError>;
    fn state<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, Option<LimitState>, StateError>;
    fn states<'a>(&'a self, page: &'a Page) -> Reply<'a, Vec<LimitState>, StateError>;
    fn leases<'a>(&'a self, page: &'a LeasePage) -> Reply<'a, Vec<OpenLease>, LeasesError>;
    fn release(&self, lease: LeaseId) -> Reply<'_, (), ReleaseError>;
    fn forgive<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, u128, ForgiveError>;
}

pub(crate) struct FixtureWorld<F: Fixture> {
    fixture: F,
    limiter: F::Limiter,
    /// Limiters of earlier servers, which keep running.
    previous: Vec<F::Limiter>,
}

impl<F: Fixture> FixtureWorld<F> {
    pub(crate) async fn new(fixture: F) -> Self {
        let limiter = fixture.limiter().await;
        Self { fixture, limiter, previous: Vec::new() }
    }
}

impl<F: Fixture> World for FixtureWorld<F> {
    fn capabilities(&self) -> Capabilities {
        self.fixture.capabilities()
    }

    fn prefix(&self) -> String {
        self.fixture.prefix()
    }

    fn lease(&self) -> LeaseId {
        self.fixture.lease()
    }

    fn now(&self) -> Option<Timestamp> {
        self.fixture.now()
    }

    fn advance(&self, by: Duration) -> LocalBoxFuture<'_, ()> {
        self.fixture.advance(by).boxed_local()
    }

    fn restart(&mut self) -> LocalBoxFuture<'_, ()> {
        async { self.limiter = self.fixture.restarted().await }.boxed_local()
    }

    fn move_to_another_server(&mut self) -> LocalBoxFuture<'_, ()> {
        async {
            let other = self.fixture.another().await;
            self.previous.push(std::mem::replace(&mut self.limiter, other));
        }
        .boxed_local()
    }

    fn reserve<'a>(&'a self, request: &'a ReserveRequest) -> Reply<'a, Decision, ReserveError> {
        self.limiter.reserve(request).boxed_local()
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> Reply<'a, Renewal, RenewError> {
        self.limiter.renew(request).boxed_local()
    }

    fn complete<'a>(&'a self, request: &'a CompleteRequest) -> Reply<'a, (), CompleteError> {
        self.limiter.complete(request).boxed_local()
    }

    fn reserve_batch<'a>(
        &'a self,
        requests: &'a [ReserveRequest],
    ) -> LocalBoxFuture<'a, Vec<Result<Decision, ReserveError>>> {
        self.limiter.reserve_batch(requests).boxed_local()
    }

    fn complete_batch<'a>(
        &'a self,
        requests: &'a [CompleteRequest],
    ) -> LocalBoxFuture<'a, Vec<Result<(), CompleteError>>> {
        self.limiter.complete_batch(requests).boxed_local()
    }

    fn define(&self, limit: Limit) -> Reply<'_, LimitStatus, DefineError> {
        self.limiter.define(limit).boxed_local()
    }

    fn define_all(&self, limits: Vec<Limit>) -> Reply<'_, Vec<LimitStatus>, DefineError> {
        self.limiter.define_all(limits).boxed_local()
    }

    fn delete<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, (), DeleteError> {
        self.limiter.delete(key).boxed_local()
    }

    fn state<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, Option<LimitState>, StateError> {
        self.limiter.state(key).boxed_local()
    }

    fn states<'a>(&'a self, page: &'a Page) -> Reply<'a, Vec<LimitState>, StateError> {
        self.limiter.states(page).boxed_local()
    }

    fn leases<'a>(&'a self, page: &'a LeasePage) -> Reply<'a, Vec<OpenLease>, LeasesError> {
        self.limiter.leases(page).boxed_local()
    }

    fn release(&self, lease: LeaseId) -> Reply<'_, (), ReleaseError> {
        self.limiter.release(lease).boxed_local()
    }

    fn forgive<'a>(&'a self, key: &'a LimitKey) -> Reply<'a, u128, ForgiveError> {
        self.limiter.forgive(key).boxed_local()
    }
}
