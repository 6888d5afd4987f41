//! What an engine is to a workload.

use crate::{
    error::Result,
    workload::{Table, Transfer, Workload},
};
use std::path::Path;

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// An existing directory.
    pub(crate) dir: &'a Path,
    /// Bytes of memory for cached pages and for changes that are not written yet.
    pub(crate) cache: u64,
    /// Whether a commit survives a loss of power when it is acknowledged.
    pub(crate) durable: bool,
    /// Name of a [`Variant`].
    pub(crate) variant: &'a str,
    pub(crate) workload: Workload,
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
    /// The settings worth a row for a workload, durable or not.
    pub(crate) variants: fn(Workload, bool) -> Vec<Variant>,
    /// Whether it reads many keys by one call.
    pub(crate) has_get_many: bool,
    /// Opens a database, and creates it in an empty directory.
    pub(crate) open: fn(&Setup<'_>) -> Result<Box<dyn Engine>>,
}

/// Rows to load: keys ascending.
pub(crate) type Rows<'a> = dyn Iterator<Item = (u64, [u8; crate::workload::ROW_BYTES])> + 'a;

/// An open database.
pub(crate) trait Engine: Sync {
    /// Fills an empty table.
    ///
    /// # Errors
    /// What the engine gives.
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()>;

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

/// The calls of the workloads. A write is repeated inside where the engine asks for that.
pub(crate) trait Session {
    /// Runs a transfer of `tpcb` as one transaction.
    ///
    /// # Errors
    /// What the engine gives; `Lost` for a row that is missing.
    fn transfer(&mut self, transfer: &Transfer) -> Result<()>;

    /// Reads rows by key in one transaction. Returns the exclusive or of their first words.
    ///
    /// # Errors
    /// What the engine gives; `Lost` for a row that is missing.
    fn get(&mut self, keys: &[u64]) -> Result<u64>;

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
    fn range(&mut self, first: u64, rows: u64) -> Result<u64>;

    /// Appends `rows` rows from key `first` on to a table in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()>;

    /// Appends a row to the queue in one transaction.
    ///
    /// # Errors
    /// What the engine gives.
    fn push(&mut self, key: u64) -> Result<()>;

    /// Deletes the first row of the queue that no other transaction has claimed, in one transaction. Returns its key,
    /// or `None` if all rows are claimed.
    ///
    /// # Errors
    /// What the engine gives.
    fn pop(&mut self) -> Result<Option<u64>>;

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
