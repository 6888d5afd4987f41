//! Decoded log records of a transaction, in the form in which redo and restart pass them on.

use foreshore_base::{Lsn, TableId};
use foreshore_lock::{HeldRange, TableMode};

/// A change of a transaction, from its log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedChange {
    /// LSN of its record. Zero for a row lock, which has no record of its own.
    pub lsn: Lsn,
    /// The kind of its record.
    pub kind: u8,
    /// The changed table.
    pub table: TableId,
    /// The body of its record.
    pub body: Box<[u8]>,
}

/// Body of a prepare record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareBody {
    /// The name under which the transaction was prepared. Its commit or rollback needs this name.
    pub name: Box<str>,
    /// The label of the transaction.
    pub label: Box<str>,
    /// Locked tables, and the mode of each lock.
    pub tables: Vec<(TableId, TableMode)>,
    /// Keys and intervals that are locked in shared mode.
    pub ranges: Vec<HeldRange>,
    /// Rows that are locked without a change: the row was never changed, or its change was undone.
    pub rows: Vec<LoggedChange>,
    /// Bytes that the caller gave to [`Txn::prepare`](crate::Txn::prepare). A restart returns them.
    pub note: Box<[u8]>,
}
