//! Foreshore: this repository's engine, at its default options.
//!
//! | variant | commit |
//! |---|---|
//! | `pipelined` | `commit_pipelined`, 64 tickets in flight a thread, counted when durable |
//! | `blocking` | `commit`, one at a time a thread |
//! | `async` | `Durability::Relaxed`: counted when the commit record is in the log buffer |
//!
//! Readers use snapshots (`Db::read`), which see what is durable. Those of lazy rows see what is committed
//! (`ReadOptions::latest`). Large values are read in parts (`ReadTable::get_reader`).

mod generic;
mod session;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{BATCH, Rows, Table, Workload},
};
use foreshore::{CommitTicket, Db, Durability, LoadOptions, Options, TableDef, Transaction, TxnOptions};
use std::{collections::VecDeque, time::Duration};

const NAME: &str = "foreshore";

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || env!("CARGO_PKG_VERSION").to_owned(),
    variants,
    has_get_many: true,
    open: |setup| Ok(Box::new(Foreshore::open(setup)?)),
};

/// Bytes of a value that are read at once: they stay in the cache of a core.
const PART: usize = 64 << 10;
/// Tickets in flight a session.
const IN_FLIGHT: usize = 64;

fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    let pipelined = Variant::durable("pipelined", "default options; commit=pipelined, 64 in flight a thread");
    match (workload, durable) {
        _ if !writes => vec![Variant::durable("snapshot", "default options; snapshot reads")],
        (Workload::Bulk, true) => vec![
            Variant::durable("load", "default options; Table::load in one transaction"),
            Variant::durable("inserts", "default options; 1,000 rows a commit, commit=async, synced at the end"),
        ],
        (_, true) => vec![
            Variant { in_flight: IN_FLIGHT, ..pipelined },
            Variant::durable("blocking", "default options; commit=blocking"),
        ],
        (_, false) => vec![Variant::lazy(
            "async",
            "default options; commit=async",
            "a crash of process or machine loses the newest commits; what is left is a prefix of them",
        )],
    }
}

type Bytes = &'static [u8];

struct Foreshore {
    db: Db,
    names: Vec<String>,
    options: TxnOptions,
    durable: bool,
    in_flight: usize,
    is_load: bool,
}

fn failed(call: &'static str) -> impl FnOnce(foreshore::Error) -> Error {
    Error::failed(NAME, call)
}

impl Foreshore {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let db = Options::new().memory_limit(setup.cache).open(setup.dir).map_err(failed("open"))?;
        let durability = if setup.purpose.durable { Durability::Durable } else { Durability::Relaxed };
        let options = TxnOptions::new().label("compare").durability(durability);
        let names: Vec<String> = setup.tables().map(Table::name).collect();
        let in_flight = if setup.variant == "pipelined" { IN_FLIGHT } else { 1 };
        let (durable, is_load) = (setup.purpose.durable, setup.variant == "load");
        let this = Self { db, names, options, durable, in_flight, is_load };
        this.db
            .run(|tx| (0..setup.tables as u16).try_for_each(|table| tx.open(this.table(Table(table))).map(drop)))
            .map_err(failed("create"))?;
        Ok(this)
    }

    fn table(&self, table: Table) -> TableDef<'_, u64, Bytes> {
        TableDef::new(&self.names[table.index()])
    }
}

impl Engine for Foreshore {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let options = TxnOptions::new().label("load").durability(Durability::Relaxed);
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let tx = self.db.begin_with(options);
            let open = tx.open(self.table(table)).map_err(failed("open a table"))?;
            for (key, row) in rows.by_ref().take(BATCH as usize) {
                open.put(key, &row[..]).map_err(failed("put"))?;
            }
            drop(open);
            tx.commit().map_err(failed("commit"))?;
        }
        Ok(())
    }

    fn bulk(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        if self.is_load {
            let tx = self.db.begin_with(self.options);
            let owned = rows.map(|(key, row)| (key, row.to_vec()));
            let open = tx.open(self.table(table)).map_err(failed("open a table"))?;
            open.load_owned(LoadOptions::new(), owned).map_err(failed("load"))?;
            return tx.commit().map(drop).map_err(failed("commit"));
        }
        self.load(table, rows)?;
        if self.durable { self.db.sync().map_err(failed("sync")) } else { Ok(()) }
    }

    fn settle(&self) -> Result<()> {
        self.db.sync().map_err(failed("sync"))?;
        self.db.checkpoint().map_err(failed("checkpoint"))
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Own { engine: self, tickets: VecDeque::with_capacity(self.in_flight), part: Vec::new() })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        self.db.sync().map_err(failed("sync"))?;
        let tx = self.db.read();
        let mut rows = tx.open(self.table(table)).map_err(failed("open a table"))?.iter();
        while rows.next_with(&mut *visit).map_err(failed("scan"))?.is_some() {}
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close(Duration::from_secs(10)).map_err(failed("close"))
    }
}

struct Own<'a> {
    engine: &'a Foreshore,
    /// Commits that are not known to be durable, oldest first.
    tickets: VecDeque<CommitTicket>,
    /// A part of a value.
    part: Vec<u8>,
}

impl Own<'_> {
    /// Runs a transaction, again where the engine says that it may succeed then.
    fn write<T>(&mut self, mut work: impl FnMut(&Transaction) -> foreshore::Result<T>) -> Result<T> {
        let Foreshore { db, options, in_flight, .. } = self.engine;
        if *in_flight == 1 {
            return db.run_with(*options, work).map_err(failed("transaction"));
        }
        loop {
            let tx = db.begin_with(*options);
            let done = work(&tx).and_then(|value| Ok((value, tx.commit_pipelined()?)));
            match done {
                Ok((value, ticket)) => {
                    self.tickets.push_back(ticket);
                    return Ok(value);
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(failed("transaction")(error)),
            }
        }
    }
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}
