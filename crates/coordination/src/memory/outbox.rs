//! The outbox's state.

use std::collections::BTreeSet;
use std::time::Duration;

use super::joins::JoinTable;
use super::work::{Outcome, State, View, WorkItems, among};
use crate::outbox::join::{JoinProgress, NewJoin};
use crate::{
    BatchSize, CorrelationId, Delay, ErrorText, JoinId, LeaseDuration, MessageId, NewOutboxMessage,
    OutboxMessage, OutboxRecord, OutboxStatus, OwnerToken, Payload, Retention, Settlement,
    Timestamp, Topic, Topics,
};

#[derive(Debug, Default)]
pub(super) struct OutboxState {
    messages: WorkItems<MessageId, Kept, Topic>,
    joins: JoinTable,
}

/// What is kept of a message beside its place in the order of work.
#[derive(Debug)]
struct Kept {
    topic: Topic,
    payload: Payload,
    correlation_id: Option<CorrelationId>,
    retry_count: u32,
    /// How many attempts began.
    attempts: u32,
    /// Whether one began in the claim that it is in.
    begun: bool,
    last_error: ErrorText,
    /// What it was finished with.
    outcome: Option<Payload>,
}

impl OutboxState {
    pub(super) fn enqueue(&mut self, now: Timestamp, message: NewOutboxMessage) -> MessageId {
        let NewOutboxMessage { id, topic, payload, correlation_id, due_at } = message;
        if !self.messages.contains(&id) {
            let lane = topic.clone();
            let kept = Kept {
                topic,
                payload,
                correlation_id,
                retry_count: 0,
                attempts: 0,
                begun: false,
                last_error: ErrorText::default(),
                outcome: None,
            };
            self.messages.add_to(lane, id, due_at.unwrap_or(now), kept);
        }
        id
    }

    pub(super) fn claim_due(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Vec<OutboxMessage> {
        let see = |id: &MessageId, view: View<'_, Kept>| claimed(*id, &view);
        self.messages.claim_among(now, owner, lease, max, &among(topics), see)
    }

    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Option<u32> {
        let kept = self.messages.extend(owner, &id, now.after(lease.get()))?;
        if !std::mem::replace(&mut kept.begun, true) {
            kept.attempts += 1;
        }
        Some(kept.attempts)
    }

    pub(super) fn extend(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> usize {
        let until = now.after(lease.get());
        let unique: BTreeSet<&MessageId> = ids.iter().collect();
        unique.into_iter().filter(|id| self.messages.extend(owner, id, until).is_some()).count()
    }

    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> usize {
        ids.iter().filter(|id| self.settle_one(now, owner, id, settlement).is_some()).count()
    }

    fn settle_one(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        id: &MessageId,
        settlement: &Settlement,
    ) -> Option<()> {
        match settlement {
            Settlement::Finish { outcome } => {
                let kept = self.messages.finish(now, owner, id, Outcome::Done)?;
                kept.outcome.clone_from(outcome);
                self.joins.count(*id, Outcome::Done);
            }
            Settlement::Retry { delay, error } => {
                let kept = self.messages.give_back(owner, id, now.after(delay.get()))?;
                kept.attempts += u32::from(!std::mem::take(&mut kept.begun));
                kept.retry_count += 1;
                kept.note(error);
            }
            Settlement::Fail { error } => {
                self.messages.finish(now, owner, id, Outcome::Dead)?.note(error);
                self.joins.count(*id, Outcome::Dead);
            }
            Settlement::PutOff { delay, reason } => {
                let kept = self.messages.give_back(owner, id, now.after(delay.get()))?;
                kept.attempts -= u32::from(std::mem::take(&mut kept.begun));
                kept.note(reason);
            }
        }
        Some(())
    }

    pub(super) fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Vec<OutboxRecord> {
        let listed = |id: &MessageId| after.is_none_or(|after| *id > after);
        let mut ids: Vec<_> = self.messages.dead().copied().filter(listed).collect();
        ids.sort_unstable();
        ids.truncate(max.as_usize());
        ids.into_iter().filter_map(|id| self.record(id)).collect()
    }

    pub(super) fn revive(
        &mut self,
        now: Timestamp,
        ids: &[MessageId],
        reason: &ErrorText,
        delay: Delay,
    ) -> usize {
        let due_at = now.after(delay.get());
        let mut count = 0;
        for id in ids {
            if let Some(kept) = self.messages.revive(id, due_at) {
                (kept.begun, kept.retry_count, kept.attempts) = (false, 0, 0);
                kept.note(reason);
                count += 1;
            }
        }
        count
    }

    pub(super) fn record(&self, id: MessageId) -> Option<OutboxRecord> {
        self.messages.get(&id).map(|view| shown(id, &view))
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> usize {
        let reaped = self.messages.reap(now);
        for id in &reaped {
            self.messages.get_mut(id).expect("it was just reaped").begun = false;
        }
        reaped.len()
    }

    pub(super) fn purge(&mut self, now: Timestamp, topics: &Topics, keep: Retention) -> usize {
        let joins = &mut self.joins;
        self.messages.purge(now, &among(topics), keep, |id, _| joins.forget(id))
    }

    pub(super) fn oldest_ready_age(&self, now: Timestamp) -> Option<Duration> {
        self.messages.oldest_ready_age(now)
    }

    pub(super) fn next_due_after(&mut self, now: Timestamp, topics: &Topics) -> Option<Duration> {
        self.messages.next_due_after(now, &among(topics))
    }

    pub(super) fn start_join(&mut self, join: &NewJoin) -> JoinId {
        let messages = &self.messages;
        self.joins.start(join, |member| match messages.get(member)?.state {
            State::Finished { outcome, .. } => Some(*outcome),
            State::Ready | State::Claimed { .. } => None,
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
        attempts: kept.attempts,
        last_error: kept.last_error.clone(),
        claimed_until: *until,
    }
}

fn shown(id: MessageId, view: &View<'_, Kept>) -> OutboxRecord {
    let kept = view.value;
    let status = match view.state {
        State::Ready => OutboxStatus::Ready,
        State::Claimed { until, .. } => OutboxStatus::Claimed { until: *until },
        State::Finished { outcome: Outcome::Done, .. } => {
            OutboxStatus::Done { outcome: kept.outcome.clone() }
        }
        State::Finished { outcome: Outcome::Dead, .. } => OutboxStatus::Dead,
    };
    OutboxRecord {
        id,
        topic: kept.topic.clone(),
        payload: kept.payload.clone(),
        correlation_id: kept.correlation_id.clone(),
        due_at: view.due_at,
        retry_count: kept.retry_count,
        attempts: kept.attempts,
        last_error: kept.last_error.clone(),
        status,
    }
}
