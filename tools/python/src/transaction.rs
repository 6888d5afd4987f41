//! Transactions.

use crate::codec::Codec;
use crate::errors::{OrRaise, detached, exception};
use crate::index::Index;
use crate::spec::codec;
use crate::table::{Known, Table};
use crate::ticket::Ticket;
use foreshore_handles::{Fault, Status, caught};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A transaction. One thread at a time may use it. A `with` block commits it, or rolls it back after an exception.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Transaction {
    inner: foreshore_handles::Transaction,
}

impl Transaction {
    pub(crate) const fn new(inner: foreshore_handles::Transaction) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl Transaction {
    /// Opens a table, and creates it if it is missing and the transaction writes. So it does with `indexes`, which
    /// writes keep. `merge(value, operand)` returns the new value of `Table.merge`.
    #[pyo3(signature = (name, key=None, value=None, *, indexes=Vec::new(), merge=None))]
    fn table(
        &self,
        py: Python<'_>,
        name: &str,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        indexes: Vec<Bound<'_, Index>>,
        merge: Option<Py<PyAny>>,
    ) -> PyResult<Table> {
        let bytes = py.get_type::<PyBytes>().into_any();
        let (key, value) = (codec(key.unwrap_or(&bytes))?, codec(value.unwrap_or(&bytes))?);
        key.check_key()?;
        let (key_type, value_type) = (key.name(), value.name());
        let codecs = (key, value);
        let indexes: Vec<_> = indexes.iter().map(|index| index.get().of(py, &codecs)).collect::<PyResult<_>>()?;
        let types = (&*key_type, &*value_type);
        let open = || foreshore_handles::Table::open_with(&self.inner, name, types, &indexes);
        Ok(Table::new(detached(py, open)?, codecs, Known { types: true, merge }))
    }

    /// Opens a table that exists, of any types. Keys and values are their encodings.
    fn raw(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let table = detached(py, || foreshore_handles::Table::open_existing(&self.inner, name))?;
        Ok(Table::new(table, (Codec::Bytes, Codec::Bytes), Known { types: false, merge: None }))
    }

    /// Drops a table with all its rows. Returns whether there was one.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        detached(py, || self.inner.drop_table(name))
    }

    /// Drops an index of a table. Returns whether there was one.
    fn drop_index(&self, py: Python<'_>, table: &str, index: &str) -> PyResult<bool> {
        detached(py, || self.inner.drop_index(table, index))
    }

    /// Renames a table with its rows, its indexes and its numbers. Returns whether there was one.
    fn rename_table(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<bool> {
        detached(py, || self.inner.rename_table(name, new_name))
    }

    /// Removes all rows of a table, in a time that does not depend on their number. Returns whether there is one. Open
    /// the table again afterwards: one that was opened before is that of the removed rows.
    fn clear_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        detached(py, || self.inner.clear_table(name))
    }

    /// Returns the tables, each with its name and the names of its types.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
        detached(py, || self.inner.tables())
    }

    /// Commits, and waits until the commit survives power loss. Returns the commit number, of a reader 0.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.inner.commit())
    }

    /// Commits without a wait for the disk. The ticket can be awaited.
    fn commit_pipelined(&self, py: Python<'_>) -> PyResult<Ticket> {
        Ok(Ticket::new(detached(py, || self.inner.commit_pipelined())?))
    }

    /// Prepares the transaction under a name, durably: the first phase of a two-phase commit. It keeps its locks, also
    /// over restarts, until `Database.commit_prepared` or `Database.rollback_prepared`. After an error it is rolled
    /// back.
    fn prepare(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        detached(py, || self.inner.prepare(name))
    }

    /// Rolls back, and waits until what was read is durable.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.inner.rollback())
    }

    /// Rolls back without a wait for the disk. The ticket resolves when what was read is durable.
    fn rollback_pipelined(&self, py: Python<'_>) -> PyResult<Ticket> {
        Ok(Ticket::new(detached(py, || self.inner.rollback_pipelined())?))
    }

    /// Marks a point to roll back to. A `with` block rolls back to it after an exception, and the transaction goes on.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        let number = detached(py, || self.inner.savepoint())?;
        Ok(Savepoint { tx: self.inner.clone(), number })
    }

    /// Whether the program has not ended the transaction. It is open while another thread is in a call with it.
    #[getter]
    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // The block may have ended it.
        if !self.inner.is_open() {
            return Ok(false);
        }
        if kind.is_none() {
            self.commit(py)?;
        } else {
            // The exception of the block is the one to tell.
            let _ = detached(py, || self.inner.rollback());
        }
        Ok(false)
    }
}

/// A point of a transaction to which it can be rolled back.
#[pyclass(frozen, module = "foreshore")]
pub(crate) struct Savepoint {
    tx: foreshore_handles::Transaction,
    number: u64,
}

#[pymethods]
impl Savepoint {
    /// Rolls back what was changed since. The savepoint stays, and later ones are gone.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.tx.rollback_to(self.number))
    }

    /// Gives up the savepoint and those after it. What was changed since stays.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.tx.release(self.number).or_raise(py)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if kind.is_none() {
            // The block may have rolled back to an earlier savepoint, or ended the transaction.
            let _ = self.tx.release(self.number);
            return Ok(false);
        }
        match py.detach(|| caught(|| self.tx.rollback_to(self.number))) {
            // The exception of the block is the one to tell. It may have ended the transaction.
            Ok(()) | Err(Fault { status: Status::NoSavepoint | Status::RolledBack | Status::Ended, .. }) => Ok(false),
            // The writes of the block are still there.
            Err(fault) => {
                let error = exception(py, &fault);
                error.set_cause(py, Some(PyErr::from_value(value.clone())));
                Err(error)
            }
        }
    }
}
