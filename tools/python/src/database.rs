//! Databases.

use crate::errors::{Ended, OrRaise, detached};
use crate::options::{self, path_of, seconds};
use crate::ticket::Ticket;
use crate::transaction::Transaction;
use foreshore::Options;
use foreshore_handles::{Open, stats_json};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An open database.
#[pyclass(subclass, frozen, module = "foreshore._foreshore")]
pub(crate) struct Database {
    /// Taken by the drop.
    inner: Option<foreshore_handles::Database>,
}

impl Database {
    pub(crate) fn inner(&self) -> &foreshore_handles::Database {
        self.inner.as_ref().expect("it is there until the drop")
    }

    /// Runs an operation without the interpreter.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&foreshore::Db) -> foreshore::Result<T> + Send,
    ) -> PyResult<T> {
        detached(py, || Ok(operation(self.inner().get()?)?))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // It waits for the disk. No interpreter is there when the process ends.
        let inner = self.inner.take();
        let mut inner = Some(inner);
        Python::try_attach(|py| {
            let inner = inner.take();
            py.detach(|| drop(inner));
        });
    }
}

/// Rolls a transaction back without the interpreter, because it may take long. If the process ends there is none, and
/// the drop of the transaction does it.
fn roll_back(rollback: &mut (dyn FnMut() + Send)) {
    Python::try_attach(|py| py.detach(rollback));
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, *, memory_limit=None, log_budget=None, restart_target=None, spill_limit=None,
        lock_timeout=None, max_transactions=None, archive=None, archive_limit=None, snapshot_max_age=None,
        snapshot_max_bytes=None, transaction_max_age=None, device=None, doublewrite=None, group_window=None,
        existing=false, read_only=false))]
    #[expect(clippy::too_many_arguments, reason = "they have names")]
    fn new(
        py: Python<'_>,
        path: Option<String>,
        memory_limit: Option<u64>,
        log_budget: Option<u64>,
        restart_target: Option<f64>,
        spill_limit: Option<u64>,
        lock_timeout: Option<f64>,
        max_transactions: Option<usize>,
        archive: Option<Bound<'_, PyAny>>,
        archive_limit: Option<u64>,
        snapshot_max_age: Option<f64>,
        snapshot_max_bytes: Option<u64>,
        transaction_max_age: Option<f64>,
        device: Option<&str>,
        doublewrite: Option<&str>,
        group_window: Option<f64>,
        existing: bool,
        read_only: bool,
    ) -> PyResult<Self> {
        let mut options = if path.is_some() { Options::new() } else { Options::in_memory() };
        if let Some(bytes) = memory_limit {
            options = options.memory_limit(bytes);
        }
        if let Some(bytes) = log_budget {
            options = options.log_budget(bytes);
        }
        if let Some(time) = restart_target {
            options = options.restart_target(seconds("restart_target", time)?);
        }
        if let Some(bytes) = spill_limit {
            options = options.spill_limit(bytes);
        }
        if let Some(timeout) = lock_timeout {
            options = options.lock_timeout(seconds("lock_timeout", timeout)?);
        }
        if let Some(count) = max_transactions {
            options = options.max_transactions(count);
        }
        if let Some(path) = archive {
            options = options.archive(path_of(&path)?);
        }
        if let Some(bytes) = archive_limit {
            options = options.archive_limit(bytes);
        }
        if let Some(age) = snapshot_max_age {
            options = options.snapshot_max_age(seconds("snapshot_max_age", age)?);
        }
        if let Some(bytes) = snapshot_max_bytes {
            options = options.snapshot_max_bytes(bytes);
        }
        if let Some(age) = transaction_max_age {
            options = options.transaction_max_age(seconds("transaction_max_age", age)?);
        }
        options = options::written(py, options, device, doublewrite, group_window)?;
        let how = match (existing, read_only) {
            (false, false) => Open::OrCreate,
            (true, false) => Open::Existing,
            (_, true) => Open::ReadOnly,
        };
        let path = path.unwrap_or_else(|| "memory".to_owned());
        let inner = detached(py, || foreshore_handles::Database::open(&options, path, how))?;
        Ok(Self { inner: Some(inner) })
    }

    /// Begins a transaction that reads and writes.
    #[pyo3(signature = (*, isolation="serializable", durability="durable", lock_timeout=None, deadline=None, label=None))]
    fn begin(
        this: &Bound<'_, Self>,
        py: Python<'_>,
        isolation: &str,
        durability: &str,
        lock_timeout: Option<f64>,
        deadline: Option<f64>,
        label: Option<&str>,
    ) -> PyResult<Transaction> {
        let options = options::transaction(py, isolation, durability, lock_timeout, deadline, label)?;
        // It waits if the maximum of transactions is running.
        let db = this.get();
        let tx = detached(py, || foreshore_handles::Transaction::begin(db.inner(), options))?;
        Ok(Transaction::new(tx.keeping(this.clone().unbind(), roll_back)))
    }

    /// Begins a transaction that reads a snapshot and waits for no writer.
    #[pyo3(signature = (*, label=None, latest=false))]
    fn read(this: &Bound<'_, Self>, py: Python<'_>, label: Option<&str>, latest: bool) -> PyResult<Transaction> {
        let options = options::reader(py, label, latest)?;
        let db = this.get();
        let tx = detached(py, || foreshore_handles::Transaction::read(db.inner(), options))?;
        Ok(Transaction::new(tx.keeping(this.clone().unbind(), roll_back)))
    }

    #[pyo3(signature = (function, *, isolation="serializable", durability="durable", lock_timeout=None, deadline=None,
        label=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names")]
    fn _run(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        isolation: &str,
        durability: &str,
        lock_timeout: Option<f64>,
        deadline: Option<f64>,
        label: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        let options = options::transaction(py, isolation, durability, lock_timeout, deadline, label)?;
        let mut body = Body { function, stop: None };
        let mut run = || foreshore_handles::Transaction::run(self.inner(), options, |tx| body.call(tx));
        let ran = detached(py, || Ok(run()));
        body.outcome(py, ran)
    }

    #[pyo3(signature = (function, *, isolation="serializable", durability="durable", lock_timeout=None, deadline=None,
        label=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names")]
    fn _run_pipelined(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        isolation: &str,
        durability: &str,
        lock_timeout: Option<f64>,
        deadline: Option<f64>,
        label: Option<&str>,
    ) -> PyResult<(Py<PyAny>, Ticket)> {
        let options = options::transaction(py, isolation, durability, lock_timeout, deadline, label)?;
        let mut body = Body { function, stop: None };
        let mut run = || foreshore_handles::Transaction::run_pipelined(self.inner(), options, |tx| body.call(tx));
        let ran = detached(py, || Ok(run()));
        let (value, ticket) = body.outcome(py, ran)?;
        Ok((value, Ticket::new(ticket)))
    }

    /// Closes the database: refuses new transactions, and waits at most `wait` seconds for running ones.
    #[pyo3(signature = (wait=0.0))]
    fn close(&self, py: Python<'_>, wait: f64) -> PyResult<()> {
        let wait = seconds("wait", wait)?;
        self.detached(py, |db| db.close(wait))
    }

    /// Waits until every commit before the call is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, foreshore::Db::sync)
    }

    /// Takes a checkpoint: a restart then has almost nothing to redo.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, foreshore::Db::checkpoint)
    }

    /// Makes the file of the database as short as its rows allow, while others use it. Returns by how many bytes.
    fn compact(&self, py: Python<'_>) -> PyResult<u64> {
        self.detached(py, |db| Ok(db.compact()?.truncated))
    }

    /// The number of the newest durable commit.
    #[getter]
    fn durable_csn(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner().get().or_raise(py)?.durable_csn().0)
    }

    /// Copies the database to a new directory while it is in use. Returns the number of the last commit in the copy.
    fn backup(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<u64> {
        let path = path_of(path)?;
        self.detached(py, |db| Ok(db.backup(path)?.csn.0))
    }

    /// Copies what has changed since the backup in `base`. Returns the number of the last commit in the copy.
    fn backup_since(&self, py: Python<'_>, path: &Bound<'_, PyAny>, base: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (path, base) = (path_of(path)?, path_of(base)?);
        self.detached(py, |db| Ok(db.backup_since(path, base)?.csn.0))
    }

    /// Copies the durable log to the archive. Returns the LSN up to which it is archived, 0 without an archive.
    fn archive(&self, py: Python<'_>) -> PyResult<u64> {
        self.detached(py, |db| Ok(db.archive()?.0))
    }

    /// Returns the prepared transactions: the name, the label and the age in seconds of each.
    fn _prepared(&self, py: Python<'_>) -> PyResult<Vec<(String, String, f64)>> {
        let prepared = self.detached(py, foreshore::Db::prepared)?;
        Ok(prepared.into_iter().map(|one| (one.name, one.label, one.age.as_secs_f64())).collect())
    }

    /// Commits a prepared transaction, and waits until the commit survives power loss. Returns the commit number.
    fn commit_prepared(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        self.detached(py, |db| Ok(db.commit_prepared(name)?.0))
    }

    /// Rolls back a prepared transaction, durably.
    fn rollback_prepared(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.detached(py, |db| db.rollback_prepared(name))
    }

    /// Checks every page and every table. Raises `Corrupted` at a damaged page, and else returns what was counted.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.detached(py, foreshore::Db::check)?;
        let counts = PyDict::new(py);
        for (name, count) in [("tables", found.tables), ("rows", found.rows), ("pages", found.pages)] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    fn _stats_json(&self, py: Python<'_>) -> PyResult<String> {
        self.detached(py, |db| Ok(stats_json(&db.stats())))
    }
}

/// The function of a run.
struct Body {
    function: Py<PyAny>,
    /// An error that is no `Exception`, such as `SystemExit`. It ends the run, whatever has ended the transaction.
    stop: Option<PyErr>,
}

impl Body {
    fn call(&mut self, tx: &foreshore_handles::Transaction) -> Result<Py<PyAny>, Ended> {
        Python::attach(|py| {
            if let Some(stop) = &self.stop {
                return Err(Ended::Raised(stop.clone_ref(py)));
            }
            self.function.call1(py, (Transaction::new(tx.clone()),)).map_err(|error| {
                if !error.is_instance_of::<PyException>(py) {
                    self.stop = Some(error.clone_ref(py));
                }
                Ended::Raised(error)
            })
        })
    }

    /// Returns what the run has come to.
    fn outcome<T>(self, py: Python<'_>, ran: PyResult<Result<T, Ended>>) -> PyResult<T> {
        let error = match ran {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(ended)) => ended.exception(py),
            Err(error) => error,
        };
        Err(self.stop.unwrap_or(error))
    }
}
