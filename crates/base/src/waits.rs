//! Which transaction waits for which: the cycle that an error names.

use crate::TableId;
use crate::key::write_key;
use std::{fmt, sync::Arc};

/// Most waiters of a cycle that an error names.
pub const MAX_NAMED: usize = 8;

/// A table as an error names it. Two are equal if their numbers are.
#[derive(Clone, Debug)]
pub struct TableRef {
    /// Its number.
    pub id: TableId,
    /// Its name. Layers below the catalogue do not know it, so `db` adds it. It stays `None` if another transaction has
    /// created the table and not committed, or if the table is the engine's own.
    pub name: Option<Arc<str>>,
    /// The name of the type of its keys, by which messages show them decoded. It comes with the name of the table.
    pub key_type: Option<Arc<str>>,
}

impl From<TableId> for TableRef {
    fn from(id: TableId) -> Self {
        Self { id, name: None, key_type: None }
    }
}

impl PartialEq for TableRef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for TableRef {}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name:?}"),
            None => write!(f, "{}", self.id),
        }
    }
}

/// What a transaction waits for. Keys are encoded, and cut off after [`MAX_NAMED_KEY`](crate::MAX_NAMED_KEY) bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lockable {
    /// A whole table.
    Table(TableRef),
    /// A key, whether it exists or not.
    Row(TableRef, Vec<u8>),
}

impl Lockable {
    /// Its table.
    #[must_use]
    pub const fn table(&self) -> &TableRef {
        match self {
            Self::Table(table) | Self::Row(table, _) => table,
        }
    }

    /// The same, to put its name in.
    pub const fn table_mut(&mut self) -> &mut TableRef {
        match self {
            Self::Table(table) | Self::Row(table, _) => table,
        }
    }
}

impl fmt::Display for Lockable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(f, "table {table}"),
            Self::Row(table, key) => {
                write!(f, "table {table} key ")?;
                write_key(f, table.key_type.as_deref(), key)
            }
        }
    }
}

/// A transaction in a cycle of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its label.
    pub label: &'static str,
    /// What it waits for: the next one in the cycle has it, or waits for it in front.
    pub waits_for: Lockable,
}
