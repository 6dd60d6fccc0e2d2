//! A timer for deadlines that are set often and rarely reached.
//!
//! hyper sets a deadline for the head of each HTTP/1.1 request and cancels it a moment later. Each new timer takes a lock
//! in the runtime, so a connection keeps one timer and re-arms it only when it fires early.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::time::sleep_until;

/// The timer of one connection.
#[derive(Clone, Default)]
pub(super) struct LazyTimer {
    /// `None` until the first deadline is polled. When it fires, the waiting deadline checks its own time.
    shared_sleep: Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>,
}

struct Deadline {
    at: Instant,
    timer: LazyTimer,
}

impl Timer for LazyTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Deadline { at: deadline, timer: self.clone() })
    }

    fn now(&self) -> Instant {
        // Follows tokio's paused time in tests.
        tokio::time::Instant::now().into()
    }
}

impl Sleep for Deadline {}

impl Future for Deadline {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shared_sleep =
            self.timer.shared_sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tokio::time::Instant::from_std(self.at);
        let shared_sleep = shared_sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // It must never fire too late; firing too early is corrected below.
        if shared_sleep.deadline() > at {
            shared_sleep.as_mut().reset(at);
        }
        while shared_sleep.as_mut().poll(context).is_ready() {
            if shared_sleep.deadline() == at {
                return Poll::Ready(());
            }
            shared_sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn elapsed_of(deadline: Pin<Box<dyn Sleep>>, timer: &LazyTimer) -> Duration {
        let before = timer.now();
        deadline.await;
        timer.now() - before
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_kept() {
        let timer = LazyTimer::default();
        assert_eq!(elapsed_of(timer.sleep(SECOND), &timer).await, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_deadline_does_not_end_when_an_earlier_one_would_have() {
        let timer = LazyTimer::default();
        let mut first = timer.sleep(SECOND);
        assert!(tokio::time::timeout(Duration::ZERO, &mut first).await.is_err());
        drop(first);
        assert_eq!(elapsed_of(timer.sleep(3 * SECOND), &timer).await, 3 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_does_not_wait_for_a_later_one() {
        let timer = LazyTimer::default();
        let mut first = timer.sleep(3 * SECOND);
        assert!(tokio::time::timeout(Duration::ZERO, &mut first).await.is_err());
        drop(first);
        assert_eq!(elapsed_of(timer.sleep(SECOND), &timer).await, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_in_the_past_is_ready_at_once() {
        let timer = LazyTimer::default();
        let past = timer.now();
        timer.sleep(SECOND).await;
        assert_eq!(elapsed_of(timer.sleep_until(past), &timer).await, Duration::ZERO);
    }
}
