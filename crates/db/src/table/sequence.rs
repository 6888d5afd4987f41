//! Numbers for new rows.

use super::Table;
use crate::{Error, Result, Transaction};
use std::ptr;

/// The largest number that a caller may skip to. So no number of calls uses up the rest.
const MAX_SKIPPED: u64 = i64::MAX as u64;

impl Transaction {
    /// Returns a number for a new row, which no other call has returned for this table. Calls of one transaction get
    /// growing numbers.
    ///
    /// Transactions that ask do not wait for each other, and a rollback takes no number back. So numbers may be
    /// missing, up to a thousand of them after a restart, and those of two transactions come in any order. Once in a
    /// thousand numbers the call waits for a durable write.
    ///
    /// The numbers belong to the table, and have nothing to do with its rows. They begin at 1 for a new table, also for
    /// one that is created under the name of a dropped one. [`clear_table`](Self::clear_table) and
    /// [`rename_table`](Self::rename_table) leave them as they are. A transaction that has opened the table before such
    /// a call, and one that opens it afterwards, never get the same number. A dump of rows does not carry the numbers:
    /// after a load, [`skip_ids`](Self::skip_ids) moves them on.
    ///
    /// The wait for the durable write is not limited by the deadline or the lock timeout of the transaction.
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
        self.check_own(table)?;
        self.with(|engine, _| engine.catalogue.sequences().next(&engine.admission, table.tree.table()))
    }

    /// Makes the numbers of [`next_id`](Self::next_id) begin above `last`, for calls that begin later. It takes effect
    /// at once, durably, and no rollback takes it back. Numbers never go back: a smaller `last` changes nothing.
    ///
    /// # Errors
    /// `InvalidOption` if `table` was opened by another transaction, or `last` is 2^63 or more. `DiskFull`, and those
    /// of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const USERS: TableDef<u64, &str> = TableDef::new("users");
    /// db.run(|tx| {
    ///     let users = tx.open(USERS)?;
    ///     users.put(5000, "loaded from elsewhere")?;
    ///     let last = users.last()?.map_or(0, |(id, _)| id);
    ///     tx.skip_ids(&users, last)?;
    ///     assert_eq!(tx.next_id(&users)?, 5001);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn skip_ids<K, V>(&self, table: &Table<'_, K, V>, last: u64) -> Result<()> {
        self.check_own(table)?;
        if last > MAX_SKIPPED {
            let (value, expected) = (last.to_string(), "a number below 2^63".to_owned());
            return Err(Error::InvalidOption { name: "last", value, expected });
        }
        self.with(|engine, _| engine.catalogue.sequences().skip(&engine.admission, table.tree.table(), last))
    }

    /// Refuses a table that another transaction has opened.
    fn check_own<K, V>(&self, table: &Table<'_, K, V>) -> Result<()> {
        if ptr::eq(self, table.tx) {
            return Ok(());
        }
        let (value, expected) = (table.tree.name().to_owned(), "a table that this transaction has opened".to_owned());
        Err(Error::InvalidOption { name: "table", value, expected })
    }
}
