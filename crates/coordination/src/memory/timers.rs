//! The timers' state.

use std::time::Duration;

use super::work::{Among, Outcome, WorkItems};
use crate::{
    BatchSize, CorrelationId, Delay, LeaseDuration, NewTimer, OwnerToken, Payload, Retention,
    Timer, TimerId, Timestamp, Topic,
};

#[derive(Debug, Default)]
pub(super) struct TimerState {
    timers: WorkItems<TimerId, Kept>,
}

/// What is kept of a timer beside its place in the order of work.
#[derive(Debug)]
struct Kept {
    topic: Topic,
    payload: Payload,
    correlation_id: Option<CorrelationId>,
}

impl TimerState {
    pub(super) fn schedule(&mut self, timer: NewTimer) -> TimerId {
        let NewTimer { id, topic, payload, correlation_id, due_at } = timer;
        if !self.timers.contains(&id) {
            self.timers.add(id, due_at, Kept { topic, payload, correlation_id });
        }
        id
    }

    pub(super) fn cancel(&mut self, now: Timestamp, id: TimerId) -> usize {
        usize::from(self.timers.cancel(now, &id).is_some())
    }

    pub(super) fn claim(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Vec<Timer> {
        self.timers.claim(now, owner, lease, max, |id, view| Timer {
            id: *id,
            topic: view.value.topic.clone(),
            payload: view.value.payload.clone(),
            correlation_id: view.value.correlation_id.clone(),
            due_at: view.due_at,
            attempts: view.attempts,
        })
    }

    pub(super) fn ack(&mut self, now: Timestamp, owner: &OwnerToken, ids: &[TimerId]) -> usize {
        let acked = |id: &&TimerId| self.timers.finish(now, owner, id, Outcome::Done).is_some();
        ids.iter().filter(acked).count()
    }

    pub(super) fn abandon(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> usize {
        let due_at = now.after(delay.get());
        let given_back = |id: &&TimerId| self.timers.give_back(owner, id, due_at).is_some();
        ids.iter().filter(given_back).count()
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> usize {
        self.timers.reap(now).len()
    }

    pub(super) fn purge(&mut self, now: Timestamp, older_than: Duration) -> usize {
        self.timers.purge(now, &Among::All, Retention::of_all(older_than), |_, _| {})
    }

    pub(super) fn next_due_at(&self) -> Option<Timestamp> {
        self.timers.next_due_at()
    }
}
