//! Outcomes of a change, and what each guarantees.
//!
//! A change can be withdrawn until it is *begun*, that is, sent to the backend. From then on it runs to its end, even if
//! its caller stops waiting, and the answer is its outcome.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ratelimiter::{DefineError, DeleteError, Unanswered};
use ratelimiter_waiting::Runtime;

use super::RETRY_AFTER;
use crate::limits_file::is_permanent;

/// Why a change was not made. Where the outcome is not known, the message says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum ChangeError<E> {
    /// The maximum number of limits is defined.
    #[error(
        "{limits_max} limits are defined, which is all that registry.limits_max allows; delete some, or raise it"
    )]
    TooManyLimits { limits_max: usize },
    /// The registry's document cannot be written.
    #[error("the registry cannot be changed through this server: {reason}")]
    ReadOnly { reason: String },
    /// The backend refused the change, or it could not be stored.
    #[error(transparent)]
    Backend(E),
}

/// Why a change was not begun, or was rolled back.
pub(super) enum ChangeRefused {
    ReadOnly { reason: String },
    Unanswered(Unanswered),
}

/// The progress of a change, shared by the task that makes it and its caller.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Progress {
    /// Marks the change as begun; it can no longer be withdrawn.
    ///
    /// # Errors
    /// It was withdrawn.
    pub(super) fn begin(&self) -> Result<(), Unanswered> {
        match self.leave_waiting(BEGUN) {
            true => Ok(()),
            false => Err(unanswered("the change was withdrawn".to_owned())),
        }
    }

    /// True if the change had not begun; it will not begin any more.
    fn withdraw(&self) -> bool {
        self.leave_waiting(WITHDRAWN)
    }

    fn leave_waiting(&self, next: u8) -> bool {
        self.0.compare_exchange(WAITING, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits for the outcome of a change. If it has not begun in time it is withdrawn; if it has, it gets the same time
    /// again to end.
    pub(super) async fn wait_for_outcome<T, E: From<Unanswered>>(
        &self,
        runtime: &dyn Runtime,
        timeout: Duration,
        change: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let mut change = std::pin::pin!(change);
        if let Some(result) = runtime.timeout(timeout, change.as_mut()).await {
            return result;
        }
        let ms = timeout.as_millis();
        if self.withdraw() {
            let reason = format!(
                "the change could not begin within {ms} ms, because of other changes or slow storage, and was withdrawn: nothing was changed, and nothing will be"
            );
            return Err(unanswered(reason).into());
        }
        runtime.timeout(timeout, change).await.unwrap_or_else(|| {
            let reason = format!(
                "the change has not ended within {ms} ms and goes on; whether it takes effect is not known yet"
            );
            Err(unanswered(reason).into())
        })
    }
}

impl ChangeRefused {
    /// `ReadOnly` if writing cannot succeed until an operator fixes the cause, otherwise `Unanswered`.
    pub(super) fn of(what: &str, error: &io::Error) -> Self {
        let reason = format!("{what}: {error}");
        if is_permanent(error) {
            return Self::ReadOnly { reason };
        }
        tracing::error!(%error, "{what}");
        Self::Unanswered(unanswered(format!("{reason}; nothing was changed")))
    }
}

impl<E: From<Unanswered>> From<ChangeRefused> for ChangeError<E> {
    fn from(refused: ChangeRefused) -> Self {
        match refused {
            ChangeRefused::ReadOnly { reason } => Self::ReadOnly { reason },
            ChangeRefused::Unanswered(unanswered) => unanswered.into(),
        }
    }
}

impl<E: From<Unanswered>> From<Unanswered> for ChangeError<E> {
    fn from(unanswered: Unanswered) -> Self {
        Self::Backend(unanswered.into())
    }
}

impl From<Unanswered> for ChangeRefused {
    fn from(unanswered: Unanswered) -> Self {
        Self::Unanswered(unanswered)
    }
}

impl From<DefineError> for ChangeError<DefineError> {
    fn from(error: DefineError) -> Self {
        Self::Backend(error)
    }
}

impl From<DeleteError> for ChangeError<DeleteError> {
    fn from(error: DeleteError) -> Self {
        Self::Backend(error)
    }
}

pub(super) fn unanswered(reason: String) -> Unanswered {
    Unanswered { reason, retry_after: RETRY_AFTER }
}
