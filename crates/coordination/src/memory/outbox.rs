//! The outbox's state.

use std::time::Duration;

use super::joins::JoinTable;
use super::work::{Outcome, State, View, WorkItems};
use crate::outbox::join::{JoinProgress, NewJoin};
use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, JoinId, LeaseDuration, MessageId, NewOutboxMessage,
    OutboxMessage, OwnerToken, Payload, Timestamp, Topic,
};

#[derive(Debug, Default)]
pub(super) struct OutboxState {
    messages: WorkItems<MessageId, Kept>,
    joins: JoinTable,
}

/// What is kept of a message beside its place in the order of work.
#[derive(Debug)]
struct Kept {
    topic: Topic,
    payload: Payload,
    correlation_id: Option<CorrelationId>,
    retry_count: u32,
    last_error: ErrorText,
}

impl OutboxState {
    pub(super) fn enqueue(&mut self, now: Timestamp, message: NewOutboxMessage) -> MessageId {
        let NewOutboxMessage { id, topic, payload, correlation_id, due_at } = message;
        if !self.messages.contains(&id) {
            let last_error = ErrorText::default();
            let kept = Kept { topic, payload, correlation_id, retry_count: 0, last_error };
            self.messages.add(id, due_at.unwrap_or(now), kept);
        }
        id
    }

    pub(super) fn claim_due(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Vec<OutboxMessage> {
        self.messages.claim(now, owner, lease, max, |id, view| claimed(*id, &view))
    }

    pub(super) fn mark_dispatched(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[MessageId],
    ) -> usize {
        let mut count = 0;
        for id in ids {
            if self.messages.finish(now, owner, id, Outcome::Done).is_some() {
                self.joins.count(now, *id, Outcome::Done);
                count += 1;
            }
        }
        count
    }

    pub(super) fn reschedule(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        error: &ErrorText,
    ) -> usize {
        let due_at = now.after(delay.get());
        let mut count = 0;
        for id in ids {
            if let Some(kept) = self.messages.give_back(owner, id, due_at) {
                kept.retry_count += 1;
                kept.note(error);
                count += 1;
            }
        }
        count
    }

    pub(super) fn fail(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[MessageId],
        error: &ErrorText,
    ) -> usize {
        let mut count = 0;
        for id in ids {
            if let Some(kept) = self.messages.finish(now, owner, id, Outcome::Dead) {
                kept.note(error);
                self.joins.count(now, *id, Outcome::Dead);
                count += 1;
            }
        }
        count
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> usize {
        self.messages.reap(now).len()
    }

    pub(super) fn purge(&mut self, now: Timestamp, older_than: Duration) -> usize {
        let finished_until = now.before(older_than);
        self.joins.purge(finished_until);
        self.messages.purge(finished_until, |_, _| {})
    }

    pub(super) fn oldest_ready_age(&self, now: Timestamp) -> Option<Duration> {
        self.messages.oldest_ready_age(now)
    }

    pub(super) fn start_join(&mut self, now: Timestamp, join: &NewJoin) -> JoinId {
        let messages = &self.messages;
        self.joins.start(now, join, |member| match messages.get(member)?.state {
            State::Finished { outcome, .. } => Some(*outcome),
            State::Waiting | State::Due | State::Claimed { .. } => None,
        });
        join.id()
    }

    pub(super) fn join_progress(&self, id: JoinId) -> Option<JoinProgress> {
        self.joins.progress(id)
    }
}

impl Kept {
    fn note(&mut self, error: &ErrorText) {
        if !error.is_empty() {
            self.last_error = error.clone();
        }
    }
}

fn claimed(id: MessageId, view: &View<'_, Kept>) -> OutboxMessage {
    let State::Claimed { until, .. } = view.state else {
        unreachable!("a claim shows claimed items");
    };
    let kept = view.value;
    OutboxMessage {
        id,
        topic: kept.topic.clone(),
        payload: kept.payload.clone(),
        correlation_id: kept.correlation_id.clone(),
        due_at: view.due_at,
        retry_count: kept.retry_count,
        last_error: kept.last_error.clone(),
        claimed_until: *until,
    }
}
