//! Ownership at the start of a server, when the lock of its predecessor may not have ended yet.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval};

use super::Lock;
use crate::limits_file::OwnError;

/// Interval of the attempts.
pub(super) const OWN_RETRY_EVERY: Duration = Duration::from_millis(100);

/// The answer to an attempt; it goes on with a refusal whose reason may end by itself.
pub(super) type Attempt = ControlFlow<Result<Lock, OwnError>, OwnError>;

/// How often a server asks for the ownership at its start; later on it asks once.
#[derive(Debug)]
pub(super) struct StartAttempts {
    attempts_max: usize,
    has_asked: AtomicBool,
}

impl StartAttempts {
    pub(super) const fn new(attempts_max: usize) -> Self {
        Self { attempts_max, has_asked: AtomicBool::new(false) }
    }

    /// Asks until an attempt is final.
    pub(super) async fn own<'a>(
        &self,
        try_own: impl Fn() -> BoxFuture<'a, Attempt>,
    ) -> Result<Lock, OwnError> {
        let is_start = !self.has_asked.swap(true, Ordering::Relaxed);
        let attempts_max = if is_start { self.attempts_max } else { 1 };
        let mut attempts = interval(OWN_RETRY_EVERY);
        attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut attempt_count = 0;
        loop {
            attempts.tick().await;
            attempt_count += 1;
            match try_own().await {
                Attempt::Break(owned) => return owned,
                Attempt::Continue(refusal) if attempt_count >= attempts_max => return Err(refusal),
                Attempt::Continue(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;

    use super::*;

    fn in_use() -> OwnError {
        OwnError::in_use_by(None)
    }

    /// How often a server asks, if its attempt with this number is final.
    async fn asked(starts: &StartAttempts, final_at: usize) -> usize {
        let attempts = AtomicUsize::new(0);
        let owned = starts.own(|| {
            let number = 1 + attempts.fetch_add(1, Ordering::Relaxed);
            let attempt = match number == final_at {
                true => Attempt::Break(Err(in_use())),
                false => Attempt::Continue(in_use()),
            };
            async { attempt }.boxed()
        });
        assert!(matches!(owned.await, Err(OwnError::InUse { .. })));
        attempts.into_inner()
    }

    /// OPS-06: a lock that may end by itself is waited for, at the start only.
    #[tokio::test(start_paused = true)]
    async fn ops_06_a_start_asks_until_an_attempt_is_final() {
        let starts = StartAttempts::new(5);
        assert_eq!(asked(&starts, usize::MAX).await, 5);
        assert_eq!(asked(&starts, usize::MAX).await, 1, "it runs already");
        assert_eq!(asked(&StartAttempts::new(5), 2).await, 2);
    }
}
