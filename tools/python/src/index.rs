//! Secondary indexes.

use crate::codec::Codec;
use crate::errors::{OrRaise, detached, raised_in_engine};
use crate::rows::{Rows, Wanted, direction, undecodable};
use crate::spec::codec;
use foreshore_handles::{Bounds, IndexDef, IndexTypes};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::ops::Bound as Limit;
use std::sync::{Arc, Mutex, PoisonError};

/// The codecs of a table's keys and values.
type Codecs = (Codec, Codec);

/// The definition of an index: its name, the type of its keys, and the function that makes the keys of a row.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Index {
    #[pyo3(get)]
    name: String,
    key: Codec,
    function: Py<PyAny>,
    #[pyo3(get)]
    unique: bool,
    #[pyo3(get)]
    version: u64,
    /// The definitions that the engine has got, by the codecs of their tables.
    made: Mutex<Vec<(Codecs, IndexDef)>>,
}

impl Index {
    /// Returns the definition for a table.
    pub(crate) fn of(&self, py: Python<'_>, codecs: &Codecs) -> PyResult<IndexDef> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, def)) = made.iter().find(|(of, _)| of == codecs) {
            return Ok(*def);
        }
        let (key_type, primary_type) = (self.key.name(), codecs.0.name());
        let types = IndexTypes {
            name: &self.name,
            is_unique: self.unique,
            version: self.version,
            key_type: &key_type,
            primary_type: &primary_type,
        };
        let function = Function {
            function: self.function.clone_ref(py),
            index_key: self.key.clone(),
            is_unique: self.unique,
            codecs: codecs.clone(),
        };
        let key = self.key.clone();
        let def = IndexDef::new(
            types,
            move |key, value, add| function.call(key, value, add),
            move |entry| {
                let mut from = foreshore::Decoder::new(entry);
                key.skip_key_part(&mut from)?;
                Some(entry.len() - from.rest().len())
            },
        );
        if let Ok(def) = def {
            made.push((codecs.clone(), def));
        }
        // An exception may run other threads, which must not wait for the mutex with the interpreter.
        drop(made);
        def.or_raise(py)
    }
}

#[pymethods]
impl Index {
    /// Defines an index. `function(key, value)` returns a list of the index keys of a row, or `None` for none. It must
    /// depend on nothing else and not use the transaction. Raise `version` when it changes.
    #[new]
    #[pyo3(signature = (name, key, function, *, unique=false, version=1))]
    fn new(name: String, key: &Bound<'_, PyAny>, function: Py<PyAny>, unique: bool, version: u64) -> PyResult<Self> {
        let key = codec(key)?;
        key.check_key()?;
        Ok(Self { name, key, function, unique, version, made: Mutex::default() })
    }
}

/// The function of an index of a table.
struct Function {
    function: Py<PyAny>,
    index_key: Codec,
    is_unique: bool,
    codecs: Codecs,
}

impl Function {
    fn call(&self, key: &[u8], value: &[u8], add: &mut dyn FnMut(&[u8])) -> Result<(), &'static str> {
        Python::attach(|py| {
            self.add_keys(py, key, value, add).map_err(|error| {
                raised_in_engine(py, error);
                "index key"
            })
        })
    }

    fn add_keys(&self, py: Python<'_>, key: &[u8], value: &[u8], add: &mut dyn FnMut(&[u8])) -> PyResult<()> {
        let owned_key = self.codecs.0.decode_key(py, key)?.ok_or_else(|| undecodable(py, "key", key))?;
        let value = self.codecs.1.decode_value(py, value)?.ok_or_else(|| undecodable(py, "value", key))?;
        let keys = self.function.bind(py).call1((owned_key, value))?;
        if keys.is_none() {
            return Ok(());
        }
        if keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyBytes>() {
            let message = "the function of an index returns a list of keys, or None: `[key]` for one";
            return Err(PyTypeError::new_err(message));
        }
        let mut bytes = Vec::new();
        for key in keys.try_iter()? {
            bytes.clear();
            self.index_key.encode_index_key(self.is_unique, &key?, &mut bytes)?;
            add(&bytes);
        }
        Ok(())
    }
}

/// An index of a table that is open in a transaction: it finds rows by index keys.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct ByIndex {
    pub(crate) inner: foreshore_handles::Index,
    pub(crate) key: Codec,
    pub(crate) is_unique: bool,
    pub(crate) codecs: Arc<Codecs>,
}

impl ByIndex {
    pub(crate) fn new(inner: foreshore_handles::Index, index: &Index, codecs: &Arc<Codecs>) -> Self {
        Self { inner, key: index.key.clone(), is_unique: index.unique, codecs: Arc::clone(codecs) }
    }

    fn encoded(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let mut bytes = Vec::with_capacity(32);
        self.key.encode_index_key(self.is_unique, key, &mut bytes)?;
        Ok(bytes)
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, bytes) = (key.py(), self.encoded(key)?);
        // At read committed the function says whether the row still has the key.
        let Some((key, value)) = detached(py, || self.inner.get(&bytes))? else { return Ok(None) };
        let owned_key = self.codecs.0.decode_key(py, &key)?.ok_or_else(|| undecodable(py, "key", &key))?;
        let value = self.codecs.1.decode_value(py, &value)?.ok_or_else(|| undecodable(py, "value", &key))?;
        PyTuple::new(py, [owned_key, value]).map(Some)
    }

    fn scan(&self, py: Python<'_>, bounds: Bounds, reverse: bool) -> PyResult<Rows> {
        let cursor = self.inner.scan(bounds, direction(reverse)).or_raise(py)?;
        Ok(Rows::new(cursor, &self.codecs, Wanted::Items))
    }
}

#[pymethods]
impl ByIndex {
    /// Returns the key and the value of the row with an index key, the first of several.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = self.encoded(key)?;
        detached(py, || self.inner.contains(&key))
    }

    /// Returns the key and the value of the row with an index key, the first of several, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.map(Bound::into_any).or(default))
    }

    /// Iterates over the rows with one index key, by their keys.
    #[pyo3(signature = (key, *, reverse=false))]
    fn rows(&self, py: Python<'_>, key: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Rows> {
        let key = self.encoded(key)?;
        self.scan(py, Bounds { lower: Limit::Included(key.clone()), upper: Limit::Included(key) }, reverse)
    }

    /// Iterates over the rows between two index keys: from `lower` on, and below `upper` or, with `closed`, up to it.
    #[pyo3(signature = (lower=None, upper=None, *, closed=false, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        lower: Option<&Bound<'_, PyAny>>,
        upper: Option<&Bound<'_, PyAny>>,
        closed: bool,
        reverse: bool,
    ) -> PyResult<Rows> {
        let limit = |key: Option<&Bound<'_, PyAny>>, is_included| -> PyResult<Limit<Vec<u8>>> {
            let Some(key) = key.filter(|key| !key.is_none()) else { return Ok(Limit::Unbounded) };
            let key = self.encoded(key)?;
            Ok(if is_included { Limit::Included(key) } else { Limit::Excluded(key) })
        };
        self.scan(py, Bounds { lower: limit(lower, true)?, upper: limit(upper, closed)? }, reverse)
    }

    /// Iterates over the rows whose index keys begin with text or bytes, or with the first parts of a tuple.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Rows> {
        let mut bytes = Vec::new();
        self.key.encode_index_prefix(self.is_unique, prefix, &mut bytes)?;
        self.scan(py, Bounds::prefix(&bytes), reverse)
    }

    /// Compares the index with its table and returns the number of entries. Raises `IndexMismatch` if they differ.
    fn check(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.inner.check())
    }
}
