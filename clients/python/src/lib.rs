//! The native half of the Python package `ratelimiterd`: the memory backend, with waiting, in the caller's process.
//!
//! What is Python's, such as coroutines, context managers and exceptions, is written in Python (`python/ratelimiterd`).

mod arguments;
mod background;
mod in_process;
mod pending;
mod refusal;

use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{LeaseId, RESERVE_WAIT_MAX, admission};

use crate::background::Forks;
use crate::in_process::InProcess;
use crate::pending::Pending;

/// The random part of a lease ID, and where it begins in its 16 bytes.
const RANDOM_BITS: u32 = 80;
const RANDOM_AT: usize = 6;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("WAIT_SECONDS_MAX", RESERVE_WAIT_MAX.as_secs())?;
    module.add_class::<InProcess>()?;
    module.add_class::<Pending>()?;
    module.add_function(wrap_pyfunction!(check_lease_id, module)?)?;
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

/// A lease ID as the limiter writes it; raises if it is none.
#[pyfunction]
fn check_lease_id(py: Python<'_>, lease_id: &str) -> PyResult<String> {
    arguments::lease_id(py, lease_id).map(|lease| lease.to_string())
}

/// A new lease ID, for a server.
#[pyfunction]
fn new_lease_id() -> PyResult<String> {
    new_lease(MonotonicClock::new().now()).map(|lease| lease.to_string())
}

/// A new lease ID. Its random part is the system's, since any other generator has the same state in all forks of a process.
fn new_lease(now: Timestamp) -> PyResult<LeaseId> {
    let mut random = [0; 16];
    getrandom::fill(&mut random[RANDOM_AT..])
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    let time = u128::from(now.unix_ms()) << RANDOM_BITS;
    Ok(LeaseId::from_u128(time | u128::from_be_bytes(random)))
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
