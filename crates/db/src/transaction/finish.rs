//! End of a transaction: commit, prepare, rollback.

use super::Transaction;
use crate::live::{Live, TableChanges};
use crate::seat::{Failure, State};
use crate::{CommitTicket, Durability, Error, Result, trace};
use foreshore_base::{Csn, TableId};
use foreshore_btree::Tree;
use std::sync::Arc;

impl Transaction {
    /// Commits, and waits until the commit survives power loss; with [`Durability::Relaxed`] it does not wait. Returns
    /// the commit number, which orders commits.
    ///
    /// # Errors
    /// `RolledBack` if an earlier error ended the transaction. `Poisoned`: whether the commit survives is unknown, and
    /// [`Db::reopen`](crate::Db::reopen) tells. A full disk is no error here: the space of a commit record is reserved.
    pub fn commit(self) -> Result<Csn> {
        let ticket = self.pre_commit(false)?;
        // WAIT: park - for durability, or help by writing the group when the log is free. Not at all if relaxed.
        self.measured(|| ticket.wait())?;
        Ok(ticket.csn())
    }

    /// Commits without waiting for the disk. The commit order is fixed and the locks are free; the ticket resolves when
    /// the commit is durable. With [`Durability::Relaxed`] the ticket resolves at once, and
    /// [`harden`](CommitTicket::harden) makes it wait for the disk.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let tx = db.begin();
    /// tx.open(STOCK)?.put(1, 10)?;
    /// let ticket = tx.commit_pipelined()?;
    /// // Other work goes here.
    /// ticket.wait()?;
    /// let tx = db.begin();
    /// tx.open(STOCK)?.put(1, 20)?;
    /// let csn = tx.commit()?;
    /// assert!(csn > ticket.csn() && db.durable_csn() >= csn);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        self.pre_commit(true)
    }

    /// Prepares the transaction under `name`: the first phase of a two-phase commit. It is durable, whatever
    /// [`TxnOptions::durability`](crate::TxnOptions::durability) says.
    ///
    /// When this returns, the transaction's changes and locks survive power loss.
    /// [`Db::commit_prepared`](crate::Db::commit_prepared) or [`Db::rollback_prepared`](crate::Db::rollback_prepared)
    /// ends it, now or after any number of restarts.
    ///
    /// Until then it counts among [`max_transactions`](crate::Options::max_transactions), and the log from its first
    /// record on is not recycled. Errors name it by its label, and after a restart by its name.
    ///
    /// # Errors
    /// - `PreparedName`, `PreparedExists`, `DiskFull`, `LogSpace`, `TooManyTransactions`, `Deadline`: it is rolled
    ///   back.
    /// - `RolledBack` if an earlier error ended it.
    /// - `Poisoned`: whether it is prepared is unknown. [`Db::reopen`](crate::Db::reopen) and
    ///   [`Db::prepared`](crate::Db::prepared) tell.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let tx = db.begin();
    /// tx.open(STOCK)?.put(1, 10)?;
    /// tx.prepare("order 7")?;
    /// db.commit_prepared("order 7")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prepare(self, name: &str) -> Result<()> {
        self.check_whole()?;
        let place = self.engine.prepared.take_name(name)?;
        let live = self.take_live()?;
        let freed = live.signals_of_rollback();
        let prepared = self.measured(|| self.engine.prepared.prepare(place, live));
        self.engine.admission.transaction_ended();
        if prepared.is_err() {
            self.engine.catalogue.watches().signal(&freed);
        }
        prepared.map_err(|error| error.by_deadline(|| self.overdue()))
    }

    /// Rolls the transaction back, and waits until every commit that its results depend on is durable. With
    /// [`Durability::Relaxed`] it does not wait. Mostly there is nothing to wait for, because those commits are durable
    /// already. [`rollback_pipelined`](Self::rollback_pipelined) is for a thread that must not wait, as in a callback
    /// of a ticket.
    ///
    /// A transaction that an error has ended is rolled back already, which is no error here.
    ///
    /// # Errors
    /// - `RollbackParked`: a full disk or a damaged page stopped it half-way. The transaction is over. The engine rolls
    ///   back the rest when space is freed, or the next open does. Until then its rows stay locked, writers of them get
    ///   the same error, and readers by snapshot see them as they were before. [`Stats::txn`](crate::Stats::txn) counts
    ///   such rollbacks.
    /// - `Poisoned`: the next open rolls the transaction back.
    pub fn rollback(self) -> Result<()> {
        let watermark = self.undo()?;
        self.wait_until_durable(watermark)
    }

    /// Rolls the transaction back without waiting for the disk. The ticket resolves when every commit that its results
    /// depend on is durable, and has the number of the newest of them. With [`Durability::Relaxed`] it resolves at
    /// once.
    ///
    /// # Errors
    /// Those of [`rollback`](Self::rollback).
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let tx = db.begin();
    /// tx.open(STOCK)?.put(1, 10)?;
    /// tx.rollback()?;
    /// let tx = db.begin();
    /// assert_eq!(tx.open(STOCK)?.get(1)?, None);
    /// tx.rollback_pipelined()?.wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rollback_pipelined(self) -> Result<CommitTicket> {
        let seen = self.undo()?;
        Ok(self.ticket_of(seen))
    }

    /// Returns a ticket that resolves when commit `seen` is durable, or at once if this transaction is relaxed.
    pub(crate) fn ticket_of(&self, seen: Csn) -> CommitTicket {
        let ticket = self.engine.storage.log().ticket(seen.lsn(), seen, seen.lsn());
        CommitTicket(match self.durability {
            Durability::Relaxed => ticket.relax(),
            Durability::Durable if ticket.is_durable() => ticket,
            // The transaction of that commit may not have requested a flush yet.
            Durability::Durable => ticket.harden(),
        })
    }

    /// Rolls back and returns the newest commit that the transaction's results depend on.
    fn undo(&self) -> Result<Csn> {
        match self.seat.replace(State::Over) {
            State::Live(live) => {
                let open = self.engine.admission.check_open();
                let ended = self.measured(|| self.engine.roll_back(live));
                Ok(open.and(ended)?)
            }
            State::Failed(Failure { watermark, .. }) => Ok(watermark),
            State::Busy | State::Over => Ok(Csn::ZERO),
        }
    }

    /// Waits until commit `watermark` is durable. A caller must not act on results that a power loss could revoke.
    pub(crate) fn wait_until_durable(&self, watermark: Csn) -> Result<()> {
        if self.durability == Durability::Relaxed || watermark.lsn() <= self.engine.storage.log().durable() {
            return Ok(());
        }
        // WAIT: help - or park behind the leader.
        Ok(self.measured(|| self.engine.storage.log().force(watermark.lsn()))?)
    }

    /// Takes the running transaction, to end it. Returns an error if it has become too old since its last operation.
    fn take_live(&self) -> Result<Live> {
        match self.seat.replace(State::Over) {
            State::Live(live) => Ok(live),
            State::Failed(failure) => {
                let error = failure.error.clone();
                self.seat.replace(State::Failed(failure));
                Err(error)
            }
            State::Busy | State::Over => unreachable!("a transaction is ended once, and not by its own operation"),
        }
    }

    /// Checks that the transaction runs, and has no change that a panic has interrupted.
    fn check_whole(&self) -> Result<()> {
        self.with(|_, live| if live.txn.is_partial() { Err(Error::RolledBack) } else { Ok(()) })
    }

    /// Appends the commit record. If `is_pipelined`, or if the transaction is relaxed, the flusher makes the commit
    /// durable, because this thread does not wait for it.
    pub(crate) fn pre_commit(&self, is_pipelined: bool) -> Result<CommitTicket> {
        self.check_whole()?;
        let live = self.take_live()?;
        let (signals, freed) = (live.signals_of_commit(), live.signals_of_rollback());
        let (txn, tables) = live.into_parts();
        let label = txn.label();
        let gone: Vec<TableId> = tables.dropped.iter().map(Tree::table).collect();
        // Before the locks are released. This is never undone: a commit that fails has stopped the log.
        tables.retire(|| txn.xid().expect("the drop has changed the catalogue"));
        let engine = &self.engine;
        // Called before a callback of another commit runs on this thread. Such a callback may close the database, which
        // waits for this transaction.
        let end = |csn| {
            let TableChanges { created, dropped, renamed } = tables;
            engine.catalogue.publish((created, &renamed), csn);
            engine.reclaimer.add_dropped(dropped, csn);
            engine.admission.transaction_ended();
            engine.catalogue.watches().signal(&signals);
        };
        let commit = || match self.durability {
            Durability::Relaxed => txn.commit_relaxed_then(end).map(foreshore_wal::CommitTicket::relax),
            Durability::Durable if is_pipelined => txn.commit_pipelined_then(end),
            Durability::Durable => txn.commit().inspect(|ticket| end(ticket.csn())),
        };
        let ticket = self.measured(commit).inspect_err(|_| {
            engine.admission.transaction_ended();
            engine.catalogue.watches().signal(&freed);
        })?;
        if !gone.is_empty() {
            self.end_watches(gone, ticket.csn());
        }
        trace::committed(label, ticket.csn());
        Ok(CommitTicket(ticket))
    }

    /// Ends the watches of the tables `gone` once commit `csn`, which dropped them, is durable. Dropped tables get no
    /// new watches.
    #[cold]
    fn end_watches(&self, mut gone: Vec<TableId>, csn: Csn) {
        let watches = Arc::clone(self.engine.catalogue.watches());
        gone.retain(|&table| watches.has_any(table));
        if gone.is_empty() {
            return;
        }
        self.engine.storage.log().ticket(csn.lsn(), csn, csn.lsn()).on_durable(move |durable| {
            // A stop of the log ends all watches.
            if durable.is_ok() {
                gone.into_iter().for_each(|table| watches.table_dropped(table));
            }
        });
    }

    /// Ends the transaction without a commit and returns the newest commit that its results depend on.
    pub(crate) fn end_without_commit(&self) -> Csn {
        match self.seat.replace(State::Over) {
            State::Live(live) => self.discard(live),
            State::Failed(Failure { watermark, .. }) => watermark,
            State::Busy | State::Over => Csn::ZERO,
        }
    }

    /// Rolls back, and returns the newest commit that the transaction has seen. An error of the rollback is ignored.
    pub(super) fn discard(&self, live: Live) -> Csn {
        let watermark = live.txn.observed();
        // A rollback that is parked is counted in the statistics, and one that fails stops the log.
        let _ = self.measured(|| self.engine.roll_back(live));
        watermark
    }
}
