//! Opens a database, reads all of it, writes to it, checks it and closes it.

use crate::bounded::Bounded;
use crate::golden::{BY_LENGTH, BY_TITLE, DIR, DOCUMENT_COUNT, DOCUMENTS, LONG, NUMBERS, TEXTS, document, options};
use foreshore::{Db, Error, Key, Result, TableDef, Value};
use foreshore_io::{Fs, Sim};
use std::sync::Arc;
use std::time::Duration;

/// What the disk of an input may answer. Everything else is a defect.
///
/// # Panics
/// If the error says nothing about the files.
pub fn expect_damage(error: &Error, what: &str) {
    let is_damage = match error {
        // A file that is not there.
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        Error::Corrupted { .. }
        | Error::Truncated { .. }
        | Error::LostLog { .. }
        | Error::Foreign { .. }
        | Error::Newer { .. }
        | Error::Undecodable { .. }
        | Error::TableTypes { .. }
        | Error::NoTable { .. }
        | Error::NoIndex { .. }
        | Error::IndexTypes { .. }
        | Error::IndexMismatch { .. }
        | Error::IndexUndeclared { .. }
        | Error::IndexKeyExists { .. }
        | Error::NoPrepared { .. }
        | Error::RolledBack
        | Error::LockTimeout { .. }
        | Error::OwnThreadLock { .. }
        // See `bounded`.
        | Error::DiskFull { .. }
        | Error::XidsUsedUp { .. }
        | Error::TooManyTransactions { .. } => true,
        Error::Poisoned { cause } | Error::RollbackParked { cause, .. } | Error::Exhausted { cause, .. } => {
            return expect_damage(cause, what);
        }
        _ => false,
    };
    assert!(is_damage, "{what}: {error:?}");
}

/// What an operation returned, if it did, or damage.
fn tried<T>(what: &str, outcome: Result<T>) -> Option<T> {
    outcome.inspect_err(|error| expect_damage(error, what)).ok()
}

/// Uses the database on `disk` in every way, and opens it again.
pub fn exercise(disk: &Sim) {
    let open = || options(Arc::new(Bounded(disk.clone())) as Arc<dyn Fs>).open(DIR);
    let Some(db) = tried("open", open()) else { return };
    let is_sound = tried("check", db.check()).is_some();
    read_all(&db);
    let is_written = write(&db);
    (0..8).for_each(|_| db.step());
    tried("checkpoint", db.checkpoint());
    tried("vacuum", db.vacuum());
    tried("compact", db.compact());
    let report = tried("examine", db.examine());
    let damaged = report.map_or_else(Vec::new, |report| report.damaged);
    assert!(!is_sound || damaged.is_empty(), "a sound database was damaged by use: {damaged:?}");
    let _ = db.stats();
    let is_closed = tried("close", db.close(Duration::ZERO)).is_some();
    drop(db);
    let again = open();
    if is_sound && is_closed {
        let db = again.expect("a sound database that was closed can be opened");
        let row = db.run(|tx| tx.open(NUMBERS)?.get(1 << 40));
        assert!(!is_written || matches!(row, Ok(Some(7))), "an acknowledged write is gone: {row:?}");
        db.check().expect("a sound database stays sound");
    } else if let Some(db) = tried("open again", again) {
        read_all(&db);
    }
}

fn read_all(db: &Db) {
    let snapshot = db.read();
    macro_rules! read {
        ($def:expr) => {
            if let Some(table) = tried("open a table", snapshot.open($def)) {
                let up: Vec<_> = table.iter().collect();
                let down: Vec<_> = table.iter().rev().collect();
                for row in up.into_iter().chain(down) {
                    tried("read a row", row);
                }
            }
            tried("scan", db.run(|tx| scan(tx, $def)));
        };
    }
    read!(NUMBERS);
    read!(TEXTS);
    read!(LONG);
    read!(DOCUMENTS);
    tried("read by indexes", read_by_indexes(db));
    read!(TableDef::<u64, &str>::new("created"));
    for prepared in tried("list prepared", db.prepared()).unwrap_or_default() {
        if prepared.name.len().is_multiple_of(2) {
            tried("commit prepared", db.commit_prepared(&prepared.name));
        } else {
            tried("roll prepared back", db.rollback_prepared(&prepared.name));
        }
    }
}

/// Reads documents by index, and their large values in parts.
fn read_by_indexes(db: &Db) -> Result<()> {
    let reader = db.read();
    let documents = reader.open(DOCUMENTS)?;
    let (by_title, by_length) = (documents.by_index(BY_TITLE)?, documents.by_index(BY_LENGTH)?);
    tried("check an index", by_title.check());
    tried("check an index", by_length.check());
    for row in by_title.range(..).chain(by_length.range(..9000).rev()).chain(by_length.range(18..=18)) {
        tried("read a row", row);
    }
    for n in 0..DOCUMENT_COUNT {
        tried("get by index", by_title.get(&document(n)[..8]));
        tried("get a part", documents.get_range(n, 4000..9000));
        if let Some(Some(mut value)) = tried("get a reader", documents.get_reader(n)) {
            let mut bytes = [0; 1000];
            tried("read a part", value.read_at(value.len() / 2, &mut bytes));
        }
    }
    Ok(())
}

fn scan<K: Key + 'static, V: Value + 'static>(
    tx: &foreshore::Transaction,
    def: TableDef<'static, K, V>,
) -> Result<usize> {
    let table = tx.open(def)?;
    table.first()?;
    table.last()?;
    table.iter().try_fold(0, |rows, row| row.map(|_| rows + 1))
}

/// Whether all was acknowledged.
fn write(db: &Db) -> bool {
    let written = db.run(|tx| {
        let (numbers, texts, long) = (tx.open(NUMBERS)?, tx.open(TEXTS)?, tx.open(LONG)?);
        for n in (0..700).step_by(31) {
            numbers.insert(n, -5)?;
            numbers.remove(n + 1)?;
            numbers.get(n + 2)?;
        }
        for n in 0..12_u8 {
            texts.insert(&*format!("{n:02}y"), &*"w".repeat(600))?;
            long.insert(&[n * 10; 985][..], &[n; 900][..])?;
        }
        numbers.insert(1 << 40, 7).map(drop)
    });
    let written = tried("write", written).is_some();
    let documents = db.run(|tx| {
        let documents = tx.open(DOCUMENTS)?;
        documents.put(1, &*document(14))?;
        documents.remove(6)?;
        documents.put(100, &*document(101)).map(drop)
    });
    tried("write documents", documents);
    let backed = db.begin();
    let outcome = backed.open(NUMBERS).and_then(|numbers| (0..50).try_for_each(|n| numbers.remove(n * 13).map(drop)));
    tried("write", outcome);
    tried("roll back", backed.rollback());
    tried("create", db.run(|tx| tx.open(TableDef::<u64, u64>::new("new"))?.insert(1, 1).map(drop)));
    tried("drop", db.run(|tx| tx.drop_table("texts")));
    written
}
