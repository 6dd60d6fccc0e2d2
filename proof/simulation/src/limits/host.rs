//! A server as its clients see it.

use std::pin::Pin;
use std::sync::Arc;

use ratelimiter::{
    CompleteError, CompleteRequest, Decision, DefineError, DeleteError, Limit, LimitKey,
    LimitStatus, ReserveError, ReserveRequest,
};
use ratelimiterd::admin::ChangeError;

/// An answer that is on its way.
pub(super) type BoxAnswer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A server as its clients see it.
pub(super) trait Host: Send + Sync {
    fn reserve(
        self: Arc<Self>,
        request: ReserveRequest,
    ) -> BoxAnswer<Result<Decision, ReserveError>>;

    fn complete(self: Arc<Self>, request: CompleteRequest) -> BoxAnswer<Result<(), CompleteError>>;

    /// All of these limits or none.
    fn define(
        self: Arc<Self>,
        limits: Vec<Limit>,
    ) -> BoxAnswer<Result<Vec<LimitStatus>, ChangeError<DefineError>>>;

    fn delete(self: Arc<Self>, key: LimitKey) -> BoxAnswer<Result<(), ChangeError<DeleteError>>>;

    /// It is told to stop, and answers all that wait.
    fn shut_down(&self);
}

/// What can happen to servers and to what is below them.
pub(super) trait FaultInjector: Send + Sync + 'static {
    /// The server's tasks end where they are; it starts again later, with its clock set anew.
    fn crash(self: &Arc<Self>, server: usize, down_ms: u64, skew_ms: i64);

    /// All servers end, and their disk loses what was not flushed; they start again later, with their clocks set anew.
    fn power_loss(self: &Arc<Self>, seed: u64, down_ms: u64, skew_ms: i64);

    /// The ledger answers nobody for a while.
    fn ledger_down(self: &Arc<Self>, down_ms: u64);
}
