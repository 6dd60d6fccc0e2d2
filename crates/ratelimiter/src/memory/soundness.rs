//! Whether the state may be trusted.
//!
//! A request reads its clock, and whatever else may panic without being our mistake, before its first change, so that a panic there
//! leaves everything as it was. A panic in the midst of a change is a mistake of ours: nobody knows which half was done, and from
//! then on the limiter answers nothing, and says why.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Unanswered;

/// When to ask again; whoever watches over the process has replaced it by then.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether the state may be trusted: no more once a thread has panicked in the midst of a change.
#[derive(Debug, Default)]
pub(super) struct Soundness {
    is_broken: AtomicBool,
}

/// A change under way. It is made after the locks of what it changes and dropped before them, so that whoever has a lock sees whether the
/// change before it came to its end.
#[derive(Debug)]
#[must_use]
pub(super) struct Change<'a> {
    soundness: &'a Soundness,
    /// The thread may be unwinding already, and call us from a destructor.
    was_panicking: bool,
}

impl Soundness {
    /// # Errors
    /// The state cannot be trusted.
    #[inline]
    pub(super) fn check(&self) -> Result<(), Unanswered> {
        if self.is_broken.load(Ordering::Acquire) { Err(broken()) } else { Ok(()) }
    }

    /// Begins a change. The locks of all that is changed are held.
    ///
    /// # Errors
    /// The state cannot be trusted.
    #[inline]
    pub(super) fn begin_change(&self) -> Result<Change<'_>, Unanswered> {
        self.check()?;
        Ok(Change { soundness: self, was_panicking: thread::panicking() })
    }
}

impl Drop for Change<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.was_panicking && thread::panicking() {
            self.soundness.is_broken.store(true, Ordering::Release);
        }
    }
}

#[cold]
fn broken() -> Unanswered {
    let reason = "the limiter panicked in the midst of a change, so its state cannot be trusted; \
                  it must be started anew";
    Unanswered { reason: reason.to_owned(), retry_after: RETRY_AFTER }
}

/// The guard of a lock, whether or not a thread has panicked while it had it: what that means for the state, [`Soundness`] tells.
#[inline]
pub(super) fn guard<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
