//! Transactions.

use crate::open::{OnDrop, Open, Owner, Running, Shared, Tx, ended, panicked};
use crate::system::Process;
use crate::{Database, Fault, Result, Status, Ticket};
use foreshore::{CommitTicket, Csn, ReadOptions, TxnOptions};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A transaction, which clones share. It is rolled back when the last of them is dropped with its tables and cursors.
#[derive(Clone)]
pub struct Transaction {
    shared: Arc<Shared>,
}

impl Transaction {
    fn new(process: Process, tx: Tx) -> Self {
        Self { shared: Arc::new(Shared::new(process, tx)) }
    }

    /// Begins a transaction that reads and writes.
    ///
    /// # Errors
    /// `Forked`. Others come from the first operation.
    pub fn begin(db: &Database, options: TxnOptions) -> Result<Self> {
        let tx = NonNull::from(Box::leak(Box::new(db.get()?.begin_with(options))));
        Ok(Self::new(db.process(), Tx::Write(tx)))
    }

    /// Begins a transaction that reads a snapshot.
    ///
    /// # Errors
    /// `Forked`. Others come from the first operation.
    pub fn read(db: &Database, options: ReadOptions) -> Result<Self> {
        let tx = NonNull::from(Box::leak(Box::new(db.get()?.read_with(options).into_single())));
        Ok(Self::new(db.process(), Tx::Read(tx)))
    }

    /// Keeps `owner` until the transaction has ended. It is one that has just begun. If it is open when the last of its
    /// handles, tables and cursors is dropped, `on_drop` calls the rollback.
    #[must_use]
    pub fn keeping(mut self, owner: impl Any + Send + Sync, on_drop: OnDrop) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.keep(owner, on_drop);
        }
        self
    }

    /// Returns a handle of the transaction of a run. [`end_run`](Self::end_run) must follow before `tx` goes.
    pub(crate) fn of_run(process: Process, tx: &foreshore::Transaction) -> Self {
        Self::new(process, Tx::Run(NonNull::from(tx)))
    }

    /// Ends the handle, and waits for a call of another thread first.
    pub(crate) fn end_run(&self) {
        self.shared.end();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs one operation of the transaction.
    pub(crate) fn with<T>(&self, operation: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        self.shared.with(operation)
    }

    /// Takes the transaction out to end it. No lock is held while it ends.
    fn take(&self) -> Result<Taken> {
        let (mut open, has_panicked) = self.shared.lock_to_end()?;
        if matches!(open.tx, Tx::Run(_)) {
            return Err(Fault::new(Status::Invalid, "the run ends this transaction, when its function returns"));
        }
        let ending = match open.close() {
            // SAFETY: the pointer is from `Box::into_raw`, and `close` has taken it out.
            Tx::Write(tx) => Ending::Write(*unsafe { Box::from_raw(tx.as_ptr()) }),
            // SAFETY: as above.
            Tx::Read(tx) => Ending::Read(*unsafe { Box::from_raw(tx.as_ptr()) }),
            Tx::Run(_) | Tx::Ended => return Err(ended()),
        };
        let owner = open.owner.take();
        self.shared.clear_panic();
        Ok(Taken { ending, has_panicked, _owner: owner })
    }

    /// Takes the transaction out to commit it. One in which a call has panicked is rolled back instead.
    fn take_whole(&self) -> Result<Taken> {
        let taken = self.take()?;
        if taken.has_panicked { Err(panicked()) } else { Ok(taken) }
    }

    fn ticket(&self, ticket: CommitTicket) -> Ticket {
        Ticket::new(ticket, self.shared.process())
    }

    /// Commits, and waits for durability unless the transaction is relaxed. Returns the commit number; of a reader 0.
    ///
    /// # Errors
    /// `RolledBack`, `Poisoned`, `Panic`, `Ended`: the transaction has ended. It goes on after `InUse`, after `Forked`
    /// in the parent, and after `Invalid`, which is that of a run.
    pub fn commit(&self) -> Result<u64> {
        let taken = self.take_whole()?;
        match taken.ending {
            Ending::Write(tx) => Ok(number(tx.commit()?)),
            Ending::Read(tx) => Ok(tx.finish()?.wait().map(|()| 0)?),
        }
    }

    /// Commits without a wait for the disk.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_pipelined(&self) -> Result<Ticket> {
        let taken = self.take_whole()?;
        Ok(self.ticket(match taken.ending {
            Ending::Write(tx) => tx.commit_pipelined()?,
            Ending::Read(tx) => tx.finish()?,
        }))
    }

    /// Prepares the transaction under `name`, durably. It has ended for this handle, and keeps its locks until it is
    /// committed or rolled back by its name, also over restarts.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit). `PreparedExists`, `PreparedName`, `NoSpace`, `Busy`, and `ReadOnly` of a
    /// reader: it is rolled back.
    pub fn prepare(&self, name: &str) -> Result<()> {
        let taken = self.take_whole()?;
        match taken.ending {
            Ending::Write(tx) => Ok(tx.prepare(name)?),
            Ending::Read(_) => {
                Err(Fault::new(Status::ReadOnly, "the transaction only reads: there is nothing to prepare"))
            }
        }
    }

    /// Rolls back, and waits until what was read is durable. A transaction that an error has ended is rolled back
    /// already.
    ///
    /// # Errors
    /// `RollbackParked`, `Poisoned`, `Ended`, and those after which the transaction goes on: see
    /// [`commit`](Self::commit).
    pub fn rollback(&self) -> Result<()> {
        let taken = self.take()?;
        match taken.ending {
            Ending::Write(tx) => Ok(tx.rollback()?),
            // If it cannot finish, an error has ended it, and that one was told.
            Ending::Read(tx) => Ok(tx.finish().map_or(Ok(()), |ticket| ticket.wait())?),
        }
    }

    /// Rolls back without a wait for the disk. The ticket resolves when what was read is durable.
    ///
    /// # Errors
    /// Those of [`rollback`](Self::rollback). `RolledBack` of a reader that an error has ended.
    pub fn rollback_pipelined(&self) -> Result<Ticket> {
        let taken = self.take()?;
        Ok(self.ticket(match taken.ending {
            Ending::Write(tx) => tx.rollback_pipelined()?,
            Ending::Read(tx) => tx.finish()?,
        }))
    }

    /// Rolls back without a wait, if the transaction runs and is not that of a run.
    pub fn abandon(&self) {
        drop(self.take());
    }

    /// Marks a point to which [`rollback_to`](Self::rollback_to) rolls back, and returns its number.
    ///
    /// # Errors
    /// `RolledBack`, `ReadOnly`, `Ended`.
    pub fn savepoint(&self) -> Result<u64> {
        self.with(|open| {
            let savepoint = open.writing()?.savepoint()?;
            let number = open.number();
            open.savepoints.insert(number, savepoint);
            Ok(number)
        })
    }

    /// Rolls back to a savepoint, which stays; later ones are gone.
    ///
    /// # Errors
    /// `NoSavepoint`, `RolledBack`, `ReadOnly`, `Ended`.
    pub fn rollback_to(&self, number: u64) -> Result<()> {
        self.with(|open| {
            let tx = open.writing()?;
            let savepoint = open.savepoints.get(&number);
            let gone = || Fault::new(Status::NoSavepoint, "the savepoint is gone, or of another transaction");
            tx.rollback_to(savepoint.ok_or_else(gone)?)?;
            open.savepoints.split_off(&(number + 1));
            open.writes += 1;
            Ok(())
        })
    }

    /// Gives up a savepoint and those after it. What was changed since stays.
    ///
    /// # Errors
    /// `NoSavepoint`, `Ended`.
    pub fn release(&self, number: u64) -> Result<()> {
        self.with(|open| {
            open.running()?;
            if !open.savepoints.contains_key(&number) {
                return Err(Fault::new(Status::NoSavepoint, "the savepoint is gone, or of another transaction"));
            }
            open.savepoints.split_off(&number);
            Ok(())
        })
    }

    /// Drops the table `name`. Returns whether there was one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        self.with(|open| Ok(open.writing()?.drop_table(name)?))
    }

    /// Drops an index of the table `table`. Returns whether there was one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<bool> {
        self.with(|open| Ok(open.writing()?.drop_index(table, index)?))
    }

    /// Renames the table `name`. Returns whether there was one.
    ///
    /// # Errors
    /// `TableExists` if another table has the new name, and those of the engine.
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<bool> {
        self.with(|open| Ok(open.writing()?.rename_table(name, new_name)?))
    }

    /// Removes all rows of the table `name`. Returns whether there is one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn clear_table(&self, name: &str) -> Result<bool> {
        self.with(|open| Ok(open.writing()?.clear_table(name)?))
    }

    /// Returns the tables, each with the names of its key type and its value type.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn tables(&self) -> Result<Vec<(String, String, String)>> {
        let listed = self.with(|open| match open.running()? {
            Running::Write(tx) => Ok(tx.tables()?),
            Running::Read(tx) => Ok(tx.tables()?),
        })?;
        let names = |table: foreshore::ListedTable| (table.name, table.key_type, table.value_type);
        Ok(listed.into_iter().map(names).collect())
    }

    /// Returns whether the transaction has not ended by a call of the program. It has not if that is unknown: another
    /// thread is in a call with it, a call has panicked, or it is that of the parent process.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.with(|open| open.running().map(drop)), Err(Fault { status: Status::Ended, .. }))
    }
}

/// A transaction that was taken out to end it.
struct Taken {
    ending: Ending,
    /// Whether a call with it has panicked.
    has_panicked: bool,
    /// Dropped after the transaction has ended.
    _owner: Owner,
}

/// A transaction that ends.
enum Ending {
    Write(foreshore::Transaction),
    Read(foreshore::SingleReader),
}

/// Returns the number of a commit.
pub(crate) fn number(csn: Csn) -> u64 {
    csn.0
}
