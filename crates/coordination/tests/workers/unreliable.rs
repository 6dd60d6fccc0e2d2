//! An outbox that does what it is asked and then, now and then, does not say so; and one that stops
//! in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{
    BatchSize, Delay, ErrorText, LeaseDuration, MemoryProvider, MessageId, NewOutboxMessage,
    Outbox, OutboxMessage, OutboxRecord, OwnerToken, ProviderError, Result, Retention, Settlement,
    Topics,
};

#[derive(Debug, Clone)]
pub(crate) struct Unreliable {
    inner: MemoryProvider,
    calls: Arc<AtomicUsize>,
    lost_every: usize,
    beginnings: Arc<AtomicUsize>,
    slow_beginnings: usize,
    slow_beginning_takes: Duration,
    reaping_ends: bool,
}

impl Unreliable {
    pub(crate) fn every_third_answer_is_lost(inner: MemoryProvider) -> Unreliable {
        Unreliable { lost_every: 3, ..Unreliable::first_beginning_takes(inner, Duration::ZERO) }
    }

    pub(crate) fn first_beginning_takes(inner: MemoryProvider, span: Duration) -> Unreliable {
        Unreliable {
            inner,
            calls: Arc::default(),
            lost_every: usize::MAX,
            beginnings: Arc::default(),
            slow_beginnings: 1,
            slow_beginning_takes: span,
            reaping_ends: true,
        }
    }

    pub(crate) fn every_beginning_takes(inner: MemoryProvider, span: Duration) -> Unreliable {
        Unreliable { slow_beginnings: usize::MAX, ..Unreliable::first_beginning_takes(inner, span) }
    }

    pub(crate) fn reaping_never_ends(inner: MemoryProvider) -> Unreliable {
        Unreliable {
            reaping_ends: false,
            ..Unreliable::first_beginning_takes(inner, Duration::ZERO)
        }
    }

    /// How often an attempt was said to begin.
    pub(crate) fn beginnings(&self) -> usize {
        self.beginnings.load(Ordering::SeqCst)
    }

    fn lose<T>(&self, answer: T) -> Result<T> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if call.is_multiple_of(self.lost_every) {
            return Err(ProviderError::new("outbox", "the answer was lost"));
        }
        Ok(answer)
    }
}

impl Outbox for Unreliable {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId> {
        let answer = Outbox::enqueue(&self.inner, message).await?;
        self.lose(answer)
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        let answer = self.inner.claim_due_of(owner, lease, max, topics).await?;
        self.lose(answer)
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let answer = self.inner.begin(owner, id, lease).await?;
        if self.beginnings.fetch_add(1, Ordering::SeqCst) < self.slow_beginnings {
            crate::pass(self.slow_beginning_takes).await;
        }
        self.lose(answer)
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        let answer = self.inner.extend(owner, ids, lease).await?;
        self.lose(answer)
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        let answer = Outbox::settle(&self.inner, owner, ids, settlement).await?;
        self.lose(answer)
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        let answer = Outbox::dead(&self.inner, after, max).await?;
        self.lose(answer)
    }

    async fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let answer = Outbox::revive(&self.inner, ids, reason, delay).await?;
        self.lose(answer)
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>> {
        let answer = self.inner.record(id).await?;
        self.lose(answer)
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        let answer = self.inner.next_due_after(topics).await?;
        self.lose(answer)
    }

    async fn reap(&self) -> Result<usize> {
        if !self.reaping_ends {
            std::future::pending::<()>().await;
        }
        let answer = Outbox::reap(&self.inner).await?;
        self.lose(answer)
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let answer = Outbox::purge(&self.inner, topics, keep).await?;
        self.lose(answer)
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let answer = Outbox::oldest_ready_age(&self.inner).await?;
        self.lose(answer)
    }
}

/// An outbox that takes the first message and then keeps its caller waiting until it is let go.
#[derive(Debug, Clone)]
pub(crate) struct Stuck {
    pub(crate) inner: MemoryProvider,
    pub(crate) enqueued: Arc<AtomicUsize>,
    pub(crate) let_go: Arc<tokio::sync::Semaphore>,
}

impl Stuck {
    pub(crate) fn new(inner: MemoryProvider) -> Stuck {
        let let_go = Arc::new(tokio::sync::Semaphore::new(0));
        Stuck { inner, enqueued: Arc::default(), let_go }
    }

    pub(crate) fn enqueued(&self) -> usize {
        self.enqueued.load(Ordering::SeqCst)
    }
}

impl Outbox for Stuck {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId> {
        let id = Outbox::enqueue(&self.inner, message).await?;
        if self.enqueued.fetch_add(1, Ordering::SeqCst) == 0 {
            self.let_go.acquire().await.expect("never closed").forget();
        }
        Ok(id)
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        self.inner.claim_due_of(owner, lease, max, topics).await
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        self.inner.begin(owner, id, lease).await
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        self.inner.extend(owner, ids, lease).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        Outbox::settle(&self.inner, owner, ids, settlement).await
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        Outbox::dead(&self.inner, after, max).await
    }

    async fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> {
        Outbox::revive(&self.inner, ids, reason, delay).await
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>> {
        self.inner.record(id).await
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        self.inner.next_due_after(topics).await
    }

    async fn reap(&self) -> Result<usize> {
        Outbox::reap(&self.inner).await
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        Outbox::purge(&self.inner, topics, keep).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Outbox::oldest_ready_age(&self.inner).await
    }
}
