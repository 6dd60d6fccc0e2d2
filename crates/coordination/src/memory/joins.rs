//! Joins. A join is deleted with the last of its messages.

use std::collections::HashMap;

use super::work::Outcome;
use crate::outbox::join::{JoinProgress, NewJoin};
use crate::{JoinId, MessageId};

#[derive(Debug, Default)]
pub(super) struct JoinTable {
    joins: HashMap<JoinId, Join>,
    /// The joins of each message, and whether it was counted for them.
    members: HashMap<MessageId, Vec<(JoinId, Counted)>>,
}

#[derive(Debug)]
struct Join {
    progress: JoinProgress,
    /// How many members have not been purged.
    kept: usize,
}

/// A member counts with its first outcome, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Yes,
    No,
}

impl JoinTable {
    /// Starts a join, unless it is known. `outcome_of` returns the outcome of a finished message.
    pub(super) fn start(
        &mut self,
        join: &NewJoin,
        outcome_of: impl Fn(&MessageId) -> Option<Outcome>,
    ) {
        if self.joins.contains_key(&join.id()) {
            return;
        }
        let expected = join.members().len();
        let progress = JoinProgress { expected, completed: 0, failed: 0 };
        self.joins.insert(join.id(), Join { progress, kept: expected });
        for member in join.members() {
            self.members.entry(*member).or_default().push((join.id(), Counted::No));
            if let Some(outcome) = outcome_of(member) {
                self.count(*member, outcome);
            }
        }
    }

    /// Counts the outcome of a message for its joins.
    pub(super) fn count(&mut self, member: MessageId, outcome: Outcome) {
        for (join, counted) in self.members.get_mut(&member).into_iter().flatten() {
            if std::mem::replace(counted, Counted::Yes) == Counted::Yes {
                continue;
            }
            let join = self.joins.get_mut(join).expect("a join is kept as long as its members");
            match outcome {
                Outcome::Done => join.progress.completed += 1,
                Outcome::Dead => join.progress.failed += 1,
            }
        }
    }

    pub(super) fn progress(&self, id: JoinId) -> Option<JoinProgress> {
        self.joins.get(&id).map(|join| join.progress)
    }

    /// A finished message was purged: removes it from its joins, and deletes joins without members.
    pub(super) fn forget(&mut self, member: MessageId) {
        for (id, _) in self.members.remove(&member).unwrap_or_default() {
            let join = self.joins.get_mut(&id).expect("a join is kept as long as its members");
            join.kept -= 1;
            if join.kept == 0 {
                assert!(join.progress.is_complete(), "only finished messages are purged");
                self.joins.remove(&id);
            }
        }
    }
}
