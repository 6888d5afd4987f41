//! The messages of errors: what was refused, on what, and what to do.

use super::Error;
use crate::format::CATALOGUE;
use foreshore_base::key::write_key;
use foreshore_base::limits::MAX_TABLE_NAME;
use foreshore_base::{GroupNo, Lockable, Place, TableRef, Waiter};
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, source } => write!(f, "cannot {op} {}: {source}", path.display()),
            Self::DiskFull { path, held_by } => write_full(f, path, *held_by),
            Self::Corrupted { table, file, place, why } => write_damage(f, table.as_ref(), file, *place, why),
            Self::Truncated { file, len, expected } => write_truncated(f, file, *len, *expected),
            Self::LostLog { file, offset, missing } => write_lost(f, file, *offset, *missing),
            Self::LogTruncated { dir, wanted, first } => write_recycled(f, dir, *wanted, *first),
            Self::LogRetracted { dir, group } => write_retracted(f, dir, *group),
            Self::Restore(_) | Self::UnknownBase(_) => write_refused(f, self),
            Self::Foreign { path, why } => write!(f, "{} does not belong to this database: {why}", path.display()),
            Self::Newer { path, found, supported } => write_newer(f, path, *found, *supported),
            Self::Locked { path } => write_locked(f, path),
            Self::UnfinishedBackup { dir } => write_unfinished(f, dir),
            Self::NotEmpty { dir } => write_not_empty(f, dir),
            Self::Poisoned { cause } => write!(f, "the log has stopped, reopen the database: {cause}"),
            Self::Closed => f.write_str("the database is closed: open it again"),
            Self::ReadOnly => f.write_str("the database is open for reading only"),
            Self::NotClosed { path } => write_not_closed(f, path),
            Self::RolledBack => f.write_str("the transaction was rolled back by an earlier error: begin a new one"),
            Self::RollbackParked { label, cause } => write_parked(f, label, cause),
            Self::KeyTooLarge { table, len, max } => write_long(f, Some(table), "key", *len, *max),
            Self::ValueTooLarge { table, len, max } => write_long(f, table.as_ref(), "value", *len, *max),
            Self::ReaderFailed { table, key, source } => write_reader(f, table, key, source),
            Self::TableName { name } => write_name(f, name),
            Self::TableTypes { table, stored, wanted } => write_types(f, table, stored, wanted),
            Self::TableDropped { table } => write!(f, "table {table} is dropped or renamed: open it again"),
            Self::Undecodable { table, key, part } => write_undecodable(f, part, table, key),
            Self::Exhausted { runs, cause } => write_exhausted(f, *runs, cause),
            Self::Deadline { holder, runs, elapsed, cause } => write_deadline(f, holder, *runs, *elapsed, cause),
            Self::NoSavepoint => f.write_str(NO_SAVEPOINT),
            Self::KeyExists { table, key } => write_exists(f, table, key),
            Self::LoadOrder { table, row, key } => write_order(f, table, *row, key),
            Self::IndexKeyExists { index, key } => write_index_key(f, index, key),
            Self::IndexMismatch { index, entry } => write_mismatch(f, index, entry),
            Self::IndexUndeclared { table, index } => write_undeclared(f, table, index),
            Self::IndexesChanged { table } => write_changed(f, table),
            Self::NoIndex { table, index } => write_no_index(f, table, index),
            Self::IndexTypes { table, index, stored, wanted } => write_index_types(f, table, index, stored, wanted),
            Self::Deadlock { cycle } => write_cycle(f, cycle),
            Self::LockTimeout { holder, what, waited } => write_timeout(f, holder, what, *waited),
            Self::OwnThreadLock { holder, what, waited } => write_own_thread(f, holder, what, *waited),
            Self::RowLocked { what, holder } => write_row_locked(f, what, holder),
            Self::Conflict { table, key } => write_conflict(f, table, key),
            Self::SnapshotTooOld { label, age, bytes } => write_cancelled(f, label, *age, *bytes),
            Self::TransactionTooOld { label, age } => write_too_old(f, label, *age),
            Self::NoDatabase { path } => write!(f, "there is no database in {}", path.display()),
            Self::TableExists { name } => write!(f, "there is a table {name:?}: drop it or rename it first"),
            Self::NoTable { name } => write!(f, "there is no table {name:?}: a transaction that writes creates it"),
            Self::PreparedName { name } => write_prepared_name(f, name),
            Self::PreparedExists { name } => write_prepared(f, name),
            Self::NoPrepared { name } => write!(f, "no transaction is prepared under the name {name:?}"),
            Self::PreparedBusy { name } => {
                write!(f, "another call prepares or resolves the transaction {name:?}: wait for it")
            }
            Self::TooManyTransactions { max, oldest } => {
                write!(f, "all {max} transactions are in use, the oldest is {oldest:?}: end some, or try again")
            }
            Self::XidsUsedUp { max } => write_used_up(f, *max),
            Self::TransactionTooLarge { max } => write_too_large(f, *max),
            Self::UndoMemory { max, holder } => write_undo_memory(f, *max, holder),
            Self::LogSpace => f.write_str(LOG_SPACE),
            Self::OutOfFrames { frames } => {
                write!(f, "all {frames} frames of the buffer pool are in use: raise memory_limit")
            }
            Self::InvalidOption { name, value, expected } => {
                write!(f, "option {name} cannot be {value:?}, expected {expected}")
            }
        }
    }
}

const NO_SAVEPOINT: &str = "the savepoint is of another transaction, or was undone with an earlier one";
const LOG_SPACE: &str = "no log space became free in time: run the transaction again, a checkpoint frees some";

/// What to do about lost media.
const RESTORE: &str = "restore the database from a backup";

fn write_not_closed(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    let path = path.display();
    write!(f, "{path} was not closed, or has prepared transactions: open it for writing and close it first")
}

fn write_row_locked(f: &mut fmt::Formatter<'_>, what: &Lockable, holder: &str) -> fmt::Result {
    write!(f, "{what} is locked by {}, and the request does not wait", Holder(holder))
}

fn write_prepared_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "{name:?} cannot name a prepared transaction: it is empty, too long, or has a zero byte")
}

fn write_truncated(f: &mut fmt::Formatter<'_>, file: &Path, len: u64, expected: u64) -> fmt::Result {
    write!(f, "{} is truncated, {len} bytes where {expected} are expected: {RESTORE}", file.display())
}

fn write_lost(f: &mut fmt::Formatter<'_>, file: &Path, offset: u64, missing: GroupNo) -> fmt::Result {
    let file = file.display();
    write!(f, "log group {missing} was durable and is missing in {file} at offset {offset}: {RESTORE}")
}

fn write_recycled(f: &mut fmt::Formatter<'_>, dir: &Path, wanted: GroupNo, first: GroupNo) -> fmt::Result {
    let dir = dir.display();
    write!(f, "group {wanted} of the log in {dir} was recycled, the oldest group is {first}: read from there")
}

fn write_retracted(f: &mut fmt::Formatter<'_>, dir: &Path, group: GroupNo) -> fmt::Result {
    write!(f, "group {group} of the log in {} was lost in a crash: forget what was read of it", dir.display())
}

fn write_newer(f: &mut fmt::Formatter<'_>, path: &Path, found: u32, supported: u32) -> fmt::Result {
    let path = path.display();
    write!(f, "{path} has format version {found}, this build reads up to {supported}: use a newer build")
}

fn write_locked(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(f, "{} is already open, in this process or another: close it there first", path.display())
}

fn write_refused(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    match error {
        Error::Restore(why) => write!(f, "the restore is refused: {why}"),
        Error::UnknownBase(why) => write!(f, "the incremental backup is refused: {why}"),
        _ => Ok(()),
    }
}

fn write_unfinished(f: &mut fmt::Formatter<'_>, dir: &Path) -> fmt::Result {
    write!(f, "{} holds a backup or a restore that did not finish: remove it, and make another one", dir.display())
}

fn write_not_empty(f: &mut fmt::Formatter<'_>, dir: &Path) -> fmt::Result {
    write!(f, "{} is not empty: use a new or empty directory", dir.display())
}

fn write_long(f: &mut fmt::Formatter<'_>, table: Option<&TableRef>, part: &str, len: usize, max: usize) -> fmt::Result {
    match table {
        Some(table) => write!(f, "table {table} refuses a {part} of {len} bytes, at most {max} are allowed"),
        None => write!(f, "the log refuses a record of {len} bytes, at most {max} are allowed"),
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(
        f,
        "{name:?} cannot name a table or index: names have 1 to {MAX_TABLE_NAME} bytes, none of them zero, and differ"
    )
}

fn write_types(f: &mut fmt::Formatter<'_>, table: &str, stored: &str, wanted: &str) -> fmt::Result {
    write!(f, "table {table:?} holds {stored}, not {wanted}: open it with the types it was created with")
}

fn write_cancelled(f: &mut fmt::Formatter<'_>, label: &str, age: Duration, bytes: u64) -> fmt::Result {
    write!(f, "the snapshot of {label:?} was cancelled at an age of {age:?} with {bytes} bytes kept for it alone")?;
    f.write_str(": read again, or raise its limits")
}

fn write_prepared(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "a transaction is already prepared under the name {name:?}: resolve it, or use another name")
}

fn write_parked(f: &mut fmt::Formatter<'_>, label: &str, cause: &Error) -> fmt::Result {
    write!(f, "the rollback of {label:?} is parked until space is freed or the database is reopened: {cause}")
}

fn write_undecodable(f: &mut fmt::Formatter<'_>, part: &str, table: &TableRef, key: &[u8]) -> fmt::Result {
    write!(f, "the {part} of a row does not decode to its type, check that the type is unchanged: table {table} key ")?;
    write_key(f, table.key_type.as_deref(), key)
}

fn write_conflict(f: &mut fmt::Formatter<'_>, table: &TableRef, key: &[u8]) -> fmt::Result {
    write!(f, "a row has changed since the snapshot was taken, run the transaction again: table {table} key ")?;
    write_key(f, table.key_type.as_deref(), key)
}

fn write_reader(f: &mut fmt::Formatter<'_>, table: &TableRef, key: &[u8], source: &io::Error) -> fmt::Result {
    write!(f, "the reader of a new value has failed, which is not written: table {table} key ")?;
    write_key(f, table.key_type.as_deref(), key)?;
    write!(f, ": {source}")
}

fn write_exists(f: &mut fmt::Formatter<'_>, table: &TableRef, key: &[u8]) -> fmt::Result {
    write!(f, "table {table} already has the key ")?;
    write_key(f, table.key_type.as_deref(), key)
}

fn write_order(f: &mut fmt::Formatter<'_>, table: &TableRef, row: u64, key: &[u8]) -> fmt::Result {
    write!(
        f,
        "row {row} of a load is not above those before it and all rows of the table, sort them: table {table} key "
    )?;
    write_key(f, table.key_type.as_deref(), key)
}

fn write_index_key(f: &mut fmt::Formatter<'_>, index: &TableRef, key: &[u8]) -> fmt::Result {
    write!(f, "unique index {index} already has the key ")?;
    write_key(f, index.key_type.as_deref(), key)?;
    f.write_str(", of another row")
}

fn write_mismatch(f: &mut fmt::Formatter<'_>, index: &TableRef, entry: &[u8]) -> fmt::Result {
    write!(f, "index {index} does not match its table at ")?;
    write_key(f, index.key_type.as_deref(), entry)?;
    f.write_str(": if its key function has changed, raise the version")
}

fn write_undeclared(f: &mut fmt::Formatter<'_>, table: &str, index: &str) -> fmt::Result {
    write!(f, "table {table:?} has the index {index:?}, which the write would not keep: declare it, or drop it")
}

fn write_changed(f: &mut fmt::Formatter<'_>, table: &TableRef) -> fmt::Result {
    write!(f, "the indexes of table {table} have changed since it was opened: open it again")
}

fn write_no_index(f: &mut fmt::Formatter<'_>, table: &str, index: &str) -> fmt::Result {
    write!(f, "table {table:?} has no index {index:?}: open it for writing with the index declared")
}

fn write_index_types(f: &mut fmt::Formatter<'_>, table: &str, index: &str, stored: &str, wanted: &str) -> fmt::Result {
    write!(f, "index {index:?} of table {table:?} has {stored}, not {wanted}: open the table for writing to rebuild it")
}

fn write_deadline(
    f: &mut fmt::Formatter<'_>,
    holder: &str,
    runs: u32,
    elapsed: Duration,
    cause: &Error,
) -> fmt::Result {
    write!(f, "the transaction was run {runs} times in {elapsed:?}, up to its deadline")?;
    if !holder.is_empty() {
        write!(f, ", blocked by {holder:?}")?;
    }
    write!(f, "; last cause: {cause}")
}

fn write_exhausted(f: &mut fmt::Formatter<'_>, runs: u32, cause: &Error) -> fmt::Result {
    write!(f, "the transaction was run {runs} times without success; last cause: {cause}")
}

fn write_timeout(f: &mut fmt::Formatter<'_>, holder: &str, what: &Lockable, waited: Duration) -> fmt::Result {
    let (what, holder) = (Wanted(what), Holder(holder));
    write!(f, "no lock on {what} within {waited:?}, held by {holder}: run the transaction again")
}

/// The label of a transaction, or words for the empty one.
struct Holder<'a>(&'a str);

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("a transaction without a label") } else { write!(f, "{:?}", self.0) }
    }
}

/// What a transaction waits for, with words for the catalogue, which has no name that a user knows.
struct Wanted<'a>(&'a Lockable);

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.table().id == CATALOGUE {
            return f.write_str("the list of tables (a transaction that creates or drops one holds it to its end)");
        }
        self.0.fmt(f)
    }
}

fn write_own_thread(f: &mut fmt::Formatter<'_>, holder: &str, what: &Lockable, waited: Duration) -> fmt::Result {
    let (what, holder) = (Wanted(what), Holder(holder));
    write!(f, "no lock on {what} within {waited:?}: {holder} blocks it, which this thread used last; end that first")
}

fn write_too_old(f: &mut fmt::Formatter<'_>, label: &str, age: Duration) -> fmt::Result {
    write!(f, "transaction {label:?} ran for {age:?}, longer than transaction_max_age: it was rolled back")
}

fn write_used_up(f: &mut fmt::Formatter<'_>, max: u64) -> fmt::Result {
    write!(f, "all {max} ids of transactions that write are used up: copy the rows into a new database")
}

fn write_too_large(f: &mut fmt::Formatter<'_>, max: usize) -> fmt::Result {
    write!(
        f,
        "the transaction needs more than all {max} bytes for undo: raise memory_limit, or spill_limit for a larger file"
    )
}

fn write_undo_memory(f: &mut fmt::Formatter<'_>, max: usize, holder: &str) -> fmt::Result {
    f.write_str("other transactions")?;
    if !holder.is_empty() {
        write!(f, ", among them {holder:?},")?;
    }
    write!(f, " hold the {max} bytes for undo: run the transaction again, or raise memory_limit or spill_limit")
}

fn write_cycle(f: &mut fmt::Formatter<'_>, cycle: &[Waiter]) -> fmt::Result {
    f.write_str("deadlock:")?;
    let mut waits = cycle.iter().map(|Waiter { label, waits_for }| (Holder(label), Wanted(waits_for)));
    waits.try_for_each(|(waiter, what)| write!(f, " {waiter} waits for {what};"))?;
    f.write_str(" run the transaction again")
}

fn write_full(f: &mut fmt::Formatter<'_>, path: &Path, held_by: Option<&str>) -> fmt::Result {
    write!(f, "no space for {} (disk, quota or file size limit)", path.display())?;
    held_by
        .map_or(Ok(()), |label| write!(f, "; transaction {label:?} keeps log or pages that could be given up: end it"))
}

fn write_damage(
    f: &mut fmt::Formatter<'_>,
    table: Option<&TableRef>,
    file: &Path,
    place: Place,
    why: &str,
) -> fmt::Result {
    match (table, place) {
        (Some(table), _) => write!(f, "table {table} is damaged at {place} of {}: {why}", file.display()),
        (None, Place::File) => write!(f, "{} is corrupted: {why}", file.display()),
        (None, _) => write!(f, "{} is corrupted at {place}: {why}", file.display()),
    }
}
