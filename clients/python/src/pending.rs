//! A reserve that waits for room.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

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
#[derive(Debug)]
pub(crate) struct Pending {
    forks: Forks,
    lease: LeaseId,
    wakeups: Wakeups,
    reserving: Mutex<Option<ReservingDebug>>,
}

/// Has no more to show.
struct ReservingDebug(Reserving);

impl Pending {
    pub(crate) fn new(lease: LeaseId, reserving: Reserving, wakeups: Wakeups) -> Self {
        let reserving = Mutex::new(Some(ReservingDebug(reserving)));
        Self { forks: Forks::now(), lease, wakeups, reserving }
    }

    fn take(&self) -> Option<ReservingDebug> {
        self.reserving.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Pending {
    /// The answer; `None` if there is none yet. Then `wake` is called, by another thread, when it is time to poll again.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<Option<Allowed>> {
        self.forks.check()?;
        let mut reserving = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        let future = reserving.as_mut().expect("it is polled until it has its answer");
        let waker = self.wakeups.waker(wake);
        match future.0.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => {
                *reserving = None;
                allowed(py, self.lease, answer).map(Some)
            }
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

impl std::fmt::Debug for ReservingDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reserving")
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
