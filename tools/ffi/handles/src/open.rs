//! The state of a transaction: itself, and the tables, scans and readers that are open in it.
//!
//! **Why the lifetimes may be left out.** [`Open`] holds a transaction by a raw pointer, and tables, scans and readers
//! whose lifetime is that of the transaction, written as `'static`. They are dropped before it: see `Open::close`. None
//! of them, nor a reference into them, leaves the mutex. So they move between threads together, one thread uses them at
//! a time, and nothing sees a table of a transaction that is gone.

use crate::system::Process;
use crate::{Fault, Result, Status};
use foreshore::{IndexRange, Range, RawKey, ReadTable, Savepoint, ValueReader};
use std::any::Any;
use std::collections::BTreeMap;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A scan of a raw table.
pub(crate) type Scan = Range<'static, &'static [u8], &'static [u8]>;

/// A scan of a raw table by one of its indexes.
pub(crate) type IndexScan = IndexRange<'static, &'static [u8], &'static [u8], RawKey>;

/// A table of bytes in a transaction that writes.
pub(crate) type WriteTable = foreshore::Table<'static, &'static [u8], &'static [u8]>;

/// A table of bytes of either kind of transaction.
pub(crate) enum AnyTable {
    Write(WriteTable),
    Read(ReadTable<'static, &'static [u8], &'static [u8]>),
}

/// Calls the method of the same name on either table.
macro_rules! on {
    ($table:expr, $inner:ident => $call:expr) => {
        match $table {
            AnyTable::Write($inner) => $call,
            AnyTable::Read($inner) => $call,
        }
    };
}
pub(crate) use on;

/// An open table, which its handle and its cursors share. It is closed with the last of them.
pub(crate) struct Slot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.forget(|open| drop(open.tables.remove(&self.number)));
    }
}

impl Slot {
    /// Returns the table, whose transaction runs.
    pub(crate) fn of<'o>(&self, open: &'o Open) -> Result<&'o AnyTable> {
        open.running()?;
        open.tables.get(&self.number).ok_or_else(ended)
    }
}

/// What a transaction shares with its tables and cursors.
pub(crate) struct Shared {
    process: Process,
    open: Mutex<ManuallyDrop<Open>>,
    /// Calls the rollback of a transaction that is dropped while it is open.
    pub(crate) on_drop: Option<OnDrop>,
}

/// Calls the function that it gets.
pub type OnDrop = fn(&mut (dyn FnMut() + Send));

/// A transaction and what is open in it.
pub(crate) struct Open {
    pub(crate) tx: Tx,
    /// By number: the handles have the numbers.
    pub(crate) scans: BTreeMap<u64, Scan>,
    pub(crate) index_scans: BTreeMap<u64, IndexScan>,
    pub(crate) readers: BTreeMap<u64, ValueReader<'static>>,
    pub(crate) tables: BTreeMap<u64, AnyTable>,
    pub(crate) savepoints: BTreeMap<u64, Savepoint>,
    /// The number of the next of them.
    next: u64,
    /// Writes so far. A cursor with rows at hand reads them again after a write.
    pub(crate) writes: u64,
    /// What the transaction keeps alive until it has ended. It is dropped after `tx`.
    pub(crate) owner: Owner,
}

/// A value that is only kept.
pub(crate) type Owner = Option<Box<dyn Any + Send + Sync>>;

// SAFETY: transactions may be used by one thread after another. The tables and scans refer to nothing of a thread but
// the transaction, which moves with them.
unsafe impl Send for Open {}

/// A transaction of this value, or of a run.
#[derive(Clone, Copy)]
pub(crate) enum Tx {
    /// From `Box::into_raw`.
    Write(NonNull<foreshore::Transaction>),
    /// From `Box::into_raw`.
    Read(NonNull<foreshore::SingleReader>),
    /// Of a run, which ends it.
    Run(NonNull<foreshore::Transaction>),
    Ended,
}

/// A running transaction, as operations see it. The lifetime is too long: see the head of the file.
#[derive(Clone, Copy)]
pub(crate) enum Running {
    Write(&'static foreshore::Transaction),
    Read(&'static foreshore::SingleReader),
}

impl Open {
    fn new(tx: Tx) -> Self {
        let (scans, index_scans, readers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (tables, savepoints) = (BTreeMap::new(), BTreeMap::new());
        Self { tx, scans, index_scans, readers, tables, savepoints, next: 0, writes: 0, owner: None }
    }

    /// Returns the transaction, which runs.
    pub(crate) fn running(&self) -> Result<Running> {
        match self.tx {
            // SAFETY: the pointer is valid until `close` or `take`, which drop all that has got this reference before.
            Tx::Write(tx) | Tx::Run(tx) => Ok(Running::Write(unsafe { tx.as_ref() })),
            // SAFETY: as above.
            Tx::Read(tx) => Ok(Running::Read(unsafe { tx.as_ref() })),
            Tx::Ended => Err(ended()),
        }
    }

    /// Returns the transaction, which may write.
    pub(crate) fn writing(&self) -> Result<&'static foreshore::Transaction> {
        match self.running()? {
            Running::Write(tx) => Ok(tx),
            Running::Read(_) => Err(Fault::new(Status::ReadOnly, "the transaction only reads")),
        }
    }

    /// Returns a number for a new table, scan or savepoint.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Drops what is open in the transaction, and gives it up: the caller ends it.
    pub(crate) fn close(&mut self) -> Tx {
        self.scans.clear();
        self.index_scans.clear();
        self.readers.clear();
        self.tables.clear();
        self.savepoints.clear();
        mem::replace(&mut self.tx, Tx::Ended)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        match self.close() {
            // SAFETY: the pointer is from `Box::into_raw`, and `close` has taken it out.
            Tx::Write(tx) => drop(unsafe { Box::from_raw(tx.as_ptr()) }),
            // SAFETY: as above.
            Tx::Read(tx) => drop(unsafe { Box::from_raw(tx.as_ptr()) }),
            Tx::Run(_) | Tx::Ended => {}
        }
    }
}

impl Shared {
    pub(crate) fn new(process: Process, tx: Tx) -> Self {
        Self { process, open: Mutex::new(ManuallyDrop::new(Open::new(tx))), on_drop: None }
    }

    pub(crate) const fn process(&self) -> Process {
        self.process
    }

    /// Keeps `owner` until the transaction has ended.
    pub(crate) fn keep(&mut self, owner: impl Any + Send + Sync, on_drop: OnDrop) {
        self.open.get_mut().unwrap_or_else(PoisonError::into_inner).owner = Some(Box::new(owner));
        self.on_drop = Some(on_drop);
    }

    /// Gives up the transaction, after a call of another thread has ended.
    pub(crate) fn end(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).close();
    }

    /// Runs one operation of the transaction.
    pub(crate) fn with<T>(&self, operation: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        operation(&mut *self.lock()?)
    }

    fn lock(&self) -> Result<MutexGuard<'_, ManuallyDrop<Open>>> {
        match self.lock_to_end()? {
            (open, false) => Ok(open),
            (_, true) => Err(panicked()),
        }
    }

    /// Locks the transaction, also after a call with it has panicked, which the flag says.
    pub(crate) fn lock_to_end(&self) -> Result<(MutexGuard<'_, ManuallyDrop<Open>>, bool)> {
        self.process.check()?;
        match self.open.try_lock() {
            Ok(open) => Ok((open, false)),
            Err(TryLockError::Poisoned(open)) => Ok((open.into_inner(), true)),
            Err(TryLockError::WouldBlock) => {
                Err(Fault::new(Status::InUse, "another thread is in a call with this transaction"))
            }
        }
    }

    /// Forgets a panic. The transaction that it has struck was taken out.
    pub(crate) fn clear_panic(&self) {
        self.open.clear_poison();
    }

    /// Removes something from the transaction, unless a call of another thread runs. Then it stays to the end.
    pub(crate) fn forget(&self, remove: impl FnOnce(&mut Open)) {
        if let Ok(mut open) = self.lock() {
            remove(&mut open);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process.is_present() {
            let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: it is taken once, here, and not used afterwards.
            let mut open = Some(unsafe { ManuallyDrop::take(open) });
            if let (Some(Open { tx: Tx::Write(_) | Tx::Read(_), .. }), Some(on_drop)) = (&open, self.on_drop) {
                on_drop(&mut || drop(open.take()));
            }
        }
    }
}

pub(crate) fn panicked() -> Fault {
    Fault::new(Status::Panic, "an earlier call with this transaction has panicked, so it can only be rolled back")
}

pub(crate) fn ended() -> Fault {
    Fault::new(Status::Ended, "the transaction has ended")
}
