//! What can be chosen about a scheduler.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::STARVING_AFTER;

use super::observer::{NoObserver, Observer};

/// What can be chosen about a scheduler.
///
/// ```
/// use ratelimiter_client::{MemoryLimiter, Scheduler, SchedulerOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let options = SchedulerOptions { queue_max: 1_000, ..SchedulerOptions::with_workers(64) };
/// let scheduler = Scheduler::with_options(MemoryLimiter::new(), options);
/// # drop(scheduler);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// How many jobs may ask the limiter or run at a time.
    pub workers: usize,
    /// How many jobs may wait for their turn; who submits more waits too.
    pub queue_max: usize,
    /// After how many denials a job goes before all others that need the same limits.
    pub starving_after: u32,
    /// By how much a wait may be longer than a denial's hint, at random, so that processes do not come back together. A
    /// short hint is at most doubled.
    pub jitter: Duration,
    /// For how long the complete of a lease is repeated when there is no answer.
    pub complete_for: Duration,
    /// Is told what happens.
    pub observer: Arc<dyn Observer>,
}

impl SchedulerOptions {
    /// The usual options, with so many workers.
    pub fn with_workers(workers: usize) -> Self {
        Self { workers, ..Self::default() }
    }
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            workers: 32,
            queue_max: 100_000,
            starving_after: STARVING_AFTER,
            jitter: Duration::from_millis(50),
            complete_for: Duration::from_secs(60),
            observer: Arc::new(NoObserver),
        }
    }
}
