//! Exceptions. Python makes them from an answer of the HTTP API, so that they are the same in process and from a server.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use ratelimiter_wire::Refusal;
use serde::Serialize;

/// The Python function that makes an exception from an answer.
static FROM_JSON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an answer that does not allow what was asked.
pub(crate) fn raised(py: Python<'_>, answer: &impl Serialize) -> PyErr {
    let json = serde_json::to_string(answer).expect("answers have text and numbers only");
    let made = FROM_JSON
        .get_or_try_init(py, || {
            let errors = py.import("ratelimiterd._answers")?;
            Ok::<_, PyErr>(errors.getattr("error_from_json")?.unbind())
        })
        .and_then(|from_json| from_json.call1(py, (json,)));
    match made {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(error) => error,
    }
}

/// The exception for a malformed request.
pub(crate) fn refused(py: Python<'_>, refusal: Refusal) -> PyErr {
    let Refusal { error, message } = refusal;
    raised(py, &ratelimiter_wire::ErrorBody { error, message })
}
