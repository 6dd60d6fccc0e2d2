//! Options of a scheduler.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::STARVING_AFTER;

use super::observer::{NoObserver, Observer};

/// Options of a scheduler.
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
    /// How many jobs may wait; when the queue is full, `submit` waits.
    pub queue_max: usize,
    /// After how many denials a job goes first at the limits that denied it.
    pub starving_after: u32,
    /// The most random extra time on a denial's hint, so that processes do not retry together. At most the hint itself.
    pub jitter: Duration,
    /// How long the complete of a lease is retried when there is no answer.
    pub complete_for: Duration,
    /// Observes every step of every job.
    pub observer: Arc<dyn Observer>,
}

impl SchedulerOptions {
    /// The default options with this number of workers.
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
