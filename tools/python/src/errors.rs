//! Errors as exceptions of the tree in `foreshore._errors`.

use foreshore_handles::{Fault, Result, caught};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

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

/// Runs a call that may wait without the interpreter. A panic in it is an exception of the tree, too.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| caught(call)).or_raise(py)
}
