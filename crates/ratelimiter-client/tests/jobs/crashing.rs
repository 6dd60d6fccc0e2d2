//! Crashes of a runner before and after each call of its outbox, limiter or handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coordination::{Answer, CancellationToken, MemoryProvider, ProviderError};
use ratelimiter_client::jobs::{HandlerError, JobCall, JobHandler};
use ratelimiter_client::{
    CompleteError, CompleteRequest, Decision, Done, Limiter, ReserveError, ReserveRequest,
};
use testkit::coordination::{Between, Call, Hook};

/// The steps of one runner, and at which of them it crashes: one before and one after each use of what it has.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    next: Arc<AtomicUsize>,
    crash_at: Arc<AtomicUsize>,
    pub(crate) crashed: CancellationToken,
}

/// A limiter with a step before and one after each use.
#[derive(Debug, Clone)]
pub(crate) struct Crashing<L> {
    inner: L,
    steps: Steps,
}

impl Steps {
    pub(crate) fn until(crash_at: usize) -> Steps {
        let crash_at = Arc::new(AtomicUsize::new(crash_at));
        Steps { next: Arc::default(), crash_at, crashed: CancellationToken::new() }
    }

    /// No step is taken any more.
    pub(crate) fn crash(&self) {
        self.crash_at.store(0, Ordering::SeqCst);
    }

    pub(crate) fn of_outbox(&self, inner: MemoryProvider) -> Between<MemoryProvider, Steps> {
        Between { inner, hook: self.clone() }
    }

    pub(crate) fn of_limiter<L>(&self, inner: L) -> Crashing<L> {
        Crashing { inner, steps: self.clone() }
    }

    /// How many uses there were.
    pub(crate) fn uses(&self) -> usize {
        self.next.load(Ordering::SeqCst) / 2
    }

    async fn step(&self) {
        if self.next.fetch_add(1, Ordering::SeqCst) >= self.crash_at.load(Ordering::SeqCst) {
            self.crashed.cancel();
            std::future::pending::<()>().await;
        }
    }

    async fn use_once<A>(&self, using: impl Future<Output = A>) -> A {
        self.step().await;
        let answer = using.await;
        self.step().await;
        answer
    }
}

impl Hook for Steps {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        _: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        self.use_once(answer).await
    }
}

impl<L: Limiter> Limiter for Crashing<L> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.steps.use_once(self.inner.reserve(request)).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.steps.use_once(self.inner.complete(request)).await
    }
}

/// A handler with a step before and one after its work.
pub(crate) fn crashing_handler<H: JobHandler>(
    steps: &Steps,
    handler: H,
) -> impl JobHandler + use<H> {
    let (steps, handler) = (steps.clone(), Arc::new(handler));
    move |call: JobCall| {
        let (steps, handler) = (steps.clone(), Arc::clone(&handler));
        async move {
            let answer: Result<Done<String>, HandlerError> =
                steps.use_once(handler.run(call)).await;
            answer
        }
    }
}
