//! Errors as exceptions of the tree in `foreshore._errors`.

use foreshore_handles::{Fault, Result, caught};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::RefCell;

/// Returns the exception of a fault.
pub(crate) fn exception(py: Python<'_>, fault: &Fault) -> PyErr {
    instance(py, fault).map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception of a fault as an object.
pub(crate) fn instance<'py>(py: Python<'py>, fault: &Fault) -> PyResult<Bound<'py, PyAny>> {
    static BY_STATUS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let by_status = BY_STATUS
        .get_or_try_init(py, || PyResult::Ok(py.import("foreshore._errors")?.getattr("BY_STATUS")?.unbind()))?
        .bind(py);
    by_status.get_item(fault.status as i32)?.call1((&fault.message,))
}

/// Turns a fault into an exception.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for foreshore_handles::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|fault| exception(py, &fault))
    }
}

thread_local! {
    /// What a function of the program, called by the engine on this thread, has raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps what a function of the program has raised, for the end of the call that has led to it. `StopIteration` becomes
/// a `RuntimeError`, as in a generator: an iteration would take it for its end.
pub(crate) fn raised_in_engine(py: Python<'_>, mut error: PyErr) {
    if error.is_instance_of::<PyStopIteration>(py) {
        let outer = PyRuntimeError::new_err("a function of the program has raised StopIteration");
        outer.set_cause(py, Some(error));
        error = outer;
    }
    RAISED.set(Some(error));
}

/// Runs a call that may wait without the interpreter. A panic in it is an exception of the tree, too. What a function
/// of the program has raised in it is raised in place of the engine's error.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let done = py.detach(|| caught(call));
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => done.or_raise(py),
    }
}

/// Why a call with a function of the program has failed.
pub(crate) enum Ended {
    Fault(Fault),
    Raised(PyErr),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Ended {
    pub(crate) fn exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Fault(fault) => exception(py, &fault),
            Self::Raised(error) => error,
        }
    }
}
