//! Values that are written and read in parts.

use crate::errors::detached;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, Read};

/// A reader of one value, which `foreshore.ValueReader` wraps as a file.
#[pyclass(frozen, module = "foreshore._foreshore")]
pub(crate) struct RawValue {
    inner: foreshore_handles::ValueReader,
}

impl RawValue {
    pub(crate) const fn new(inner: foreshore_handles::ValueReader) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl RawValue {
    #[getter]
    fn size(&self) -> u64 {
        self.inner.len()
    }

    /// Returns the bytes from `at` on, at most `size`.
    fn read_at<'py>(&self, py: Python<'py>, at: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let left = usize::try_from(self.inner.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size.min(left)];
        let count = detached(py, || self.inner.read_at(at, &mut bytes))?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }
}

/// An object with a method `read(size)`, and what it has raised.
pub(crate) struct FileReader<'f> {
    pub(crate) file: &'f Py<PyAny>,
    pub(crate) raised: Option<PyErr>,
}

impl FileReader<'_> {
    fn read_some(&self, buffer: &mut [u8]) -> PyResult<usize> {
        Python::attach(|py| {
            let bytes = self.file.bind(py).call_method1("read", (buffer.len(),))?;
            let bytes = match bytes.cast::<PyBytes>() {
                Ok(bytes) => bytes.as_bytes(),
                Err(_) => {
                    return Err(PyTypeError::new_err("`read` of the file returns no bytes: is it open as binary?"));
                }
            };
            let Some(part) = buffer.get_mut(..bytes.len()) else {
                return Err(PyValueError::new_err(format!("`read` was to return {} bytes at most", buffer.len())));
            };
            part.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer).map_err(|error| {
            self.raised = Some(error);
            io::Error::other("the file has raised an exception")
        })
    }
}
