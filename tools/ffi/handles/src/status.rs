//! What a call has come to, as a number that keeps its meaning from version to version.

use foreshore::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call has come to. The numbers are stable. Those from 20 to 39 are retryable: the same transaction may
/// succeed when it is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such row, or the scan is over.
    NotFound = 1,
    /// A null pointer, text that is not UTF-8, an option out of range, or a call that is not allowed here.
    Invalid = 10,
    /// The transaction of this handle has ended, by a call of the program.
    Ended = 11,
    /// Another thread is in a call with this transaction.
    InUse = 12,
    /// The database was opened before a fork, in the parent process.
    Forked = 13,
    /// A defect of the library: it has panicked. The transaction can only be ended.
    Panic = 14,
    /// The function of a run has asked for a rollback.
    Aborted = 15,
    /// The victim of a deadlock.
    Deadlock = 20,
    /// Another transaction has changed the row since the snapshot was taken.
    Conflict = 21,
    /// A lock was not granted in time.
    LockTimeout = 22,
    /// The snapshot was cancelled because it was too old or kept too much.
    SnapshotTooOld = 23,
    /// The transaction ran for longer than the database allows.
    TransactionTooOld = 24,
    /// Too many transactions run, or undo memory or log space is used up.
    Busy = 25,
    /// The table, or its indexes, were dropped or changed by another transaction.
    TableChanged = 26,
    /// Each run was ended by other transactions, up to the limit of runs or the deadline.
    Exhausted = 27,
    /// An earlier error has rolled the transaction back.
    RolledBack = 40,
    /// The transaction needs more undo space than there is.
    TransactionTooLarge = 41,
    /// The row is locked, and the request does not wait.
    RowLocked = 42,
    /// The lock is held by a transaction that this thread used last, so the wait would have no end.
    OwnThreadLock = 43,
    /// The rollback is parked: it goes on when there is space.
    RollbackParked = 44,
    /// The savepoint is gone, or of another transaction.
    NoSavepoint = 45,
    /// There is no prepared transaction of this name.
    NoPrepared = 46,
    /// A prepared transaction has the name already.
    PreparedExists = 47,
    /// Another call is preparing, committing or rolling back the prepared transaction.
    PreparedBusy = 48,
    /// The name of a prepared transaction is empty, too long, or has a zero byte.
    PreparedName = 49,
    /// A row with this key exists.
    KeyExists = 50,
    /// The key is too large.
    KeyTooLarge = 51,
    /// The value is too large.
    ValueTooLarge = 52,
    /// There is no such table.
    NoTable = 53,
    /// The name of a table is empty, too long, or has a zero byte.
    TableName = 54,
    /// The table has keys or values of other types.
    TableTypes = 55,
    /// The table has an index that it was opened without, so it is only read.
    Indexed = 56,
    /// A row does not decode to the types of its table.
    Undecodable = 57,
    /// A table has the new name already.
    TableExists = 58,
    /// The function that reads a new value has failed.
    ReaderFailed = 59,
    /// There is no database in the directory.
    NoDatabase = 60,
    /// The database is open already, in this process or another.
    Locked = 61,
    /// The database, or the transaction, only reads.
    ReadOnly = 62,
    /// The database was not closed, so it has to be opened for writing first.
    NotClosed = 63,
    /// The database has been closed.
    Closed = 64,
    /// The directory of a backup or of a restore is not empty, or that has not finished, or the restore is refused.
    BadBackup = 65,
    /// The files are not of Foreshore, or belong to another database.
    Foreign = 66,
    /// The files were written by a newer version.
    Newer = 67,
    /// An operation of the system failed.
    Io = 70,
    /// There is no space on the disk.
    NoSpace = 71,
    /// Bytes on disk are not those that were written.
    Corrupted = 72,
    /// A write of the log has failed. The database must be opened again.
    Poisoned = 73,
    /// All page frames are in use: the memory limit is too small.
    NoMemory = 74,
    /// A unique index has the key for another row.
    IndexKeyExists = 80,
    /// An index disagrees with its table: it was built by another function.
    IndexMismatch = 81,
    /// The table has no such index.
    NoIndex = 82,
    /// The index was built by another definition.
    IndexTypes = 83,
    /// The keys of a load do not ascend, or are not above those of the table.
    LoadOrder = 84,
    /// An error without a number of its own.
    Other = 99,
}

impl Status {
    /// Returns whether the same transaction may succeed when it is run again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        let number = self as i32;
        20 <= number && number < 40
    }

    /// Returns the status of an error.
    #[must_use]
    pub const fn of(error: &Error) -> Self {
        match error {
            Error::Deadlock { .. } => Self::Deadlock,
            Error::Conflict { .. } => Self::Conflict,
            Error::LockTimeout { .. } => Self::LockTimeout,
            Error::SnapshotTooOld { .. } => Self::SnapshotTooOld,
            Error::TransactionTooOld { .. } => Self::TransactionTooOld,
            Error::TooManyTransactions { .. } | Error::UndoMemory { .. } | Error::LogSpace => Self::Busy,
            Error::TableDropped { .. } | Error::IndexesChanged { .. } => Self::TableChanged,
            Error::Exhausted { .. } | Error::Deadline { .. } => Self::Exhausted,
            Error::RolledBack => Self::RolledBack,
            Error::TransactionTooLarge { .. } => Self::TransactionTooLarge,
            Error::RowLocked { .. } => Self::RowLocked,
            Error::OwnThreadLock { .. } => Self::OwnThreadLock,
            Error::RollbackParked { .. } => Self::RollbackParked,
            Error::NoSavepoint => Self::NoSavepoint,
            Error::KeyExists { .. } => Self::KeyExists,
            Error::KeyTooLarge { .. } => Self::KeyTooLarge,
            Error::ValueTooLarge { .. } => Self::ValueTooLarge,
            Error::NoTable { .. } => Self::NoTable,
            Error::TableName { .. } => Self::TableName,
            Error::TableTypes { .. } => Self::TableTypes,
            Error::TableExists { .. } => Self::TableExists,
            Error::IndexUndeclared { .. } => Self::Indexed,
            Error::Undecodable { .. } => Self::Undecodable,
            Error::ReaderFailed { .. } => Self::ReaderFailed,
            Error::IndexKeyExists { .. } => Self::IndexKeyExists,
            Error::IndexMismatch { .. } => Self::IndexMismatch,
            Error::NoIndex { .. } => Self::NoIndex,
            Error::IndexTypes { .. } => Self::IndexTypes,
            Error::LoadOrder { .. } => Self::LoadOrder,
            Error::NoPrepared { .. } => Self::NoPrepared,
            Error::PreparedExists { .. } => Self::PreparedExists,
            Error::PreparedBusy { .. } => Self::PreparedBusy,
            Error::PreparedName { .. } => Self::PreparedName,
            _ => Self::of_database(error),
        }
    }

    /// Returns the status of an error that concerns the whole database.
    const fn of_database(error: &Error) -> Self {
        match error {
            Error::NoDatabase { .. } => Self::NoDatabase,
            Error::Locked { .. } => Self::Locked,
            Error::ReadOnly => Self::ReadOnly,
            Error::NotClosed { .. } => Self::NotClosed,
            Error::Closed => Self::Closed,
            Error::NotEmpty { .. } | Error::UnfinishedBackup { .. } | Error::Restore(_) | Error::UnknownBase(_) => {
                Self::BadBackup
            }
            Error::Foreign { .. } => Self::Foreign,
            Error::Newer { .. } => Self::Newer,
            Error::Io { .. } => Self::Io,
            Error::DiskFull { .. } => Self::NoSpace,
            Error::Corrupted { .. } | Error::Truncated { .. } | Error::LostLog { .. } => Self::Corrupted,
            Error::Poisoned { .. } => Self::Poisoned,
            Error::OutOfFrames { .. } => Self::NoMemory,
            Error::InvalidOption { .. } => Self::Invalid,
            _ => Self::Other,
        }
    }
}

/// A status with what happened, in words.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The status.
    pub status: Status,
    /// What was refused, and why.
    pub message: String,
}

/// A result with a [`Fault`].
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// Returns a fault with a message.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// Runs a call of a binding: a panic is `Panic`.
///
/// # Errors
/// Those of `call`, and `Panic`.
pub fn caught<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().map(|why| (*why).to_owned());
        let why = why.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Fault::new(Status::Panic, format!("the library has panicked: {why}")))
    })
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::new(Status::of(&error), error.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
