//! fjall: a log-structured merge tree for each table, one log, one writer at a time.
//!
//! | variant | setting | rows |
//! |---|---|---|
//! | `sync` | transactions at `PersistMode::SyncData`, which the documentation names for ACID transactions | durable; `read` |
//! | `buffer` | transactions at `PersistMode::Buffer`, the default | lazy |
//! | `ingestion` | `Keyspace::start_ingestion` | `bulk` |
//!
//! `SingleWriterTxDatabase` and not the optimistic one: both hold one lock while they write and sync the log, and no
//! transaction of a single writer runs twice. A quarter of the cache is for memtables, of 8 to 64 MiB each as
//! recommended. Tables are loaded by ingestion. Large values lie apart from keys (`KvSeparationOptions`).

mod generic;
mod session;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{Rows, Table, Workload},
};
use fjall::{
    Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};
use std::ops::RangeInclusive;

const NAME: &str = "fjall";

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || env!("COMPARE_FJALL").to_owned(),
    variants,
    has_get_many: false,
    open: |setup| Ok(Box::new(Fjall::open(setup)?)),
};

/// Bytes of a memtable that are recommended.
const MEMTABLE: RangeInclusive<u64> = 8 << 20..=64 << 20;

fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    match (workload, durable) {
        _ if !writes => vec![Variant::durable("sync", "no compression")],
        (Workload::Bulk, true) => vec![Variant::durable("ingestion", "start_ingestion")],
        (Workload::Bulk, false) => Vec::new(),
        (_, true) => vec![Variant::durable("sync", "PersistMode::SyncData, single writer, no compression")],
        (_, false) => vec![Variant::lazy(
            "buffer",
            "PersistMode::Buffer, single writer, no compression",
            "a crash of the machine loses the newest commits; a crash of the process loses nothing",
        )],
    }
}

fn failed(call: &'static str) -> impl FnOnce(fjall::Error) -> Error {
    Error::failed(NAME, call)
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

/// Returns the key that bytes hold; 0 for those that are none.
fn key_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

struct Fjall {
    db: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
    persist: PersistMode,
}

impl Fjall {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let memtables = setup.cache / 4;
        let db = SingleWriterTxDatabase::builder(setup.dir).cache_size(setup.cache - memtables).open();
        let db = db.map_err(failed("open"))?;
        let workload = setup.purpose.workload;
        let options = || {
            let memtable = (memtables / setup.tables.max(1) as u64).clamp(*MEMTABLE.start(), *MEMTABLE.end());
            let values = (workload == Workload::Values).then(KvSeparationOptions::default);
            // Filters of the last level pay where rows are missing.
            let expects_hits = workload != Workload::Tatp;
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .expect_point_read_hits(expects_hits)
                .with_kv_separation(values)
        };
        let tables = setup.tables().map(|table| db.keyspace(&table.name(), options)).collect::<fjall::Result<_>>();
        let persist = if setup.purpose.durable { PersistMode::SyncData } else { PersistMode::Buffer };
        Ok(Self { tables: tables.map_err(failed("open a keyspace"))?, db, persist })
    }

    fn table(&self, table: Table) -> &SingleWriterTxKeyspace {
        &self.tables[table.index()]
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        self.table(table).as_ref()
    }

    /// Runs `work` as one transaction.
    fn write<T>(&self, work: impl FnOnce(&mut SingleWriterWriteTx<'_>) -> Result<T>) -> Result<T> {
        let mut tx = self.db.write_tx().durability(Some(self.persist));
        let value = work(&mut tx)?;
        tx.commit().map_err(failed("commit"))?;
        Ok(value)
    }
}

impl Engine for Fjall {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut ingestion = self.keyspace(table).start_ingestion().map_err(failed("begin an ingestion"))?;
        for (key, row) in rows {
            ingestion.write(key.to_be_bytes(), &row[..]).map_err(failed("ingest"))?;
        }
        ingestion.finish().map_err(failed("finish an ingestion"))
    }

    fn settle(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll).map_err(failed("persist"))
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Own { engine: self, hint: 0 })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        for entry in self.keyspace(table).iter() {
            let (key, row) = entry.into_inner().map_err(failed("scan"))?;
            visit(key_of(&key), &row);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}

struct Own<'a> {
    engine: &'a Fjall,
    /// Where the consumer looks for the next row: the deleted ones before it need not be skipped again.
    hint: u64,
}
