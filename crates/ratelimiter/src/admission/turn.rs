//! How a server that lets requests wait asks its backend.

use std::time::Duration;

use crate::{Decision, LimitKey};

/// For whom a server asks. By default for a caller that does not wait, when nobody else does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn<'a> {
    /// Others wait for room of this limit, which the request needs too: nothing new is admitted.
    pub behind: Option<&'a LimitKey>,
    /// The caller waits, and has asked so often before. A denial that room may end is not remembered, so that the same lease may ask
    /// again.
    pub attempt: Option<u32>,
}

/// The answer to a [`Turn`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct TurnAnswer {
    /// What a caller that does not wait is told.
    pub decision: Decision,
    /// When to ask again with the same lease, if nothing happens before; `None` if the decision is final.
    pub ask_again_after: Option<Duration>,
}

impl TurnAnswer {
    /// An answer that asking again does not change.
    pub const fn last(decision: Decision) -> Self {
        Self { decision, ask_again_after: None }
    }
}
