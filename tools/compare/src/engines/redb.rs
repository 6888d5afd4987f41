//! redb: copy-on-write trees, one writer at a time.
//!
//! | variant | durability | rows |
//! |---|---|---|
//! | `immediate` | `Durability::Immediate`, one-phase commit (the default) | durable; `read` |
//! | `none` | `Durability::None`; closing commits durably | lazy |

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{HISTORY, QUEUE, ROWS, Rows, Table, Transfer, add, first_word, row, values::Seen},
};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::ops::Range;

const NAME: &str = "redb";

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || env!("COMPARE_REDB").to_owned(),
    variants,
    has_get_many: false,
    open: |setup| Ok(Box::new(Redb::open(setup)?)),
};

fn variants(Purpose { writes, durable, .. }: Purpose) -> Vec<Variant> {
    match (writes, durable) {
        (false, _) => vec![Variant::durable("immediate", "cache_size")],
        (_, true) => vec![Variant::durable("immediate", "Durability::Immediate, one-phase commit")],
        (_, false) => vec![Variant::lazy(
            "none",
            "Durability::None",
            "a crash of process or machine loses all commits since the last durable one",
        )],
    }
}

fn failed<E: std::fmt::Display>(call: &'static str) -> impl FnOnce(E) -> Error {
    Error::failed(NAME, call)
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

struct Redb {
    db: Database,
    names: Vec<String>,
    durability: Durability,
}

impl Redb {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let path = setup.dir.join("data.redb");
        let db = Database::builder().set_cache_size(setup.cache as usize).create(path).map_err(failed("open"))?;
        let durability = if setup.purpose.durable { Durability::Immediate } else { Durability::None };
        let this = Self { db, names: setup.tables().map(Table::name).collect(), durability };
        let tx = this.db.begin_write().map_err(failed("begin"))?;
        for table in setup.tables() {
            tx.open_table(this.table(table)).map_err(failed("open a table"))?;
        }
        tx.commit().map_err(failed("commit"))?;
        Ok(this)
    }

    fn table(&self, table: Table) -> TableDefinition<'_, u64, &'static [u8]> {
        TableDefinition::new(&self.names[table.index()])
    }

    /// Runs `work` as one transaction.
    fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T>) -> Result<T> {
        let mut tx = self.db.begin_write().map_err(failed("begin"))?;
        tx.set_durability(self.durability).map_err(failed("set durability"))?;
        let value = work(&tx)?;
        tx.commit().map_err(failed("commit"))?;
        Ok(value)
    }
}

impl Engine for Redb {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        self.write(|tx| {
            let mut open = tx.open_table(self.table(table)).map_err(failed("open a table"))?;
            for (key, row) in rows {
                open.insert(key, &row[..]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<()> {
        let tx = self.db.begin_write().map_err(failed("begin"))?;
        tx.commit().map_err(failed("commit"))
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Own { engine: self })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let tx = self.db.begin_read().map_err(failed("begin"))?;
        let open = tx.open_table(self.table(table)).map_err(failed("open a table"))?;
        for entry in open.iter().map_err(failed("scan"))? {
            let (key, row) = entry.map_err(failed("scan"))?;
            visit(key.value(), row.value());
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}

struct Own<'a> {
    engine: &'a Redb,
}

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            for (table, key) in transfer.balances() {
                let mut table = tx.open_table(engine.table(table)).map_err(failed("open a table"))?;
                let mut guard = table.get_mut(key).map_err(failed("get"))?.ok_or_else(lost)?;
                let mut row: [u8; crate::workload::ROW_BYTES] = guard.value().try_into().map_err(|_| lost())?;
                add(&mut row, transfer.delta);
                guard.insert(&row[..]).map_err(failed("update"))?;
            }
            let mut history = tx.open_table(engine.table(HISTORY)).map_err(failed("open a table"))?;
            history.insert(transfer.history, &transfer.history_row()[..]).map_err(failed("insert"))?;
            Ok(())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        keys.iter().try_fold(0, |sum, key| {
            let row = table.get(key).map_err(failed("get"))?.ok_or_else(lost)?;
            Ok(sum ^ first_word(row.value()))
        })
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        table.range(first..).map_err(failed("range"))?.take(rows as usize).try_fold(0, |sum, entry| {
            let (_, row) = entry.map_err(failed("range"))?;
            Ok(sum ^ first_word(row.value()))
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(table)).map_err(failed("open a table"))?;
            for key in first..first + rows {
                table.insert(key, &row(key, key)[..]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            table.insert(key, value).map_err(failed("insert"))?;
            Ok(())
        })
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let value = table.get(key).map_err(failed("get"))?.ok_or_else(lost)?;
        Ok(Seen::of(value.value()))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            for key in old {
                table.remove(key).map_err(failed("remove"))?;
            }
            for &key in new {
                table.insert(key, &row(key, key)[..]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            table.retain_in(range, |_, _| false).map_err(failed("retain"))
        })
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(QUEUE)).map_err(failed("open a table"))?;
            let first = table.pop_first().map_err(failed("pop"))?;
            Ok(first.map(|(key, _)| key.value()))
        })
    }
}
