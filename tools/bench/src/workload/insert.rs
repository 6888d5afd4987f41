//! The insert test of Shore-MT: each thread inserts records of 100 bytes into a table of its own. It commits every
//! thousand records, or as many as `batch` says.
//!
//! Source: Johnson et al., "Shore-MT: a scalable storage manager for the multicore era", section 3.

use super::tables::{Bytes, OwnTables, number, row};
use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::Progress;
use foreshore::{Db, Result, TableDef, Transaction};
use std::path::Path;

const NAME: &str = "insert";
const TABLES: OwnTables = OwnTables { workload: NAME, mark: "insert tables" };

/// Run, transaction, row.
type InsertKey = (u64, u64, u32);

/// The workload. It has no scale: tables begin empty.
#[derive(Debug)]
pub(super) struct Insert {
    threads: usize,
    /// Rows of a transaction.
    batch: u32,
}

impl Insert {
    pub(super) const fn new(threads: usize, batch: u32) -> Self {
        Self { threads, batch }
    }

    fn add_tables(&self, db: &Db) -> Result<()> {
        TABLES.add(db, self.threads, |name| {
            let tx = db.begin();
            tx.open(TableDef::<InsertKey, Bytes>::new(name))?;
            tx.commit()?;
            Ok(())
        })
    }
}

impl Work for Insert {
    fn checks(&self) -> [&'static str; 2] {
        ["rows", "inserts"]
    }

    fn load(&self, db: &Db, _: &dyn Progress) -> Result<()> {
        self.add_tables(db)?;
        mark::set(db, NAME, u64::from(self.batch))
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("batch", u64::from(self.batch)))?;
        self.add_tables(db)
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
        for thread in 0..TABLES.count(db)? {
            let tx = db.begin();
            let name = TABLES.name(thread);
            // Rows of one transaction lie side by side, and there are all of them or none.
            let mut expected = 0;
            let table = tx.open(TableDef::<InsertKey, Bytes>::new(&name))?;
            table.lock_against_writes()?;
            for entry in table.iter() {
                let ((run, transaction, at), value) = entry?;
                audit.is_sound &= at == expected && number(&value) == Some(transaction);
                expected = (at + 1) % self.batch;
                audit.count += 1;
                audit.next_run = audit.next_run.max(run + 1);
            }
            audit.is_sound &= expected == 0;
            tx.rollback()?;
        }
        Ok(audit)
    }

    fn count_after(&self, before: u64, commits: u64) -> u64 {
        before + commits * u64::from(self.batch)
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        Box::new(Inserts { table: TABLES.name(worker.thread as usize), run: worker.run, batch: self.batch, drawn: 0 })
    }
}

struct Inserts {
    table: String,
    run: u64,
    batch: u32,
    /// Transactions drawn.
    drawn: u64,
}

impl Transactions for Inserts {
    fn draw(&mut self) {
        self.drawn += 1;
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let table = tx.open(TableDef::<InsertKey, Bytes>::new(&self.table))?;
        (0..self.batch).try_for_each(|at| table.insert_new((self.run, self.drawn, at), &row(self.drawn)[..]))?;
        Ok(End::Commit)
    }
}
