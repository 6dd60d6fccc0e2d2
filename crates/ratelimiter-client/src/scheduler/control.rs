//! How an owner's cancel reaches its job, wherever it is.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

/// Tells a job's scheduler that its owner has cancelled it: if it waits, it ends now.
type OnCancel = Arc<dyn Fn() + Send + Sync>;

/// Shared by a job and its handle.
#[derive(Default)]
pub(super) struct Control {
    cancelled: CancellationToken,
    /// Of the scheduler where the job is. One that was handed back and submitted again has another.
    on_cancel: Mutex<Option<OnCancel>>,
}

impl Control {
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
        // Not called with the lock held: it takes the scheduler's.
        let on_cancel = self.on_cancel.lock().expect("nobody panics with the lock held").clone();
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

    pub(super) fn moves_to(&self, on_cancel: impl Fn() + Send + Sync + 'static) {
        let mut place = self.on_cancel.lock().expect("nobody panics with the lock held");
        *place = Some(Arc::new(on_cancel));
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
