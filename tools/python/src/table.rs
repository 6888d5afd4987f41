//! Tables.

use crate::codec::Codec;
use crate::errors::{Ended, OrRaise, detached};
use crate::index::{ByIndex, Index};
use crate::rows::{Rows, Wanted, direction, undecodable};
use crate::value::{FileReader, RawValue};
use foreshore::LoadOptions;
use foreshore_handles::{Bounds, Direction};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PySlice, PyTuple};
use std::ops::Bound as Limit;
use std::sync::Arc;

/// A table that is open in a transaction: a mapping in the order of its keys.
#[pyclass(frozen, mapping, module = "foreshore")]
pub(crate) struct Table {
    inner: foreshore_handles::Table,
    codecs: Arc<(Codec, Codec)>,
    known: Known,
}

/// What the program has said of a table.
pub(crate) struct Known {
    /// Whether it has named the types.
    pub(crate) types: bool,
    /// The function of `merge`.
    pub(crate) merge: Option<Py<PyAny>>,
}

impl Table {
    pub(crate) fn new(inner: foreshore_handles::Table, codecs: (Codec, Codec), known: Known) -> Self {
        Self { inner, codecs: Arc::new(codecs), known }
    }

    /// Changes the value of a key by a function of the old one, with `operand` behind it if there is one.
    fn change<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        function: &Py<PyAny>,
        operand: Option<Py<PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let changed = |old: Option<&[u8]>| {
            Python::attach(|py| {
                let old = old.map(|old| self.value(py, &key, old)).transpose()?;
                let new = match &operand {
                    Some(operand) => function.bind(py).call1((old, operand))?,
                    None => function.bind(py).call1((old,))?,
                };
                if new.is_none() && operand.is_none() {
                    return Ok(None);
                }
                let mut bytes = Vec::with_capacity(32);
                self.codecs.1.encode_value(&new, &mut bytes)?;
                Ok(Some(bytes))
            })
            .map_err(Ended::Raised)
        };
        let new = detached(py, || Ok(self.inner.update_with(&key, changed)))?;
        let new = new.map_err(|ended| ended.exception(py))?;
        new.map(|new| self.value(py, &key, &new)).transpose()
    }

    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let mut bytes = Vec::with_capacity(32);
        self.codecs.0.encode_key(key, &mut bytes)?;
        Ok(bytes)
    }

    fn row(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<(Vec<u8>, Vec<u8>)> {
        let mut bytes = Vec::with_capacity(64);
        self.codecs.1.encode_value(value, &mut bytes)?;
        Ok((self.key(key)?, bytes))
    }

    fn value<'py>(&self, py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.codecs.1.decode_value(py, value)?.ok_or_else(|| undecodable(py, "value", key))
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let found = detached(py, || self.inner.get(&key, <[u8]>::to_vec))?;
        found.map(|value| self.value(py, &key, &value)).transpose()
    }

    fn limit(
        &self,
        key: Option<&Bound<'_, PyAny>>,
        make: impl FnOnce(Vec<u8>) -> Limit<Vec<u8>>,
    ) -> PyResult<Limit<Vec<u8>>> {
        key.filter(|key| !key.is_none()).map_or(Ok(Limit::Unbounded), |key| Ok(make(self.key(key)?)))
    }

    /// Returns the range of a slice: `a:b`, or `b:a:-1` backward.
    fn sliced(&self, slice: &Bound<'_, PySlice>) -> PyResult<(Bounds, Direction)> {
        let [start, stop, step] = ["start", "stop", "step"].map(|name| slice.getattr(name));
        let (start, stop, step) = (start?, stop?, step?);
        match if step.is_none() { 1 } else { step.extract::<i64>().unwrap_or(0) } {
            1 => {
                let lower = self.limit(Some(&start), Limit::Included)?;
                Ok((Bounds { lower, upper: self.limit(Some(&stop), Limit::Excluded)? }, Direction::Forward))
            }
            -1 => {
                let lower = self.limit(Some(&stop), Limit::Excluded)?;
                Ok((Bounds { lower, upper: self.limit(Some(&start), Limit::Included)? }, Direction::Backward))
            }
            _ => Err(PyValueError::new_err("the step of a range is 1 or -1")),
        }
    }

    fn scan(&self, py: Python<'_>, bounds: Bounds, direction: Direction, wanted: Wanted) -> PyResult<Rows> {
        let cursor = self.inner.scan(bounds, direction).or_raise(py)?;
        Ok(Rows::new(cursor, &self.codecs, wanted))
    }

    fn end<'py>(&self, py: Python<'py>, direction: Direction) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = Bound::new(py, self.scan(py, Bounds::all(), direction, Wanted::Items)?)?;
        rows.call_method1("__next__", ()).map(Some).or_else(|error| {
            if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) { Ok(None) } else { Err(error) }
        })
    }
}

/// The rows of a load. The interpreter is held once for many of them.
struct RowSource<'t> {
    table: &'t Table,
    rows: Py<PyIterator>,
    batch: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
}

impl RowSource<'_> {
    const BATCH: usize = 256;

    fn next(&mut self) -> PyResult<Option<(Vec<u8>, Vec<u8>)>> {
        if let Some(row) = self.batch.next() {
            return Ok(Some(row));
        }
        let batch = Python::attach(|py| {
            let rows = self.rows.bind(py).clone().take(Self::BATCH);
            rows.map(|row| {
                let (key, value) = row?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                self.table.row(&key, &value)
            })
            .collect::<PyResult<Vec<_>>>()
        })?;
        self.batch = batch.into_iter();
        Ok(self.batch.next())
    }
}

#[pymethods]
impl Table {
    /// A function of `merge` may lead back to the table. What holds both can be cleared.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.known.merge)
    }

    /// `table[key]` is a value, `table[a:b]` the rows from `a` to below `b`, `table[b:a:-1]` those from `b` down to
    /// above `a`.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let (bounds, direction) = self.sliced(slice)?;
            return Ok(Bound::new(py, self.scan(py, bounds, direction, Wanted::Items)?)?.into_any());
        }
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = self.row(key, value)?;
        detached(py, || self.inner.put(&key, &value))
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let (bounds, _) = self.sliced(slice)?;
            return detached(py, || self.inner.remove_range(&bounds)).map(drop);
        }
        let bytes = self.key(key)?;
        match detached(py, || self.inner.remove(&bytes))? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = self.key(key)?;
        detached(py, || self.inner.contains(&key))
    }

    /// The number of rows, by a scan. `estimate` is fast.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = detached(py, || self.inner.count(&Bounds::all()))?;
        Ok(usize::try_from(count)?)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.end(py, Direction::Forward)?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.scan(py, Bounds::all(), Direction::Forward, Wanted::Keys)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.scan(py, Bounds::all(), Direction::Backward, Wanted::Keys)
    }

    /// Iterates over the keys.
    #[pyo3(signature = (*, reverse=false))]
    fn keys(&self, py: Python<'_>, reverse: bool) -> PyResult<Rows> {
        self.scan(py, Bounds::all(), direction(reverse), Wanted::Keys)
    }

    /// Iterates over the values, by key.
    #[pyo3(signature = (*, reverse=false))]
    fn values(&self, py: Python<'_>, reverse: bool) -> PyResult<Rows> {
        self.scan(py, Bounds::all(), direction(reverse), Wanted::Values)
    }

    /// Iterates over the rows, by key.
    #[pyo3(signature = (*, reverse=false))]
    fn items(&self, py: Python<'_>, reverse: bool) -> PyResult<Rows> {
        self.scan(py, Bounds::all(), direction(reverse), Wanted::Items)
    }

    /// Iterates over the rows between two keys: from `lower` on, and below `upper` or, with `closed`, up to it.
    #[pyo3(signature = (lower=None, upper=None, *, closed=false, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        lower: Option<&Bound<'_, PyAny>>,
        upper: Option<&Bound<'_, PyAny>>,
        closed: bool,
        reverse: bool,
    ) -> PyResult<Rows> {
        let lower = self.limit(lower, Limit::Included)?;
        let upper = self.limit(upper, if closed { Limit::Included } else { Limit::Excluded })?;
        self.scan(py, Bounds { lower, upper }, direction(reverse), Wanted::Items)
    }

    /// Iterates over the rows whose keys begin with text or bytes, or with the first parts of a tuple.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Rows> {
        let mut bytes = Vec::new();
        self.codecs.0.encode_prefix(prefix, &mut bytes)?;
        self.scan(py, Bounds::prefix(&bytes), direction(reverse), Wanted::Items)
    }

    /// Returns the value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    /// Returns the value of a key, or `default`, and locks the row for a write. With `wait=False` a row that another
    /// transaction has locked raises `RowLocked`.
    #[pyo3(signature = (key, default=None, *, wait=true))]
    fn get_for_update<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        wait: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let get = || if wait { self.inner.get_for_update(&key) } else { self.inner.get_for_update_now(&key) };
        let found = detached(py, get)?;
        Ok(found.map(|value| self.value(py, &key, &value)).transpose()?.or(default))
    }

    /// Inserts a row with a new key. Raises `KeyExists` if there is one.
    fn insert(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = self.row(key, value)?;
        detached(py, || self.inner.insert(&key, &value))
    }

    /// Sets the value of a key and returns the old one.
    fn replace<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (key, value) = self.row(key, value)?;
        let old = detached(py, || self.inner.replace(&key, &value))?;
        old.map(|old| self.value(py, &key, &old)).transpose()
    }

    /// Removes a row and returns its value. Raises `KeyError` if there is none and no `default`.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(&self, key: &Bound<'py, PyAny>, default: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let (py, bytes) = (key.py(), self.key(key)?);
        match detached(py, || self.inner.remove(&bytes))? {
            Some(value) => self.value(py, &bytes, &value),
            None => default.get_item(0).map_err(|_| PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Returns the row with the smallest key, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.end(py, Direction::Forward)
    }

    /// Returns the row with the largest key, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.end(py, Direction::Backward)
    }

    /// Estimates the number of rows, in a time that does not depend on it.
    fn estimate(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.inner.len_estimate())
    }

    /// Returns a number for a new row. No two calls get the same one, also after a crash.
    fn next_id(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.inner.next_id())
    }

    /// Makes the numbers of `next_id` begin above `last`, at once and durably: after a load of rows that have numbers.
    fn skip_ids(&self, py: Python<'_>, last: u64) -> PyResult<()> {
        detached(py, || self.inner.skip_ids(last))
    }

    /// Inserts pairs of a key and a value, whose keys ascend and are above all keys of the table, and returns their
    /// number. That is much faster than single inserts. All are loaded or none. The table is locked until the
    /// transaction ends, and its commit waits until it is durable. An iterator of `rows` must not use the transaction.
    /// `fill_percent` of each page is filled: the rest is for later rows between them.
    #[pyo3(signature = (rows, *, fill_percent=100))]
    fn load(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, fill_percent: u8) -> PyResult<u64> {
        let mut source = RowSource { table: self, rows: rows.try_iter()?.unbind(), batch: Vec::new().into_iter() };
        let options = LoadOptions::new().fill_percent(fill_percent);
        let loaded = detached(py, || Ok(self.inner.load(options, || source.next().map_err(Ended::Raised))))?;
        loaded.map_err(|ended| ended.exception(py))
    }

    /// Returns an index of the table, to find rows by their index keys.
    fn by_index(&self, py: Python<'_>, index: &Bound<'_, Index>) -> PyResult<ByIndex> {
        if !self.known.types {
            return Err(PyTypeError::new_err(
                "the types of a raw table are not known: open it with `Transaction.table`",
            ));
        }
        let index = index.get();
        let def = index.of(py, &self.codecs)?;
        Ok(ByIndex::new(detached(py, || self.inner.by_index(def))?, index, &self.codecs))
    }

    /// Changes the value of a key under a lock of the row, and returns the new value. `function(value)` gets the value,
    /// or `None` if there is no row. It returns the new one, or `None` to remove the row.
    fn update_with<'py>(&self, key: &Bound<'py, PyAny>, function: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.change(key, &function, None)
    }

    /// Sets the value of a key to what the function `merge` of the table makes of it and the operand. Returns it.
    fn merge<'py>(&self, key: &Bound<'py, PyAny>, operand: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(function) = &self.known.merge else {
            return Err(PyTypeError::new_err("the table was opened without `merge`"));
        };
        self.change(key, function, Some(operand))
    }

    /// Sets the value of a key to the bytes of a file, up to its end or `length` of them, and returns their number. No
    /// whole value is in memory, unless the table has indexes. `file.read` must not use the transaction.
    #[pyo3(signature = (key, file, length=None))]
    fn put_from(&self, key: &Bound<'_, PyAny>, file: Py<PyAny>, length: Option<u64>) -> PyResult<u64> {
        if self.codecs.1 != Codec::Bytes {
            return Err(PyTypeError::new_err(format!("values of `{}` are not written in parts", self.codecs.1.name())));
        }
        let (py, key) = (key.py(), self.key(key)?);
        let mut reader = FileReader { file: &file, raised: None };
        let written = detached(py, || self.inner.put_reader(&key, &mut reader, length));
        match reader.raised {
            Some(raised) => Err(raised),
            None => written,
        }
    }

    /// Returns the encoded value of a key as a file, which reads it in parts, or `None`. The encoding of text and bytes
    /// is their bytes.
    fn open_value<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let Some(reader) = detached(py, || self.inner.reader(&key))? else { return Ok(None) };
        py.import("foreshore._values")?.call_method1("ValueReader", (RawValue::new(reader),)).map(Some)
    }
}
