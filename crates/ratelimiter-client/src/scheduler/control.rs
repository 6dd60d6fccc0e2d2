//! Cancellation of a job by its owner.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

/// Notifies a job's scheduler that its owner has cancelled it.
type OnCancel = Arc<dyn Fn() + Send + Sync>;

/// Shared by a job and its handle.
#[derive(Default)]
pub(super) struct Control {
    cancelled: CancellationToken,
    /// Of the scheduler that has the job; changes when the job is handed back and resubmitted.
    on_cancel: Mutex<Option<OnCancel>>,
}

impl Control {
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
        // Called without this lock, because it takes the scheduler's.
        let on_cancel = self.on_cancel.lock().expect("no panic with the lock held").clone();
        if let Some(on_cancel) = on_cancel {
            on_cancel();
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    pub(super) fn token(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    pub(super) fn attach(&self, on_cancel: impl Fn() + Send + Sync + 'static) {
        let mut current = self.on_cancel.lock().expect("no panic with the lock held");
        *current = Some(Arc::new(on_cancel));
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
