//! Tasks and time.
//!
//! A trait, so that the simulation runs what is shipped in virtual time.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Runs tasks, and measures time.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// Starts a task, which runs to its end even if no caller waits for it.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Starts blocking work on a thread that may block.
    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// Resolves after this time.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The tokio runtime. Only for callers that run in it.
#[derive(Debug, Clone, Copy)]
pub struct TokioRuntime;

impl dyn Runtime + '_ {
    /// Starts a task. The receiver gets its result, or an error if it panicked.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.spawn(Box::pin(async move { drop(sender.send(task.await)) }));
        receiver
    }

    /// Starts blocking work. The receiver gets its result, or an error if it panicked.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.spawn_blocking(Box::new(move || drop(sender.send(work()))));
        receiver
    }

    /// Waits at most this long; `None` after that.
    pub async fn timeout<T>(
        &self,
        after: Duration,
        wait: impl Future<Output = T> + Send,
    ) -> Option<T> {
        match select(std::pin::pin!(wait), self.sleep(after)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }
}

impl Runtime for TokioRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(work));
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(Instant::now() + duration))
    }
}
