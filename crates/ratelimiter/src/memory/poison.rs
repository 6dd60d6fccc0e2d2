//! Poisoning after a panic.
//!
//! A request reads its clock, and does everything else that may panic without a bug in this crate, before its first change, so that a
//! panic there changes nothing. A panic during a change is a bug: the state may be half-updated, so every later call fails with the
//! reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::Unanswered;

/// When to retry; a supervisor may have restarted the process by then.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Set once a thread has panicked during a change: the state cannot be trusted.
#[derive(Debug, Default)]
pub(super) struct PoisonFlag {
    is_set: AtomicBool,
}

/// A change in progress. It is created after the locks of what it changes and dropped before them, so that a later holder of a lock
/// sees whether the change was interrupted.
#[derive(Debug)]
#[must_use]
pub(super) struct ChangeGuard<'a> {
    poison: &'a PoisonFlag,
    /// The thread may already be unwinding, and call the limiter from a destructor.
    was_panicking: bool,
}

impl PoisonFlag {
    /// # Errors
    /// The state cannot be trusted.
    #[inline]
    pub(super) fn check(&self) -> Result<(), Unanswered> {
        if self.is_set.load(Ordering::Acquire) { Err(poisoned_error()) } else { Ok(()) }
    }

    /// Begins a change. The locks of all that is changed are held.
    ///
    /// # Errors
    /// The state cannot be trusted.
    #[inline]
    pub(super) fn begin_change(&self) -> Result<ChangeGuard<'_>, Unanswered> {
        self.check()?;
        Ok(ChangeGuard { poison: self, was_panicking: thread::panicking() })
    }
}

impl Drop for ChangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.was_panicking && thread::panicking() {
            self.poison.is_set.store(true, Ordering::Release);
        }
    }
}

#[cold]
fn poisoned_error() -> Unanswered {
    let reason = "the limiter panicked while updating its state, so the state cannot be trusted; \
                  restart it";
    Unanswered { reason: reason.to_owned(), retry_after: RETRY_AFTER }
}
