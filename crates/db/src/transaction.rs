//! Transactions as a user sees them.

use crate::engine::Engine;
use crate::profile::Meter;
use crate::run::Begun;
use crate::tables::TableInfo;
use crate::{Durability, Table, TableDef, TxnOptions, catalogue};
use foreshore_base::key::{Key, Value};
use foreshore_base::{Csn, Error, Result, TableId};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_txn::Txn;
use foreshore_wal::CommitTicket;
use std::{cell::RefCell, fmt, mem, sync::Arc};

/// A transaction. It may move to another thread between two calls; dropped, it is rolled back.
///
/// Several tables may be open in it at once. A call that has to wait for a lock blocks the thread.
///
/// An error that others caused (a conflict, a deadlock, a lock timeout, a table that was dropped, no room for locks) or that the engine met (a full disk, an I/O error) ends the
/// transaction: it is rolled back at once, and every later call answers [`Error::RolledBack`]. An error in what was
/// asked for ([`Error::KeyExists`], [`Error::KeyTooLarge`], [`Error::ValueTooLarge`], [`Error::TableName`],
/// [`Error::TableTypes`], [`Error::NoTable`], [`Error::NoSavepoint`]) and one that somebody else's lock is answered with on
/// request ([`Error::RowLocked`]) change nothing, and the transaction goes on.
///
/// What it is told, values and errors, rests on commits that may not be durable before its own is. [`Db::run`](crate::Db::run) waits
/// for them also without a commit, and so does, but with [`Durability::Relaxed`], the answer that a table is gone.
pub struct Transaction {
    engine: Arc<Engine>,
    state: RefCell<State>,
    durability: Durability,
    /// If it is measured.
    meter: Option<Box<Meter>>,
    /// Counts it in the thread that began it.
    _begun: Begun,
}

/// Where a transaction stands.
enum State {
    /// It runs.
    Live(Box<Live>),
    /// It never began, or was rolled back by this error.
    Failed {
        error: Error,
        /// Commits that the error rests on.
        watermark: Csn,
        /// Whether it ran before, so that the caller has had the error.
        has_begun: bool,
    },
    /// Committed or rolled back by the owner, who has given up the transaction with it.
    Over,
}

/// A running transaction and its buffers.
pub(crate) struct Live {
    pub(crate) txn: Txn,
    /// Encoded key of the call.
    pub(crate) key: Vec<u8>,
    /// Encoded value of the call.
    pub(crate) value: Vec<u8>,
    /// Value found by the call.
    pub(crate) found: Vec<u8>,
    /// Tables that this transaction created; others learn of them when it commits. In order, also those dropped since.
    pub(crate) created: Vec<TableInfo>,
    /// Tables that this transaction dropped; their pages become free when it commits. In order.
    pub(crate) dropped: Vec<Tree>,
}

impl Live {
    /// Whether this transaction has dropped the table.
    pub(crate) fn has_dropped(&self, table: TableId) -> bool {
        self.dropped.iter().any(|tree| tree.table() == table)
    }

    /// The table `name`, if this transaction has created it and not dropped it.
    pub(crate) fn created(&self, name: &str) -> Option<&TableInfo> {
        self.created.iter().find(|info| *info.name == *name && !self.has_dropped(info.tree.table()))
    }
}

/// A place in a transaction that it can go back to. Made by [`Transaction::savepoint`].
#[derive(Debug)]
pub struct Savepoint {
    below: foreshore_txn::Savepoint,
    /// How many tables the transaction had created.
    created: usize,
    /// How many it had dropped.
    dropped: usize,
}

impl Engine {
    /// Others learn of the tables that commit `csn` has created and dropped. The latter are retired.
    pub(crate) fn know_tables(&self, created: Vec<TableInfo>, dropped: Vec<Tree>, csn: Csn) {
        for mut table in created.into_iter().filter(|info| !info.tree.is_retired()) {
            table.created = csn;
            self.tables.add(table);
        }
        if !dropped.is_empty() {
            dropped.iter().for_each(|tree| tree.dropped_by(csn));
            self.reclaimer.add(dropped, csn);
        }
    }
}

impl Transaction {
    pub(crate) fn begin(engine: &Arc<Engine>, options: TxnOptions) -> Self {
        let meter = engine.profiler.meter(options.label);
        let state = match engine.profiler.during(meter.as_deref(), || engine.begin(options)) {
            Ok(txn) => State::Live(Box::new(Live {
                txn,
                key: Vec::new(),
                value: Vec::new(),
                found: Vec::new(),
                created: Vec::new(),
                dropped: Vec::new(),
            })),
            Err(error) => {
                meter.iter().for_each(|meter| meter.fail(&error));
                State::Failed { error, watermark: Csn::ZERO, has_begun: false }
            }
        };
        Self {
            engine: Arc::clone(engine),
            state: RefCell::new(state),
            durability: options.durability,
            meter,
            _begun: Begun::here(),
        }
    }

    /// Opens a table, and creates it where there is none. Creation is part of the transaction: other transactions that
    /// ask for a table which is not there wait until this one ends.
    ///
    /// # Errors
    /// `TableName`, `TableTypes`, and those of any operation.
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<Table<'_, K, V>> {
        let name = def.checked_name()?;
        let tree = self.with(|engine, live| catalogue::open_table::<K, V>(engine, live, name))?;
        Ok(Table::new(self, tree))
    }

    /// Opens a table that there is.
    pub(crate) fn open_existing<K: Key + 'static, V: Value + 'static>(
        &self,
        def: TableDef<'_, K, V>,
    ) -> Result<Table<'_, K, V>> {
        let name = def.checked_name()?;
        let tree = self.with(|engine, live| catalogue::known_table::<K, V>(engine, live, name))?;
        Ok(Table::new(self, tree))
    }

    /// Drops the table `name` with all its rows, and says whether there was one. Waits until no other transaction uses it;
    /// those that have opened it and not used it yet get [`Error::TableDropped`]. Its pages become free in the background
    /// once this transaction has committed. What this transaction still writes through a [`Table`] that it opened before
    /// goes with the table.
    ///
    /// # Errors
    /// `TableName`, and those of any operation.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let name = TableDef::<&[u8], &[u8]>::new(name).checked_name()?;
        self.with(|engine, live| catalogue::drop_table(engine, live, name))
    }

    /// Marks the place that the transaction has reached, so that [`rollback_to`](Self::rollback_to) can take back what comes
    /// after it. Costs next to nothing.
    ///
    /// # Errors
    /// `RolledBack`, and whatever kept the transaction from beginning.
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.with(|_, live| {
            let (created, dropped) = (live.created.len(), live.dropped.len());
            Ok(Savepoint { below: live.txn.savepoint(), created, dropped })
        })
    }

    /// Takes back what this transaction has changed since `savepoint`, tables created and dropped included, and the transaction
    /// goes on. It can go back to the same savepoint again; savepoints taken after it are gone.
    ///
    /// Locks stay until the transaction ends, also those of rows that are taken back: what has been read may have been acted
    /// on. Rows that were inserted and taken back stay in their pages as ghosts, which nobody sees, until the transaction has ended
    /// and a later write into the page finds them. An iteration goes on behind the last key that it has given. A [`Table`] opened since, of a table that was created
    /// since, answers [`Error::TableDropped`], which ends the transaction.
    ///
    /// # Errors
    /// `NoSavepoint` for one of another transaction, or one that is gone: nothing has changed then. `RolledBack`. `Poisoned`: the
    /// next open takes the whole transaction back.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.with(|_, live| {
            let Live { txn, created, dropped, .. } = live;
            txn.check_savepoint(&savepoint.below)?;
            let new = &created[savepoint.created..];
            txn.rollback_to(&savepoint.below, |table| new.iter().any(|info| info.tree.table() == table))?;
            created.drain(savepoint.created..).for_each(|info| info.tree.retire());
            dropped.truncate(savepoint.dropped);
            Ok(())
        })
    }

    /// Locks a table as a whole.
    pub(crate) fn lock_against_writes(&self, table: TableId) -> Result<()> {
        self.with(|_, live| live.txn.lock_table(table, TableMode::Shared))
    }

    /// Commits, and waits until the commit survives power loss; with [`Durability::Relaxed`] it does not wait.
    /// Returns the place of the transaction in the order of commits.
    ///
    /// # Errors
    /// `RolledBack` if an earlier error ended the transaction. `Poisoned`: whether the commit survives is unknown, and
    /// [`Db::reopen`](crate::Db::reopen) tells. A full disk is none: the space of a commit record is kept free.
    pub fn commit(self) -> Result<Csn> {
        let ticket = self.pre_commit(self.durability == Durability::Relaxed)?;
        // WAIT: park - for durability, or help by writing the group when the log is free. Not at all if relaxed.
        self.measured(|| ticket.wait())?;
        Ok(ticket.csn())
    }

    /// Commits without waiting for the disk. The order is fixed and the locks are free; the ticket tells when the commit
    /// is durable. With [`Durability::Relaxed`] the ticket resolves at once, and
    /// [`harden`](CommitTicket::harden) makes it wait for the disk after all.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        self.pre_commit(true)
    }

    /// Prepares the transaction under `name`, the first phase of a commit in two. When this returns, what it did and all its locks
    /// survive power loss, and it is up to [`Db::commit_prepared`](crate::Db::commit_prepared) or
    /// [`Db::rollback_prepared`](crate::Db::rollback_prepared) to end it, now or after any number of restarts. Durable whatever
    /// [`TxnOptions::durability`] says.
    ///
    /// Until then it keeps one of the [`max_transactions`](crate::Options::max_transactions), its log, and, as any transaction that has
    /// written, what tells later ones apart from it: if it waits for very long, others are refused with `TooManyTransactions`. Errors
    /// name it by its label; after a restart by its name.
    ///
    /// # Errors
    /// `PreparedName`, `PreparedExists`, `DiskFull`, `TooManyTransactions`: it is rolled back. `RolledBack` if an earlier error ended it.
    /// `Poisoned`: whether it is prepared is unknown, and [`Db::reopen`](crate::Db::reopen) and [`Db::prepared`](crate::Db::prepared) tell.
    pub fn prepare(self, name: &str) -> Result<()> {
        self.with(|_, _| Ok(()))?;
        let place = self.engine.prepared.take_name(name)?;
        let State::Live(live) = self.state.replace(State::Over) else {
            unreachable!("a failed transaction has answered above");
        };
        let prepared = self.measured(|| self.engine.prepare(place, *live));
        self.engine.transaction_ended();
        prepared
    }

    /// Takes everything back.
    ///
    /// # Errors
    /// `Poisoned`: the next open takes it back. A transaction that an error ended before is rolled back already, which
    /// is no error here.
    pub fn rollback(self) -> Result<()> {
        match self.state.replace(State::Over) {
            State::Live(live) => {
                let take_back = || self.engine.check_open().and_then(|()| live.txn.rollback().map(drop));
                let ended = self.measured(take_back);
                self.engine.transaction_ended();
                ended
            }
            State::Failed { .. } | State::Over => Ok(()),
        }
    }

    /// `hand_over`: the flusher shall make the commit durable, since this thread may not wait for it.
    pub(crate) fn pre_commit(&self, hand_over: bool) -> Result<CommitTicket> {
        self.with(|_, _| Ok(()))?;
        let State::Live(live) = self.state.replace(State::Over) else {
            unreachable!("a failed transaction has answered above");
        };
        let Live { txn, created, dropped, .. } = *live;
        // Before the locks go. A commit that fails has stopped the log.
        dropped.iter().for_each(Tree::retire);
        let commit = || if hand_over { txn.commit_pipelined() } else { txn.commit() };
        let committed = self.measured(commit);
        self.engine.transaction_ended();
        let ticket = committed?;
        self.engine.know_tables(created, dropped, ticket.csn());
        Ok(if self.durability == Durability::Relaxed { ticket.relax() } else { ticket })
    }

    /// Ends the transaction without a commit and returns the newest commit that its answers rest on.
    pub(crate) fn end_without_commit(&self) -> Csn {
        match self.state.replace(State::Over) {
            State::Live(live) => self.take_back(*live),
            State::Failed { watermark, .. } => watermark,
            State::Over => Csn::ZERO,
        }
    }

    /// Rolls back and returns the newest commit that the transaction has seen, which is the same if the rollback fails.
    fn take_back(&self, live: Live) -> Csn {
        let watermark = live.txn.observed();
        // A rollback that fails stops the log, and everybody hears of that.
        let _ = self.measured(|| live.txn.rollback());
        self.engine.transaction_ended();
        watermark
    }

    /// Does `work` of this transaction, and measures it if its time is measured.
    #[inline(always)]
    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> T) -> T {
        self.engine.profiler.during(self.meter.as_deref(), work)
    }

    /// Whether it is measured where its time goes.
    pub(crate) const fn is_measured(&self) -> bool {
        self.meter.is_some()
    }

    /// The error that ended the transaction, if one did.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.state.borrow() {
            State::Failed { error, .. } => Some(error.clone()),
            State::Live(_) | State::Over => None,
        }
    }

    /// Runs one operation. An error that the caller did not ask for ends the transaction.
    pub(crate) fn with<'t, T>(&'t self, operation: impl FnOnce(&'t Engine, &mut Live) -> Result<T>) -> Result<T> {
        let mut state = self.state.borrow_mut();
        let live = match &mut *state {
            State::Live(live) => live,
            State::Failed { has_begun: true, .. } => return Err(Error::RolledBack),
            State::Failed { error, .. } => return Err(error.clone()),
            State::Over => unreachable!("who ends a transaction gives it up"),
        };
        let outcome = self.measured(|| {
            let outcome = self.engine.check_open().and_then(|()| operation(&self.engine, live));
            // The caller may take its time before the next call: log space is not kept for it.
            live.txn.release();
            outcome
        });
        let error = match outcome {
            Ok(value) => return Ok(value),
            Err(error) if leaves_transaction(&error) => return Err(error),
            Err(error) => error,
        };
        let State::Live(live) = mem::replace(&mut *state, State::Over) else {
            unreachable!("the operation ran");
        };
        self.meter.iter().for_each(|meter| meter.fail(&error));
        let watermark = self.take_back(*live);
        let waits = matches!(error, Error::TableDropped) && self.durability == Durability::Durable;
        // WAIT: help - or park behind the leader. Without a commit nobody else would wait until the drop is durable.
        let waited = if waits { self.measured(|| self.engine.log.force(watermark.lsn())) } else { Ok(()) };
        let error = waited.err().unwrap_or(error);
        *state = State::Failed { error: error.clone(), watermark, has_begun: true };
        Err(error)
    }

    /// Gives a buffer back for the next lookup.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        if let State::Live(live) = &mut *self.state.borrow_mut() {
            live.found = buffer;
        }
    }
}

/// Errors in what was asked for, or that were asked for: nothing was changed, and the transaction goes on.
const fn leaves_transaction(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyExists
            | Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::TableName { .. }
            | Error::TableTypes { .. }
            | Error::NoTable { .. }
            | Error::NoSavepoint
            | Error::RowLocked { .. }
    )
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let State::Live(live) = mem::replace(self.state.get_mut(), State::Over) {
            // Its own drop rolls it back.
            self.measured(|| drop(live));
            self.engine.transaction_ended();
        }
        if let Some(meter) = &self.meter {
            self.engine.profiler.end(meter);
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state.borrow() {
            State::Live(_) => "live",
            State::Failed { .. } => "rolled back",
            State::Over => "over",
        };
        f.debug_struct("Transaction").field("state", &state).finish_non_exhaustive()
    }
}
