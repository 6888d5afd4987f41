//! What the log says of a transaction, as redo and restarts hand it on.

use foreshore_base::{Lsn, TableId};
use foreshore_lock::{HeldRange, TableMode};

/// A change as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedChange {
    /// LSN of its record; zero for a lock of a row, which has no record of its own.
    pub lsn: Lsn,
    /// The kind of its record.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its record.
    pub body: Box<[u8]>,
}

/// What a prepare record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareBody {
    /// The name by which it is resolved.
    pub name: Box<str>,
    /// The label of the transaction.
    pub label: Box<str>,
    /// Tables locked.
    pub tables: Vec<(TableId, TableMode)>,
    /// Keys that are locked shared.
    pub ranges: Vec<HeldRange>,
    /// Rows that are locked and were not changed, or not in the end.
    pub rows: Vec<LoggedChange>,
    /// The caller's.
    pub note: Box<[u8]>,
}
