//! Messages of the outbox and the inbox: work items by topic, with attempt counts.

use std::hash::Hash;

use super::work::{Item, LaneFilter, Outcome, WorkItems};
use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, Payload, Settlement,
    Timestamp, Topic, Topics,
};

/// Messages by key. `M` holds the fields of only one of the two.
pub(super) type Messages<K, M> = WorkItems<K, Message<M>, Topic>;

/// The value of a work item that is a message.
#[derive(Debug)]
pub(super) struct Message<M> {
    pub(super) topic: Topic,
    pub(super) payload: Payload,
    pub(super) correlation_id: Option<CorrelationId>,
    /// How many attempts began or failed.
    pub(super) attempts: u32,
    /// How many of them failed and were retried.
    pub(super) retry_count: u32,
    /// How many of them began and had no outcome when their claim expired, as of the last claim.
    pub(super) lost_attempts: u32,
    /// Whether an attempt began in the last claim and has no outcome yet.
    begun: bool,
    pub(super) last_error: ErrorText,
    pub(super) extra: M,
}

/// The lanes of these topics; each topic is a lane.
pub(super) fn lane_filter(topics: &Topics) -> LaneFilter<'_, Topic> {
    match topics {
        Topics::All => LaneFilter::All,
        Topics::Only(set) => LaneFilter::Only(set.as_set()),
        Topics::Except(set) => LaneFilter::Except(set.as_set()),
    }
}

impl<M> Message<M> {
    pub(super) fn new(
        topic: Topic,
        payload: Payload,
        correlation_id: Option<CorrelationId>,
        extra: M,
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
            extra,
        }
    }

    /// Stores an error, unless it is empty.
    fn note(&mut self, error: &ErrorText) {
        if !error.is_empty() {
            self.last_error = error.clone();
        }
    }
}

impl<K: Clone + Eq + Hash, M> Messages<K, M> {
    /// Adds a message, unless its key is known. Returns whether it was added.
    pub(super) fn enqueue(&mut self, key: K, due_at: Timestamp, message: Message<M>) -> bool {
        let is_new = self.get(&key).is_none();
        if is_new {
            self.add(message.topic.clone(), key, due_at, message);
        }
        is_new
    }

    /// Claims due messages of these topics. An attempt of an earlier claim without an outcome is
    /// lost.
    pub(super) fn claim_of<T>(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
        show: impl Fn(&K, &Item<Message<M>, Topic>) -> T,
    ) -> Vec<T> {
        self.claim(now, owner, lease, max, &lane_filter(topics), |key, item| {
            item.value.lost_attempts += u32::from(std::mem::take(&mut item.value.begun));
            show(key, item)
        })
    }

    /// Begins an attempt, counted once per claim. Returns the number of attempts.
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

    /// Settles a message if `owner` has claimed it, and returns it.
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
            Settlement::Postpone { delay, reason } => {
                let message = self.give_back(owner, key, now.after(delay.get()))?;
                message.attempts -= u32::from(std::mem::take(&mut message.begun));
                (message, reason)
            }
        };
        message.note(note);
        Some(message)
    }

    /// Makes a dead message ready, resets its lost attempts, and returns it.
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
