//! How an owner's cancel reaches its job, wherever it is.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use ratelimiter::admission::WaiterId;
use tokio_util::sync::CancellationToken;

/// A job's scheduler, as far as a handle needs it.
pub(super) trait Home: Send + Sync {
    /// The owner has cancelled the job: if it waits, it ends now.
    fn job_was_cancelled(self: Arc<Self>, waiter: WaiterId);
}

/// Shared by a job and its handle.
#[derive(Default)]
pub(super) struct Control {
    cancelled: CancellationToken,
    /// Where the job is. A job that was handed back and submitted again has another home.
    home: Mutex<Option<(Weak<dyn Home>, WaiterId)>>,
}

impl Control {
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
        let home = self.home.lock().expect("nobody panics with the lock held").clone();
        if let Some((home, waiter)) = home
            && let Some(home) = home.upgrade()
        {
            home.job_was_cancelled(waiter);
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    pub(super) fn token(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    pub(super) fn moves_to(&self, home: Weak<dyn Home>, waiter: WaiterId) {
        let mut place = self.home.lock().expect("nobody panics with the lock held");
        *place = Some((home, waiter));
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
