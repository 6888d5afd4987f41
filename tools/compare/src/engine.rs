//! What an engine is to a workload.

use crate::{
    error::{Error, Result},
    workload::{Rows, Shape, Table, Transfer, Workload, values::Seen},
};
use std::{
    ops::{Range, RangeInclusive},
    path::Path,
};

/// What a database is used for: it decides which settings are worth a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    pub(crate) workload: Workload,
    /// Whether the transactions write.
    pub(crate) writes: bool,
    /// Whether a commit survives a loss of power when it is acknowledged.
    pub(crate) durable: bool,
}

impl Purpose {
    /// Returns the purpose of a row.
    pub(crate) fn new(workload: Workload, shape: Option<Shape>, durable: bool) -> Self {
        Self { workload, writes: shape.map_or(workload.writes(), Shape::writes), durable }
    }
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// An existing directory.
    pub(crate) dir: &'a Path,
    /// Bytes of memory for cached pages and for changes that are not written yet.
    pub(crate) cache: u64,
    pub(crate) purpose: Purpose,
    /// Name of a [`Variant`].
    pub(crate) variant: &'a str,
    /// Number of tables: `Table(0)` and on.
    pub(crate) tables: usize,
    /// Sessions at once, at most.
    pub(crate) threads: usize,
}

impl Setup<'_> {
    /// Returns all tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = Table> + use<> {
        (0..self.tables as u16).map(Table)
    }
}

/// One choice of settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Short name: `--engines ENGINE:VARIANT` selects it.
    pub(crate) name: &'static str,
    /// The settings that matter, for the reader of a row.
    pub(crate) settings: &'static str,
    /// What a crash can lose; none for durable commits.
    pub(crate) loses: Option<&'static str>,
    /// Transactions that a session keeps in flight.
    pub(crate) in_flight: usize,
}

impl Variant {
    /// Returns a variant whose commits are durable when the call returns.
    pub(crate) const fn durable(name: &'static str, settings: &'static str) -> Self {
        Self { name, settings, loses: None, in_flight: 1 }
    }

    /// Returns a variant whose commits may be lost.
    pub(crate) const fn lazy(name: &'static str, settings: &'static str, loses: &'static str) -> Self {
        Self { name, settings, loses: Some(loses), in_flight: 1 }
    }
}

/// An engine that this program was built with.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The engine's own version.
    pub(crate) version: fn() -> String,
    /// The settings worth a row.
    pub(crate) variants: fn(Purpose) -> Vec<Variant>,
    /// Whether it reads many keys by one call.
    pub(crate) has_get_many: bool,
    /// Opens a database, and creates it in an empty directory.
    pub(crate) open: fn(&Setup<'_>) -> Result<Box<dyn Engine>>,
}

/// An open database.
pub(crate) trait Engine: Sync {
    /// Fills an empty table.
    ///
    /// # Errors
    /// What the engine gives.
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()>;

    /// Fills an empty table by the fastest way that the engine has. The rows are as durable as commits of the variant
    /// when it returns.
    ///
    /// # Errors
    /// What the engine gives.
    fn bulk(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        self.load(table, rows)
    }

    /// Brings a loaded database into the state of one that has run for long: written, checkpointed, compacted.
    ///
    /// # Errors
    /// What the engine gives.
    fn settle(&self) -> Result<()>;

    /// Runs `work` with a session of the calling thread.
    ///
    /// # Errors
    /// What the engine gives, and what `work` returns.
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;

    /// Visits all rows of a table in key order, while no transaction runs.
    ///
    /// # Errors
    /// What the engine gives.
    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()>;

    /// Closes the database. All that was committed is durable when it returns.
    ///
    /// # Errors
    /// What the engine gives.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How many calls a transaction that only reads makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// One. An engine that needs no transaction around a single call may run it without one.
    One,
    /// Several, which see one state.
    Several,
}

/// A transaction of a workload that is written once for all engines.
pub(crate) trait Reader {
    /// Passes the row of `key` to `read`, with as few copies as the engine allows. Returns whether there is one.
    ///
    /// # Errors
    /// What the engine gives.
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes the rows with keys in `keys` to `read`, in key order, until it returns `false`.
    ///
    /// # Errors
    /// What the engine gives.
    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()>;
}

/// A [`Reader`] that also writes. An error ends the transaction, and a conflict is one: the adapter of the engine then
/// runs the transaction again.
pub(crate) trait Writer: Reader {
    /// Replaces the row of `key` by what `change` makes of it; no other transaction writes it meanwhile. The length
    /// stays. Returns whether there is a row.
    ///
    /// # Errors
    /// What the engine gives.
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool>;

    /// Inserts a row, if there is none with its key. Returns whether it did.
    ///
    /// # Errors
    /// What the engine gives.
    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool>;

    /// Deletes the row of `key`. Returns whether there was one.
    ///
    /// # Errors
    /// What the engine gives.
    fn delete(&mut self, table: Table, key: u64) -> Result<bool>;
}

/// The calls of the workloads. A write is repeated inside where the engine asks for that. A session may lack the calls
/// of workloads that its variant is not for.
pub(crate) trait Session {
    /// Runs a transfer of `tpcb` as one transaction.
    ///
    /// # Errors
    /// What the engine gives; `Lost` for a row that is missing.
    fn transfer(&mut self, _transfer: &Transfer) -> Result<()> {
        Err(Error::Unable { call: "transfer" })
    }

    /// Reads rows by key in one transaction. Returns the exclusive or of their first words.
    ///
    /// # Errors
    /// What the engine gives; `Lost` for a row that is missing.
    fn get(&mut self, _keys: &[u64]) -> Result<u64> {
        Err(Error::Unable { call: "get" })
    }

    /// As [`get`](Self::get), by the engine's call for many keys.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_many(&mut self, keys: &[u64]) -> Result<u64> {
        self.get(keys)
    }

    /// Reads `rows` rows from `first` on in one transaction. Returns the exclusive or of their first words.
    ///
    /// # Errors
    /// What the engine gives.
    fn range(&mut self, _first: u64, _rows: u64) -> Result<u64> {
        Err(Error::Unable { call: "range" })
    }

    /// Appends `rows` rows from key `first` on to a table in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn insert(&mut self, _table: Table, _first: u64, _rows: u64) -> Result<()> {
        Err(Error::Unable { call: "insert" })
    }

    /// Appends a row to the queue in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn push(&mut self, _key: u64) -> Result<()> {
        Err(Error::Unable { call: "push" })
    }

    /// Deletes the first row of the queue that no other transaction has claimed, in one transaction. Returns its key,
    /// or `None` if all rows are claimed.
    ///
    /// # Errors
    /// What the engine gives.
    fn pop(&mut self) -> Result<Option<u64>> {
        Err(Error::Unable { call: "pop" })
    }

    /// Puts a value in place of the one of `key`, in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn put_value(&mut self, _key: u64, _value: &[u8]) -> Result<()> {
        Err(Error::Unable { call: "put_value" })
    }

    /// Reads every byte of the value of `key`, in one transaction, with as few copies as the engine allows.
    ///
    /// # Errors
    /// What the engine gives; `Lost` for a row that is missing.
    fn sum_value(&mut self, _key: u64) -> Result<Seen> {
        Err(Error::Unable { call: "sum_value" })
    }

    /// Deletes the rows of `old`, and inserts rows with the keys of `new`, in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn churn(&mut self, _old: &[u64], _new: &[u64]) -> Result<()> {
        Err(Error::Unable { call: "churn" })
    }

    /// Deletes all rows with keys in `range`, in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn delete_range(&mut self, _range: Range<u64>) -> Result<()> {
        Err(Error::Unable { call: "delete_range" })
    }

    /// Runs a transaction that only reads. It is acknowledged when the call returns.
    ///
    /// # Errors
    /// What the engine gives, and what `work` returns.
    fn read_only(&mut self, _calls: Calls, _work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        Err(Error::Unable { call: "read_only" })
    }

    /// Runs a transaction that reads and writes. `work` runs again after a conflict. It returns whether it has written:
    /// if not, the transaction may be rolled back.
    ///
    /// # Errors
    /// What the engine gives, and what `work` returns.
    fn read_write(&mut self, _work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        Err(Error::Unable { call: "read_write" })
    }

    /// Waits until fewer than [`Variant::in_flight`] transactions are unacknowledged, and returns how many are.
    ///
    /// # Errors
    /// What the engine gives.
    fn pending(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// Waits until all transactions are acknowledged.
    ///
    /// # Errors
    /// What the engine gives.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}
