//! Point reads: a hundred rows a transaction, all of one table of `scale` rows of 100 bytes.

use super::tables::{BATCH, Bytes, LOADING, number, row};
use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::Progress;
use crate::random::{Keys, Random};
use foreshore::{Db, Error, Result, TableDef, Transaction};
use std::path::Path;

const NAME: &str = "read";
const TABLE: TableDef<'_, u64, Bytes> = TableDef::new("read");

/// Rows read in a transaction.
const READS: usize = 100;

/// The workload.
#[derive(Debug)]
pub(super) struct Read {
    seed: u64,
    skew: f64,
    rows: u64,
}

impl Read {
    pub(super) const fn new(seed: u64, skew: f64, rows: u64) -> Self {
        Self { seed, skew, rows }
    }
}

impl Work for Read {
    fn checks(&self) -> [&'static str; 2] {
        ["rows", "count"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        progress.phase("loading rows", self.rows);
        for first in (0..self.rows).step_by(BATCH as usize) {
            let tx = db.begin_with(LOADING);
            let table = tx.open(TABLE)?;
            for key in first..self.rows.min(first + BATCH) {
                table.insert(key, &row(key)[..])?;
            }
            drop(table);
            tx.commit()?;
            progress.at(first);
        }
        mark::set(db, NAME, self.rows)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", self.rows))
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
        let tx = db.begin();
        let table = tx.open(TABLE)?;
        table.lock_against_writes()?;
        for entry in table.iter() {
            let (key, value) = entry?;
            audit.is_sound &= key == audit.count && number(&value) == Some(key);
            audit.count += 1;
        }
        tx.rollback()?;
        audit.is_sound &= audit.count == self.rows;
        Ok(audit)
    }

    fn count_after(&self, before: u64, _: u64) -> u64 {
        before
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        Box::new(Reads {
            random: Random::new(self.seed, worker.stream()),
            draw: Keys::new(self.rows, self.skew),
            keys: Vec::with_capacity(READS),
        })
    }
}

struct Reads {
    random: Random,
    draw: Keys,
    keys: Vec<u64>,
}

impl Transactions for Reads {
    fn draw(&mut self) {
        self.keys.clear();
        self.keys.extend((0..READS).map(|_| self.draw.draw(&mut self.random)));
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let table = tx.open(TABLE)?;
        for &key in &self.keys {
            // A row that is missing or has the bytes of another is no reading.
            if table.get_with(key, |value| number(value) == Some(key))? != Some(true) {
                return Err(Error::Foreign { path: NAME.into(), why: "not the rows that this workload loads" });
            }
        }
        Ok(End::Commit)
    }
}
