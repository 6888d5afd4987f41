//! Updates without any conflict: each thread counts in rows of a table of its own, one row a transaction.
//!
//! A table has `scale` rows of 100 bytes, each of which begins with how often it was updated. This shows the cost of a
//! commit without conflicts, and what threads share nevertheless.
//!
//! With `rows` there is one table for all threads. Each update then changes its whole row, of `row_bytes`. With many
//! rows nearly each update makes a page dirty, so the log grows as fast as pages have to be written home.

use super::tables::{BATCH, Bytes, LOADING, OwnTables, number_of};
use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::random::{Keys, Random};
use crate::{Config, Progress, config::Records};
use foreshore::{Db, Error, Result, TableDef, Transaction};
use std::path::Path;

const NAME: &str = "update";
const TABLES: OwnTables = OwnTables { workload: NAME, mark: "update tables" };

/// The workload.
#[derive(Debug)]
pub(super) struct Update {
    seed: u64,
    skew: f64,
    /// Rows of a table.
    rows: u64,
    row_bytes: usize,
    tables: usize,
    is_shared: bool,
}

impl Update {
    pub(super) fn new(config: &Config, threads: usize) -> Self {
        let Records { rows, row_bytes, skew, .. } = config.records;
        let (rows, is_shared) = (rows.unwrap_or(config.scale), rows.is_some());
        Self { seed: config.seed, skew, rows, row_bytes, tables: if is_shared { 1 } else { threads }, is_shared }
    }

    fn add_tables(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        progress.phase("loading tables", self.tables as u64);
        let row = vec![0; self.row_bytes];
        let mut made = 0;
        TABLES.add(db, self.tables, |name| {
            for first in (0..self.rows).step_by(BATCH as usize) {
                let tx = db.begin_with(LOADING);
                let table = tx.open(TableDef::<u64, Bytes>::new(name))?;
                for key in first..self.rows.min(first + BATCH) {
                    table.insert(key, &row[..])?;
                }
                drop(table);
                tx.commit()?;
            }
            made += 1;
            progress.at(made);
            Ok(())
        })
    }
}

impl Work for Update {
    fn checks(&self) -> [&'static str; 2] {
        ["rows", "updates"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        self.add_tables(db, progress)?;
        mark::set(db, NAME, self.rows)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", self.rows))?;
        self.add_tables(db, &crate::Silent)
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
        for thread in 0..TABLES.count(db)? {
            let tx = db.begin();
            let name = TABLES.name(thread);
            let mut expected = 0;
            let table = tx.open(TableDef::<u64, Bytes>::new(&name))?;
            table.lock_against_writes()?;
            for entry in table.iter() {
                let (key, value) = entry?;
                let updates = number_of(&value, self.row_bytes);
                audit.is_sound &= key == expected && updates.is_some();
                audit.count += updates.unwrap_or(0);
                expected = key + 1;
            }
            audit.is_sound &= expected == self.rows;
            tx.rollback()?;
        }
        Ok(audit)
    }

    fn count_after(&self, before: u64, commits: u64) -> u64 {
        before + commits
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        Box::new(Updates {
            table: TABLES.name(if self.is_shared { 0 } else { worker.thread as usize }),
            row_bytes: self.row_bytes,
            is_shared: self.is_shared,
            random: Random::new(self.seed, worker.stream()),
            keys: Keys::new(self.rows, self.skew),
            key: 0,
        })
    }
}

struct Updates {
    table: String,
    row_bytes: usize,
    is_shared: bool,
    random: Random,
    keys: Keys,
    key: u64,
}

impl Transactions for Updates {
    fn draw(&mut self) {
        self.key = self.keys.draw(&mut self.random);
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let foreign = || Error::Foreign { path: NAME.into(), why: "not the rows that this workload loads" };
        let table = tx.open(TableDef::<u64, Bytes>::new(&self.table))?;
        let mut value = table.get_for_update(self.key)?.ok_or_else(foreign)?;
        let updates = number_of(&value, self.row_bytes).ok_or_else(foreign)?;
        if self.is_shared {
            value.fill((updates + 1) as u8);
        }
        value[..8].copy_from_slice(&(updates + 1).to_le_bytes());
        table.insert(self.key, &value[..])?;
        Ok(End::Commit)
    }
}
