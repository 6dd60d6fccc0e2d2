//! Crashes of a runner before and after each call of its outbox, limiter or handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{
    BatchSize, CancellationToken, Delay, ErrorText, LeaseDuration, MemoryProvider, MessageId,
    NewOutboxMessage, Outbox, OutboxMessage, OutboxRecord, OwnerToken, ProviderError, Retention,
    Settlement, Topics,
};
use ratelimiter_client::jobs::{HandlerError, JobCall, JobHandler};
use ratelimiter_client::{
    CompleteError, CompleteRequest, Decision, Done, Limiter, ReserveError, ReserveRequest,
};

/// The steps of one runner, and at which of them it crashes.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    next: Arc<AtomicUsize>,
    crash_at: Arc<AtomicUsize>,
    pub(crate) crashed: CancellationToken,
}

/// Something that a runner uses, with a step before and one after each use.
#[derive(Debug, Clone)]
pub(crate) struct Crashing<T> {
    pub(crate) inner: T,
    pub(crate) steps: Steps,
}

/// An outbox that counts what it is asked.
pub(crate) type Counting = Crashing<MemoryProvider>;

impl Steps {
    pub(crate) fn until(crash_at: usize) -> Steps {
        let crash_at = Arc::new(AtomicUsize::new(crash_at));
        Steps { next: Arc::default(), crash_at, crashed: CancellationToken::new() }
    }

    /// No step is taken any more.
    pub(crate) fn crash(&self) {
        self.crash_at.store(0, Ordering::SeqCst);
    }

    pub(crate) fn of<T>(&self, inner: T) -> Crashing<T> {
        Crashing { inner, steps: self.clone() }
    }

    async fn step(&self) {
        if self.next.fetch_add(1, Ordering::SeqCst) >= self.crash_at.load(Ordering::SeqCst) {
            self.crashed.cancel();
            std::future::pending::<()>().await;
        }
    }
}

impl Counting {
    pub(crate) fn new(inner: MemoryProvider) -> Counting {
        Steps::until(usize::MAX).of(inner)
    }

    pub(crate) fn calls(&self) -> usize {
        self.steps.next.load(Ordering::SeqCst) / 2
    }
}

impl<T> Crashing<T> {
    async fn around<A>(&self, call: impl Future<Output = A>) -> A {
        self.steps.step().await;
        let answer = call.await;
        self.steps.step().await;
        answer
    }
}

impl<O: Outbox> Outbox for Crashing<O> {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId, ProviderError> {
        self.around(self.inner.enqueue(message)).await
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>, ProviderError> {
        self.around(self.inner.claim_due_of(owner, lease, max, topics)).await
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>, ProviderError> {
        self.around(self.inner.begin(owner, id, lease)).await
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize, ProviderError> {
        self.around(self.inner.extend(owner, ids, lease)).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize, ProviderError> {
        self.around(self.inner.settle(owner, ids, settlement)).await
    }

    async fn dead(
        &self,
        after: Option<MessageId>,
        max: BatchSize,
    ) -> Result<Vec<OutboxRecord>, ProviderError> {
        self.around(self.inner.dead(after, max)).await
    }

    async fn revive(
        &self,
        ids: &[MessageId],
        reason: &ErrorText,
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        self.around(self.inner.revive(ids, reason, delay)).await
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>, ProviderError> {
        self.around(self.inner.record(id)).await
    }

    async fn reap(&self) -> Result<usize, ProviderError> {
        self.around(self.inner.reap()).await
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize, ProviderError> {
        self.around(self.inner.purge(topics, keep)).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>, ProviderError> {
        self.around(self.inner.oldest_ready_age()).await
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>, ProviderError> {
        self.around(self.inner.next_due_after(topics)).await
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.inner.work_added()
    }
}

impl<L: Limiter> Limiter for Crashing<L> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.around(self.inner.reserve(request)).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.around(self.inner.complete(request)).await
    }
}

/// A handler with a step before and one after its work.
pub(crate) fn crashing_handler<H: JobHandler>(
    steps: &Steps,
    handler: H,
) -> impl JobHandler + use<H> {
    let crashing = Arc::new(steps.of(handler));
    move |call: JobCall| {
        let crashing = crashing.clone();
        async move {
            let answer: Result<Done<String>, HandlerError> =
                crashing.around(crashing.inner.run(call)).await;
            answer
        }
    }
}
