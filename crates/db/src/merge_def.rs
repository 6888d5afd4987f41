//! Merge operators of tables.

use foreshore_base::key::Value;
use std::fmt;

/// A merge operator: how an operand changes the value of a row.
///
/// The function gets the value, or `None` if there is no row, and the operand. It returns the new value. Declare it as
/// a constant, and name it in the definition of a table by [`TableDef::with_merge`](crate::TableDef::with_merge).
///
/// ```
/// # use foreshore::{Db, Error, MergeDef, TableDef};
/// # let db = Db::in_memory()?;
/// const ADD: MergeDef<u64> = MergeDef::new(|visits, more| visits.unwrap_or(0) + more);
/// const VISITS: TableDef<&str, u64> = TableDef::new("visits").with_merge(&ADD);
///
/// assert_eq!(db.run(|tx| tx.open(VISITS)?.merge("/home", 1))?, 1);
/// assert_eq!(db.run(|tx| tx.open(VISITS)?.merge("/home", 5))?, 6);
/// # Ok::<(), Error>(())
/// ```
pub struct MergeDef<V: Value> {
    function: fn(Option<V::Owned>, &V::Owned) -> V::Owned,
}

impl<V: Value> MergeDef<V> {
    /// Defines an operator. Its result depends on nothing but the value and the operand.
    #[must_use]
    pub const fn new(function: fn(Option<V::Owned>, &V::Owned) -> V::Owned) -> Self {
        Self { function }
    }

    /// Returns the new value of a row.
    pub(crate) fn apply(&self, old: Option<V::Owned>, operand: &V::Owned) -> V::Owned {
        (self.function)(old, operand)
    }
}

impl<V: Value> fmt::Debug for MergeDef<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeDef").finish_non_exhaustive()
    }
}
