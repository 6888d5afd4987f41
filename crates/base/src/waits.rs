//! Who waits for what: the cycle that an error names.

use crate::TableId;
use std::fmt;

/// Most waiters of a cycle, and most bytes of a key, that an error names.
pub const MAX_NAMED: usize = 8;
/// See [`MAX_NAMED`].
pub const MAX_NAMED_KEY: usize = 64;

/// What a transaction waits for. Keys are encoded, and cut off after [`MAX_NAMED_KEY`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lockable {
    /// A whole table.
    Table(TableId),
    /// A key, whether it exists or not.
    Row(TableId, Vec<u8>),
    /// The keys between a key and the one before it; without a key those behind the last.
    Gap(TableId, Option<Vec<u8>>),
}

impl fmt::Display for Lockable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(f, "table {table}"),
            Self::Row(table, key) => write!(f, "table {table} key {}", key.escape_ascii()),
            Self::Gap(table, Some(key)) => write!(f, "table {table} gap before key {}", key.escape_ascii()),
            Self::Gap(table, None) => write!(f, "table {table} gap at the end"),
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
