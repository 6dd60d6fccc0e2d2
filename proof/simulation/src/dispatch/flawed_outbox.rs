//! The deliberate bugs of a dispatcher, as its outbox sees them.

use std::future::Future;
use std::time::Duration;

use coordination::{
    BatchSize, Delay, ErrorText, LeaseDuration, MemoryProvider, MessageId, NewOutboxMessage,
    Outbox, OutboxMessage, OutboxRecord, OwnerToken, ProviderError, Retention, Settlement, Topics,
};

use crate::flaw::Flaw;

#[derive(Debug, Clone)]
pub(super) struct FlawedOutbox {
    pub(super) inner: MemoryProvider,
    pub(super) flaw: Option<Flaw>,
}

impl Outbox for FlawedOutbox {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId, ProviderError> {
        Outbox::enqueue(&self.inner, message).await
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>, ProviderError> {
        let mut claimed = self.inner.claim_due_of(owner, lease, max, topics).await?;
        if self.flaw == Some(Flaw::CountsLostTwice) {
            for message in &mut claimed {
                message.attempts += message.lost_attempts();
            }
        }
        Ok(claimed)
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>, ProviderError> {
        if self.flaw == Some(Flaw::NeverBegins) {
            return Ok(Some(1));
        }
        self.inner.begin(owner, id, lease).await
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize, ProviderError> {
        self.inner.extend(owner, ids, lease).await
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize, ProviderError> {
        self.inner.settle(owner, ids, settlement).await
    }

    async fn dead(
        &self,
        after: Option<MessageId>,
        max: BatchSize,
    ) -> Result<Vec<OutboxRecord>, ProviderError> {
        self.inner.dead(after, max).await
    }

    async fn revive(
        &self,
        ids: &[MessageId],
        reason: &ErrorText,
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        self.inner.revive(ids, reason, delay).await
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>, ProviderError> {
        self.inner.record(id).await
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>, ProviderError> {
        self.inner.next_due_after(topics).await
    }

    async fn reap(&self) -> Result<usize, ProviderError> {
        Outbox::reap(&self.inner).await
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize, ProviderError> {
        self.inner.purge(topics, keep).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>, ProviderError> {
        Outbox::oldest_ready_age(&self.inner).await
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        Outbox::work_added(&self.inner)
    }
}
