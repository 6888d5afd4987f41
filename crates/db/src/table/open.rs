//! The tables of a transaction: opened, listed and dropped.

use super::Table;
use super::kept::Kept;
use crate::catalogue::{Catalogue, Missing, RowTypes, TreeRef};
use crate::index_def::{Definition, TableIndex};
use crate::live::Live;
use crate::table_def::check_name;
use crate::watches::WatchKey;
use crate::{Error, ListedTable, Result, TableDef, Transaction};
use foreshore_base::Few;
use foreshore_base::key::{Key, Value};
use foreshore_lock::TableMode;
use std::marker::PhantomData;

impl Transaction {
    /// Opens a table, and creates it if there is none. The creation is part of the transaction: other transactions that
    /// open an absent table wait until this one ends.
    ///
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) a table that was dropped since the transaction began can
    /// still be read. A write to it returns [`Error::TableDropped`](crate::Error::TableDropped).
    ///
    /// Indexes that the definition declares and the table lacks are built here: see
    /// [`TableDef::with_indexes`](TableDef::with_indexes). Such a call waits for the transactions that write the table.
    ///
    /// # Errors
    /// `TableName`, `TableTypes`, and those of any operation. `IndexKeyExists` if two rows have one key of a new unique
    /// index, and `KeyTooLarge` for a key of a new index: these two end the transaction.
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<Table<'_, K, V>> {
        let table = self.open_by(def, RowTypes::of::<K, V>(), Catalogue::open)?;
        self.open_indexes(table, def.indexes(), Missing::Create)
    }

    /// Opens an existing table. Creates neither a table nor an index. At
    /// [`Isolation::Serializable`](crate::Isolation::Serializable) the answer stays true until the transaction ends: no
    /// other one drops the table, or creates it if it is absent. At the other levels the call waits for no other
    /// transaction, unless the definition declares an index that is not known yet.
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `TableTypes`, and those of any operation. `NoIndex` and `IndexTypes` for a declared
    /// index that is missing or was built by another definition.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// assert!(matches!(db.begin().open_existing(STOCK), Err(Error::NoTable { .. })));
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// assert_eq!(db.begin().open_existing(STOCK)?.get(1)?, Some(10));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_existing<K: Key + 'static, V: Value + 'static>(
        &self,
        def: TableDef<'_, K, V>,
    ) -> Result<Table<'_, K, V>> {
        let table = self.open_by(def, RowTypes::of::<K, V>(), Catalogue::open_existing)?;
        self.open_indexes(table, def.indexes(), Missing::Refuse)
    }

    /// Opens the declared indexes of a table.
    pub(super) fn open_indexes<'tx, K: Key + 'static, V: Value + 'static>(
        &'tx self,
        table: Table<'tx, K, V>,
        indexes: &[&'static dyn TableIndex<K, V>],
        missing: Missing,
    ) -> Result<Table<'tx, K, V>> {
        // A table that was dropped since the snapshot of the transaction is only read.
        if indexes.is_empty() || table.tree.is_retired() {
            return Ok(table);
        }
        // Read before the search for indexes: an index that the search misses has then changed the word.
        let word = table.tree.indexes().word();
        let defs = || indexes.iter().map(|&index| index as &'static dyn Definition);
        let known = self.with(|engine, live| Ok(engine.catalogue.known_indexes(live, &table.tree, defs())))?;
        if let Some(known) = known {
            return Ok(Table { kept: Kept::new(known, word), ..table });
        }
        let opened = self.with(|engine, live| engine.catalogue.open_indexes(live, &table.tree, defs(), missing));
        let built = opened.and_then(|declared| {
            let table = Table { kept: Kept::new(declared, word), ..table };
            table.build_new().map(|()| table)
        });
        match missing {
            // Ends the transaction: a savepoint before the build would keep its whole undo in memory.
            Missing::Create => built.map_err(|error| self.end_by(error)),
            Missing::Refuse => built,
        }
    }

    /// Returns the tables that the transaction sees, by name. A serializable transaction locks the list: no other
    /// transaction creates or drops a table until it ends.
    ///
    /// # Errors
    /// Those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK).map(drop))?;
    /// let tables = db.read().tables()?;
    /// assert_eq!((&*tables[0].name, &*tables[0].key_type, &*tables[0].value_type), ("stock", "u64", "i64"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn tables(&self) -> Result<Vec<ListedTable>> {
        self.with(|engine, live| engine.catalogue.list(live))
    }

    /// Returns the tables that damage of the catalogue does not hide, and that damage.
    pub(crate) fn readable_tables(&self) -> Result<(Vec<ListedTable>, Vec<Error>)> {
        self.with(|engine, live| engine.catalogue.list_readable(live))
    }

    /// Opens a table that the snapshot of a reader sees.
    pub(crate) fn open_known<K: Key + 'static, V: Value + 'static>(
        &self,
        def: TableDef<'_, K, V>,
    ) -> Result<Table<'_, K, V>> {
        self.open_by(def, RowTypes::of::<K, V>(), Catalogue::open_known)
    }

    /// Opens the table that `find` returns, and notes it as opened.
    pub(super) fn open_by<'t, K: Key, V: Value>(
        &'t self,
        def: TableDef<'_, K, V>,
        types: RowTypes<'_>,
        find: impl FnOnce(&'t Catalogue, &mut Live, &str, RowTypes<'_>) -> Result<TreeRef<'t>>,
    ) -> Result<Table<'t, K, V>> {
        let name = def.checked_name()?;
        let tree = self.with(|engine, live| {
            let tree = find(&engine.catalogue, live, name, types)?;
            live.scratch.opened.add(tree.table());
            Ok(tree)
        })?;
        let kept = Kept::new(Few::None, tree.indexes().word());
        Ok(Table { tx: self, tree, kept, merge: def.merge(), types: PhantomData })
    }

    /// Drops the table `name` with all its rows and indexes. Returns whether there was one.
    ///
    /// - The call waits until no other transaction writes the table or has locks in it. A transaction that has opened
    ///   the table and not used it yet gets [`Error::TableDropped`](crate::Error::TableDropped).
    /// - Readers by snapshot from before the commit go on reading the table. The call does not wait for them.
    /// - The pages become free in the background, once this transaction has committed and no such snapshot is left.
    /// - Later writes of this transaction, through a [`Table`] that it opened before, are dropped with the table.
    /// - Some hundred bytes of memory remain for each dropped, cleared or renamed table until the database is closed.
    ///
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) the call drops the table that the snapshot sees. If
    /// another transaction has dropped that one since, it returns [`Error::TableDropped`](crate::Error::TableDropped),
    /// even if a new table has the name. If the snapshot sees none and a table was created since, it returns
    /// [`Error::Conflict`](crate::Error::Conflict). Both are retryable.
    ///
    /// # Errors
    /// `TableName`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// assert!(db.run(|tx| tx.drop_table("stock"))?);
    /// assert!(!db.run(|tx| tx.drop_table("stock"))?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let name = TableDef::<&[u8], &[u8]>::new(name).checked_name()?;
        self.with(|engine, live| engine.catalogue.drop(live, name))
    }

    /// Removes all rows of the table `name`, in a time that does not depend on their number. Returns whether there is
    /// such a table. [`Table::clear`] removes them one by one, and lets other transactions use the table meanwhile.
    ///
    /// The call drops the table and creates it again, empty, with its types and indexes. What
    /// [`drop_table`](Self::drop_table) says of waits, snapshots and pages applies here too. A [`Table`] that any
    /// transaction opened before refers to the dropped table: open it again. [`next_id`](Self::next_id) goes on behind
    /// the numbers that the table had.
    ///
    /// # Errors
    /// `TableName`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let before = db.read();
    /// assert!(db.run(|tx| tx.clear_table("stock"))?);
    /// assert_eq!((before.open(STOCK)?.len()?, db.read().open(STOCK)?.len()?), (1, 0));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clear_table(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.with(|engine, live| engine.catalogue.clear(live, &engine.admission, name))
    }

    /// Renames the table `name` with its indexes. Rows, the numbers of [`next_id`](Self::next_id) and watches stay with
    /// it. Returns whether there was one. Another table may get the old name in the same transaction.
    ///
    /// - The call waits until no other transaction writes the table or has locks in it. A transaction that has opened
    ///   the table and not used it yet gets [`Error::TableDropped`](crate::Error::TableDropped).
    /// - Readers by snapshot from before the commit find the table by its old name, and only by that. The call does not
    ///   wait for them.
    /// - This transaction goes on reading through a [`Table`] that it opened before. If the table has indexes, a write
    ///   through that one returns [`Error::IndexesChanged`](crate::Error::IndexesChanged).
    ///
    /// At [`Isolation::Snapshot`](crate::Isolation::Snapshot) the call returns `TableDropped` or `Conflict` where
    /// [`drop_table`](Self::drop_table) does. Opening a table by a name that it got since the snapshot is a `Conflict`
    /// too.
    ///
    /// # Errors
    /// `TableExists` if `new_name` is that of another table; `TableName`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const TODAY: TableDef<u64, i64> = TableDef::new("today");
    /// const YESTERDAY: TableDef<u64, i64> = TableDef::new("yesterday");
    /// db.run(|tx| tx.open(TODAY)?.put(1, 10))?;
    /// db.run(|tx| {
    ///     assert!(tx.rename_table("today", "yesterday")?);
    ///     tx.open(TODAY)?.put(1, 20)
    /// })?;
    /// assert_eq!(db.read().open(YESTERDAY)?.get(1)?, Some(10));
    /// let refused = db.begin().rename_table("today", "yesterday");
    /// assert!(matches!(refused, Err(Error::TableExists { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<bool> {
        check_name(name)?;
        check_name(new_name)?;
        self.with(|engine, live| engine.catalogue.rename(live, name, new_name))
    }

    /// Drops the index `index` of the table `table`. Returns whether there was one.
    ///
    /// The call waits until no other transaction writes the table or has locks in the index. Until this transaction
    /// ends, no other one writes the table. Readers by snapshot from before the commit go on reading the index.
    ///
    /// A later [`open`](Self::open) with a definition that declares the index builds it again.
    ///
    /// # Errors
    /// `TableName`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_LENGTH: IndexDef<u64, &str, u64> =
    ///     IndexDef::new("by length", |_, name: &String, keys| keys.add(name.len() as u64));
    /// const PLAIN: TableDef<u64, &str> = TableDef::new("names");
    /// const NAMES: TableDef<u64, &str> = PLAIN.with_indexes(&[&BY_LENGTH]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(NAMES)?.put(1, "Ada"))?;
    /// let refused = db.run(|tx| tx.open(PLAIN)?.put(2, "Grace"));
    /// assert!(matches!(refused, Err(Error::IndexUndeclared { .. })));
    /// assert!(db.run(|tx| tx.drop_index("names", "by length"))?);
    /// db.run(|tx| tx.open(PLAIN)?.put(2, "Grace"))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_index(&self, table: &str, index: &str) -> Result<bool> {
        check_name(table)?;
        check_name(index)?;
        self.with(|engine, live| engine.catalogue.drop_index(live, table, index))
    }
}

impl<K, V> Table<'_, K, V> {
    /// Adds a watch of this table. The table stays locked against a drop until the transaction ends. So a drop either
    /// finds the watch or is found here.
    pub(crate) fn watch(&self) -> Result<WatchKey> {
        self.tx.with(|engine, live| {
            let table = self.tree.table();
            live.txn.lock_table(table, TableMode::IntentShared)?;
            if self.tree.is_retired() {
                live.txn.observe_ended();
                return Err(Error::TableDropped { table: table.into() });
            }
            engine.catalogue.watches().add(table)
        })
    }
}
