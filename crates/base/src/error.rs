//! The one error type, of every layer and of the public face.

mod display;

use crate::{GroupNo, Lockable, Place, TableRef, Waiter};
use std::{io, path::PathBuf, sync::Arc, time::Duration};

/// A result with Foreshore's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and with which thing.
///
/// Cheap to clone: one failed log write answers every waiter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a file failed.
    Io {
        /// The operation, as what cannot be done to the file: `read`, `write`, `start a thread for` …
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No space for a file. The writer that needed it fails; reads go on, and freed space makes writes go on.
    DiskFull {
        /// The file that needed it.
        path: PathBuf,
        /// The label of the oldest transaction, if log is kept for it that could be given up otherwise; or of the oldest snapshot, if pages of
        /// dropped tables are kept for it.
        held_by: Option<&'static str>,
    },
    /// Bytes on disk are not what was written, and no sound copy exists. What else is in the database goes on.
    Corrupted {
        /// The table that lost them, where the place is a page of one and the table is known.
        table: Option<TableRef>,
        /// The file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong.
        why: &'static str,
    },
    /// A file shorter than what was made durable.
    Truncated {
        /// The file.
        file: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The length it must at least have.
        expected: u64,
    },
    /// A log group that was durable is missing, as what comes after it shows: lost media, not a torn tail.
    LostLog {
        /// The segment that should hold the group, or go on before it.
        file: PathBuf,
        /// Where in it the group is missing.
        offset: u64,
        /// The first missing group.
        missing: GroupNo,
    },
    /// A log group that somebody wants to read has been given up: nothing kept the log from being truncated.
    LogTruncated {
        /// The log directory.
        dir: PathBuf,
        /// The group wanted.
        wanted: GroupNo,
        /// The oldest group that is kept.
        first: GroupNo,
    },
    /// A log group that was read before it was confirmed has been taken back by a crash of the writer.
    LogRetracted {
        /// The log directory.
        dir: PathBuf,
        /// The group. Another one may stand in its place.
        group: GroupNo,
    },
    /// Not a file of Foreshore, or of another database.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: &'static str,
    },
    /// Written by a newer version.
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
    /// A log write or sync failed. What was not acknowledged by then may or may not survive; `Db::reopen` tells.
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },
    /// The database has been closed.
    Closed,
    /// The transaction was rolled back already, by an earlier error in it.
    RolledBack,
    /// The rollback of a transaction found no free page, no log space or a damaged page, and is parked: its rows stay
    /// locked, and the engine tries it again when space is freed. Answers the rollback itself, and writers that meet
    /// one of the rows. Not retryable: freed space ends it, or a restart.
    RollbackParked {
        /// Label of the transaction that is rolled back.
        label: &'static str,
        /// Why the rollback could not go on.
        cause: Arc<Error>,
    },
    /// A key over the limit.
    KeyTooLarge {
        /// Encoded length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A value over the limit.
    ValueTooLarge {
        /// Encoded length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A name of a table that is empty or over the limit.
    TableName {
        /// The name.
        name: String,
    },
    /// The table exists with other types.
    TableTypes {
        /// The table.
        table: String,
        /// Key and value types it was created with.
        stored: String,
        /// Key and value types asked for.
        wanted: String,
    },
    /// The table was dropped after this transaction had opened it. Retryable: to open it again creates it anew.
    TableDropped {
        /// The table.
        table: TableRef,
    },
    /// A key or a value in a table does not decode to the type that it is read as. The page is sound: the type was changed without its
    /// name, or the decoding of a type of the user's own refuses what its encoding has written.
    Undecodable {
        /// The table.
        table: TableRef,
        /// The encoded key of the row.
        key: Arc<[u8]>,
        /// Which part of the row does not decode.
        part: &'static str,
    },
    /// A transaction was run again and again, and others ended each run. Retryable, if the caller has more patience.
    Exhausted {
        /// How often it was run.
        runs: u32,
        /// What ended the last run.
        cause: Arc<Error>,
    },
    /// The deadline of a transaction ended a wait, or came before a run that others did not end. Retryable, if the caller has more
    /// patience.
    Deadline {
        /// Label of the transaction that stood in its way last; empty if none is known.
        holder: &'static str,
        /// How often it was run.
        runs: u32,
        /// How long that took.
        elapsed: Duration,
        /// What ended the last run: `LockTimeout`, `UndoMemory`, `DiskFull`, `LogSpace` or `TooManyTransactions` says what was waited
        /// for.
        cause: Arc<Error>,
    },
    /// A savepoint of another transaction, or one that was taken after the place to which the transaction has gone back since.
    NoSavepoint,
    /// `insert_new` met the key.
    KeyExists {
        /// The table.
        table: TableRef,
        /// The encoded key.
        key: Arc<[u8]>,
    },
    /// The transaction was chosen to end a cycle of waits. Retryable.
    Deadlock {
        /// The cycle, from the victim on: each waits for the next, and the last for the first. The first [`MAX_NAMED`] of a
        /// longer one.
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
    /// A lock was waited for that the waiting thread itself seems to keep from being freed: it was the last one to use the transaction that
    /// holds the lock, or that a holder waits for. One given to another thread counts as that thread's from its first operation there on.
    /// Answered after a tenth of a second. Not retryable: the holder has to end first, or to be one transaction with the waiter, or to have
    /// run an operation in another thread before this one waits.
    OwnThreadLock {
        /// Label of the transaction that this thread used last.
        holder: &'static str,
        /// What was waited for.
        what: Lockable,
        /// How long.
        waited: Duration,
    },
    /// A row that was asked for without a wait is locked, or its table is. Nothing has changed, and the transaction goes on. Not retryable:
    /// who does not wait wants to know.
    RowLocked {
        /// The row or the table.
        what: Lockable,
        /// Label of a holder.
        holder: &'static str,
    },
    /// Another transaction has changed a row since the snapshot was taken by which this one reads, and has committed first.
    /// Retryable.
    Conflict {
        /// The table.
        table: TableRef,
        /// The encoded key of the row.
        key: Arc<[u8]>,
    },
    /// What the snapshot would see is gone: it was given up because it was too old, or what it kept took too much room.
    /// Retryable.
    SnapshotTooOld {
        /// Label of its reader.
        label: &'static str,
        /// How long it had been in use.
        age: Duration,
        /// About how many bytes of old versions were kept for no other.
        bytes: u64,
    },
    /// The transaction ran for longer than `Options::transaction_max_age` allows, and was rolled back. Retryable, though `Db::run` gives
    /// it to its caller at once: the next run may take as long.
    TransactionTooOld {
        /// Its label.
        label: &'static str,
        /// How long it had run.
        age: Duration,
    },
    /// No table has the name.
    NoTable {
        /// The name.
        name: String,
    },
    /// A name of a prepared transaction that is empty or over the limit.
    PreparedName {
        /// The name.
        name: String,
    },
    /// A transaction is prepared under the name.
    PreparedExists {
        /// The name.
        name: String,
    },
    /// No transaction is prepared under the name.
    NoPrepared {
        /// The name.
        name: String,
    },
    /// The transaction of that name is being prepared or resolved just now.
    PreparedBusy {
        /// The name.
        name: String,
    },
    /// More transactions at once than the engine has sessions for, or more than the status window has words for. Retryable.
    TooManyTransactions {
        /// The limit.
        max: usize,
        /// Label of the oldest transaction.
        oldest: &'static str,
    },
    /// Every id that a transaction that writes can have has been given out, or the files say so. Reads go on. Not retryable: the rows
    /// have to be copied into a new database.
    XidsUsedUp {
        /// The ids that there are.
        max: u64,
    },
    /// The transaction needs more undo memory than there is, even while no other transaction holds any. Not retryable.
    TransactionTooLarge {
        /// The limit in bytes, of memory and file together.
        max: usize,
    },
    /// Other transactions hold the undo memory that this one needs, and wait for its locks or did not end in time; or have ended, and
    /// their entries lie beside its own, which keep them in memory. Retryable.
    UndoMemory {
        /// The limit in bytes, of memory and file together.
        max: usize,
        /// Label of a transaction that holds some; empty where none is known.
        holder: &'static str,
    },
    /// No log space came free in the time that the transaction had for its waits: checkpoints do not keep up with the writers, or
    /// the log's buffer is full. Retryable.
    LogSpace,
    /// Every frame of the pool is in use at once.
    OutOfFrames {
        /// Frames in the pool.
        frames: usize,
    },
    /// An option outside its range, or a name that is not built.
    InvalidOption {
        /// The option.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        expected: String,
    },
}

/// The operations on files that need space. A sync does where space is given late, a name where its directory grows.
const ASK_SPACE: [&str; 8] =
    ["allocate space for", "create", "lock", "remove", "rename", "set the length of", "sync", "write"];

impl Error {
    /// Wraps what the system said about `op` on `path`. A full disk gets its own variant, where `op` asks for space.
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.into();
        let is_full = matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        if is_full && ASK_SPACE.contains(&op) {
            return Self::DiskFull { path, held_by: None };
        }
        Self::Io { op, path, source: Arc::new(source) }
    }

    /// The error that all get after `cause` stopped the log: `Closed` if it was closed.
    #[must_use]
    pub fn poisoned(cause: &Error) -> Self {
        match cause {
            Self::Poisoned { .. } | Self::Closed => cause.clone(),
            _ => Self::Poisoned { cause: Arc::new(cause.clone()) },
        }
    }

    /// Label of the transaction that stood in the way, where this error knows one.
    #[must_use]
    pub fn blocker(&self) -> Option<&'static str> {
        match self {
            // The victim waits for the next one of the cycle.
            Self::Deadlock { cycle } => cycle.get(1).map(|blocker| blocker.label),
            Self::LockTimeout { holder, .. }
            | Self::OwnThreadLock { holder, .. }
            | Self::RowLocked { holder, .. }
            | Self::UndoMemory { holder, .. }
            | Self::Deadline { holder, .. } => Some(holder),
            Self::TooManyTransactions { oldest, .. } => Some(oldest),
            Self::DiskFull { held_by, .. } => *held_by,
            Self::Exhausted { cause, .. } => cause.blocker(),
            _ => None,
        }
    }

    /// Whether the same transaction may succeed when it is run again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Deadlock { .. }
                | Self::LockTimeout { .. }
                | Self::Conflict { .. }
                | Self::SnapshotTooOld { .. }
                | Self::TransactionTooOld { .. }
                | Self::TooManyTransactions { .. }
                | Self::UndoMemory { .. }
                | Self::LogSpace
                | Self::TableDropped { .. }
                | Self::Exhausted { .. }
                | Self::Deadline { .. }
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            Self::Poisoned { cause }
            | Self::Exhausted { cause, .. }
            | Self::Deadline { cause, .. }
            | Self::RollbackParked { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}
