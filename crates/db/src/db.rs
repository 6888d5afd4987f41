//! The handle of an open database.

mod copies;
mod opening;

use crate::engine::{Engine, EngineRef};
use crate::vacuum::vacuum;
use crate::watches::TableSet;
use crate::{Error, HotKey, HotPage, PreparedTxn, Profile, Result, Stats, Transaction, TxnOptions, daemons, open};
use foreshore_base::{Csn, Lockable};
use foreshore_sync::{BiasedMutex, BiasedOwner, CachePadded, Hot, LockRank, thread_index};
use foreshore_txn::{ManagerRef, TxnManager};
use std::{fmt, sync::Arc, time::Duration};

/// An open database. Clones are handles of the same database and may be used from any thread.
///
/// Dropping the last handle closes the database as [`close`](Self::close) does with a wait of zero.
///
/// ```
/// # use foreshore::{Db, Durability, Error, TableDef, TxnOptions};
/// # use std::time::Duration;
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
/// tx.open(STOCK)?.put(1, 10)?;
/// let csn = tx.commit()?;
/// db.sync()?;
/// assert!(db.durable_csn() >= csn);
/// let tx = db.begin();
/// assert_eq!(tx.open(STOCK)?.remove(1)?, Some(10));
/// tx.commit()?;
///
/// db.checkpoint()?;
/// db.vacuum()?;
/// assert!(db.stats().txn.commits >= 2);
/// db.close(Duration::from_secs(10))?;
/// assert!(db.reopen()?.run(|tx| tx.open(STOCK)?.is_empty())?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

/// State that all clones of a [`Db`] share. Transactions refer to the engine only, so this is dropped with the last
/// clone.
struct Handle {
    engine: Arc<Engine>,
    owners: ShardedOwners,
}

/// The number of shards: more than the threads that run at once on most machines. Surplus threads share shards.
const SHARDS: usize = 64;

/// Reference counts of the engine and its transaction manager, in one shard for each group of threads.
///
/// A transaction has a reference to both, which keeps them alive. If all threads wrote the same count, its cache line
/// would move between them twice in each transaction. So a transaction is counted in the shard of the thread that
/// begins it.
struct ShardedOwners {
    shards: Box<[CachePadded<BiasedMutex<Owners>>]>,
}

struct Owners {
    engine: BiasedOwner<Arc<Engine>>,
    txns: BiasedOwner<Arc<TxnManager>>,
}

impl ShardedOwners {
    fn new(engine: &Arc<Engine>) -> Self {
        let shard = |_| {
            let (engine, txns) =
                (BiasedOwner::new(Arc::clone(engine)), BiasedOwner::new(Arc::clone(engine.admission.txns())));
            CachePadded::new(BiasedMutex::new(LockRank::Leaf, Owners { engine, txns }))
        };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Returns the references for a new transaction.
    fn hand_out(&self) -> (EngineRef, ManagerRef) {
        let mut owners = self.shards[thread_index() % SHARDS].lock();
        (owners.engine.hand_out(), owners.txns.hand_out())
    }

    /// Returns a reference to the engine alone.
    fn engine_ref(&self) -> EngineRef {
        self.shards[thread_index() % SHARDS].lock().engine.hand_out()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No caller is left to get the error. The next open recovers what this could not write.
        let _ = self.engine.close(Duration::ZERO);
    }
}

impl Db {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let owners = ShardedOwners::new(&engine);
        Self { handle: Arc::new(Handle { engine, owners }) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Returns the references for a new transaction.
    pub(crate) fn hand_out(&self) -> (EngineRef, ManagerRef) {
        self.handle.owners.hand_out()
    }

    /// Returns a reference to the engine.
    pub(crate) fn engine_ref(&self) -> EngineRef {
        self.handle.owners.engine_ref()
    }

    /// Begins a serializable, durable transaction.
    ///
    /// Never fails. If the database is closed or stopped, or has no free session, the first operation returns the
    /// error.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(TxnOptions::new())
    }

    /// Begins a transaction with `options`. Like [`begin`](Self::begin), it reports failures, and options out of range,
    /// at the first operation.
    #[must_use]
    pub fn begin_with(&self, options: TxnOptions) -> Transaction {
        Transaction::begin(self.hand_out(), options)
    }

    /// Returns the commit number up to which all commits survive power loss.
    #[must_use]
    pub fn durable_csn(&self) -> Csn {
        self.engine().storage.log().durable().csn()
    }

    /// Waits until every commit before the call is durable, relaxed commits too.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        engine.admission.check_open()?;
        Ok(engine.storage.sync()?)
    }

    /// Takes a checkpoint: writes changed pages to the data file, so that a restart has almost nothing to redo. Reads
    /// and writes continue meanwhile.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `DiskFull`.
    pub fn checkpoint(&self) -> Result<()> {
        let engine = self.engine();
        engine.admission.check_open()?;
        Ok(engine.storage.checkpointer().checkpoint()?)
    }

    /// Truncates the data file. Returns the number of bytes cut off.
    ///
    /// 1. Frees the pages of dropped tables and of replaced large values that no snapshot needs. Without `vacuum`,
    ///    background work frees them.
    /// 2. Truncates the free pages at the end of the file, except a reserve that writers will soon need.
    ///
    /// Pages in use are not moved, so the file cannot end before the last of them: [`compact`](Self::compact) moves
    /// them. Other transactions read and write meanwhile. If they use up the reserve, or a [`backup`](Self::backup) is
    /// being made, the file keeps its length.
    ///
    /// # Errors
    /// `ReadOnly`, and the errors of any transaction. Pages freed before an error stay free.
    ///
    /// - A step that ends with a [retryable](crate::Error::is_retryable) error is repeated a few times, except after
    ///   `LockTimeout` and `TooManyTransactions`.
    /// - A dropped table that is damaged, or that a [`check`](Self::check) reads for longer than the lock timeout, is
    ///   skipped, and the others are freed. If a transaction keeps the list of tables locked, as after `drop_table`, no
    ///   further dropped table is freed.
    /// - Of several errors, the first is returned that is not retryable, or else the first.
    pub fn vacuum(&self) -> Result<u64> {
        let engine = self.engine();
        engine.admission.check_open()?;
        if engine.storage.directory().is_read_only() {
            return Err(Error::ReadOnly);
        }
        vacuum(engine)
    }

    /// Returns counters of every layer. Each is exact; together they are not a snapshot of one moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(self.engine())
    }

    /// Lists the prepared transactions: those that [`Transaction::prepare`](crate::Transaction::prepare) has prepared,
    /// in this run or an earlier one, and that are neither committed nor rolled back.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let tx = db.begin();
    /// tx.open(STOCK)?.put(1, 10)?;
    /// tx.prepare("order 7")?;
    /// // The other databases have prepared their parts, too.
    /// assert_eq!(db.prepared()?[0].name, "order 7");
    /// db.commit_prepared("order 7")?;
    /// assert_eq!(db.run(|tx| tx.open(STOCK)?.get(1))?, Some(10));
    /// assert!(matches!(db.rollback_prepared("order 7"), Err(Error::NoPrepared { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prepared(&self) -> Result<Vec<PreparedTxn>> {
        self.engine().admission.check_open()?;
        Ok(self.engine().prepared.all())
    }

    /// Commits a prepared transaction, and waits until the commit survives power loss. Returns its commit number.
    ///
    /// # Errors
    /// - `NoPrepared`: there is no prepared transaction of this name. If there was one, its commit or rollback is
    ///   durable.
    /// - `PreparedBusy`: another call is preparing, committing or rolling back the transaction.
    /// - `Closed`, `Poisoned`: whether it is committed is unknown until the next open.
    pub fn commit_prepared(&self, name: &str) -> Result<Csn> {
        let engine = self.engine();
        let (csn, dropped) = engine.admission.delaying_close(|| {
            let committed = engine.prepared.commit(name, &engine.catalogue, &engine.reclaimer)?;
            committed.map_or_else(|| self.no_prepared(name), Ok)
        })?;
        let watches = engine.catalogue.watches();
        watches.signal(&TableSet::ALL);
        dropped.into_iter().for_each(|table| watches.table_dropped(table));
        Ok(csn)
    }

    /// Rolls back a prepared transaction. The rollback is durable when this returns.
    ///
    /// # Errors
    /// Those of [`commit_prepared`](Self::commit_prepared). `RollbackParked`: the decision is durable, and the rest is
    /// rolled back later (see [`Transaction::rollback`](crate::Transaction::rollback)).
    pub fn rollback_prepared(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        engine.admission.delaying_close(|| {
            let rolled_back = engine.prepared.rollback(name)?;
            rolled_back.map_or_else(|| self.no_prepared(name), Ok)
        })?;
        engine.catalogue.watches().signal(&TableSet::ALL);
        Ok(())
    }

    /// Returns the error for a name that no prepared transaction has. A name is freed only after the end of its
    /// transaction is durable.
    fn no_prepared<T>(&self, name: &str) -> Result<T> {
        self.engine().admission.check_open()?;
        Err(Error::NoPrepared { name: name.to_owned() })
    }

    /// Returns how transactions have spent their time since the database was opened, while profiling was on (see
    /// [`set_profiling`](Self::set_profiling)). Only measured transactions count: on average one in [`Profile::ONE_IN`]
    /// of each thread. Background work does not count.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Profile, TableDef, TxnOptions};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.set_profiling(true)?;
    /// for n in 0..2 * u64::from(Profile::ONE_IN) {
    ///     db.run_with(TxnOptions::new().label("order"), |tx| tx.open(STOCK)?.put(n, 10))?;
    /// }
    /// for (label, time) in db.profile().labels {
    ///     println!("{label}: {:?} of {:?} is work", time.work, time.total());
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn profile(&self) -> Profile {
        let engine = self.engine();
        let key = |Hot { mut key, times: waits, spent: waited, overestimate }: Hot<Lockable>| {
            let table = key.table_mut();
            table.name = engine.catalogue.by_id(table.id).map(|info| info.names().0);
            HotKey { name: key.to_string(), waits, waited, overestimate }
        };
        let page = |Hot { key: page, times: waits, spent: waited, overestimate }| HotPage {
            page,
            waits,
            waited,
            overestimate,
        };
        Profile {
            labels: engine.profiler.labels(),
            hot_keys: engine.admission.txns().hot().into_iter().map(key).collect(),
            hot_pages: engine.storage.pool().hot_pages().into_iter().map(page).collect(),
        }
    }

    /// Switches profiling on or off for transactions that begin later.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn set_profiling(&self, on: bool) -> Result<()> {
        let engine = self.engine();
        engine.admission.check_open()?;
        engine.profiler.switch(on);
        Ok(())
    }

    /// Closes the database: refuses new transactions, waits at most `wait` for running ones, takes a final checkpoint
    /// and releases the directory. Every handle returns `Closed` afterwards.
    ///
    /// The memory is freed when the last handle is dropped. A new variable of the same name does not drop the old one.
    ///
    /// Transactions still running after the wait return `Closed` too. They are not rolled back here: the log stops, and
    /// the next open undoes their changes.
    ///
    /// A second call waits for the first. The shortest `wait` among such calls holds for all of them;
    /// [`reopen`](Self::reopen) counts as a call with a wait of zero.
    ///
    /// # Errors
    /// `Poisoned`, or the error of the final checkpoint. The database is closed all the same, and the next open
    /// recovers it.
    pub fn close(&self, wait: Duration) -> Result<()> {
        Ok(self.engine().close(wait)?)
    }

    /// Stops the database in any state and opens it again. After a failed write or sync this shows what has survived.
    ///
    /// Waits for the writes in flight, but not for transactions. A [`close`](Self::close) that waits for transactions
    /// stops waiting. Older handles return `Closed`, and hold their memory until they are dropped.
    ///
    /// # Errors
    /// Those of [`Options::open`](crate::Options::open).
    pub fn reopen(&self) -> Result<Self> {
        let engine = self.engine();
        // The caller knows of this error already: it is the reason for the reopen.
        let _ = engine.close(Duration::ZERO);
        open::reopen(engine).map(Self::new)
    }

    /// Runs one piece of background work on the calling thread, chosen by the seed of the lab options. For databases
    /// opened without background threads.
    #[doc(hidden)]
    pub fn step(&self) {
        daemons::step(self.engine());
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.engine().storage.files().dir).finish_non_exhaustive()
    }
}
