//! Commits on their way to disk.

use crate::errors::{OrRaise, detached};
use crate::options::seconds;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A commit on its way to disk: wait for it, or await it.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Ticket {
    /// Taken by an await. Threads that wait share it.
    inner: Mutex<Option<Arc<foreshore_handles::Ticket>>>,
    /// Whether the await has found the commit durable.
    is_durable: Arc<AtomicBool>,
    #[pyo3(get)]
    csn: u64,
    /// The LSN of the commit record: a restore up to it has this commit.
    #[pyo3(get)]
    record_lsn: u64,
}

fn awaited() -> PyErr {
    PyRuntimeError::new_err("the ticket is awaited, or another thread waits for it")
}

impl Ticket {
    pub(crate) fn new(ticket: foreshore_handles::Ticket) -> Self {
        let (csn, record_lsn) = (ticket.number(), ticket.record_lsn());
        Self { inner: Mutex::new(Some(Arc::new(ticket))), is_durable: Arc::default(), csn, record_lsn }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<foreshore_handles::Ticket>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the ticket, which can be awaited once. The flag is to tell whether the commit is durable.
    pub(crate) fn take(&self) -> PyResult<(foreshore_handles::Ticket, Arc<AtomicBool>)> {
        let mut inner = self.lock();
        match Arc::try_unwrap(inner.take().ok_or_else(awaited)?) {
            Ok(ticket) => Ok((ticket, Arc::clone(&self.is_durable))),
            Err(shared) => {
                *inner = Some(shared);
                Err(awaited())
            }
        }
    }

    /// Returns the ticket for a wait for the disk, also if the commit is relaxed.
    fn hardened(&self) -> PyResult<Arc<foreshore_handles::Ticket>> {
        let mut inner = self.lock();
        let ticket = match Arc::try_unwrap(inner.take().ok_or_else(awaited)?) {
            Ok(ticket) => Arc::new(ticket.harden()),
            // The thread that waits has hardened it.
            Err(shared) => shared,
        };
        *inner = Some(Arc::clone(&ticket));
        Ok(ticket)
    }

    pub(crate) const fn number(&self) -> u64 {
        self.csn
    }
}

#[pymethods]
impl Ticket {
    /// Waits until the commit is durable, also if it is relaxed, and at most `timeout` seconds. Returns whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let limit = timeout.map(|timeout| seconds("timeout", timeout)).transpose()?;
        let ticket = self.hardened()?;
        detached(py, || ticket.wait(limit))
    }

    /// Whether the commit is durable now.
    #[getter]
    fn is_durable(&self, py: Python<'_>) -> PyResult<bool> {
        match &*self.lock() {
            Some(ticket) => ticket.is_durable().or_raise(py),
            // ORDERING: flag - it stands for the commit alone.
            None => Ok(self.is_durable.load(Ordering::Relaxed)),
        }
    }

    fn __await__<'py>(this: Py<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let future = py.import("foreshore._aio")?.call_method1("durable", (this,))?;
        future.call_method0("__await__")
    }
}
