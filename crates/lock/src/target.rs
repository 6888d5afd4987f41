//! The target of a lock, and its name in errors.

use foreshore_base::{Lockable, MAX_NAMED_KEY, TableId};
use std::borrow::Cow;

/// A key of a table, whether it exists or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
}

impl<'a> Target<'a> {
    /// Returns the target for a key of a table.
    #[must_use]
    pub const fn row(table: TableId, key: &'a [u8]) -> Self {
        Self { table, key }
    }
}

/// The name of what an owner waits for. It borrows the key until an error needs a copy.
#[derive(Clone, Debug)]
pub(crate) enum LockName<'a> {
    Table(TableId),
    Row(TableId, Cow<'a, [u8]>),
}

impl<'a> LockName<'a> {
    pub(crate) const fn row(target: Target<'a>) -> Self {
        Self::Row(target.table, Cow::Borrowed(target.key))
    }

    /// Copies the name into an error. A long key is cut off at [`MAX_NAMED_KEY`] bytes.
    pub(crate) fn to_lockable(&self) -> Lockable {
        match self {
            Self::Table(table) => Lockable::Table((*table).into()),
            Self::Row(table, key) => Lockable::Row((*table).into(), key[..key.len().min(MAX_NAMED_KEY)].to_vec()),
        }
    }
}
