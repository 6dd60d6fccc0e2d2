//! Outcomes of a claim.

use crate::{Delay, ErrorText, Payload};

/// How [`Outbox::settle`](crate::Outbox::settle) and [`Inbox::settle`](crate::Inbox::settle) end
/// the claim on a message.
///
/// The error or reason is stored as the last error, unless it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Settlement {
    /// The message is done. An outbox stores the outcome, which [`record`](crate::Outbox::record)
    /// returns until the message is purged; an inbox does not.
    Finish { outcome: Option<Payload> },
    /// An attempt failed; it counts whether or not `begin` was called. The message is due again
    /// after the delay, in the outbox with one more retry.
    Retry { delay: Delay, error: ErrorText },
    /// The message failed permanently.
    Fail { error: ErrorText },
    /// The message was not tried: no retry is counted, and an attempt that began is not counted
    /// either. It is due again after the delay.
    Postpone { delay: Delay, reason: ErrorText },
}

impl Settlement {
    /// Done, with no outcome to keep.
    pub const DONE: Settlement = Settlement::Finish { outcome: None };

    /// Postponed without a reason.
    pub fn postpone(delay: Delay) -> Settlement {
        Settlement::Postpone { delay, reason: ErrorText::default() }
    }
}
