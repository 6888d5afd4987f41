//! Completed commits, for an event loop.

use crate::errors::{OrRaise, detached, instance};
use crate::ticket::Ticket;
use pyo3::prelude::*;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Commits that have completed, behind one descriptor that an event loop watches.
#[pyclass(frozen, module = "foreshore._foreshore")]
pub(crate) struct Queue {
    inner: foreshore_handles::Queue<(u64, u64)>,
}

/// A tag, the number of its commit, and the exception if it is not durable.
type Completed<'py> = (u64, u64, Option<Bound<'py, PyAny>>);

#[pymethods]
impl Queue {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self { inner: foreshore_handles::Queue::new().or_raise(py)? })
    }

    fn fileno(&self) -> RawFd {
        self.inner.fd()
    }

    /// Adds `tag` to the queue when the commit is durable, or cannot be.
    fn add(&self, py: Python<'_>, ticket: &Ticket, tag: u64) -> PyResult<()> {
        self.inner.check().or_raise(py)?;
        let (number, (ticket, is_durable), queue) = (ticket.number(), ticket.take()?, self.inner.clone());
        let complete = move |durable: foreshore_handles::Result<()>| {
            // ORDERING: flag - it stands for the commit alone.
            is_durable.store(durable.is_ok(), Ordering::Relaxed);
            queue.push(((tag, number), durable));
        };
        detached(py, || ticket.when_durable(complete))
    }

    /// Takes all that has completed.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Completed<'py>>> {
        let outcome = |((tag, number), durable): foreshore_handles::Done<(u64, u64)>| match durable {
            Ok(()) => Ok((tag, number, None)),
            Err(fault) => Ok((tag, number, Some(instance(py, &fault)?))),
        };
        self.inner.take(usize::MAX).or_raise(py)?.into_iter().map(outcome).collect()
    }
}
