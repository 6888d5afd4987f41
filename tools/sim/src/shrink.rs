//! A history of the data file: it grows, is written to, is cut off behind what is left, and grows again.

use crate::script::{Raw, account, balance};
use crate::{Contents, Oracle, Random};
use foreshore::{Db, Error};
use foreshore_io::Sim;
use std::collections::BTreeMap;

/// The table that comes and goes.
const BIG: &str = "big";
/// Rows that make the file grow by more than a cut leaves in reserve.
const ROWS: u64 = 1200;
/// Rows of a transaction.
const AT_ONCE: u64 = 100;
/// Rows of the last filling.
const LAST_ROWS: u64 = 300;
/// Bytes of a row: four to a page.
const ROW: usize = 1900;

/// What a history has made the engine do.
#[derive(Clone, Copy, Debug)]
pub struct ShrinkMarks {
    /// Operations of the disk.
    pub operations: u64,
    /// Growths of the data file.
    pub growths: u64,
    /// Bytes cut off.
    pub cut_bytes: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Batches through the doublewrite file.
    pub doublewrites: u64,
}

impl ShrinkMarks {
    /// Asserts that everything a crash can interrupt has happened.
    ///
    /// # Panics
    /// If something has not.
    pub fn assert_complete(&self) {
        let all = self.growths > 1 && self.cut_bytes > 0 && self.evictions > 0 && self.doublewrites > 1;
        assert!(all, "the history leaves something out: {self:?}");
    }
}

/// A running history.
#[derive(Debug)]
pub struct Shrink {
    sim: Sim,
    random: Random,
    /// What may be found.
    pub oracle: Oracle,
    cut_bytes: u64,
}

impl Shrink {
    /// A history of `seed` on `sim`, which holds the `contents` of [`crate::Script::loaded`].
    #[must_use]
    pub fn new(sim: &Sim, seed: u64, contents: Contents) -> Self {
        Self { sim: sim.clone(), random: Random::new(seed), oracle: Oracle::starting_with(contents), cut_bytes: 0 }
    }

    /// Fills the table, drops it, cuts the file, and fills the table again, with steps of the background work between.
    ///
    /// # Errors
    /// The first that it meets.
    pub fn run(&mut self, db: &Db) -> Result<(), Error> {
        self.fill(db, ROWS)?;
        // More pages than there are frames: some of the table's are evicted.
        db.run(|tx| {
            let table = tx.open(Raw::new("accounts"))?;
            table.lock_against_writes()?;
            table.iter().try_for_each(|row| row.map(drop))
        })?;
        self.drop_table(db)?;
        self.transfer(db)?;
        self.cut_bytes += db.vacuum()?;
        self.fill(db, LAST_ROWS)?;
        self.drop_table(db)?;
        self.cut_bytes += db.vacuum()?;
        self.fill(db, AT_ONCE)?;
        self.oracle.wait_for_one(|| self.sim.ops())?;
        db.checkpoint()
    }

    /// What the history has made the engine do since `db` was opened.
    #[must_use]
    pub fn marks(&self, db: &Db) -> ShrinkMarks {
        let stats = db.stats();
        ShrinkMarks {
            operations: self.sim.ops(),
            growths: stats.space.growths,
            cut_bytes: self.cut_bytes,
            evictions: stats.pool.evictions,
            doublewrites: stats.pool.doublewrite_batches,
        }
    }

    fn fill(&mut self, db: &Db, rows: u64) -> Result<(), Error> {
        for first in (0..rows).step_by(usize::try_from(AT_ONCE).expect("a small number")) {
            let tx = db.begin();
            let table = tx.open(Raw::new(BIG))?;
            let mut writes = BTreeMap::new();
            for n in first..first + AT_ONCE {
                let value = vec![self.random.below(256) as u8; ROW];
                table.insert(&n.to_be_bytes()[..], &*value)?;
                writes.insert((BIG.to_owned(), n.to_be_bytes().to_vec()), Some(value));
            }
            drop(table);
            self.oracle.commit(self.sim.ops(), writes);
            if self.random.below(3) == 0 {
                tx.commit()?;
                self.oracle.acknowledge(self.sim.ops());
            } else {
                self.oracle.follow(tx.commit_pipelined()?);
            }
            self.background(db);
        }
        Ok(())
    }

    /// Drops the table. To the oracle a dropped table is one without rows.
    fn drop_table(&mut self, db: &Db) -> Result<(), Error> {
        let gone = self.oracle.contents[BIG].keys().map(|key| ((BIG.to_owned(), key.clone()), None)).collect();
        let tx = db.begin();
        assert!(tx.drop_table(BIG)?, "the table is there");
        self.oracle.commit(self.sim.ops(), gone);
        self.oracle.follow(tx.commit_pipelined()?);
        self.background(db);
        Ok(())
    }

    /// Changes two of the rows that stay.
    fn transfer(&mut self, db: &Db) -> Result<(), Error> {
        let tx = db.begin();
        let accounts = tx.open(Raw::new("accounts"))?;
        let mut writes = BTreeMap::new();
        for n in [3, 900] {
            let (key, value) = (account(n), balance(n, self.random.below(1000)));
            accounts.insert(&*key, &*value)?;
            writes.insert(("accounts".to_owned(), key), Some(value));
        }
        drop(accounts);
        self.oracle.commit(self.sim.ops(), writes);
        self.oracle.follow(tx.commit_pipelined()?);
        Ok(())
    }

    fn background(&mut self, db: &Db) {
        for _ in 0..self.random.below(4) {
            db.step();
        }
        self.oracle.poll(self.sim.ops());
    }
}
