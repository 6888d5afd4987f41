//! Numbers for new rows.

use super::Table;
use crate::{Error, Result, Transaction};
use std::ptr;

impl Transaction {
    /// Returns a number that no other call has returned for this table, from 1 upwards.
    ///
    /// Transactions that ask do not wait for each other, and a rollback takes no number back. So numbers may be
    /// missing, up to a thousand of them after a restart, and those of two transactions come in any order. Once in a
    /// thousand numbers the call waits for a durable write.
    ///
    /// The numbers belong to the table, and have nothing to do with its rows. A new table with the name of a dropped
    /// one begins at 1 again.
    ///
    /// # Errors
    /// `InvalidOption` if `table` was opened by another transaction. `DiskFull`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const USERS: TableDef<u64, &str> = TableDef::new("users");
    /// let add = |name| {
    ///     db.run(|tx| {
    ///         let users = tx.open(USERS)?;
    ///         let id = tx.next_id(&users)?;
    ///         users.insert_new(id, name).map(|()| id)
    ///     })
    /// };
    /// assert_eq!((add("Ada")?, add("Alan")?), (1, 2));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn next_id<K, V>(&self, table: &Table<'_, K, V>) -> Result<u64> {
        if !ptr::eq(self, table.tx) {
            let (value, expected) = (table.tree.name().to_owned(), "a table that this transaction has opened".into());
            return Err(Error::InvalidOption { name: "table", value, expected });
        }
        self.with(|engine, _| engine.catalogue.sequences().next(&engine.admission, table.tree.table()))
    }
}
