//! The outbox, and its joins.

use std::collections::BTreeSet;
use std::time::Duration;

use super::MemoryProvider;
use super::joins::JoinTable;
use super::messages::{Message, Messages, lane_filter};
use super::work::{Item, Outcome, State};
use crate::{
    BatchSize, Delay, ErrorText, JoinError, JoinId, JoinProgress, Joins, LeaseDuration, MessageId,
    NewJoin, NewOutboxMessage, Outbox, OutboxMessage, OutboxRecord, OutboxStatus, OwnerToken,
    Payload, Result, Retention, Settlement, Topic, Topics,
};

#[derive(Debug, Default)]
pub(super) struct OutboxState {
    /// Each with its outcome.
    messages: Messages<MessageId, Option<Payload>>,
    joins: JoinTable,
}

impl Outbox for MemoryProvider {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId> {
        let NewOutboxMessage { id, topic, payload, correlation_id, due_at } = message;
        let (mut outbox, now) = self.shared.outbox.lock();
        let message = Message::new(topic, payload, correlation_id, None);
        outbox.messages.enqueue(id, due_at.unwrap_or(now), message);
        self.shared.outbox.notify_work(outbox, 1);
        Ok(id)
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        let (mut outbox, now) = self.shared.outbox.lock();
        Ok(outbox.messages.claim_of(now, owner, lease, max, topics, claimed))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let (mut outbox, now) = self.shared.outbox.lock();
        Ok(outbox.messages.begin(now, owner, &id, lease))
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        let (mut outbox, now) = self.shared.outbox.lock();
        let until = now.after(lease.get());
        let unique: BTreeSet<_> = ids.iter().collect();
        let extended = |id: &&MessageId| outbox.messages.extend(owner, id, until).is_some();
        Ok(unique.into_iter().filter(extended).count())
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        let (mut outbox, now) = self.shared.outbox.lock();
        let OutboxState { messages, joins } = &mut *outbox;
        let mut count = 0;
        for id in ids {
            let Some(message) = messages.settle(now, owner, id, settlement) else { continue };
            count += 1;
            match settlement {
                Settlement::Finish { outcome } => {
                    message.extra.clone_from(outcome);
                    joins.count(*id, Outcome::Done);
                }
                Settlement::Fail { .. } => joins.count(*id, Outcome::Dead),
                Settlement::Retry { .. } | Settlement::Postpone { .. } => {}
            }
        }
        if let Settlement::Retry { .. } | Settlement::Postpone { .. } = settlement {
            self.shared.outbox.notify_work(outbox, count);
        }
        Ok(count)
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        let (outbox, _) = self.shared.outbox.lock();
        let listed = |id: &MessageId| after.is_none_or(|after| *id > after);
        let mut ids: Vec<_> = outbox.messages.dead().copied().filter(listed).collect();
        ids.sort_unstable();
        ids.truncate(max.as_usize());
        Ok(ids.into_iter().filter_map(|id| outbox.record(id)).collect())
    }

    async fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let (mut outbox, now) = self.shared.outbox.lock();
        let mut count = 0;
        for id in ids {
            if let Some(message) = outbox.messages.revive_after(now, id, reason, delay) {
                (message.retry_count, message.attempts) = (0, 0);
                count += 1;
            }
        }
        self.shared.outbox.notify_work(outbox, count);
        Ok(count)
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>> {
        let (outbox, _) = self.shared.outbox.lock();
        Ok(outbox.record(id))
    }

    async fn reap(&self) -> Result<usize> {
        let (mut outbox, now) = self.shared.outbox.lock();
        let count = outbox.messages.reap(now).len();
        self.shared.outbox.notify_work(outbox, count);
        Ok(count)
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let (mut outbox, now) = self.shared.outbox.lock();
        let OutboxState { messages, joins } = &mut *outbox;
        Ok(messages.purge(now, &lane_filter(topics), keep, |id, _| joins.forget(id)))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let (outbox, now) = self.shared.outbox.lock();
        Ok(outbox.messages.oldest_ready_age(now))
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        let (mut outbox, now) = self.shared.outbox.lock();
        Ok(outbox.messages.next_due_after(now, &lane_filter(topics)))
    }

    // Not an `async fn`: the future must see notifications from this call on, polled or not.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.outbox.work_added.notified()
    }
}

impl Joins for MemoryProvider {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId> {
        let (mut outbox, _) = self.shared.outbox.lock();
        let OutboxState { messages, joins } = &mut *outbox;
        joins.start(&join, |member| match messages.get(member)?.state {
            State::Finished { outcome, .. } => Some(outcome),
            State::Ready | State::Claimed { .. } => None,
        });
        Ok(join.id())
    }

    async fn join_progress(&self, id: JoinId) -> Result<JoinProgress, JoinError> {
        let (outbox, _) = self.shared.outbox.lock();
        outbox.joins.progress(id).ok_or(JoinError::Unknown { id })
    }
}

fn claimed(id: &MessageId, item: &Item<Message<Option<Payload>>, Topic>) -> OutboxMessage {
    let Item { state, due_at, value, .. } = item;
    let State::Claimed { until, .. } = state else {
        unreachable!("a claim shows claimed items");
    };
    OutboxMessage {
        id: *id,
        topic: value.topic.clone(),
        payload: value.payload.clone(),
        correlation_id: value.correlation_id.clone(),
        due_at: *due_at,
        retry_count: value.retry_count,
        attempts: value.attempts,
        last_error: value.last_error.clone(),
        claimed_until: *until,
    }
}

impl OutboxState {
    fn record(&self, id: MessageId) -> Option<OutboxRecord> {
        let Item { state, due_at, value, .. } = self.messages.get(&id)?;
        let status = match state {
            State::Ready => OutboxStatus::Ready,
            State::Claimed { until, .. } => OutboxStatus::Claimed { until: *until },
            State::Finished { outcome: Outcome::Done, .. } => {
                OutboxStatus::Done { outcome: value.extra.clone() }
            }
            State::Finished { outcome: Outcome::Dead, .. } => OutboxStatus::Dead,
        };
        Some(OutboxRecord {
            id,
            topic: value.topic.clone(),
            payload: value.payload.clone(),
            correlation_id: value.correlation_id.clone(),
            due_at: *due_at,
            retry_count: value.retry_count,
            attempts: value.attempts,
            last_error: value.last_error.clone(),
            status,
        })
    }
}
