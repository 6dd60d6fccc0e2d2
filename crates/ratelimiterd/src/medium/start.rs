//! Ownership at the start of a server, when the lock of its predecessor may not have ended yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval};

use super::Lock;
use crate::limits_file::OwnError;

/// Interval of the attempts.
pub(super) const OWN_RETRY_EVERY: Duration = Duration::from_millis(100);

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

    pub(super) async fn own<'a>(
        &self,
        try_own: impl Fn() -> BoxFuture<'a, Result<Lock, OwnError>>,
    ) -> Result<Lock, OwnError> {
        let is_start = !self.has_asked.swap(true, Ordering::Relaxed);
        let attempts_max = if is_start { self.attempts_max } else { 1 };
        let mut attempts = interval(OWN_RETRY_EVERY);
        attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 1..attempts_max {
            attempts.tick().await;
            match try_own().await {
                Err(OwnError::InUse { .. }) => {}
                owned => return owned,
            }
        }
        attempts.tick().await;
        try_own().await
    }
}
