//! The workloads that are written once for all engines: rows are one blob, and each thread reads by a connection of its
//! own, which waits for no writer.

use super::calls::{CHECKPOINT_BYTES, NAME, PAGE, STATEMENTS, cached, failed, read_pragmas, synchronous, transaction};
use crate::{
    engine::{Calls, Engine, Reader, Session, Setup, Writer},
    error::{Error, Result},
    workload::{Rows, Table},
};
use rusqlite::{Connection, OptionalExtension, Statement, params};
use std::{
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Longest wait for a lock. Only a checkpoint that a reader triggers takes one.
const BUSY: Duration = Duration::from_secs(10);

pub(super) struct Generic {
    path: PathBuf,
    cache: u64,
    threads: usize,
    writer: Mutex<Connection>,
    sql: Vec<Sql>,
}

/// The statements of a table.
struct Sql {
    get: String,
    range: String,
    update: String,
    insert: String,
    delete: String,
    scan: String,
}

impl Sql {
    fn new(table: Table) -> Self {
        let name = table.name();
        Self {
            get: format!("SELECT v FROM {name} WHERE k = ?1"),
            range: format!("SELECT k, v FROM {name} WHERE k BETWEEN ?1 AND ?2 ORDER BY k"),
            update: format!("UPDATE {name} SET v = ?2 WHERE k = ?1"),
            insert: format!("INSERT INTO {name} (k, v) VALUES (?1, ?2) ON CONFLICT DO NOTHING"),
            delete: format!("DELETE FROM {name} WHERE k = ?1"),
            scan: format!("SELECT k, v FROM {name} ORDER BY k"),
        }
    }
}

impl Generic {
    pub(super) fn open(setup: &Setup<'_>) -> Result<Self> {
        let path = setup.dir.join("data.sqlite");
        let connection = Connection::open(&path).map_err(failed("open"))?;
        let pragmas = format!(
            "PRAGMA page_size={PAGE}; PRAGMA journal_mode=WAL; PRAGMA synchronous={};
             PRAGMA cache_size=-{}; PRAGMA wal_autocheckpoint={}; PRAGMA temp_store=MEMORY;",
            synchronous(setup.variant),
            setup.cache / 1024,
            CHECKPOINT_BYTES / PAGE
        );
        connection.execute_batch(&pragmas).map_err(failed("set pragmas"))?;
        connection.busy_timeout(BUSY).map_err(failed("set a timeout"))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        for table in setup.tables() {
            let name = table.name();
            let create = format!("CREATE TABLE IF NOT EXISTS {name} (k INTEGER PRIMARY KEY, v BLOB NOT NULL)");
            connection.execute_batch(&create).map_err(failed("create a table"))?;
        }
        let sql = setup.tables().map(Sql::new).collect();
        let (cache, threads, writer) = (setup.cache, setup.threads.max(1), Mutex::new(connection));
        Ok(Self { path, cache, threads, writer, sql })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Generic {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let connection = self.writer();
        transaction(&connection, || {
            let mut insert = cached(&connection, &self.sql[table.index()].insert)?;
            for (key, row) in rows {
                insert.execute(params![key as i64, &row[..]]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<()> {
        let checkpointed = self.writer().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        checkpointed.map_err(failed("checkpoint"))
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let connection = Connection::open(&self.path).map_err(failed("open"))?;
        let pragmas = read_pragmas(self.cache, self.threads);
        connection.execute_batch(&pragmas).map_err(failed("set pragmas"))?;
        connection.busy_timeout(BUSY).map_err(failed("set a timeout"))?;
        let prepare = |sql: &str| connection.prepare(sql).map_err(failed("prepare"));
        let tables =
            self.sql.iter().map(|sql| Ok((prepare(&sql.get)?, prepare(&sql.range)?))).collect::<Result<_>>()?;
        let reading = Reading { begin: prepare("BEGIN")?, commit: prepare("COMMIT")?, tables };
        work(&mut Own { engine: self, reading })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let connection = self.writer();
        let mut scan = cached(&connection, &self.sql[table.index()].scan)?;
        each(&mut scan, &[], &mut |key, row| {
            visit(key, row);
            true
        })
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

/// The session of a thread.
struct Own<'a, 'c> {
    engine: &'a Generic,
    reading: Reading<'c>,
}

/// The statements by which a thread reads.
struct Reading<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    /// To get a row of each table, and a range.
    tables: Vec<(Statement<'c>, Statement<'c>)>,
}

/// A transaction of the shared connection.
struct Writing<'a> {
    sql: &'a [Sql],
    connection: &'a Connection,
}

impl Session for Own<'_, '_> {
    fn read_only(&mut self, calls: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        let reading = &mut self.reading;
        if calls == Calls::One {
            return work(reading);
        }
        reading.begin.execute([]).map_err(failed("begin"))?;
        work(reading)?;
        reading.commit.execute([]).map(drop).map_err(failed("commit"))
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        let connection = self.engine.writer();
        transaction(&connection, || work(&mut Writing { sql: &self.engine.sql, connection: &connection })).map(drop)
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&mut self.tables[table.index()].0, key, read)
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        each(&mut self.tables[table.index()].1, &[*keys.start() as i64, *keys.end() as i64], read)
    }
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&mut *cached(self.connection, &self.sql[table.index()].get)?, key, read)
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let mut range = cached(self.connection, &self.sql[table.index()].range)?;
        each(&mut range, &[*keys.start() as i64, *keys.end() as i64], read)
    }
}

impl Writer for Writing<'_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let mut row = Vec::new();
        if !self.get(table, key, &mut |bytes| row.extend_from_slice(bytes))? {
            return Ok(false);
        }
        change(&mut row);
        let mut update = cached(self.connection, &self.sql[table.index()].update)?;
        let changed = update.execute(params![key as i64, row]).map_err(failed("update"))?;
        Ok(changed == 1)
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        let mut insert = cached(self.connection, &self.sql[table.index()].insert)?;
        Ok(insert.execute(params![key as i64, row]).map_err(failed("insert"))? == 1)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        let mut delete = cached(self.connection, &self.sql[table.index()].delete)?;
        Ok(delete.execute([key as i64]).map_err(failed("delete"))? == 1)
    }
}

fn get(statement: &mut Statement<'_>, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let found = statement.query_row([key as i64], |row| {
        read(row.get_ref(0)?.as_blob()?);
        Ok(())
    });
    Ok(found.optional().map_err(failed("get"))?.is_some())
}

/// Passes the rows of a query to `read`, until it returns `false`.
fn each(statement: &mut Statement<'_>, parameters: &[i64], read: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<()> {
    let mut rows = statement.query(rusqlite::params_from_iter(parameters)).map_err(failed("range"))?;
    while let Some(row) = rows.next().map_err(failed("range"))? {
        let key: i64 = row.get(0).map_err(failed("range"))?;
        let bytes = row.get_ref(1).map_err(failed("range"))?.as_blob();
        let bytes = bytes.map_err(|error| Error::failed(NAME, "range")(error))?;
        if !read(key as u64, bytes) {
            break;
        }
    }
    Ok(())
}
