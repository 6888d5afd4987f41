//! What a point lock is on: a key of a table, whether it exists or not.

use foreshore_base::TableId;

/// A key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
}

impl<'a> Target<'a> {
    /// The row of a key.
    #[must_use]
    pub const fn row(table: TableId, key: &'a [u8]) -> Self {
        Self { table, key }
    }
}
