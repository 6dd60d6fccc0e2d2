//! Python values as requests. What is wrong is refused as the server refuses it.

use std::num::NonZeroU64;
use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ratelimiter::{
    Actual, Actuals, JobId, KeyPattern, LeaseId, LimitKey, NewAmount, NewAmounts, RequestError,
    Requirement, Requirements, Wait,
};
use ratelimiter_wire::{ErrorCode, Refusal};

use crate::refusal::refused;

pub(crate) fn lease_id(py: Python<'_>, text: &str) -> PyResult<LeaseId> {
    text.parse().map_err(|error| invalid(py, "lease_id", &error))
}

pub(crate) fn key(py: Python<'_>, text: &str) -> PyResult<LimitKey> {
    LimitKey::new(text).map_err(|error| invalid(py, "key", &error))
}

pub(crate) fn template(py: Python<'_>, text: &str) -> PyResult<KeyPattern> {
    text.parse().map_err(|error| invalid(py, "template", &error))
}

pub(crate) fn job_id(py: Python<'_>, text: Option<&str>) -> PyResult<Option<JobId>> {
    text.map(JobId::new).transpose().map_err(|error| refused(py, error.into()))
}

pub(crate) fn wait(py: Python<'_>, wait_ms: Option<u64>, queue: &str) -> PyResult<Option<Wait>> {
    let wait = Wait::new(Duration::from_millis(wait_ms.unwrap_or(0)), queue);
    let wait = wait.map_err(|error| refused(py, error.into()))?;
    Ok(wait_ms.map(|_| wait))
}

pub(crate) fn requirements(amounts: &Bound<'_, PyDict>) -> PyResult<Requirements> {
    let py = amounts.py();
    let requirement = |at: usize, key: LimitKey, amount: u64| {
        let Some(amount) = NonZeroU64::new(amount) else {
            let field = format!("requirements[{at}].amount");
            return Err(invalid(py, &field, &RequestError::AmountZero { key }));
        };
        Ok(Requirement { key, amount })
    };
    let requirements = entries(amounts, "requirements", "amount", requirement)?;
    let template = requirements.iter().position(|requirement| requirement.key.is_template());
    Requirements::new(requirements).map_err(|error| match (&error, template) {
        (RequestError::TemplateKey { .. }, Some(at)) => {
            invalid(py, &format!("requirements[{at}].key"), &error)
        }
        _ => refused(py, error.into()),
    })
}

pub(crate) fn actuals(amounts: Option<&Bound<'_, PyDict>>) -> PyResult<Actuals> {
    let Some(amounts) = amounts else { return Ok(Actuals::none()) };
    let actual = |_, key, amount| Ok(Actual { key, amount });
    let actuals = entries(amounts, "actuals", "actual_amount", actual)?;
    Actuals::new(actuals).map_err(|error| refused(amounts.py(), error.into()))
}

pub(crate) fn new_amounts(amounts: &Bound<'_, PyDict>) -> PyResult<NewAmounts> {
    let amount = |_, key, amount| Ok(NewAmount { key, amount });
    let new = entries(amounts, "amounts", "amount", amount)?;
    NewAmounts::new(new).map_err(|error| refused(amounts.py(), error.into()))
}

/// What a dict has, with its positions.
fn entries<T>(
    amounts: &Bound<'_, PyDict>,
    list: &str,
    field: &str,
    entry: impl Fn(usize, LimitKey, u64) -> PyResult<T>,
) -> PyResult<Box<[T]>> {
    let py = amounts.py();
    let mut all = Vec::with_capacity(amounts.len());
    for (at, (key, amount)) in amounts.iter().enumerate() {
        let key = LimitKey::new(key.extract::<&str>()?)
            .map_err(|error| invalid(py, &format!("{list}[{at}].key"), &error))?;
        let amount = amount.extract::<u64>().map_err(|error| {
            if !error.is_instance_of::<PyOverflowError>(py) {
                return error;
            }
            let range = format!("the amount of {key} is 0 to {}, not {amount}", u64::MAX);
            invalid(py, &format!("{list}[{at}].{field}"), &range)
        })?;
        all.push(entry(at, key, amount)?);
    }
    Ok(all.into())
}

fn invalid(py: Python<'_>, field: &str, message: &dyn std::fmt::Display) -> PyErr {
    let error = ErrorCode::InvalidRequest { field: field.to_owned() };
    refused(py, Refusal { error, message: message.to_string() })
}
