//! The error type of the public interface.

mod display;
mod from;
mod methods;

use foreshore_base::{GroupNo, Lockable, Place, RestoreRefusal, TableRef, UnknownBase, Waiter};
pub use methods::Result;
use std::{io, path::PathBuf, sync::Arc, time::Duration};

/// An error, with the object that it concerns. Cheap to clone: a failed log write is reported to every waiter.
#[derive(Clone, Debug)]
#[non_exhaustive]
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
    /// A file has no space to grow. The writer that needed it fails. Reads continue, and writes do once space is freed.
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
        table: Option<TableRef>,
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
    /// A durable log group is missing, as later groups show. The medium has lost it; this is not a torn tail.
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
    /// A log group that was read before it was known to be durable is gone after a crash of the writer.
    LogRetracted {
        /// The log directory.
        dir: PathBuf,
        /// The group. Another group may have its number now.
        group: GroupNo,
    },
    /// A restore is refused. Nothing was restored.
    Restore(RestoreRefusal),
    /// An incremental backup is refused because of its base. Nothing was copied.
    UnknownBase(UnknownBase),
    /// The file is not a Foreshore file, or belongs to another database.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: &'static str,
    },
    /// The file has a format version that this build does not read.
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
    /// A backup or a restore did not finish, so the directory holds no database.
    UnfinishedBackup {
        /// The directory.
        dir: PathBuf,
    },
    /// The target directory of a backup or a restore is not empty. Nothing was changed.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A failed write or sync has stopped the database. `Db::reopen` shows which unacknowledged commits survive.
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },
    /// The database has been closed.
    Closed,
    /// The database is open for reading only. Nothing was changed, and the transaction goes on.
    ReadOnly,
    /// The database cannot be opened for reading only: it was not closed, or it has prepared transactions.
    NotClosed {
        /// Its directory.
        path: PathBuf,
    },
    /// An earlier error has rolled the transaction back.
    RolledBack,
    /// The rollback of a transaction met a damaged page, or found no free page or log space, and is parked until space
    /// is freed or a restart. It returns this error, and so do writers of its rows; after a crash, also readers.
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
    /// The reader of a new value has failed, or has ended early. Nothing was changed, and the transaction goes on.
    ReaderFailed {
        /// The table.
        table: TableRef,
        /// The encoded key of the value.
        key: Arc<[u8]>,
        /// Error of the reader.
        source: Arc<io::Error>,
    },
    /// The name of a table or of an index is empty, over the limit, contains a zero byte, or is given to two indexes.
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
    /// The table was dropped or renamed after it was opened. Retryable: the next open creates the table anew.
    TableDropped {
        /// The table.
        table: TableRef,
    },
    /// A key or a value of a row, in a sound page, does not decode to the type of the table.
    Undecodable {
        /// The table.
        table: TableRef,
        /// The encoded key of the row.
        key: Arc<[u8]>,
        /// The part of the row that does not decode.
        part: &'static str,
    },
    /// Other transactions ended every run of the transaction, and the limit of runs is reached. Retryable.
    Exhausted {
        /// How often it was run.
        runs: u32,
        /// What ended the last run.
        cause: Arc<Error>,
    },
    /// A transaction has reached its deadline, in a wait or between two runs. Retryable.
    Deadline {
        /// Label of the transaction that blocked it last; empty if none is known.
        holder: &'static str,
        /// How often it was run.
        runs: u32,
        /// How long that took.
        elapsed: Duration,
        /// The error that ended the last run. It says what was waited for.
        cause: Arc<Error>,
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
    /// A row to load does not have a greater key than the row before it, or than the table's last. Nothing was loaded.
    LoadOrder {
        /// The table.
        table: TableRef,
        /// How many rows of the load came before it.
        row: u64,
        /// Its encoded key.
        key: Arc<[u8]>,
    },
    /// A write would give an index key to a second row, and the index is unique. Nothing was changed.
    IndexKeyExists {
        /// The index, named with its table.
        index: TableRef,
        /// The encoded index key.
        key: Arc<[u8]>,
    },
    /// An index and its table differ: the key function has changed but not its version, or reads more than the row.
    IndexMismatch {
        /// The index, named with its table.
        index: TableRef,
        /// The encoded entry.
        entry: Arc<[u8]>,
    },
    /// The table has an index that its definition does not declare, so the write was refused. Nothing was changed.
    IndexUndeclared {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The indexes of the table have changed since it was opened. Retryable: the next open finds the new ones.
    IndexesChanged {
        /// The table.
        table: TableRef,
    },
    /// The table has no such index.
    NoIndex {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The index was built by another definition.
    IndexTypes {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The definition that it was built by.
        stored: String,
        /// The definition asked for.
        wanted: String,
    },
    /// The transaction was chosen as the victim of a deadlock. Retryable.
    Deadlock {
        /// The cycle, from the victim on, or its first 8. Each waits for the next, and the last for the victim.
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
    /// This thread last used the holder, or a transaction that the holder waits for. End that one first. Not retryable.
    OwnThreadLock {
        /// Label of the transaction that this thread used last.
        holder: &'static str,
        /// What was waited for.
        what: Lockable,
        /// How long.
        waited: Duration,
    },
    /// A row, or its table, is locked, and the request does not wait. Nothing was changed. Not retryable.
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
    /// The transaction ran for longer than `Options::transaction_max_age`. Retryable, but `Db::run` returns it at once.
    TransactionTooOld {
        /// Its label.
        label: &'static str,
        /// How long it had run.
        age: Duration,
    },
    /// There is no database in the directory, and the request creates none.
    NoDatabase {
        /// The directory.
        path: PathBuf,
    },
    /// A table has the name that another one is to get.
    TableExists {
        /// The name.
        name: String,
    },
    /// No table has this name.
    NoTable {
        /// The name.
        name: String,
    },
    /// The name of a prepared transaction is empty, over the limit, or has a zero byte.
    PreparedName {
        /// The name.
        name: String,
    },
    /// A transaction is already prepared under this name.
    PreparedExists {
        /// The name.
        name: String,
    },
    /// No transaction is prepared under this name.
    NoPrepared {
        /// The name.
        name: String,
    },
    /// Another call prepares or resolves the transaction of this name.
    PreparedBusy {
        /// The name.
        name: String,
    },
    /// The limit of concurrent transactions is reached. Retryable.
    TooManyTransactions {
        /// The limit.
        max: usize,
        /// Label of the oldest transaction.
        oldest: &'static str,
    },
    /// No transaction id is left, or damaged files claim so. Reads continue. Not retryable: copy the rows elsewhere.
    XidsUsedUp {
        /// Number of ids.
        max: u64,
    },
    /// The transaction needs more undo space than the limit, even while no other transaction uses any. Not retryable.
    TransactionTooLarge {
        /// The limit in bytes, of memory and file together.
        max: usize,
    },
    /// Other transactions hold the undo memory that this one needs: they wait for its locks, or did not end in time. Or
    /// ended ones have left undo in its chunks, which only its own end frees. Retryable.
    UndoMemory {
        /// The limit in bytes, of memory and file together.
        max: usize,
        /// Label of one of them; empty if none is known.
        holder: &'static str,
    },
    /// No log space became free in time: checkpoints do not keep up, or the log buffer is full. Retryable.
    LogSpace,
    /// Every frame of the buffer pool is in use at once.
    OutOfFrames {
        /// Frames in the pool.
        frames: usize,
    },
    /// An option is out of range, or names a variant that is not compiled in.
    InvalidOption {
        /// The option.
        name: &'static str,
        /// The value given.
        value: String,
        /// The values that are allowed.
        expected: String,
    },
}
