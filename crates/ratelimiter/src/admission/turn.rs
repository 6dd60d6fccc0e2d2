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
    /// If the lease is admitted, its caller may go away before it is told, and the server return it.
    pub may_return: bool,
}

/// The answer to a [`Turn`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct TurnAnswer {
    /// What a caller that does not wait is told.
    pub decision: Decision,
    /// When to ask again with the same lease, if nothing happens before; `None` if the decision is final.
    pub ask_again_after: Option<Duration>,
    /// The lease was admitted for this caller: nobody was told before that it is allowed.
    pub is_new: bool,
}

impl TurnAnswer {
    /// An answer that asking again does not change.
    pub const fn last(decision: Decision) -> Self {
        Self { decision, ask_again_after: None, is_new: false }
    }

    /// A denial that asking again with the same lease may change.
    pub const fn not_now(decision: Decision, ask_again_after: Duration) -> Self {
        Self { decision, ask_again_after: Some(ask_again_after), is_new: false }
    }

    /// The lease was admitted for this caller.
    pub const fn admitted(decision: Decision) -> Self {
        Self { decision, ask_again_after: None, is_new: true }
    }
}
