//! Joins, as the outbox counts them.

use std::collections::{BTreeSet, HashMap};

use super::work::Outcome;
use crate::outbox::join::{JoinProgress, NewJoin};
use crate::{JoinId, MessageId, Timestamp};

#[derive(Debug, Default)]
pub(super) struct JoinTable {
    joins: HashMap<JoinId, JoinProgress>,
    /// The joins that wait for a message. A message leaves with its first outcome, so it counts
    /// once.
    waiting_for: HashMap<MessageId, Vec<JoinId>>,
    /// Complete joins by when they became complete.
    complete: BTreeSet<(Timestamp, JoinId)>,
}

impl JoinTable {
    /// Starts a join, unless it is known. `outcome_of` tells the outcome of a finished message.
    pub(super) fn start(
        &mut self,
        now: Timestamp,
        join: &NewJoin,
        outcome_of: impl Fn(&MessageId) -> Option<Outcome>,
    ) {
        if self.joins.contains_key(&join.id()) {
            return;
        }
        let expected = join.members().len();
        self.joins.insert(join.id(), JoinProgress { expected, completed: 0, failed: 0 });
        for member in join.members() {
            match outcome_of(member) {
                Some(outcome) => self.add(now, join.id(), outcome),
                None => self.waiting_for.entry(*member).or_default().push(join.id()),
            }
        }
    }

    /// Counts the outcome of a message for all joins that wait for it.
    pub(super) fn count(&mut self, now: Timestamp, member: MessageId, outcome: Outcome) {
        for join in self.waiting_for.remove(&member).unwrap_or_default() {
            self.add(now, join, outcome);
        }
    }

    pub(super) fn progress(&self, id: JoinId) -> Option<JoinProgress> {
        self.joins.get(&id).copied()
    }

    /// Forgets joins that became complete at `complete_until` or before.
    pub(super) fn purge(&mut self, complete_until: Timestamp) {
        while let Some(&(at, join)) = self.complete.first() {
            if at > complete_until {
                break;
            }
            self.complete.pop_first();
            self.joins.remove(&join).expect("complete joins are kept");
        }
    }

    fn add(&mut self, now: Timestamp, join: JoinId, outcome: Outcome) {
        let progress = self.joins.get_mut(&join).expect("a join is kept until it is complete");
        match outcome {
            Outcome::Done => progress.completed += 1,
            Outcome::Dead => progress.failed += 1,
        }
        if progress.is_complete() {
            self.complete.insert((now, join));
        }
    }
}
