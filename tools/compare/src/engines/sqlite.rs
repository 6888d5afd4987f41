//! SQLite, bundled with `rusqlite`: WAL, statements prepared once.
//!
//! | variant | settings | rows |
//! |---|---|---|
//! | `full` | WAL, `synchronous=FULL` | durable |
//! | `normal` | WAL, `synchronous=NORMAL` | lazy |
//! | `off` | WAL, `synchronous=OFF` | lazy |
//! | `rollback` | rollback journal, `synchronous=FULL` | `bulk`: pages behind the old end are written once |
//! | `reader` | WAL, a connection a thread, `mmap_size` = cache | rows that only read |
//!
//! Writers share one connection behind a mutex, in `locking_mode=EXCLUSIVE`. SQLite has one writer at a time anyway. A
//! connection of its own for each thread would lose its cached pages at each commit of another, and would poll for the
//! write lock. A row is `(k INTEGER PRIMARY KEY, n INTEGER, v BLOB)`: the first word is a column, so a balance changes
//! by one `UPDATE … SET n = n + ?`.
//!
//! In `tatp` and `ycsb-a` to `ycsb-f` most transactions read. There the locking mode is `NORMAL`, and each thread also
//! has a connection that reads, with the settings of `reader`: it waits for no commit. A row is
//! `(k INTEGER PRIMARY KEY, v BLOB)`.

mod calls;
mod generic;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{
        HISTORY, QUEUE, ROWS, Rows, Table, Transfer, Workload, first_word, row,
        values::{Seen, byte_sum},
    },
};
use calls::{CHECKPOINT_BYTES, NAME, PAGE, STATEMENTS, cached, failed, read_pragmas, synchronous, transaction};
use generic::Generic;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use std::{
    ops::Range,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || rusqlite::version().to_owned(),
    variants,
    has_get_many: false,
    open: |setup| match setup.purpose.workload.is_generic() {
        true => Ok(Box::new(Generic::open(setup)?)),
        false => Ok(Box::new(Sqlite::open(setup)?)),
    },
};

/// Bytes of a page with large values, as SQLite's documentation finds best ("Internal Versus External BLOBs").
const VALUE_PAGE: u32 = 16_384;
fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    match (workload, durable) {
        _ if !writes => vec![Variant::durable("reader", "WAL, a connection a thread, mmap_size=cache")],
        (Workload::Bulk, true) => vec![
            Variant::durable("full", "one transaction, WAL, synchronous=FULL, automatic checkpoint"),
            Variant::durable("rollback", "one transaction, rollback journal, synchronous=FULL"),
        ],
        (generic, durable) if generic.is_generic() => generic_variants(durable),
        (_, true) => vec![Variant::durable("full", "WAL, synchronous=FULL, shared exclusive connection")],
        (_, false) => vec![
            Variant::lazy("normal", "WAL, synchronous=NORMAL, shared exclusive connection", NORMAL_LOSES),
            Variant::lazy("off", "WAL, synchronous=OFF, shared exclusive connection", OFF_LOSES),
        ],
    }
}

const NORMAL_LOSES: &str =
    "a crash of the machine loses the commits since the last checkpoint; a crash of the process nothing";
const OFF_LOSES: &str = "a crash of the machine may corrupt the database; a crash of the process loses nothing";

fn generic_variants(durable: bool) -> Vec<Variant> {
    if durable {
        return vec![Variant::durable("full", "WAL, synchronous=FULL, shared writer, a reader a thread")];
    }
    vec![
        Variant::lazy("normal", "WAL, synchronous=NORMAL, shared writer, a reader a thread", NORMAL_LOSES),
        Variant::lazy("off", "WAL, synchronous=OFF, shared writer, a reader a thread", OFF_LOSES),
    ]
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

struct Sqlite {
    path: PathBuf,
    cache: u64,
    threads: usize,
    /// Whether sessions read, each by a connection of its own.
    is_read: bool,
    writer: Mutex<Connection>,
    sql: Vec<Sql>,
}

/// The statements of a table.
struct Sql {
    add: String,
    insert: String,
    pop: String,
    scan: String,
    put: String,
    remove: String,
    remove_range: String,
}

impl Sql {
    fn new(table: Table) -> Self {
        let name = table.name();
        Self {
            add: format!("UPDATE {name} SET n = n + ?2 WHERE k = ?1"),
            insert: format!("INSERT INTO {name} (k, n, v) VALUES (?1, ?2, ?3)"),
            pop: format!("DELETE FROM {name} WHERE k = (SELECT min(k) FROM {name}) RETURNING k"),
            scan: format!("SELECT k, n, v FROM {name} ORDER BY k"),
            put: format!("UPDATE {name} SET n = ?2, v = ?3 WHERE k = ?1"),
            remove: format!("DELETE FROM {name} WHERE k = ?1"),
            remove_range: format!("DELETE FROM {name} WHERE k >= ?1 AND k < ?2"),
        }
    }
}

impl Sqlite {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let path = setup.dir.join("data.sqlite");
        let connection = Connection::open(&path).map_err(failed("open"))?;
        let synchronous = synchronous(setup.variant);
        let is_read = !setup.purpose.writes;
        let locking = if is_read { "NORMAL" } else { "EXCLUSIVE" };
        let journal = if setup.variant == "rollback" { "DELETE" } else { "WAL" };
        // Counts for a new database only.
        let page_size = if setup.purpose.workload == Workload::Values { VALUE_PAGE } else { PAGE };
        let pragmas = format!(
            "PRAGMA page_size={page_size}; PRAGMA locking_mode={locking}; PRAGMA journal_mode={journal};
             PRAGMA synchronous={synchronous};
             PRAGMA cache_size=-{}; PRAGMA wal_autocheckpoint={}; PRAGMA temp_store=MEMORY;",
            setup.cache / 1024,
            CHECKPOINT_BYTES / page_size
        );
        connection.execute_batch(&pragmas).map_err(failed("set pragmas"))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        for table in setup.tables() {
            let create = format!(
                "CREATE TABLE IF NOT EXISTS {} (k INTEGER PRIMARY KEY, n INTEGER NOT NULL, v BLOB NOT NULL)",
                table.name()
            );
            connection.execute_batch(&create).map_err(failed("create a table"))?;
        }
        let sql = setup.tables().map(Sql::new).collect();
        let (cache, threads, writer) = (setup.cache, setup.threads.max(1), Mutex::new(connection));
        Ok(Self { path, cache, threads, is_read, writer, sql })
    }

    /// Returns the connection of the writers. A thread that panicked with it has left a transaction, which
    /// `BEGIN` reports.
    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection that reads for one thread.
    fn reader(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(failed("open"))?;
        let pragmas = read_pragmas(self.cache, self.threads);
        connection.execute_batch(&pragmas).map_err(failed("set pragmas"))?;
        Ok(connection)
    }
}

fn insert_row(insert: &mut Statement<'_>, key: u64, row: &[u8]) -> Result<()> {
    insert.execute(params![key as i64, first_word(row) as i64, &row[8..]]).map(drop).map_err(failed("insert"))
}

impl Engine for Sqlite {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let connection = self.writer();
        transaction(&connection, || {
            let mut insert = cached(&connection, &self.sql[table.index()].insert)?;
            for (key, row) in rows {
                insert_row(&mut insert, key, &row)?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<()> {
        let checkpointed = self.writer().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        checkpointed.map_err(failed("checkpoint"))
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        if self.is_read {
            let connection = self.reader()?;
            let prepare = |sql: &str| connection.prepare(sql).map_err(failed("prepare"));
            let name = ROWS.name();
            let mut reader = Reader {
                begin: prepare("BEGIN")?,
                commit: prepare("COMMIT")?,
                get: prepare(&format!("SELECT n, v FROM {name} WHERE k = ?1"))?,
                value: prepare(&format!("SELECT n, v FROM {name} WHERE k = ?1"))?,
                range: prepare(&format!("SELECT n, v FROM {name} WHERE k >= ?1 ORDER BY k LIMIT ?2"))?,
            };
            return work(&mut Own { engine: self, reader: Some(&mut reader) });
        }
        work(&mut Own { engine: self, reader: None })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let connection = self.writer();
        let mut scan = cached(&connection, &self.sql[table.index()].scan)?;
        let mut rows = scan.query([]).map_err(failed("scan"))?;
        let mut whole = Vec::new();
        while let Some(row) = rows.next().map_err(failed("scan"))? {
            let key: i64 = row.get(0).map_err(failed("scan"))?;
            let word: i64 = row.get(1).map_err(failed("scan"))?;
            whole.clear();
            whole.extend_from_slice(&word.to_le_bytes());
            let rest = row.get_ref(2).map_err(failed("scan"))?.as_blob();
            whole.extend_from_slice(rest.map_err(|error| failed("scan")(error.into()))?);
            visit(key as u64, &whole);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let connection = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        connection
            .execute_batch("PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE);")
            .map_err(failed("close"))?;
        connection.flush_prepared_statement_cache();
        connection.close().map_err(|(_, error)| failed("close")(error))
    }
}

/// The statements of a thread that reads.
struct Reader<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    get: Statement<'c>,
    value: Statement<'c>,
    range: Statement<'c>,
}

impl Reader<'_> {
    fn get(&mut self, key: u64) -> Result<u64> {
        let word = self.get.query_row([key as i64], word_of).optional().map_err(failed("get"))?;
        word.ok_or_else(lost)
    }
}

/// Returns the first word of a row, with the rest of it fetched.
fn word_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    std::hint::black_box(row.get_ref(1)?.as_blob()?);
    Ok(row.get::<_, i64>(0)? as u64)
}

/// Reads every byte of a value where it is.
fn seen(row: &rusqlite::Row<'_>) -> rusqlite::Result<Seen> {
    let (word, rest) = (row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_blob()?);
    Ok(Seen { word, sum: byte_sum(&word.to_le_bytes()) + byte_sum(rest), len: 8 + rest.len() as u64 })
}

struct Own<'a, 'r, 'c> {
    engine: &'a Sqlite,
    /// Only in `read`.
    reader: Option<&'r mut Reader<'c>>,
}

impl<'c> Own<'_, '_, 'c> {
    fn reader(&mut self) -> Result<&mut Reader<'c>> {
        let refused = || Error::Lost { engine: NAME, what: "a session that writes cannot read".to_owned() };
        self.reader.as_deref_mut().ok_or_else(refused)
    }
}

impl Session for Own<'_, '_, '_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            for (table, key) in transfer.balances() {
                let mut add = cached(&connection, &engine.sql[table.index()].add)?;
                let changed = add.execute(params![key as i64, transfer.delta]).map_err(failed("update"))?;
                if changed != 1 {
                    return Err(lost());
                }
            }
            let mut insert = cached(&connection, &engine.sql[HISTORY.index()].insert)?;
            insert_row(&mut insert, transfer.history, &transfer.history_row())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let reader = self.reader()?;
        if let &[key] = keys {
            return reader.get(key);
        }
        reader.begin.execute([]).map_err(failed("begin"))?;
        let sum = keys.iter().try_fold(0, |sum, &key| Ok(sum ^ reader.get(key)?))?;
        reader.commit.execute([]).map_err(failed("commit"))?;
        Ok(sum)
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let reader = self.reader()?;
        let words = reader.range.query_map([first as i64, rows as i64], word_of).map_err(failed("range"))?;
        words.map(|word| word.map_err(failed("range"))).try_fold(0, |sum, word| Ok(sum ^ word?))
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            let mut insert = cached(&connection, &engine.sql[table.index()].insert)?;
            (first..first + rows).try_for_each(|key| insert_row(&mut insert, key, &row(key, key)))
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            let mut put = cached(&connection, &engine.sql[ROWS.index()].put)?;
            let changed = put.execute(params![key as i64, first_word(value) as i64, &value[8..]]);
            if changed.map_err(failed("update"))? == 1 { Ok(()) } else { Err(lost()) }
        })
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let seen = self.reader()?.value.query_row([key as i64], seen).optional().map_err(failed("get"))?;
        seen.ok_or_else(lost)
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            let sql = &engine.sql[ROWS.index()];
            let (mut remove, mut insert) = (cached(&connection, &sql.remove)?, cached(&connection, &sql.insert)?);
            old.iter().try_for_each(|&key| remove.execute([key as i64]).map(drop)).map_err(failed("delete"))?;
            new.iter().try_for_each(|&key| insert_row(&mut insert, key, &row(key, key)))
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            let mut remove = cached(&connection, &engine.sql[ROWS.index()].remove_range)?;
            remove.execute([range.start as i64, range.end as i64]).map(drop).map_err(failed("delete"))
        })
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let (engine, connection) = (self.engine, self.engine.writer());
        transaction(&connection, || {
            let mut pop = cached(&connection, &engine.sql[QUEUE.index()].pop)?;
            let key = pop.query_row([], |row| row.get::<_, i64>(0)).optional().map_err(failed("pop"))?;
            Ok(key.map(|key| key as u64))
        })
    }
}
