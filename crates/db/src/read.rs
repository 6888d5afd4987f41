//! Transactions that only read, by one snapshot and without locks.
//!
//! Several threads may share one. Each thread then has an internal transaction of its own, with a copy of the snapshot.
//! So their reads write no common memory, and cost as much as reads of a single thread.

mod single;
mod table;

pub use single::SingleReader;
pub use table::ReadTable;

use crate::engine::EngineRef;
use crate::{CommitTicket, Db, Error, ListedTable, ReadOptions, Result, TableDef, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_sync::{BiasedOwner, PerThread};
use foreshore_txn::SnapshotRef;
use std::{fmt, sync::Arc};

impl Db {
    /// Begins a transaction that reads by a snapshot of what is durable now. It sees every commit that was acknowledged
    /// as durable before the call.
    ///
    /// It waits for no writer. Neither a writer nor a transaction that drops one of its tables waits for it.
    ///
    /// Never fails. The first operation returns the error, as after [`begin`](Self::begin).
    #[must_use]
    pub fn read(&self) -> ReadTransaction {
        self.read_with(ReadOptions::new())
    }

    /// Begins a transaction that only reads, with `options`.
    #[must_use]
    pub fn read_with(&self, options: ReadOptions) -> ReadTransaction {
        let engine = self.engine_ref();
        ReadTransaction::new(engine, options, self.begin_with(options.into_txn_options()))
    }
}

/// A transaction that only reads, by one snapshot. In the serial order it comes after the writers whose commits it sees
/// and before all others. [`Db::read`] begins it.
///
/// The engine keeps old versions of rows for it, and the pages of tables that are dropped meanwhile. It is cancelled
/// when it becomes too old, or when these versions and pages take too much space. Its operations then return
/// [`SnapshotTooOld`](crate::Error::SnapshotTooOld).
///
/// **Threads.** Many threads may use it at once, and each opens its tables itself: a [`ReadTable`] stays on its thread.
/// Each further thread uses a session of its own and counts as a transaction, until the thread or the read transaction
/// ends. An error that ends the transaction ends it only for the thread that gets the error.
///
/// ```
/// # use foreshore::{Db, Error, ReadOptions, TableDef};
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
/// let reader = db.read();
/// db.run(|tx| tx.drop_table("stock").map(drop))?;
/// assert_eq!(reader.open(STOCK)?.get(1)?, Some(10));
/// assert_eq!((reader.tables()?.len(), reader.open_raw("stock")?.len()?), (1, 1));
/// reader.finish()?.wait()?;
/// assert!(db.read_with(ReadOptions::new().latest()).tables()?.is_empty());
/// # Ok::<(), Error>(())
/// ```
///
/// ```
/// # use foreshore::{Db, Error, TableDef};
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// db.run(|tx| (0..1000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
/// let reader = db.read();
/// let sum = std::thread::scope(|scope| {
///     let parts = [0..250, 250..500, 500..750, 750..1000];
///     let threads = parts.map(|part| {
///         scope.spawn(|| reader.open(STOCK)?.range(part).try_fold(0, |sum, row| Ok::<_, Error>(sum + row?.1)))
///     });
///     threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<Result<i64, Error>>()
/// })?;
/// assert_eq!(sum, 10_000);
/// # Ok::<(), Error>(())
/// ```
pub struct ReadTransaction {
    /// The snapshot that the transactions of all threads share, or why the transaction did not begin. Dropped before
    /// those transactions, so that their sessions can reuse its memory.
    snapshot: Result<SnapshotRef>,
    engine: EngineRef,
    options: ReadOptions,
    threads: PerThread<Transaction>,
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<ReadTransaction>();
};

impl ReadTransaction {
    fn new(engine: EngineRef, options: ReadOptions, first: Transaction) -> Self {
        let snapshot = first.if_live(|live| live.txn.own_snapshot()).flatten();
        let snapshot = snapshot.ok_or_else(|| first.failure().unwrap_or_else(|| foreshore_base::Error::Closed.into()));
        Self { snapshot, engine, options, threads: PerThread::new(first) }
    }

    /// Returns the transaction of the calling thread.
    fn here(&self) -> Result<&Transaction> {
        self.threads.get(|| self.begin_same())
    }

    /// Begins another transaction by the same snapshot.
    fn begin_same(&self) -> Result<Transaction> {
        let snapshot = self.snapshot.as_ref().map_err(Clone::clone)?;
        let engine = BiasedOwner::new(Arc::clone(&self.engine)).hand_out();
        let txns = engine.admission.txns().reference();
        // The thread that drops this one ends it. A count here would stay.
        let same = Transaction::begin((engine, txns), self.options.into_txn_options()).uncounted();
        same.with(|_, live| Ok(live.txn.share_snapshot(snapshot)?))?;
        Ok(same)
    }

    /// Opens a table as it was when the snapshot was taken.
    ///
    /// A table that was dropped since is still there with its rows, even if another table has its name by now. A table
    /// that was created since, under a name that was free, is empty.
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `TableTypes`, `SnapshotTooOld`, and those of any operation.
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<ReadTable<'_, K, V>> {
        self.here()?.open_known(def).map(|table| ReadTable { table })
    }

    /// Opens a table as [`open`](Self::open) does, whatever its types. Keys and values are passed and returned encoded:
    /// see [`Transaction::open_raw`].
    ///
    /// # Errors
    /// `NoTable`, `TableName`, `SnapshotTooOld`, and those of any operation.
    pub fn open_raw(&self, name: &str) -> Result<ReadTable<'_, &'static [u8], &'static [u8]>> {
        self.here()?.open_known_raw(name).map(|table| ReadTable { table })
    }

    /// Begins another transaction that reads by the same snapshot, and may outlive this one. It counts as a transaction
    /// of its own.
    ///
    /// # Errors
    /// `SnapshotTooOld`, `TooManyTransactions`, and those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| (0..10_000).try_for_each(|n| tx.open(STOCK)?.put(n, 10)))?;
    /// let (reader, other) = (db.read(), db.read().fork()?);
    /// let half = reader.open(STOCK)?.split_points(2)?[0];
    /// let fork = reader.fork()?;
    /// let upper = std::thread::spawn(move || fork.open(STOCK)?.count(half..));
    /// let lower = reader.open(STOCK)?.count(..half)?;
    /// assert_eq!(lower + upper.join().unwrap()?, other.open(STOCK)?.len()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fork(&self) -> Result<Self> {
        let engine = BiasedOwner::new(Arc::clone(&self.engine)).hand_out();
        self.begin_same().map(|first| Self::new(engine, self.options, first))
    }

    /// Returns the tables as they were when the snapshot was taken, by name, as [`Transaction::tables`] does.
    ///
    /// # Errors
    /// Those of any operation.
    pub fn tables(&self) -> Result<Vec<ListedTable>> {
        self.here()?.tables()
    }

    /// Returns the tables as [`tables`](Self::tables) does, except those that damaged pages of the catalogue hide, and
    /// the error of each of these pages. The transaction goes on.
    ///
    /// # Errors
    /// Those of any operation.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Salvaged, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let reader = db.read();
    /// let (tables, damage) = reader.readable_tables()?;
    /// assert!(damage.is_empty());
    /// for item in reader.open_raw(&tables[0].name)?.salvage() {
    ///     match item? {
    ///         Salvaged::Row { key, value } => println!("{key:?}: {value:?}"),
    ///         lost => panic!("{lost:?}"),
    ///     }
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn readable_tables(&self) -> Result<(Vec<ListedTable>, Vec<Error>)> {
        self.here()?.readable_tables()
    }

    /// Returns the same transaction for one thread at a time. It has just begun.
    #[doc(hidden)]
    #[must_use]
    pub fn into_single(self) -> SingleReader {
        drop(self.snapshot);
        SingleReader(self.threads.into_values().0)
    }

    /// Ends the transaction. The ticket resolves when everything that was read, by all threads, is durable.
    ///
    /// That is at once, unless the transaction read by [`ReadOptions::latest`], or read a table whose creation is not
    /// durable.
    ///
    /// # Errors
    /// `RolledBack` if an earlier error ended the transaction, and no other thread has used it.
    pub fn finish(self) -> Result<CommitTicket> {
        let Self { snapshot, threads, .. } = self;
        drop(snapshot);
        let (first, others) = threads.into_values();
        let Some(seen) = others.iter().map(Transaction::end_without_commit).max() else {
            return first.commit_pipelined();
        };
        if first.failure().is_some() {
            let seen = seen.max(first.end_without_commit());
            return Ok(first.ticket_of(seen));
        }
        first.if_live(|live| live.txn.observe(seen));
        first.commit_pipelined()
    }
}

impl fmt::Debug for ReadTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTransaction").field("snapshot", &self.snapshot.as_deref()).finish_non_exhaustive()
    }
}
