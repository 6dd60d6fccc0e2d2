//! Waiting in async tests.

use std::future::pending;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::PATIENCE;

/// How often a condition is checked.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
///
/// # Panics
/// It does not within [`PATIENCE`].
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    within(what, async {
        while !holds().await {
            checks.tick().await;
        }
    })
    .await;
}

/// Waits for a future.
///
/// # Panics
/// It does not complete within [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("gave up after {PATIENCE:?}: {what}"),
    }
}

/// Lets time pass: for tests about time, and under tokio's paused clock.
pub async fn pass(span: Duration) {
    let _elapsed = timeout(span, pending::<()>()).await;
}

/// Runs a test on a runtime with several threads, so that races are real.
///
/// # Panics
/// The system starts no threads.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4).enable_all().build();
    runtime.expect("the system starts threads").block_on(test)
}
