//! RocksDB's `TransactionDB`, the library of the system, through its C header.
//!
//! | variant | setting |
//! |---|---|
//! | `default` | one write queue |
//! | `pipelined` | `enable_pipelined_write` |
//! | `two-queues` | `two_write_queues` |
//! | `plain` | no transactions: [`plain`] | `bulk` and `delete-range`, which `TransactionDB` has no fast calls for |
//!
//! Each is measured durable (`WriteOptions::sync`) and lazy. All tables are in one column family, with the table's
//! number before the key, as MyRocks does it. A quarter of the cache is for memtables. No transfer can deadlock, since
//! all take rows in the order account, teller, branch: deadlock detection stays off, as is the default.

mod calls;
mod database;
mod ffi;
mod options;
mod own;
mod plain;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::Result,
    workload::{BATCH, Rows, Table, Workload},
};
use calls::NAME;
use database::Database;
use own::Own;
use plain::Plain;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || env!("COMPARE_ROCKSDB").to_owned(),
    variants,
    has_get_many: true,
    open: |setup| match setup.variant {
        PLAIN => Ok(Box::new(Plain::open(setup)?)),
        _ => Ok(Box::new(Rocks::open(setup)?)),
    },
};

/// The variant without transactions.
const PLAIN: &str = "plain";

fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    const LOSES: &str = "a crash of the machine loses the newest commits; a crash of the process loses nothing";
    if workload == Workload::Bulk {
        return match durable {
            true => vec![Variant::durable(PLAIN, "one SstFileWriter file, ingested")],
            false => Vec::new(),
        };
    }
    if workload == Workload::DeleteRange {
        return vec![match durable {
            true => Variant::durable(PLAIN, "DeleteRange, sync=1, no transactions"),
            false => Variant::lazy(PLAIN, "DeleteRange, sync=0, no transactions", LOSES),
        }];
    }
    if !writes {
        return vec![Variant::durable("default", "bloom filter 10 bits, compacted, no compression")];
    }
    let settings = [
        ("default", "sync=1, one write queue", "sync=0, one write queue"),
        ("pipelined", "sync=1, enable_pipelined_write", "sync=0, enable_pipelined_write"),
        ("two-queues", "sync=1, two_write_queues", "sync=0, two_write_queues"),
    ];
    let variant = |(name, synced, lazy)| {
        if durable { Variant::durable(name, synced) } else { Variant::lazy(name, lazy, LOSES) }
    };
    settings.into_iter().map(variant).collect()
}

struct Rocks {
    database: Database,
    durable: bool,
    /// Whether closing compacts: the C header has no call that compacts an open `TransactionDB`.
    compacts: AtomicBool,
}

impl Rocks {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let (durable, compacts) = (setup.purpose.durable, AtomicBool::new(false));
        Ok(Self { database: Database::open(setup)?, durable, compacts })
    }
}

impl Engine for Rocks {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut own = Own::new(&self.database, false);
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            own.begin_waiting();
            for (key, row) in rows.by_ref().take(BATCH as usize) {
                own.put(table, key, &row)?;
            }
            own.commit()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.database.flush()?;
        self.compacts.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Own::new(&self.database, self.durable))
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let own = Own::new(&self.database, false);
        let mut rows = own.iterate(table, 0);
        while let Some((key, value)) = rows.here()? {
            visit(key, value);
            rows.step();
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.database.sync_log()?;
        self.database.shut();
        if self.compacts.load(Ordering::Relaxed) { self.database.compact() } else { Ok(()) }
    }
}
