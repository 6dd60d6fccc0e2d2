//! How a server that lets requests wait asks its backend.

use crate::LimitKey;

/// For whom a server asks. By default for a caller that does not wait, when nobody else does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn<'a> {
    /// Others wait for room of this limit, which the request needs too: nothing new is admitted.
    pub behind: Option<&'a LimitKey>,
    /// The caller waits, and has asked so often before. A denial is not remembered, so that the same lease may ask again, and its
    /// hint says when to ask if nothing happens before.
    pub attempt: Option<u32>,
}
