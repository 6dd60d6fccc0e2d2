//! What becomes of claimed messages.

use crate::{Delay, ErrorText, Payload};

/// What becomes of claimed messages: how [`Outbox::settle`](crate::Outbox::settle) and
/// [`Inbox::settle`](crate::Inbox::settle) end a claim.
///
/// An error or a reason is kept as the last error; an empty one keeps the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Settlement {
    /// They are done. An outbox keeps the outcome, to be read with
    /// [`record`](crate::Outbox::record) until it is purged; an inbox does not.
    Finish { outcome: Option<Payload> },
    /// An attempt failed, which counts whether or not it was said to begin. They are due again after
    /// the delay, in the outbox with one more retry.
    Retry { delay: Delay, error: ErrorText },
    /// They have failed for good.
    Fail { error: ErrorText },
    /// They were not tried: neither a retry nor an attempt that began is counted. They are due again
    /// after the delay.
    PutOff { delay: Delay, reason: ErrorText },
}

impl Settlement {
    /// Done, with no outcome to keep.
    pub const DONE: Settlement = Settlement::Finish { outcome: None };

    /// Put off for no reason that is worth keeping.
    pub fn put_off(delay: Delay) -> Settlement {
        Settlement::PutOff { delay, reason: ErrorText::default() }
    }
}
