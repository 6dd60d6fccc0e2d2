//! A reserve that waits for room.

use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pyo3::prelude::*;
use ratelimiter::{Decision, LeaseId, ReserveError};
use ratelimiter_waiting::TimedDecision;
use ratelimiter_wire::ReserveAnswer;

use crate::background::{Forks, Wakeups};
use crate::refusal::raised;

pub(crate) type Answer = Result<TimedDecision, ReserveError>;
pub(crate) type Reserving = Pin<Box<dyn Future<Output = Answer> + Send>>;
/// What Python gets of an allowed lease: its ID, the moment in Unix milliseconds, how many it waited, and the limits in shadow mode that
/// would have denied it.
pub(crate) type Allowed = (String, u64, Option<u64>, Vec<String>);

/// A reserve that waits. Whoever drops or cancels it gives up, and what it may have got meanwhile is returned.
#[pyclass(frozen, module = "ratelimiterd._native")]
pub(crate) struct Pending {
    forks: Forks,
    lease: LeaseId,
    wakeups: Wakeups,
    /// `None` once it has its answer, or has given up.
    reserving: Mutex<Option<Reserving>>,
}

impl Pending {
    pub(crate) fn new(lease: LeaseId, reserving: Reserving, wakeups: Wakeups) -> Self {
        Self { forks: Forks::now(), lease, wakeups, reserving: Mutex::new(Some(reserving)) }
    }

    /// The answer, if there is one. No Python runs with the lock held: a thread that waits for it may have Python's global lock.
    fn poll_once(&self, waker: &Waker) -> Poll<Answer> {
        let mut reserving = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        let future = reserving.as_mut().expect("it is polled until it has its answer");
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            *reserving = None;
        }
        polled
    }

    fn take(&self) -> Option<Reserving> {
        self.reserving.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Pending {
    /// The answer; `None` if there is none yet. Then `wake` is called, by another thread, when it is time to poll again.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<Option<Allowed>> {
        self.forks.check()?;
        match self.poll_once(&self.wakeups.waker(wake)) {
            Poll::Ready(answer) => allowed(py, self.lease, answer).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Gives up.
    fn cancel(&self) {
        if !self.forks.is_other() {
            drop(self.take());
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.forks.is_other() {
            // Its locks may be held by threads that are not there.
            std::mem::forget(self.take());
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// An allowed lease, or the exception of everything else.
pub(crate) fn allowed(py: Python<'_>, lease: LeaseId, answer: Answer) -> PyResult<Allowed> {
    match answer {
        Ok((Decision::Allowed { reserved_at, shadow_denied }, waited)) => {
            let waited_ms =
                waited.map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
            let shadow_denied = shadow_denied.iter().map(ToString::to_string).collect();
            Ok((lease.to_string(), reserved_at.unix_ms(), waited_ms, shadow_denied))
        }
        Ok((denied @ Decision::Denied(_), waited)) => {
            Err(raised(py, &ReserveAnswer::of(Ok(denied)).after(waited)))
        }
        Err(error) => Err(raised(py, &ReserveAnswer::of(Err(error)))),
    }
}
