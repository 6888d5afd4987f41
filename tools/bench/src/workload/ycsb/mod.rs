//! The core workloads A to F of YCSB: one operation a transaction, on one table of `scale` records at first.
//!
//! | workload | operations | records |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | zipf |
//! | B | 95 % reads, 5 % updates | zipf |
//! | C | reads | zipf |
//! | D | 95 % reads, 5 % inserts | latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | zipf |
//! | F | 50 % reads, 50 % reads and then updates of the same record | zipf |
//!
//! Records have 100 bytes in ten fields, of which an update changes one. Every read verifies what it gets.
//!
//! Source: Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, section 4 and table 2.

mod draw;
mod numbers;
mod record;

use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::config::Workload;
use crate::report::Kind;
use crate::{Config, Progress};
use draw::{Draw, KINDS, Mix, Operation};
use foreshore::{Db, Error, LoadOptions, Result, Transaction};
use numbers::Numbers;
use record::{RECORDS, key};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const NAME: &str = "ycsb";
/// Records of a loading transaction.
const BATCH: usize = 100_000;
/// Keys are spread, so records are inserted between those that were loaded.
const FILL_PERCENT: u8 = 80;

/// The workload at its scale.
#[derive(Debug)]
pub(super) struct Ycsb {
    seed: u64,
    skew: f64,
    /// Records that are loaded.
    records: u64,
    mix: Mix,
    shared: Arc<Shared>,
}

/// What the workers of a row share.
#[derive(Debug, Default)]
struct Shared {
    numbers: Numbers,
    counts: Mutex<Counts>,
}

/// Operations and, of these, those that found a record, in the order of the kinds.
type Counts = [(u64, u64); KINDS.len()];

impl Ycsb {
    /// The core workload `workload`.
    pub(super) fn new(config: &Config, workload: Workload) -> Self {
        let mix = match workload {
            Workload::YcsbA => draw::A,
            Workload::YcsbB => draw::B,
            Workload::YcsbD => draw::D,
            Workload::YcsbE => draw::E,
            Workload::YcsbF => draw::F,
            _ => draw::C,
        };
        let mix = Mix { distribution: config.records.distribution.unwrap_or(mix.distribution), ..mix };
        Self { seed: config.seed, skew: config.records.skew, records: config.scale, mix, shared: Arc::default() }
    }
}

impl Work for Ycsb {
    fn checks(&self) -> [&'static str; 2] {
        ["records", "versions"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        progress.phase("loading records", self.records);
        let mut rows: Vec<(u64, u64)> = (0..self.records).map(|number| (key(number), number)).collect();
        rows.sort_unstable();
        let options = LoadOptions::new().fill_percent(FILL_PERCENT);
        let mut done = 0;
        for batch in rows.chunks(BATCH) {
            let records = batch.iter().map(|&(key, number)| (key, record::new(number)));
            done += db.run(|tx| tx.open(RECORDS)?.load_with(options, records.clone()))?;
            progress.at(done);
        }
        mark::set(db, NAME, self.records)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", self.records))
    }

    fn read_in(&self, db: &Db) -> Result<()> {
        db.read().open(RECORDS)?.iter().try_for_each(|row| row.map(drop))
    }

    /// Adds up the versions: one for each record that was loaded or inserted, and one for each update.
    fn audit(&self, db: &Db) -> Result<Audit> {
        let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
        let (mut loaded, mut next) = (0, 0);
        let tx = db.read();
        let mut rows = tx.open(RECORDS)?.iter();
        while let Some(found) = rows.next_with(record::read)? {
            let Some((number, version)) = found else {
                audit.is_sound = false;
                continue;
            };
            loaded += u64::from(number < self.records);
            next = next.max(number + 1);
            audit.count += version;
        }
        audit.is_sound &= loaded == self.records;
        self.shared.numbers.begin(next.max(1));
        Ok(audit)
    }

    fn count_after(&self, before: u64, _: u64) -> u64 {
        let counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let [_, (_, updates), _, (_, inserts), (_, modified)] = *counts;
        before + updates + inserts + modified
    }

    fn take_kinds(&self) -> Vec<Kind> {
        let mut counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts);
        let named = KINDS.into_iter().zip(counts).filter(|(_, (transactions, _))| *transactions > 0);
        named.map(|(kind, (transactions, succeeded))| Kind { kind, transactions, succeeded }).collect()
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        let shared = Arc::clone(&self.shared);
        let draw = Draw::new(self.seed, worker.stream(), self.mix, shared.numbers.begun(), self.skew);
        let next = (0, Operation::Read { number: 0 });
        Box::new(Operations {
            draw,
            loaded: self.records,
            next,
            insert: 0,
            has_found: false,
            counts: Counts::default(),
            shared,
        })
    }
}

/// The operations of one worker.
struct Operations {
    draw: Draw,
    /// Records that were loaded, and that no operation removes.
    loaded: u64,
    /// What was drawn, and its place in the kinds.
    next: (usize, Operation),
    /// The number to insert.
    insert: u64,
    /// Whether the operation that was applied last found its record.
    has_found: bool,
    counts: Counts,
    /// Gets the counts when the worker ends.
    shared: Arc<Shared>,
}

impl Operations {
    /// Returns whether a record was found. One that was loaded, or inserted in this row, must be.
    fn must_be(&self, number: u64, is_found: bool) -> Result<bool> {
        // A stop of an earlier row may have left a number out.
        let may_be_absent = (self.loaded..self.shared.numbers.begun()).contains(&number);
        if is_found || may_be_absent { Ok(is_found) } else { Err(lost()) }
    }

    fn read(&self, tx: &Transaction, number: u64) -> Result<bool> {
        let key = key(number);
        match tx.open(RECORDS)?.get_with(key, |bytes| record::read(key, bytes).is_some())? {
            Some(false) => Err(lost()),
            found => self.must_be(number, found.is_some()),
        }
    }

    /// Changes one field, as an update of a column does.
    fn update(&self, tx: &Transaction, number: u64, field: u64, to: [u8; 8]) -> Result<bool> {
        let change = |record: Option<_>| record.map(|record| record::updated(record, field, to));
        let record = tx.open(RECORDS)?.update_with(key(number), change)?;
        self.must_be(number, record.is_some())
    }

    /// Reads a record, then writes what became of it.
    fn read_modify_write(&self, tx: &Transaction, number: u64, field: u64, to: [u8; 8]) -> Result<bool> {
        let (table, key) = (tx.open(RECORDS)?, key(number));
        let Some(record) = table.get_for_update(key)? else { return self.must_be(number, false) };
        record::read(key, &record).ok_or_else(lost)?;
        table.put(key, record::updated(record, field, to))?;
        Ok(true)
    }

    fn scan(tx: &Transaction, number: u64, records: u64) -> Result<bool> {
        let mut rows = tx.open(RECORDS)?.range(key(number)..);
        let mut found = 0;
        while found < records {
            match rows.next_with(record::read)? {
                Some(record) => drop(record.ok_or_else(lost)?),
                None => break,
            }
            found += 1;
        }
        Ok(found > 0)
    }
}

impl Transactions for Operations {
    fn draw(&mut self) {
        self.next = self.draw.operation(self.shared.numbers.limit());
        if self.next.1 == Operation::Insert {
            self.insert = self.shared.numbers.take();
        }
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        self.has_found = match self.next.1 {
            Operation::Read { number } => self.read(tx, number)?,
            Operation::Update { number, field, to } => self.update(tx, number, field, to)?,
            Operation::Scan { number, records } => Self::scan(tx, number, records)?,
            Operation::Insert => {
                tx.open(RECORDS)?.insert_new(key(self.insert), record::new(self.insert))?;
                true
            }
            Operation::ReadModifyWrite { number, field, to } => self.read_modify_write(tx, number, field, to)?,
        };
        Ok(End::Commit)
    }

    fn ended(&mut self, _: End) {
        let counts = &mut self.counts[self.next.0];
        *counts = (counts.0 + 1, counts.1 + u64::from(self.has_found));
        if self.next.1 == Operation::Insert {
            self.shared.numbers.insert(self.insert);
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        let mut shared = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, own) in shared.iter_mut().zip(self.counts) {
            *sum = (sum.0 + own.0, sum.1 + own.1);
        }
    }
}

/// The error for a record that is missing or broken.
fn lost() -> Error {
    Error::Foreign { path: NAME.into(), why: "not the records that YCSB loads and inserts" }
}

#[cfg(test)]
mod tests;
