//! The handle of an open database.

use crate::engine::Engine;
use crate::{Options, Report, Stats, Transaction, TxnOptions};
use foreshore_base::{Csn, Result};
use std::{fmt, path::Path, sync::Arc, time::Duration};

/// An open database. Clones are handles of the same one; they may be used from any thread.
///
/// Dropping the last handle closes the database as [`close`](Self::close) with no wait does.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

/// What all clones share. Transactions hold the engine, not this, so its drop means that no handle is left.
struct Handle {
    engine: Arc<Engine>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No thread is left to tell. The next open recovers whatever this could not write.
        let _ = self.engine.close(Duration::ZERO);
    }
}

impl Db {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { handle: Arc::new(Handle { engine }) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Opens the database in directory `path` with the default [`Options`], and creates it where there is none.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Begins a serializable, durable transaction.
    ///
    /// Never fails here: a database that is closed, stopped or full of transactions says so at the first operation.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(TxnOptions::new())
    }

    /// Begins a transaction. As with [`begin`](Self::begin), options out of range are refused at the first operation.
    #[must_use]
    pub fn begin_with(&self, options: TxnOptions) -> Transaction {
        Transaction::begin(self.engine(), options)
    }

    /// The newest commit that survives power loss, with all before it.
    #[must_use]
    pub fn durable_csn(&self) -> Csn {
        self.engine().log.durable().csn()
    }

    /// Waits until everything that was committed before the call is durable, relaxed commits too.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        engine.log.force(engine.log.current())
    }

    /// Takes a checkpoint: what is committed goes to the data file and a restart has nearly nothing to redo. No thread
    /// stops for it, and no commit depends on it.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `DiskFull`.
    pub fn checkpoint(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        engine.checkpointer.checkpoint()
    }

    /// Frees the pages of all dropped tables that no snapshot from before the drop needs, which background work does
    /// otherwise, and cuts the free pages at the end of the data file off, but for a reserve. Returns by how many bytes
    /// the file is shorter. Others read and write meanwhile; if they use the reserve up, the file stays as it is.
    ///
    /// Pages in use are not moved: the file ends behind the last of them.
    ///
    /// # Errors
    /// `LockTimeout` while a check goes on in a dropped table; otherwise as a transaction's. What has been freed is free.
    pub fn vacuum(&self) -> Result<u64> {
        let engine = self.engine();
        engine.check_open()?;
        engine.vacuum()
    }

    /// Counters of every layer. Each is exact; together they are not one moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Checks the whole database while others use it: every page's checksum in memory and on disk, the order and links of
    /// every tree, and that each page is owned once or free. Readers and writers of rows do not wait for it. A transaction that drops a
    /// table that is being walked waits for a few pages, and the check waits for those that have created or dropped tables.
    ///
    /// What changes meanwhile counts as it is met: the rows of the report are those of no one moment. Checks run one after another;
    /// one has a place also where there are as many transactions as there may be.
    ///
    /// # Errors
    /// `Corrupted` with the first thing that is wrong; otherwise as a transaction's.
    pub fn check(&self) -> Result<Report> {
        crate::check::check(self)
    }

    /// As [`check`](Self::check), but goes on after damage: the report names every damaged page, with its table where that is known.
    ///
    /// # Errors
    /// `Corrupted` for damage that is none of a page; otherwise as a transaction's.
    pub fn examine(&self) -> Result<Report> {
        crate::check::examine(self)
    }

    /// Closes the database: refuses new transactions, waits at most `wait` for running ones, takes a final checkpoint
    /// and gives the directory back. Every handle answers `Closed` afterwards.
    ///
    /// Transactions that are left when the wait is over answer `Closed` too. They are not rolled back here: the log
    /// stops, and the next open takes back what they did.
    ///
    /// While another call closes the database, this one waits for it. The shortest `wait` of such calls counts for all, that of
    /// [`reopen`](Self::reopen), which is none, too.
    ///
    /// # Errors
    /// `Poisoned` or what the final checkpoint met. The database is closed all the same, and the next open recovers it.
    pub fn close(&self, wait: Duration) -> Result<()> {
        self.engine().close(wait)
    }

    /// Stops the database, whatever its state, and opens it again: after a failed write or sync this tells what has
    /// survived. Waits for the writes in flight, not for transactions, and ends the wait of a [`close`](Self::close) for them. Older
    /// handles answer `Closed`.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn reopen(&self) -> Result<Self> {
        let engine = self.engine();
        // What it would report is what the caller reopens for.
        let _ = engine.close(Duration::ZERO);
        engine.open_again().map(Self::new)
    }

    /// Runs one piece of background work, chosen by the seed of [`Options::step_seed`], on the calling thread. For
    /// databases opened without background threads.
    pub fn step(&self) {
        self.engine().step();
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.engine().files.dir).finish_non_exhaustive()
    }
}
