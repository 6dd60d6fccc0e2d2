//! The native half of the Python package `ratelimiterd`: the memory backend, with waiting, in the caller's process.
//!
//! What is Python's, such as coroutines, context managers and exceptions, is written in Python (`python/ratelimiterd`).

mod arguments;
mod background;
mod in_process;
mod pending;
mod refusal;

use std::time::Duration;

use pyo3::prelude::*;
use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, RESERVE_WAIT_MAX, admission};

use crate::background::Forks;
use crate::in_process::InProcess;
use crate::pending::Pending;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("WAIT_SECONDS_MAX", RESERVE_WAIT_MAX.as_secs())?;
    module.add_class::<InProcess>()?;
    module.add_class::<Pending>()?;
    module.add_function(wrap_pyfunction!(check_queue, module)?)?;
    module.add_function(wrap_pyfunction!(new_lease_id, module)?)?;
    module.add_function(wrap_pyfunction!(no_answer_pause, module)?)?;
    module.add_function(wrap_pyfunction!(note_fork, module)?)
}

/// Raises if this cannot be the name of a queue. A server of the first edition would refuse any.
#[pyfunction]
fn check_queue(py: Python<'_>, queue: &str) -> PyResult<()> {
    arguments::wait(py, None, queue).map(drop)
}

/// A new lease ID, for a server.
#[pyfunction]
fn new_lease_id() -> String {
    LeaseId::generate(MonotonicClock::new().now()).to_string()
}

/// The pause in seconds after so many requests in a row without an answer.
#[pyfunction]
fn no_answer_pause(count: u32, retry_after: f64, jitter: f64) -> f64 {
    let retry_after = Duration::try_from_secs_f64(retry_after).unwrap_or(admission::WAIT_MAX);
    admission::no_answer_pause(count, retry_after, jitter).as_secs_f64()
}

/// Called in a child process after a fork: it has none of the threads.
#[pyfunction]
fn note_fork() {
    Forks::note();
}
