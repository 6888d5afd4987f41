//! Scans.

use crate::codec::Codec;
use crate::errors::{OrRaise, detached, exception};
use foreshore_handles::{Cursor, Direction, Fault, Status};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex, TryLockError};

/// What a scan returns of each row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Keys,
    Values,
    Items,
}

/// An iterator over the rows of a table.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Rows {
    cursor: Mutex<Cursor>,
    codecs: Arc<(Codec, Codec)>,
    wanted: Wanted,
}

impl Rows {
    pub(crate) fn new(cursor: Cursor, codecs: &Arc<(Codec, Codec)>, wanted: Wanted) -> Self {
        Self { cursor: Mutex::new(cursor), codecs: Arc::clone(codecs), wanted }
    }
}

/// Returns the direction of a scan.
pub(crate) const fn direction(reverse: bool) -> Direction {
    if reverse { Direction::Backward } else { Direction::Forward }
}

/// Returns the exception of a row that does not decode.
pub(crate) fn undecodable(py: Python<'_>, part: &str, key: &[u8]) -> PyErr {
    let message = format!("the {part} of the row with the encoded key {key:02x?} does not decode to its type");
    exception(py, &Fault::new(Status::Undecodable, message))
}

#[pymethods]
impl Rows {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut cursor = match self.cursor.try_lock() {
            Ok(cursor) => cursor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(exception(
                    py,
                    &Fault::new(Status::InUse, "another thread is in a call with this iterator"),
                ));
            }
        };
        // Rows at hand need no wait, so the interpreter is not released for each.
        if cursor.has_to_read().or_raise(py)? {
            let reading = &mut *cursor;
            detached(py, || reading.read())?;
        }
        let Some((key, value)) = cursor.take_row() else { return Ok(None) };
        let (key_codec, value_codec) = &*self.codecs;
        let decoded_key = || key_codec.decode_key(py, key)?.ok_or_else(|| undecodable(py, "key", key));
        let decoded_value = || value_codec.decode_value(py, value)?.ok_or_else(|| undecodable(py, "value", key));
        Ok(Some(match self.wanted {
            Wanted::Keys => decoded_key()?,
            Wanted::Values => decoded_value()?,
            Wanted::Items => PyTuple::new(py, [decoded_key()?, decoded_value()?])?.into_any(),
        }))
    }
}
