//! The limiter of one process.

use std::ffi::CString;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::executor::block_on;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ratelimiter::clock::MonotonicClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    CompleteRequest, MemoryLimiter, Page, RenewNumber, RenewRequest, Renewal, ReserveRequest,
};
use ratelimiter_waiting::Waiting;
use ratelimiter_wire::{
    CompleteAnswer, DefineAnswer, DefineRequest, DeleteAnswer, ErrorCode, LimitsDocument,
    ListAnswer, Refusal, RenewAnswer, StateBody, read_define,
};
use tokio::sync::Notify;

use crate::arguments;
use crate::background::{Background, Forks};
use crate::new_lease;
use crate::pending::{Pending, Reserving, allowed};
use crate::refusal::{raised, refused};

/// As `server.waiters_max` of a server.
const WAITERS_MAX: usize = 10_000;

/// The caller of `in_process`, above what is between.
const WARNED_LEVEL: i32 = 3;

/// A memory backend whose reserves may wait.
#[pyclass(frozen, module = "ratelimiterd._native")]
#[derive(Debug)]
pub(crate) struct InProcess {
    forks: Forks,
    /// There until this is dropped.
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    limiter: MemoryLimiter,
    waiting: Arc<Waiting<MemoryLimiter>>,
    limits_changed: Arc<Notify>,
    background: Background,
}

#[pymethods]
impl InProcess {
    /// A limiter with the limits of a limits file, whose content this is.
    #[new]
    fn new(py: Python<'_>, limits: &[u8]) -> PyResult<Self> {
        let LimitsDocument { registry, notes, .. } =
            LimitsDocument::read(limits).map_err(|errors| {
                let error = ErrorCode::InvalidRequest { field: "limits".to_owned() };
                refused(py, Refusal { error, message: errors.to_string() })
            })?;
        for note in notes {
            let note = CString::new(format!("limits: {note}"))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &note, WARNED_LEVEL)?;
        }
        let limiter = MemoryLimiter::with_options(MemoryOptions::default());
        for registered in registry.iter() {
            limiter.restore(registered.clone());
        }
        let background = Background::start()?;
        let limits_changed = Arc::new(Notify::new());
        let waiting = Arc::new(Waiting::new(
            Arc::new(limiter.clone()),
            Arc::new(MonotonicClock::new()),
            &background.runtime(),
            WAITERS_MAX,
            Arc::clone(&limits_changed),
        ));
        let parts = Parts { limiter, waiting, limits_changed, background };
        Ok(Self { forks: Forks::now(), parts: Some(parts) })
    }

    /// Reserves. The result is of an allowed lease; a [`Pending`] if it waits.
    #[pyo3(signature = (amounts, lease_id, wait_ms, queue, job_id))]
    fn reserve<'py>(
        &self,
        py: Python<'py>,
        amounts: &Bound<'py, PyDict>,
        lease_id: Option<&str>,
        wait_ms: Option<u64>,
        queue: &str,
        job_id: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Parts { limiter, waiting, background, .. } = self.parts()?;
        let lease = match lease_id {
            Some(text) => arguments::lease_id(py, text)?,
            None => new_lease(limiter.now())?,
        };
        let request = ReserveRequest {
            lease,
            job: arguments::job_id(py, job_id)?,
            requirements: arguments::requirements(amounts)?,
            wait: arguments::wait(py, wait_ms, queue)?,
        };
        let waiting = Arc::clone(waiting);
        let mut reserving: Reserving = Box::pin(async move { waiting.reserve(&request).await });
        match reserving.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => allowed(py, lease, answer)?.into_bound_py_any(py),
            Poll::Pending => {
                Pending::new(lease, reserving, background.wakeups.clone()).into_bound_py_any(py)
            }
        }
    }

    /// Completes a lease.
    #[pyo3(signature = (lease_id, actuals, job_id))]
    fn complete(
        &self,
        py: Python<'_>,
        lease_id: &str,
        actuals: Option<&Bound<'_, PyDict>>,
        job_id: Option<&str>,
    ) -> PyResult<()> {
        let request = CompleteRequest {
            lease: arguments::lease_id(py, lease_id)?,
            job: arguments::job_id(py, job_id)?,
            actuals: arguments::actuals(actuals)?,
        };
        let completed = finish(py, self.parts()?.waiting.complete(&request));
        completed.map_err(|error| raised(py, &CompleteAnswer::of(Err(error))))
    }

    /// Renews a lease. The result is until when it can be renewed again, in Unix milliseconds.
    fn renew(
        &self,
        py: Python<'_>,
        lease_id: &str,
        number: u64,
        amounts: &Bound<'_, PyDict>,
    ) -> PyResult<u64> {
        let request = RenewRequest {
            lease: arguments::lease_id(py, lease_id)?,
            number: RenewNumber::new(number).map_err(|error| refused(py, error.into()))?,
            amounts: arguments::new_amounts(amounts)?,
        };
        match finish(py, self.parts()?.waiting.renew(&request)) {
            Ok(Renewal::Renewed { lapses_at, .. }) => Ok(lapses_at.unix_ms()),
            answer @ (Ok(Renewal::Denied(_)) | Err(_)) => Err(raised(py, &RenewAnswer::of(answer))),
        }
    }

    /// Defines one limit or a list of them, given as the HTTP API takes them.
    fn define(&self, py: Python<'_>, definitions: &[u8]) -> PyResult<()> {
        let Parts { limiter, limits_changed, .. } = self.parts()?;
        let limits = match read_define(definitions).map_err(|refusal| refused(py, refusal))? {
            DefineRequest::One(limit) => vec![*limit],
            DefineRequest::Many(limits) => limits,
        };
        let defined = py.detach(|| {
            limiter.check_definitions(&limits)?;
            limits.into_iter().try_for_each(|limit| limiter.define_now(limit).map(drop))
        });
        defined.map_err(|error| raised(py, &DefineAnswer::of(Err(error))))?;
        limits_changed.notify_one();
        Ok(())
    }

    /// Deletes a limit.
    fn delete(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        let Parts { limiter, limits_changed, .. } = self.parts()?;
        let key = arguments::key(py, key)?;
        limiter.delete_now(&key).map_err(|error| raised(py, &DeleteAnswer::of(Err(error))))?;
        limits_changed.notify_one();
        Ok(())
    }

    /// The limits whose keys begin so, as the HTTP API lists them: those that are defined, or that were made from a template.
    #[pyo3(signature = (prefix, template))]
    fn limits(&self, py: Python<'_>, prefix: String, template: Option<&str>) -> PyResult<String> {
        let template = template.map(|text| arguments::template(py, text)).transpose()?;
        let page = Page { prefix, template, ..Page::default() };
        let limiter = &self.parts()?.limiter;
        Ok(py.detach(|| {
            let states = limiter.states_now(&page);
            let list = ListAnswer { limits: states.iter().map(StateBody::from).collect() };
            serde_json::to_string(&list).expect("answers have text and numbers only")
        }))
    }

    /// How many requests wait.
    fn waiters(&self) -> PyResult<usize> {
        Ok(self.parts()?.waiting.count())
    }
}

impl InProcess {
    fn parts(&self) -> PyResult<&Parts> {
        self.forks.check()?;
        Ok(self.parts.as_ref().expect("they are there until this is dropped"))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if self.forks.is_other() {
            // Locks may be held by threads that are not there.
            std::mem::forget(self.parts.take());
        }
    }
}

/// The result of what is nearly always ready at once.
fn finish<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => py.detach(|| block_on(future)),
    }
}
