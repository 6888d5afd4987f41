//! The one error type, of every layer and of the public face.

use crate::damage::write_damage;
use crate::{GroupNo, Lockable, Place, TableRef, Waiter};
use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

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
    TableDropped,
    /// A transaction was run again and again, and others ended each run. Retryable, if somebody has more patience.
    Exhausted {
        /// How often it was run.
        runs: u32,
        /// What ended the last run.
        cause: Arc<Error>,
    },
    /// A savepoint of another transaction, or one that was taken after the place to which the transaction has gone back since.
    NoSavepoint,
    /// `insert_new` met the key.
    KeyExists,
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
    /// A row that was asked for without a wait is locked, or its table is. Nothing has changed, and the transaction goes on. Not retryable:
    /// who does not wait wants to know.
    RowLocked {
        /// The row, the gap before it, or the table.
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
    /// The transaction needs more undo memory than there is, even while no other transaction holds any. Not retryable.
    TransactionTooLarge {
        /// The limit in bytes, of memory and file together.
        max: usize,
    },
    /// Other transactions hold the undo memory that this one needs, and wait for its locks or did not end in time. Retryable.
    UndoMemory {
        /// The limit in bytes, of memory and file together.
        max: usize,
        /// Label of a transaction that holds some.
        holder: &'static str,
    },
    /// The memory for shared locks of rows is given out, to this transaction or to others. Retryable, since others give theirs back,
    /// though `Db::run` gives it to its caller at once: the next run would take as many. Locks are never escalated. A transaction
    /// that locks the table as a whole before it reads, by `Table::lock_against_writes`, needs none of that memory.
    LockLimit {
        /// The table of the row, or of the gap.
        table: TableRef,
        /// The limit, in locks.
        max: usize,
    },
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
            return Self::DiskFull { path };
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
                | Self::TableDropped
                | Self::LockLimit { .. }
                | Self::Exhausted { .. }
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, source } => write!(f, "cannot {op} {}: {source}", path.display()),
            Self::DiskFull { path } => write!(f, "no space for {} (disk, quota or file size limit)", path.display()),
            Self::Corrupted { table, file, place, why } => write_damage(f, table.as_ref(), file, *place, why),
            Self::Truncated { file, len, expected } => {
                write!(f, "{} is truncated: {len} bytes, at least {expected} expected", file.display())
            }
            Self::LostLog { file, offset, missing } => {
                write!(f, "log group {missing} was durable and is missing in {} at offset {offset}", file.display())
            }
            Self::LogTruncated { dir, wanted, first } => {
                write!(f, "group {wanted} of the log in {} is given up, {first} is the oldest kept", dir.display())
            }
            Self::LogRetracted { dir, group } => {
                write!(f, "group {group} of the log in {} was read unconfirmed and lost in a crash", dir.display())
            }
            Self::Foreign { path, why } => write!(f, "{} does not belong to this database: {why}", path.display()),
            Self::Newer { path, found, supported } => {
                write!(f, "{} has format version {found}, this build reads up to {supported}", path.display())
            }
            Self::Locked { path } => write!(f, "{} is open already", path.display()),
            Self::Poisoned { cause } => write!(f, "the log has stopped, reopen the database: {cause}"),
            Self::Closed => f.write_str("the database is closed"),
            Self::RolledBack => f.write_str("the transaction was rolled back by an earlier error"),
            Self::RollbackParked { label, cause } => write!(f, "the rollback of {label:?} is parked: {cause}"),
            Self::KeyTooLarge { len, max } => write!(f, "the key has {len} bytes, at most {max} are allowed"),
            Self::ValueTooLarge { len, max } => write!(f, "the value has {len} bytes, at most {max} are allowed"),
            Self::TableName { name } => write!(f, "{name:?} cannot name a table"),
            Self::TableTypes { table, stored, wanted } => write!(f, "table {table} holds {stored}, not {wanted}"),
            Self::TableDropped => f.write_str("the table was dropped"),
            Self::Exhausted { runs, cause } => {
                write!(f, "the transaction was run {runs} times without success; last cause: {cause}")
            }
            Self::NoSavepoint => f.write_str("the transaction has no such savepoint, or has gone back behind it"),
            Self::KeyExists => f.write_str("the table already has the key"),
            Self::Deadlock { cycle } => write_cycle(f, cycle),
            Self::LockTimeout { holder, what, waited } => {
                write!(f, "no lock on {what} within {waited:?}, held by {holder:?}")
            }
            Self::RowLocked { what, holder } => write!(f, "{what} is locked by {holder:?}"),
            Self::Conflict { table, key } => {
                write!(f, "the row with key {key:02x?} of table {table} has changed since the snapshot was taken")
            }
            Self::SnapshotTooOld { label, age, bytes } => {
                write!(f, "the snapshot of {label:?} was given up, {age:?} old, with {bytes} bytes kept for it alone")
            }
            Self::TransactionTooOld { label, age } => write_too_old(f, label, *age),
            Self::NoTable { name } => write!(f, "there is no table {name:?}"),
            Self::PreparedName { name } => write!(f, "{name:?} cannot name a prepared transaction"),
            Self::PreparedExists { name } => write!(f, "a transaction is prepared under the name {name:?}"),
            Self::NoPrepared { name } => write!(f, "no transaction is prepared under the name {name:?}"),
            Self::PreparedBusy { name } => write!(f, "transaction {name:?} is being prepared or resolved"),
            Self::TooManyTransactions { max, oldest } => {
                write!(f, "more than {max} transactions at once, the oldest is {oldest:?}")
            }
            Self::TransactionTooLarge { max } => write_too_large(f, *max),
            Self::UndoMemory { max, holder } => write_undo_memory(f, *max, holder),
            Self::LockLimit { table, max } => {
                write!(f, "no memory for one more shared lock in table {table}: all {max} are in use")
            }
            Self::OutOfFrames { frames } => write!(f, "all {frames} frames of the pool are in use at once"),
            Self::InvalidOption { name, value, expected } => {
                write!(f, "option {name} cannot be {value:?}, expected {expected}")
            }
        }
    }
}

fn write_too_old(f: &mut fmt::Formatter<'_>, label: &str, age: Duration) -> fmt::Result {
    write!(f, "transaction {label:?} ran for {age:?}, longer than transaction_max_age, and was rolled back")
}

fn write_too_large(f: &mut fmt::Formatter<'_>, max: usize) -> fmt::Result {
    write!(
        f,
        "the transaction needs more than all {max} bytes for undo: raise memory_limit, or spill_limit for a larger file"
    )
}

fn write_undo_memory(f: &mut fmt::Formatter<'_>, max: usize, holder: &str) -> fmt::Result {
    write!(
        f,
        "others, among them {holder:?}, hold the {max} bytes for undo: run it again, or raise memory_limit or spill_limit"
    )
}

fn write_cycle(f: &mut fmt::Formatter<'_>, cycle: &[Waiter]) -> fmt::Result {
    f.write_str("deadlock:")?;
    cycle.iter().try_for_each(|Waiter { label, waits_for }| write!(f, " {label:?} waits for {waits_for};"))
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            Self::Poisoned { cause } | Self::Exhausted { cause, .. } | Self::RollbackParked { cause, .. } => {
                Some(&**cause)
            }
            _ => None,
        }
    }
}
