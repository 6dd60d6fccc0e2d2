//! The inbox's state.

use std::time::Duration;

use super::work::{Outcome, State, View, WorkItems, among};
use crate::{
    BatchSize, ContentHash, CorrelationId, Delay, Enqueued, ErrorText, InboxKey, InboxMessage,
    InboxStatus, LeaseDuration, NewInboxMessage, OwnerToken, Payload, Processed, Retention,
    Settlement, Timestamp, Topic, Topics,
};

#[derive(Debug, Default)]
pub(super) struct InboxState {
    messages: WorkItems<InboxKey, Kept, Topic>,
}

/// What is kept of a message beside its place in the order of work.
#[derive(Debug)]
struct Kept {
    topic: Topic,
    payload: Payload,
    correlation_id: Option<CorrelationId>,
    hash: Option<ContentHash>,
    /// How many attempts began or were abandoned.
    attempts: u32,
    attempts_at_revival: u32,
    lost_attempts: u32,
    /// Whether an attempt began in the last claim and has not ended.
    begun: bool,
    last_error: ErrorText,
}

impl InboxState {
    pub(super) fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> Processed {
        let Some(view) = self.messages.get(key) else {
            return Processed::No;
        };
        match (view.state, hash, &view.value.hash) {
            (State::Finished { outcome: Outcome::Done, .. }, Some(hash), Some(kept))
                if hash != kept =>
            {
                Processed::WithOtherContent
            }
            (State::Finished { outcome: Outcome::Done, .. }, _, _) => Processed::Yes,
            (
                State::Ready
                | State::Claimed { .. }
                | State::Finished { outcome: Outcome::Dead, .. },
                _,
                _,
            ) => Processed::No,
        }
    }

    pub(super) fn enqueue(&mut self, now: Timestamp, message: NewInboxMessage) -> Enqueued {
        let NewInboxMessage { key, topic, payload, correlation_id, hash, due_at } = message;
        if self.messages.contains(&key) {
            return Enqueued::Duplicate;
        }
        let lane = topic.clone();
        let kept = Kept {
            topic,
            payload,
            correlation_id,
            hash,
            attempts: 0,
            attempts_at_revival: 0,
            lost_attempts: 0,
            begun: false,
            last_error: ErrorText::default(),
        };
        self.messages.add_to(lane, key, due_at.unwrap_or(now), kept);
        Enqueued::Added
    }

    pub(super) fn claim(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Vec<InboxMessage> {
        let see = |key: &InboxKey, _: View<'_, Kept>| key.clone();
        let keys = self.messages.claim_among(now, owner, lease, max, &among(topics), see);
        let claimed = keys.into_iter().map(|key| {
            let kept = self.messages.get_mut(&key).expect("it was just claimed");
            kept.lost_attempts += u32::from(std::mem::take(&mut kept.begun));
            shown(&key, &self.messages.get(&key).expect("it was just claimed"))
        });
        claimed.collect()
    }

    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> Option<u32> {
        let kept = self.messages.extend(owner, key, now.after(lease.get()))?;
        if !std::mem::replace(&mut kept.begun, true) {
            kept.attempts += 1;
        }
        Some(kept.attempts)
    }

    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> usize {
        keys.iter().filter(|key| self.settle_one(now, owner, key, settlement).is_some()).count()
    }

    fn settle_one(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        key: &InboxKey,
        settlement: &Settlement,
    ) -> Option<()> {
        match settlement {
            Settlement::Finish { .. } => {
                self.messages.finish(now, owner, key, Outcome::Done)?;
            }
            Settlement::Retry { delay, error } => {
                let kept = self.messages.give_back(owner, key, now.after(delay.get()))?;
                kept.attempts += u32::from(!std::mem::take(&mut kept.begun));
                kept.note(error);
            }
            Settlement::Fail { error } => {
                self.messages.finish(now, owner, key, Outcome::Dead)?.note(error);
            }
            Settlement::PutOff { delay, reason } => {
                let kept = self.messages.give_back(owner, key, now.after(delay.get()))?;
                kept.attempts -= u32::from(std::mem::take(&mut kept.begun));
                kept.note(reason);
            }
        }
        Some(())
    }

    pub(super) fn get(&self, key: &InboxKey) -> Option<InboxMessage> {
        self.messages.get(key).map(|view| shown(key, &view))
    }

    pub(super) fn revive(
        &mut self,
        now: Timestamp,
        keys: &[InboxKey],
        reason: &ErrorText,
        delay: Delay,
    ) -> usize {
        let due_at = now.after(delay.get());
        let mut count = 0;
        for key in keys {
            if let Some(kept) = self.messages.revive(key, due_at) {
                kept.attempts_at_revival = kept.attempts;
                kept.lost_attempts = 0;
                kept.begun = false;
                kept.note(reason);
                count += 1;
            }
        }
        count
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> usize {
        self.messages.reap(now).len()
    }

    pub(super) fn purge(&mut self, now: Timestamp, topics: &Topics, keep: Retention) -> usize {
        self.messages.purge(now, &among(topics), keep, |_, _| {})
    }

    pub(super) fn oldest_ready_age(&self, now: Timestamp) -> Option<Duration> {
        self.messages.oldest_ready_age(now)
    }
}

impl Kept {
    fn note(&mut self, error: &ErrorText) {
        if !error.is_empty() {
            self.last_error = error.clone();
        }
    }
}

fn shown(key: &InboxKey, view: &View<'_, Kept>) -> InboxMessage {
    let status = match view.state {
        State::Ready => InboxStatus::Ready,
        State::Claimed { until, .. } => InboxStatus::Claimed { until: *until },
        State::Finished { outcome: Outcome::Done, .. } => InboxStatus::Done,
        State::Finished { outcome: Outcome::Dead, .. } => InboxStatus::Dead,
    };
    let kept = view.value;
    InboxMessage {
        key: key.clone(),
        topic: kept.topic.clone(),
        payload: kept.payload.clone(),
        correlation_id: kept.correlation_id.clone(),
        hash: kept.hash.clone(),
        status,
        due_at: view.due_at,
        attempts: kept.attempts,
        attempts_at_revival: kept.attempts_at_revival,
        lost_attempts: kept.lost_attempts,
        last_error: kept.last_error.clone(),
    }
}
