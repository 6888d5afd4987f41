//! Transactions of the public interface.

mod finish;

use crate::engine::{Engine, EngineRef};
use crate::live::{Live, Scratch};
use crate::profile::{Meter, Timing};
use crate::queues::Begun;
use crate::seat::{Failure, Seat, State, Taken};
use crate::tables::TableInfo;
use crate::{Durability, Error, Result, TxnOptions};
use foreshore_base::Csn;
use foreshore_sync::{EndWithThread, Nanos};
use foreshore_txn::ManagerRef;
use std::{fmt, mem, time::Duration};

/// A transaction. It may move to another thread between two calls. A drop rolls it back.
///
/// Several tables may be open in it at once. A call that has to wait for a lock blocks the thread.
///
/// **Errors that end the transaction.** It is rolled back at once, and every later call returns [`Error::RolledBack`]:
///
/// - errors caused by other transactions: a conflict, a deadlock, a lock timeout, a dropped table, changed indexes, no
///   undo space, no log space
/// - a wait of 100 ms for a transaction that this same thread used last, and so seems to block
///   ([`Error::OwnThreadLock`]); with a shorter lock timeout it is a lock timeout
/// - a transaction or a snapshot that has become too old
/// - a row whose bytes do not fit the types of its table ([`Error::Undecodable`])
/// - errors of the engine, such as a full disk or an I/O error
/// - any error while [`open`](Self::open) builds an index.
///
/// **Errors that change nothing**, after which the transaction goes on:
///
/// - errors of the request: [`Error::KeyExists`], [`Error::IndexKeyExists`], [`Error::LoadOrder`],
///   [`Error::KeyTooLarge`], [`Error::ValueTooLarge`], [`Error::TableName`], [`Error::TableTypes`],
///   [`Error::TableExists`], [`Error::IndexTypes`], [`Error::NoTable`], [`Error::NoIndex`], [`Error::NoSavepoint`]
/// - [`Error::IndexUndeclared`], of a write that would leave an index wrong
/// - [`Error::IndexMismatch`], of a read or a write that finds an index in disagreement with its table
/// - [`Error::InvalidOption`], of an argument: a merge without an operator, too long names of types, a table of another
///   transaction, [`LoadOptions`](crate::LoadOptions) out of range
/// - [`Error::RowLocked`], returned only to a request that does not wait
/// - [`Error::ReaderFailed`], by the reader of a new value
/// - [`Error::ReadOnly`], of a database that is [opened for reading only](crate::Db::open_read_only).
///
/// **Reads of commits that are not durable.** Values and errors of a transaction may depend on commits that become
/// durable only later. A caller that acts upon them ends the transaction first: a durable [`commit`](Self::commit)
/// waits for those commits. So does [`rollback`](Self::rollback), also after an error that has ended the transaction.
/// [`Db::run`](crate::Db::run) does both. A drop never waits. With [`Durability::Relaxed`] no call waits.
pub struct Transaction {
    engine: EngineRef,
    /// The state between two operations.
    seat: Seat,
    durability: Durability,
    deadline: Option<Duration>,
    /// By the clock of the lock manager.
    began: Nanos,
    /// Present if the transaction is measured.
    meter: Option<Box<Meter>>,
    /// Marks the thread that began the transaction: it does not wait in the retry queue while this is open.
    begun: Begun,
}

/// A point of a transaction to which it can be rolled back. [`Transaction::savepoint`] makes it.
#[derive(Debug)]
pub struct Savepoint {
    inner: foreshore_txn::Savepoint,
    /// How many tables the transaction had created.
    created: usize,
    /// How many it had dropped.
    dropped: usize,
    /// How many it had renamed.
    renamed: usize,
}

impl Transaction {
    pub(crate) fn begin((engine, txns): (EngineRef, ManagerRef), options: TxnOptions) -> Self {
        let options = options.requested_at(|| engine.admission.now());
        let meter = engine.profiler.meter(options.label);
        let (began, state) = match engine.profiler.during(meter.as_deref(), || engine.admission.begin_by(txns, options))
        {
            Ok(txn) => (options.attempt.first.unwrap_or(txn.began()), State::Live(Live::new(txn))),
            Err(error) => {
                let error = Error::from(error);
                let began = engine.admission.failed_to_begin(options, &error);
                let error = error.by_deadline(|| overdue(options.deadline, began, engine.admission.now()));
                meter.iter().for_each(|meter| meter.fail(&error));
                (began, State::Failed(Failure { error, watermark: Csn::ZERO, is_reported: false }))
            }
        };
        let seat = if options.is_read || options.is_check {
            Seat::own(state)
        } else {
            engine.aging.seat(options.label, state)
        };
        let (durability, deadline) = (options.durability, options.deadline);
        Self { engine, seat, durability, deadline, began, meter, begun: Begun::here() }
    }

    /// Counts the transaction in no thread: another one may end it.
    pub(crate) fn uncounted(mut self) -> Self {
        self.begun = Begun::nowhere();
        self
    }

    /// Marks a point to which [`rollback_to`](Self::rollback_to) can roll back. It costs almost nothing.
    ///
    /// # Errors
    /// `RolledBack`, or the error that kept the transaction from beginning.
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.with(|_, live| {
            let Scratch { created, dropped, renamed, .. } = &*live.scratch;
            let (created, dropped, renamed) = (created.len(), dropped.len(), renamed.len());
            Ok(Savepoint { inner: live.txn.savepoint(), created, dropped, renamed })
        })
    }

    /// Rolls back the changes since `savepoint`, including tables created, renamed and dropped. The transaction
    /// continues, and the savepoint stays valid. Later savepoints do not.
    ///
    /// - Locks stay until the transaction ends, also those of rows that are rolled back: the caller may have acted on
    ///   what it read.
    /// - Inserted rows stay in their pages as ghosts, which no reader sees. A later write into the page removes them
    ///   once the transaction has ended.
    /// - An iteration continues after the last key that it has returned.
    /// - If the rollback undoes the creation or rename of a table, a [`Table`](crate::Table) opened since then returns
    ///   [`Error::TableDropped`], which ends the transaction.
    ///
    /// # Errors
    /// - `NoSavepoint` for a savepoint of another transaction, or one that is gone: nothing has changed.
    /// - `RolledBack`.
    /// - `DiskFull` or `Corrupted`: it stopped half-way. The whole transaction is rolled back, as far as possible (see
    ///   [`rollback`](Self::rollback)).
    /// - `Poisoned`: the next open rolls the whole transaction back.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let tx = db.begin();
    /// let stock = tx.open(STOCK)?;
    /// stock.put(1, 10)?;
    /// let savepoint = tx.savepoint()?;
    /// stock.put(1, 99)?;
    /// tx.rollback_to(&savepoint)?;
    /// assert_eq!(stock.get(1)?, Some(10));
    /// tx.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.with(|_, live| {
            let (txn, Scratch { created, dropped, renamed, .. }) = live.parts();
            txn.check_savepoint(&savepoint.inner)?;
            let new = &created[savepoint.created..];
            let is_created = |info: &TableInfo, table| info.tree.table() == table && !info.is_renamed();
            txn.rollback_to(&savepoint.inner, |table| new.iter().any(|info| is_created(info, table)))?;
            created.drain(savepoint.created..).for_each(|info| info.tree.withdraw());
            dropped.truncate(savepoint.dropped);
            renamed.truncate(savepoint.renamed);
            // Consumers have skipped rows that this transaction had removed. Its commit makes these rows visible again,
            // so it signals the watches of all tables that it has opened.
            live.scratch.inserted = live.scratch.opened;
            live.scratch.indexes.changed.iter().for_each(|indexes| indexes.change());
            Ok(())
        })
    }

    /// Runs `work` of this transaction, and measures it if the transaction is measured.
    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> T) -> T {
        self.engine.profiler.during(self.meter.as_deref(), work)
    }

    /// Whether the transaction is measured.
    pub(crate) const fn is_measured(&self) -> bool {
        self.meter.is_some()
    }

    /// Returns when the first attempt began, or was requested if it has a deadline. By the clock of the lock manager.
    pub(crate) const fn began(&self) -> Nanos {
        self.began
    }

    /// The error that ended the transaction, if one did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.seat.failure()
    }

    /// Runs one operation. Its error ends the transaction, unless [`keeps_transaction`] says otherwise.
    ///
    /// The compiler copies this function for each operation of each type of table, so it is short.
    pub(crate) fn with<'t, T>(&'t self, operation: impl FnOnce(&'t Engine, &mut Live) -> Result<T>) -> Result<T> {
        let mut state = self.enter()?;
        let State::Live(live) = &mut *state else { unreachable!("an operation enters a live transaction") };
        let timing = self.engine.profiler.timing(self.meter.as_deref());
        let outcome = operation(&self.engine, live);
        // No log space stays reserved between two calls, because the next call may come much later.
        live.txn.release();
        Timing::end(timing);
        outcome.map_err(|error| self.end_failed(state, error))
    }

    /// Takes the state of the running transaction for an operation.
    fn enter(&self) -> Result<Taken<'_>> {
        let mut state = self.seat.take();
        let live = match &mut *state {
            State::Live(live) => live,
            State::Failed(Failure { is_reported: true, .. }) => return Err(Error::RolledBack),
            State::Failed(Failure { error, .. }) => return Err(error.clone()),
            State::Busy | State::Over => unreachable!("the call that ends a transaction gives it up"),
        };
        if let Some(error) = self.seat.aging().and_then(|aging| self.engine.aging.too_old(aging)) {
            return Err(self.fail(&mut state, error, false));
        }
        live.txn.note_thread();
        match self.engine.admission.check_open() {
            Ok(()) => Ok(state),
            Err(error) => Err(self.end_failed(state, error.into())),
        }
    }

    /// Ends an operation that failed, and with it the transaction unless [`keeps_transaction`] says otherwise. Returns
    /// the error for the caller.
    #[cold]
    fn end_failed(&self, mut state: Taken<'_>, mut error: Error) -> Error {
        if let State::Live(live) = &mut *state {
            self.engine.put_names(live, &mut error);
        }
        let error = error.by_deadline(|| self.overdue());
        self.engine.damage.note(&error);
        if keeps_transaction(&error) { error } else { self.fail(&mut state, error, true) }
    }

    /// Returns the time since the transaction was requested, if it has a deadline and that is over.
    fn overdue(&self) -> Option<Duration> {
        overdue(self.deadline, self.began, self.engine.admission.now())
    }

    /// Ends the running transaction with an error, and returns the error for the caller. For `is_reported` see
    /// [`Failure`].
    fn fail(&self, state: &mut State, error: Error, is_reported: bool) -> Error {
        let State::Live(live) = mem::replace(state, State::Over) else {
            unreachable!("it runs");
        };
        self.meter.iter().for_each(|meter| meter.fail(&error));
        let watermark = self.discard(live);
        // The drop of a table is reported only once it is durable.
        let waited =
            if matches!(error, Error::TableDropped { .. }) { self.wait_until_durable(watermark) } else { Ok(()) };
        let error = waited.err().unwrap_or(error);
        *state = State::Failed(Failure { error: error.clone(), watermark, is_reported });
        error
    }

    /// Ends the transaction with the error of an operation, unless that has ended it. Returns the error.
    #[cold]
    pub(crate) fn end_by(&self, error: Error) -> Error {
        let end =
            |state: &mut State| if matches!(state, State::Live(_)) { self.fail(state, error, true) } else { error };
        end(&mut self.seat.take())
    }

    /// Calls `work` between two operations, if the transaction may continue. If not, the next operation returns the
    /// reason.
    #[inline]
    pub(crate) fn if_live<T>(&self, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        let is_too_old = || self.seat.aging().is_some_and(|aging| self.engine.aging.too_old(aging).is_some());
        if self.engine.admission.check_open().is_err() || is_too_old() {
            return None;
        }
        self.seat.if_live(work)
    }
}

/// Returns the time since a transaction was requested at `began`, if it has a deadline and that is over.
fn overdue(deadline: Option<Duration>, began: Nanos, now: Nanos) -> Option<Duration> {
    let elapsed = now.since(began);
    (elapsed >= deadline?).then_some(elapsed)
}

/// Whether the transaction continues after an error: the request was wrong, or asked not to wait. Nothing was changed.
pub(crate) const fn keeps_transaction(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyExists { .. }
            | Error::LoadOrder { .. }
            | Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::ReaderFailed { .. }
            | Error::TableName { .. }
            | Error::TableTypes { .. }
            | Error::TableExists { .. }
            | Error::NoTable { .. }
            | Error::NoIndex { .. }
            | Error::IndexTypes { .. }
            | Error::IndexUndeclared { .. }
            | Error::IndexKeyExists { .. }
            | Error::IndexMismatch { .. }
            | Error::NoSavepoint
            | Error::ReadOnly
            | Error::RowLocked { .. }
    )
}

/// Ends the read transaction of a thread that ends, and frees its session.
#[doc(hidden)]
impl EndWithThread for Transaction {
    fn end(&self) {
        let watermark = self.end_without_commit();
        self.seat.replace(State::Failed(Failure { error: Error::RolledBack, watermark, is_reported: true }));
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let State::Live(live) = self.seat.replace(State::Over) {
            self.discard(live);
        }
        if let Some(meter) = &self.meter {
            self.engine.profiler.end(meter);
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("state", &self.seat).finish_non_exhaustive()
    }
}
