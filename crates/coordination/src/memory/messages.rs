//! Messages as the outbox and the inbox keep them: work items by topic, whose attempts are counted.

use std::hash::Hash;

use super::work::{Among, Item, Outcome, WorkItems};
use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, Payload, Settlement,
    Timestamp, Topic, Topics,
};

/// Messages by key, with what only one of the two keeps of them.
pub(super) type Messages<K, M> = WorkItems<K, Message<M>, Topic>;

/// What is kept of a message beside its place in the order of work.
#[derive(Debug)]
pub(super) struct Message<M> {
    pub(super) topic: Topic,
    pub(super) payload: Payload,
    pub(super) correlation_id: Option<CorrelationId>,
    /// How many attempts began or failed.
    pub(super) attempts: u32,
    /// How many of them failed and were to be followed by another.
    pub(super) retry_count: u32,
    /// How many of them began and had not ended when their claim ran out, as of the last claim.
    pub(super) lost_attempts: u32,
    /// Whether an attempt began in the last claim and has not ended.
    begun: bool,
    pub(super) last_error: ErrorText,
    pub(super) more: M,
}

/// The lanes of these topics: each topic has one.
pub(super) fn among(topics: &Topics) -> Among<'_, Topic> {
    match topics {
        Topics::All => Among::All,
        Topics::Only(set) => Among::Only(set.as_set()),
        Topics::Except(set) => Among::Except(set.as_set()),
    }
}

impl<M> Message<M> {
    pub(super) fn new(
        topic: Topic,
        payload: Payload,
        correlation_id: Option<CorrelationId>,
        more: M,
    ) -> Message<M> {
        Message {
            topic,
            payload,
            correlation_id,
            attempts: 0,
            retry_count: 0,
            lost_attempts: 0,
            begun: false,
            last_error: ErrorText::default(),
            more,
        }
    }

    /// An empty error keeps the one before.
    fn note(&mut self, error: &ErrorText) {
        if !error.is_empty() {
            self.last_error = error.clone();
        }
    }
}

impl<K: Clone + Eq + Hash, M> Messages<K, M> {
    /// Adds a message, unless its key is known. Whether it was added.
    pub(super) fn enqueue(&mut self, key: K, due_at: Timestamp, message: Message<M>) -> bool {
        let is_new = self.get(&key).is_none();
        if is_new {
            self.add(message.topic.clone(), key, due_at, message);
        }
        is_new
    }

    /// Claims due messages of these topics. What had begun and not ended never will.
    pub(super) fn claim_of<T>(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
        show: impl Fn(&K, &Item<Message<M>, Topic>) -> T,
    ) -> Vec<T> {
        self.claim(now, owner, lease, max, &among(topics), |key, item| {
            item.value.lost_attempts += u32::from(std::mem::take(&mut item.value.begun));
            show(key, item)
        })
    }

    /// Begins an attempt, once a claim. The answer is how many there were.
    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        key: &K,
        lease: LeaseDuration,
    ) -> Option<u32> {
        let message = self.extend(owner, key, now.after(lease.get()))?;
        message.attempts += u32::from(!std::mem::replace(&mut message.begun, true));
        Some(message.attempts)
    }

    /// Settles a message if `owner` has claimed it; then it is the answer.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        key: &K,
        settlement: &Settlement,
    ) -> Option<&mut Message<M>> {
        let (message, note) = match settlement {
            Settlement::Finish { .. } => {
                return self.finish(now, owner, key, Outcome::Done);
            }
            Settlement::Fail { error } => (self.finish(now, owner, key, Outcome::Dead)?, error),
            Settlement::Retry { delay, error } => {
                let message = self.give_back(owner, key, now.after(delay.get()))?;
                message.attempts += u32::from(!std::mem::take(&mut message.begun));
                message.retry_count += 1;
                (message, error)
            }
            Settlement::PutOff { delay, reason } => {
                let message = self.give_back(owner, key, now.after(delay.get()))?;
                message.attempts -= u32::from(std::mem::take(&mut message.begun));
                (message, reason)
            }
        };
        message.note(note);
        Some(message)
    }

    /// Makes a dead message ready, for which lost attempts count anew; then it is the answer.
    pub(super) fn revive_after(
        &mut self,
        now: Timestamp,
        key: &K,
        reason: &ErrorText,
        delay: Delay,
    ) -> Option<&mut Message<M>> {
        let message = self.revive(key, now.after(delay.get()))?;
        (message.begun, message.lost_attempts) = (false, 0);
        message.note(reason);
        Some(message)
    }
}
