//! What runs beside the callers: the runtime of those who wait, and the thread that wakes Python.

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use ratelimiter_waiting::{Runtime, TokioRuntime};
use tokio::runtime::{Builder, Handle};

/// How many times this process was forked, counted in the child.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The process that something belongs to. A child has the memory of its parent, but none of its threads, and would admit what
/// its parent admits too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forks(u64);

/// Runs tasks in a thread of its own, on behalf of threads that are not in a runtime.
#[derive(Debug)]
pub(crate) struct Background {
    runtime: Option<tokio::runtime::Runtime>,
    pub(crate) wakeups: Wakeups,
}

#[derive(Debug)]
struct BackgroundRuntime(Handle);

/// Calls Python when a future may be ready.
///
/// In a thread of its own: whoever wakes a future may hold a lock for which a Python thread waits.
#[derive(Debug, Clone)]
pub(crate) struct Wakeups(mpsc::Sender<Arc<Wakeup>>);

#[derive(Debug)]
struct Wakeup {
    callback: Py<PyAny>,
    wakeups: Wakeups,
}

impl Forks {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub(crate) fn note() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this is another process.
    pub(crate) fn is_other(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }

    /// # Errors
    /// This is another process.
    pub(crate) fn check(self) -> PyResult<()> {
        if !self.is_other() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this limiter was made before the process was forked, and each process would admit calls on its own; \
             make it after the fork, or connect all processes to one server",
        ))
    }
}

impl Background {
    /// # Errors
    /// The system starts no more threads.
    pub(crate) fn start() -> PyResult<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("ratelimiter").enable_time().build();
        let (sender, receiver) = mpsc::channel();
        let wake = thread::Builder::new().name("ratelimiter-wake".to_owned());
        wake.spawn(move || wake_python(&receiver)).map_err(PyOSError::new_err)?;
        Ok(Self { runtime: Some(runtime.map_err(PyOSError::new_err)?), wakeups: Wakeups(sender) })
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        let runtime = self.runtime.as_ref().expect("it runs until this is dropped");
        Arc::new(BackgroundRuntime(runtime.handle().clone()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Runtime for BackgroundRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.0.spawn(task));
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(work));
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Polled by a task of the runtime, which has the timer.
        Box::pin(async move { TokioRuntime.sleep(duration).await })
    }
}

impl Wakeups {
    /// A waker that has this called.
    pub(crate) fn waker(&self, callback: Py<PyAny>) -> Waker {
        Arc::new(Wakeup { callback, wakeups: self.clone() }).into()
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        let Wakeups(sender) = self.wakeups.clone();
        // Without a thread, the limiter is gone.
        drop(sender.send(self));
    }
}

/// Calls Python until the limiter or the interpreter ends.
fn wake_python(receiver: &mpsc::Receiver<Arc<Wakeup>>) {
    while let Ok(first) = receiver.recv() {
        let attached = Python::try_attach(|py| {
            for wakeup in iter::once(first).chain(receiver.try_iter()) {
                if let Err(error) = wakeup.callback.call0(py) {
                    error.write_unraisable(py, Some(wakeup.callback.bind(py)));
                }
            }
        });
        if attached.is_none() {
            return;
        }
    }
}
