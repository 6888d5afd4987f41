//! Foreshore: this repository's engine, at its default options.
//!
//! | variant | commit |
//! |---|---|
//! | `pipelined` | `commit_pipelined`, 64 tickets in flight a thread, counted when durable |
//! | `blocking` | `commit`, one at a time a thread |
//! | `async` | `Durability::Relaxed`: counted when the commit record is in the log buffer |
//!
//! Readers use snapshots (`Db::read`). Large values are read in parts (`ReadTable::get_reader`).

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{BATCH, HISTORY, QUEUE, ROWS, Rows, Table, Transfer, Workload, add, first_word, row, values::Seen},
};
use foreshore::{CommitTicket, Db, Durability, Options, RowLock, TableDef, Transaction, TxnOptions};
use std::{collections::VecDeque, ops::Range, time::Duration};

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
        (Workload::Bulk, true) => {
            vec![Variant::durable("inserts", "default options; 1,000 rows a commit, commit=async, synced at the end")]
        }
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
        let this = Self { db, names, options, durable: setup.purpose.durable, in_flight };
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
                open.insert(key, &row[..]).map_err(failed("insert"))?;
            }
            drop(open);
            tx.commit().map_err(failed("commit"))?;
        }
        Ok(())
    }

    fn bulk(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
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
        for entry in tx.open(self.table(table)).map_err(failed("open a table"))?.iter() {
            let (key, row) = entry.map_err(failed("scan"))?;
            visit(key, &row);
        }
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

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let engine = self.engine;
        let is_whole = self.write(|tx| {
            for (table, key) in transfer.balances() {
                let table = tx.open(engine.table(table))?;
                let Some(mut row) = table.get_for_update(key)? else { return Ok(false) };
                add(&mut row, transfer.delta);
                table.insert(key, &row[..])?;
            }
            tx.open(engine.table(HISTORY))?.insert(transfer.history, &transfer.history_row()[..])?;
            Ok(true)
        })?;
        if is_whole { Ok(()) } else { Err(lost()) }
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        keys.iter().try_fold(0, |sum, key| {
            let word = table.get_with(key, first_word).map_err(failed("get"))?;
            Ok(sum ^ word.ok_or_else(lost)?)
        })
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut sum = Some(0);
        let add = |_, row: Option<&[u8]>| sum = sum.zip(row.map(first_word)).map(|(sum, word)| sum ^ word);
        table.get_many_with(keys, add).map_err(failed("get many"))?;
        sum.ok_or_else(lost)
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut range = table.range(first..);
        (0..rows).try_fold(0, |sum, _| {
            let word = range.next_with(|_, row| first_word(row)).map_err(failed("range"))?;
            Ok(sum ^ word.unwrap_or(0))
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(table))?;
            (first..first + rows).try_for_each(|key| table.insert(key, &row(key, key)[..]).map(drop))
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(QUEUE))?.insert(key, &row(key, key)[..]).map(drop))
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(QUEUE))?;
            let lock = RowLock::update().skip_locked();
            let first = table.range_locked(.., lock).next().transpose()?;
            let Some((key, _)) = first else { return Ok(None) };
            table.remove(key)?;
            Ok(Some(key))
        })
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(ROWS))?.put(key, value))
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut reader = table.get_reader(key).map_err(failed("get"))?.ok_or_else(lost)?;
        self.part.resize(PART.min(reader.len() as usize), 0);
        let (mut seen, mut at) = (None::<Seen>, 0);
        while at < reader.len() {
            let len = reader.read_at(at, &mut self.part).map_err(failed("read a part"))?;
            let part = Seen::of(&self.part[..len]);
            seen = Some(seen.map_or(part, |seen| seen.then(part)));
            at += len as u64;
        }
        seen.ok_or_else(lost)
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(ROWS))?;
            old.iter().try_for_each(|key| table.remove(key).map(drop))?;
            new.iter().try_for_each(|key| table.put(key, &row(*key, *key)[..]))
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(ROWS))?.remove_range(&range)).map(drop)
    }

    fn pending(&mut self) -> Result<usize> {
        if self.tickets.len() >= self.engine.in_flight
            && let Some(oldest) = self.tickets.pop_front()
        {
            oldest.wait().map_err(failed("wait"))?;
        }
        while self.tickets.front().is_some_and(CommitTicket::is_durable) {
            self.tickets.pop_front();
        }
        Ok(self.tickets.len())
    }

    fn drain(&mut self) -> Result<()> {
        self.tickets.drain(..).try_for_each(|ticket| ticket.wait()).map_err(failed("wait"))
    }
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}
