//! redb: copy-on-write trees, one writer at a time.
//!
//! | variant | durability | rows |
//! |---|---|---|
//! | `immediate` | `Durability::Immediate`, one-phase commit (the default) | durable; `read` |
//! | `none` | `Durability::None`; closing commits durably | lazy |

mod generic;
mod session;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{Rows, Table},
};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

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

    fn begin(&self) -> Result<WriteTransaction> {
        let mut tx = self.db.begin_write().map_err(failed("begin"))?;
        tx.set_durability(self.durability).map_err(failed("set durability"))?;
        Ok(tx)
    }

    /// Runs `work` as one transaction.
    fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T>) -> Result<T> {
        let tx = self.begin()?;
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
