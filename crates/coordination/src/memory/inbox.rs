//! The inbox.

use std::time::Duration;

use super::MemoryProvider;
use super::messages::{Message, Messages, lane_filter};
use super::work::{Item, Outcome, State};
use crate::{
    BatchSize, ContentHash, Delay, Enqueued, ErrorText, GetError, Inbox, InboxKey, InboxMessage,
    InboxStatus, LeaseDuration, NewInboxMessage, OwnerToken, Processed, Result, Retention,
    Settlement, Topic, Topics,
};

pub(super) type InboxState = Messages<InboxKey, InboxFields>;

/// Fields that only inbox messages have.
#[derive(Debug)]
pub(super) struct InboxFields {
    hash: Option<ContentHash>,
    attempts_at_revival: u32,
}

impl Inbox for MemoryProvider {
    async fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> Result<Processed> {
        let (inbox, _) = self.shared.inbox.lock();
        let Some(Item { state: State::Finished { outcome: Outcome::Done, .. }, value, .. }) =
            inbox.get(key)
        else {
            return Ok(Processed::No);
        };
        Ok(match (hash, &value.extra.hash) {
            (Some(hash), Some(kept)) if hash != kept => Processed::WithOtherContent,
            (Some(_) | None, _) => Processed::Yes,
        })
    }

    async fn enqueue(&self, message: NewInboxMessage) -> Result<Enqueued> {
        let NewInboxMessage { key, topic, payload, correlation_id, hash, due_at } = message;
        let (mut inbox, now) = self.shared.inbox.lock();
        let only = InboxFields { hash, attempts_at_revival: 0 };
        let message = Message::new(topic, payload, correlation_id, only);
        let is_new = inbox.enqueue(key, due_at.unwrap_or(now), message);
        self.shared.inbox.notify_work(inbox, 1);
        Ok(if is_new { Enqueued::Added } else { Enqueued::Duplicate })
    }

    async fn claim_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<InboxMessage>> {
        let (mut inbox, now) = self.shared.inbox.lock();
        Ok(inbox.claim_of(now, owner, lease, max, topics, shown))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        let (mut inbox, now) = self.shared.inbox.lock();
        Ok(inbox.begin(now, owner, key, lease))
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> Result<usize> {
        let (mut inbox, now) = self.shared.inbox.lock();
        let settled = |key: &&InboxKey| inbox.settle(now, owner, key, settlement).is_some();
        let count = keys.iter().filter(settled).count();
        if let Settlement::Postpone { .. } = settlement {
            self.shared.inbox.notify_work(inbox, count);
        }
        Ok(count)
    }

    async fn get(&self, key: &InboxKey) -> Result<InboxMessage, GetError> {
        let (inbox, _) = self.shared.inbox.lock();
        let message = inbox.get(key).map(|item| shown(key, item));
        message.ok_or_else(|| GetError::Unknown { key: key.clone() })
    }

    async fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let (mut inbox, now) = self.shared.inbox.lock();
        let mut count = 0;
        for key in keys {
            if let Some(message) = inbox.revive_after(now, key, reason, delay) {
                message.extra.attempts_at_revival = message.attempts;
                count += 1;
            }
        }
        self.shared.inbox.notify_work(inbox, 1);
        Ok(count)
    }

    async fn reap(&self) -> Result<usize> {
        let (mut inbox, now) = self.shared.inbox.lock();
        Ok(inbox.reap(now).len())
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        let (mut inbox, now) = self.shared.inbox.lock();
        Ok(inbox.purge(now, &lane_filter(topics), keep, |_, _| {}))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let (inbox, now) = self.shared.inbox.lock();
        Ok(inbox.oldest_ready_age(now))
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.inbox.work_added.notified()
    }
}

fn shown(key: &InboxKey, item: &Item<Message<InboxFields>, Topic>) -> InboxMessage {
    let Item { state, due_at, value, .. } = item;
    let status = match state {
        State::Ready => InboxStatus::Ready,
        State::Claimed { until, .. } => InboxStatus::Claimed { until: *until },
        State::Finished { outcome: Outcome::Done, .. } => InboxStatus::Done,
        State::Finished { outcome: Outcome::Dead, .. } => InboxStatus::Dead,
    };
    InboxMessage {
        key: key.clone(),
        topic: value.topic.clone(),
        payload: value.payload.clone(),
        correlation_id: value.correlation_id.clone(),
        hash: value.extra.hash.clone(),
        status,
        due_at: *due_at,
        attempts: value.attempts,
        attempts_at_revival: value.extra.attempts_at_revival,
        lost_attempts: value.lost_attempts,
        last_error: value.last_error.clone(),
    }
}
