//! Commits on their way to disk.

use crate::errors::OrRaise;
use crate::options::seconds;
use foreshore::CommitTicket;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A commit on its way to disk: wait for it, or await it.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Ticket {
    /// Taken by an await, and while a thread waits.
    inner: Mutex<Option<CommitTicket>>,
    #[pyo3(get)]
    csn: u64,
}

impl Ticket {
    pub(crate) fn new(ticket: CommitTicket) -> Self {
        let csn = ticket.csn().0;
        Self { inner: Mutex::new(Some(ticket)), csn }
    }

    /// Takes the ticket, which can be awaited once.
    pub(crate) fn take(&self) -> PyResult<CommitTicket> {
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| PyRuntimeError::new_err("the ticket is awaited, or another thread waits for it"))
    }

    fn put_back(&self, ticket: CommitTicket) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
    }

    pub(crate) const fn number(&self) -> u64 {
        self.csn
    }
}

#[pymethods]
impl Ticket {
    /// Waits until the commit is durable, at most `timeout` seconds. Returns whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let limit = timeout.map(|timeout| seconds("timeout", timeout)).transpose()?;
        let ticket = self.take()?;
        let waited = py.detach(|| match limit {
            None => ticket.wait().map(|()| true),
            Some(limit) => ticket.wait_timeout(limit),
        });
        self.put_back(ticket);
        waited.map_err(foreshore_handles::Fault::from).or_raise(py)
    }

    /// Whether the commit is durable now.
    #[getter]
    fn is_durable(&self) -> PyResult<bool> {
        let ticket = self.take()?;
        let is_durable = ticket.is_durable();
        self.put_back(ticket);
        Ok(is_durable)
    }

    fn __await__<'py>(this: Py<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let future = py.import("foreshore._aio")?.call_method1("durable", (this,))?;
        future.call_method0("__await__")
    }
}
