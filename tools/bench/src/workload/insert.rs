//! The insert test of Shore-MT: each thread inserts records of 100 bytes into a table of its own and commits every thousand.
//!
//! Source: Johnson et al., "Shore-MT: a scalable storage manager for the multicore era", section 3.

use super::tables::{Bytes, OwnTables, number, row};
use super::{Audit, Transactions, Work, Worker, mark};
use crate::Progress;
use foreshore::{Db, TableDef, Transaction};
use foreshore_base::Result;
use std::path::Path;

const NAME: &str = "insert";
const TABLES: OwnTables = OwnTables { workload: NAME, mark: "insert tables" };

/// Rows of a transaction.
const ROWS: u64 = 1000;

/// Run, transaction, row.
type InsertKey = (u64, u64, u32);

/// The workload. It has no scale: tables begin empty.
#[derive(Debug)]
pub(super) struct Insert {
    threads: usize,
}

impl Insert {
    pub(super) const fn new(threads: usize) -> Self {
        Self { threads }
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
        mark::set(db, NAME, 1)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, 1)?;
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
                expected = (at + 1) % ROWS as u32;
                audit.count += 1;
                audit.next_run = audit.next_run.max(run + 1);
            }
            audit.is_sound &= expected == 0;
            tx.rollback()?;
        }
        Ok(audit)
    }

    fn count_per_commit(&self) -> u64 {
        ROWS
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        Box::new(Inserts { table: TABLES.name(worker.thread as usize), run: worker.run, drawn: 0 })
    }
}

struct Inserts {
    table: String,
    run: u64,
    /// Transactions drawn.
    drawn: u64,
}

impl Transactions for Inserts {
    fn draw(&mut self) {
        self.drawn += 1;
    }

    fn apply(&mut self, tx: &Transaction) -> Result<()> {
        let table = tx.open(TableDef::<InsertKey, Bytes>::new(&self.table))?;
        (0..ROWS as u32).try_for_each(|at| table.insert_new((self.run, self.drawn, at), &row(self.drawn)[..]))
    }
}
