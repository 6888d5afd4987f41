//! The error type of the layers of storage.

use crate::{GroupNo, Lockable, Place, RestoreRefusal, TableId, TableRef, Waiter};
use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

/// A result with Foreshore's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with the object that it concerns. Cheap to clone: a failed log write is reported to every waiter.
#[derive(Clone, Debug)]
pub enum Error {
    /// An operation on a file failed.
    Io {
        /// The operation, as a verb: `read`, `write`, `start a thread for` …
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// A file has no space to grow. The writer that needed it fails. Reads go on, and writes do once space is freed.
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Label of the oldest transaction, if log is kept for it alone, or of the oldest snapshot, if pages of dropped
        /// tables are kept for it.
        held_by: Option<&'static str>,
    },
    /// Bytes on disk are not those that were written, and no sound copy exists. The rest of the database stays usable.
    Corrupted {
        /// The table of a damaged page, if known.
        table: Option<TableId>,
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong.
        why: &'static str,
    },
    /// A file is shorter than what was made durable.
    Truncated {
        /// The file.
        file: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The smallest length that it must have.
        expected: u64,
    },
    /// A durable log group is missing, as later groups show. That is lost media and not a torn tail.
    LostLog {
        /// The segment that should hold the group, or that ends before it.
        file: PathBuf,
        /// Where in it the group is missing.
        offset: u64,
        /// The first missing group.
        missing: GroupNo,
    },
    /// A log group that a follower asks for was recycled: nothing kept the log for it.
    LogTruncated {
        /// The log directory.
        dir: PathBuf,
        /// The group that was asked for.
        wanted: GroupNo,
        /// The oldest group that is kept.
        first: GroupNo,
    },
    /// A log group that was read before it was confirmed is gone after a crash of the writer.
    LogRetracted {
        /// The log directory.
        dir: PathBuf,
        /// The group. Another group may have its number now.
        group: GroupNo,
    },
    /// A restore is refused. Nothing was restored.
    Restore(RestoreRefusal),
    /// The file is not one of Foreshore, or belongs to another database.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: &'static str,
    },
    /// The file was written by a newer version.
    Newer {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// The database is open already, in this process or another.
    Locked {
        /// Its directory.
        path: PathBuf,
    },
    /// A log write or sync failed, and the log has stopped. Commits that were not acknowledged may or may not survive;
    /// `Db::reopen` tells.
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },
    /// The database has been closed.
    Closed,
    /// The database is open for reading only. Nothing was changed.
    ReadOnly,
    /// An earlier error has rolled the transaction back.
    RolledBack,
    /// The rollback of a transaction found no free page, no log space or a damaged page, and is parked. Its rows stay
    /// locked, and the engine retries it when space is freed. The rollback itself returns this error, and so do writers
    /// that meet one of the rows. Behind a restart also readers, while its undo beside transactions is stuck. Not
    /// retryable: freed space ends it, or a restart.
    RollbackParked {
        /// Label of the transaction that is rolled back.
        label: &'static str,
        /// The error that stopped the rollback.
        cause: Arc<Error>,
    },
    /// A key is over the limit. Nothing was changed.
    KeyTooLarge {
        /// The table.
        table: TableRef,
        /// Encoded length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value, or the note of a prepared transaction, is over the limit. Nothing was changed.
    ValueTooLarge {
        /// The table; `None` for a log record that belongs to none.
        table: Option<TableRef>,
        /// Encoded length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The table was dropped after this transaction had opened it. Retryable: the next open creates the table anew.
    TableDropped {
        /// The table.
        table: TableRef,
    },
    /// The savepoint belongs to another transaction, or was undone by a rollback to an earlier one.
    NoSavepoint,
    /// `insert_new` found the key.
    KeyExists {
        /// The table.
        table: TableRef,
        /// The encoded key.
        key: Arc<[u8]>,
    },
    /// A row to load does not follow those before it: its key is not above theirs, or not above all keys of the table.
    /// Nothing was loaded.
    LoadOrder {
        /// The table.
        table: TableRef,
        /// How many rows came before it.
        row: u64,
        /// Its encoded key.
        key: Arc<[u8]>,
    },
    /// The transaction was chosen as the victim of a deadlock. Retryable.
    Deadlock {
        /// The cycle, from the victim on: each waits for the next, and the last for the first. The first [`MAX_NAMED`]
        /// of a longer one.
        ///
        /// [`MAX_NAMED`]: crate::MAX_NAMED
        cycle: Arc<[Waiter]>,
    },
    /// A lock was not granted in time. Retryable.
    LockTimeout {
        /// Label of a holder.
        holder: &'static str,
        /// What was waited for.
        what: Lockable,
        /// How long.
        waited: Duration,
    },
    /// The waiting thread itself seems to keep the lock from being released. It was the last thread to use the
    /// transaction that holds the lock, or one that the holder waits for. Returned after a tenth of a second. Not
    /// retryable.
    ///
    /// Three remedies: end the holder first, use one transaction for both, or let another thread run an operation of
    /// the holder before this one waits.
    OwnThreadLock {
        /// Label of the transaction that this thread used last.
        holder: &'static str,
        /// What was waited for.
        what: Lockable,
        /// How long.
        waited: Duration,
    },
    /// A row, or its table, is locked, and the request does not wait. Nothing was changed, and the transaction goes on.
    /// Not retryable: a request without a wait leaves that decision to its caller.
    RowLocked {
        /// The row or the table.
        what: Lockable,
        /// Label of a holder.
        holder: &'static str,
    },
    /// Another transaction has changed a row, and has committed, since the snapshot of this one was taken. Retryable.
    Conflict {
        /// The table.
        table: TableRef,
        /// The encoded key of the row.
        key: Arc<[u8]>,
    },
    /// The snapshot was cancelled because it was too old, or too many bytes were kept for it. Retryable.
    SnapshotTooOld {
        /// Label of the reader.
        label: &'static str,
        /// How long it had been in use.
        age: Duration,
        /// About how many bytes of old versions were kept for this snapshot alone.
        bytes: u64,
    },
    /// The name of a prepared transaction is empty or over the limit.
    PreparedName {
        /// The name.
        name: String,
    },
    /// All sessions of the engine are in use, or all words of the status window. Retryable.
    TooManyTransactions {
        /// The limit.
        max: usize,
        /// Label of the oldest transaction.
        oldest: &'static str,
    },
    /// All transaction ids are used up, or the files say so. Reads go on. Not retryable: the rows have to be copied
    /// into a new database.
    XidsUsedUp {
        /// Number of ids.
        max: u64,
    },
    /// The transaction needs more undo space than the limit, even while no other transaction uses any. Not retryable.
    TransactionTooLarge {
        /// The limit in bytes, of memory and file together.
        max: usize,
    },
    /// Other transactions hold the undo memory that this one needs. They wait for its locks, or did not end in time, or
    /// their entries share chunks with its own. Retryable.
    UndoMemory {
        /// The limit in bytes, of memory and file together.
        max: usize,
        /// Label of one of them; empty if none is known.
        holder: &'static str,
    },
    /// No log space became free within the time limit of the wait: checkpoints do not keep up with the writers, or the
    /// log buffer is full. Retryable.
    LogSpace,
    /// Every frame of the buffer pool is in use at once.
    OutOfFrames {
        /// Frames in the pool.
        frames: usize,
    },
    /// An option is refused.
    InvalidOption(InvalidOption),
}

/// Operations on files that may need space. A sync needs some where the file system allocates late, a new name where
/// its directory grows.
const ASK_SPACE: [&str; 8] =
    ["allocate space for", "create", "lock", "remove", "rename", "set the length of", "sync", "write"];

impl Error {
    /// Wraps an error of the operating system from `op` on `path`. A full disk has its own variant, if `op` needs
    /// space.
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.into();
        let is_full = matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        if is_full && ASK_SPACE.contains(&op) {
            return Self::DiskFull { path, held_by: None };
        }
        Self::Io { op, path, source: Arc::new(source) }
    }

    /// Returns the error of all callers after `cause` stopped the log: `Closed` if it was closed.
    #[must_use]
    pub fn poisoned(cause: &Error) -> Self {
        match cause {
            Self::Poisoned { .. } | Self::Closed => cause.clone(),
            _ => Self::Poisoned { cause: Arc::new(cause.clone()) },
        }
    }
}

/// An option is out of range, or names a variant that is not built.
#[derive(Clone, Debug)]
pub struct InvalidOption {
    /// The option.
    pub name: &'static str,
    /// The value given.
    pub value: String,
    /// The values that are allowed.
    pub expected: String,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, expected } = self;
        write!(f, "option {name} cannot be {value:?}, expected {expected}")
    }
}

impl std::error::Error for InvalidOption {}

impl From<InvalidOption> for Error {
    fn from(invalid: InvalidOption) -> Self {
        Self::InvalidOption(invalid)
    }
}
