//! A panic in the server is answered with 503, not with a disconnect.

use ratelimiter::admission::TurnBackend;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, ForgiveError,
    LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus, Limiter,
    MemoryLimiter, OpenLease, Page, RegisteredLimit, ReleaseError, ReserveError, ReserveRequest,
    StateError,
};
use ratelimiter_waiting::Runtime;
use ratelimiterd::{HostedBackend, NotReady};

use crate::harness::{KEY, TestServer};

/// A memory backend that panics in complete, in list, and when the key `bug` is defined.
struct PanickingBackend(MemoryLimiter);

impl Limiter for PanickingBackend {
    fn reserve(
        &self,
        request: &ReserveRequest,
    ) -> impl Future<Output = Result<Decision, ReserveError>> + Send {
        self.0.reserve(request)
    }

    async fn complete(&self, _: &CompleteRequest) -> Result<(), CompleteError> {
        panic!("a bug while completing");
    }
}

impl Backend for PanickingBackend {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        assert_ne!(limit.key.as_str(), "bug", "a bug while defining");
        Backend::define(&self.0, limit).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        Backend::delete(&self.0, key).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Backend::state(&self.0, key).await
    }

    async fn states(&self, _: &Page) -> Result<Vec<LimitState>, StateError> {
        panic!("a bug while listing");
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.0.leases(page).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.0.release(lease).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.0.forgive(key).await
    }
}

impl TurnBackend for PanickingBackend {}

impl HostedBackend for PanickingBackend {
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        HostedBackend::restore(&self.0, registered).await
    }

    async fn visible_states(
        &self,
        page: &Page,
        _: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.states(page).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        _: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases(page).await
    }

    async fn ready(&self) -> Result<(), NotReady> {
        Ok(())
    }

    async fn tick(&self, _: &dyn Runtime) {}

    fn open_leases(&self) -> Option<u64> {
        None
    }
}

#[tokio::test]
async fn a_panic_is_answered_and_the_server_goes_on() {
    let server = TestServer::start_on(PanickingBackend, |_| ()).await;
    assert_eq!(server.define_rolling(KEY, 1).await.status, 200);
    for answer in [
        server.complete(1, &[]).await,
        server.get("/v1/admin/limits").await,
        server.get("/metrics").await,
        server.define_rolling("bug", 1).await,
    ] {
        assert_eq!((answer.status, answer.error().as_str()), (503, "backend_error"), "{answer:?}");
        assert!(!answer.body.contains("while"), "what went wrong is for the log: {}", answer.body);
    }
    let answer = server.reserve(1, &[(KEY, 1)]).await;
    assert_eq!(answer.json()["allowed"], true, "others are served");
    assert_eq!(server.define_rolling("another", 1).await.status, 200, "and can be defined");
}
