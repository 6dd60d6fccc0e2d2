//! Joins: the progress of a group of outbox messages (fan-in).

use std::collections::BTreeSet;

use thiserror::Error;

use crate::{Answer, JoinId, MessageId, Outbox, ProviderError};

/// The most messages that one join waits for.
pub const JOIN_MEMBERS_MAX: usize = 10_000;

/// A join to start: the messages it waits for. Starting the same value again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJoin {
    id: JoinId,
    members: BTreeSet<MessageId>,
}

/// The progress of a join. `completed + failed` never exceeds `expected`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinProgress {
    /// How many messages it waits for.
    pub expected: usize,
    /// How many of them were dispatched.
    pub completed: usize,
    /// How many of them failed.
    pub failed: usize,
}

/// Why a join was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidJoin {
    /// Nothing to wait for.
    #[error("empty_join: a join waits for at least 1 message")]
    Empty,
    /// More than [`JOIN_MEMBERS_MAX`] messages.
    #[error("join_too_large: {members} messages, at most {JOIN_MEMBERS_MAX}")]
    TooLarge { members: usize },
}

/// Why [`Joins::join_progress`] returned no progress.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum JoinError {
    /// No such join was started, or it was complete and has been purged.
    #[error("unknown_join: {id}")]
    Unknown { id: JoinId },
    /// The provider gave no answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// An outbox that counts the outcomes of a group of its messages.
///
/// Counting is part of [`settle`](Outbox::settle): a call that changes no message counts for no
/// join, and each member counts once, with its first outcome.
pub trait Joins: Outbox {
    /// Starts a join. Members that are already finished count at once; members that are not
    /// enqueued yet count when they finish, so a join can be started before its messages.
    fn start_join(&self, join: NewJoin) -> impl Answer<JoinId>;

    /// The progress of the join.
    fn join_progress(&self, id: JoinId) -> impl Answer<JoinProgress, JoinError>;
}

impl NewJoin {
    /// A join over these messages; a message named twice is one member.
    ///
    /// # Errors
    /// [`InvalidJoin`] if there are none, or more than [`JOIN_MEMBERS_MAX`].
    pub fn over(members: impl IntoIterator<Item = MessageId>) -> Result<NewJoin, InvalidJoin> {
        let members: BTreeSet<MessageId> = members.into_iter().collect();
        if members.is_empty() {
            return Err(InvalidJoin::Empty);
        }
        if members.len() > JOIN_MEMBERS_MAX {
            return Err(InvalidJoin::TooLarge { members: members.len() });
        }
        Ok(NewJoin { id: JoinId::random(), members })
    }

    /// Its identity.
    pub fn id(&self) -> JoinId {
        self.id
    }

    /// The messages it waits for, each once.
    pub fn members(&self) -> &BTreeSet<MessageId> {
        &self.members
    }
}

impl JoinProgress {
    /// Whether every member is finished.
    ///
    /// # Panics
    /// If more members are finished than there are, which no provider reports.
    pub fn is_complete(self) -> bool {
        assert!(self.completed + self.failed <= self.expected, "each member counts once");
        self.completed + self.failed == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_has_one_to_ten_thousand_members() {
        assert_eq!(NewJoin::over([]), Err(InvalidJoin::Empty));
        let ids: Vec<_> = (0..=JOIN_MEMBERS_MAX).map(|_| MessageId::random()).collect();
        assert_eq!(NewJoin::over(ids.clone()), Err(InvalidJoin::TooLarge { members: 10_001 }));
        assert!(NewJoin::over(ids.into_iter().take(JOIN_MEMBERS_MAX)).is_ok());
    }

    #[test]
    fn a_message_named_twice_is_one_member() {
        let id = MessageId::random();
        assert_eq!(NewJoin::over([id, id]).unwrap().members().len(), 1);
    }
}
