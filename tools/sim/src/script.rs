//! A seeded history: transactions over several tables, two of them open at a time, with everything a disk is used for.

use crate::marks::Marks;
use crate::{Contents, Oracle, Random};
use foreshore::{Db, Error, Options, ReadOptions, ReadTransaction, Table, TableDef, Transaction};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The directory of the database.
const DIR: &str = "db";
/// Accounts, loaded before the history begins: more pages than the pool has frames.
const ACCOUNTS: u64 = 1400;
/// Rows that a scan locks one by one.
const LOCKED: usize = 100;
/// Bytes of an account.
const ACCOUNT: usize = 1900;

pub(crate) type Raw = TableDef<'static, &'static [u8], &'static [u8]>;
type Writes = BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>;

/// Two groups of tables. The two transactions that are open at a time keep to one group each, so that neither waits for
/// the other: there is one thread. The history creates the last two tables of the first group.
const GROUPS: [[&str; 3]; 2] = [["accounts", "notes", "grown"], ["others", "names", "more"]];

/// Rounds for which a snapshot is held.
const HELD: u32 = 20;

/// Whether memory for undo is short in the runs of `seed`, so that some of it goes to a file.
#[must_use]
pub const fn spills(seed: u64) -> bool {
    seed % 8 == 2
}

/// Engine options of every run: the smallest segments and memory, background work inline. The seed also chooses how
/// pages are replaced, and whether undo goes to a file.
#[must_use]
pub fn options(sim: &Sim, seed: u64) -> Options {
    let options = Options::new();
    let options =
        if spills(seed) { options.lab(|lab| lab.undo_limit = Some(64 << 10)).spill_limit(1 << 20) } else { options };
    options.memory_limit(4 << 20).lab(|lab| lab.segment_bytes = 64 << 10).log_budget(256 << 10).lab(|lab| {
        lab.background = false;
        lab.step_seed = seed;
        lab.replacement = ReplacementKind::ALL[seed as usize % ReplacementKind::ALL.len()].maker();
        lab.fs = Some(Arc::new(sim.clone()) as Arc<dyn Fs>);
    })
}

/// Opens the database on `sim`.
///
/// # Errors
/// Those of [`Options::open`].
pub fn open(sim: &Sim, seed: u64) -> Result<Db, Error> {
    options(sim, seed).open(DIR)
}

/// A running history.
#[derive(Debug)]
pub struct Script {
    sim: Sim,
    random: Random,
    /// What may be found.
    pub oracle: Oracle,
    went_back: u64,
    forgets: bool,
    spills: bool,
}

impl Script {
    /// A disk with a loaded and closed database, to begin histories on.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn loaded() -> Result<(Sim, Contents), Error> {
        let sim = Sim::new(0);
        let db = open(&sim, 0)?;
        let mut rows = BTreeMap::new();
        for first in (0..ACCOUNTS).step_by(50) {
            db.run(|tx| {
                let table = tx.open(Raw::new("accounts"))?;
                (first..first + 50).try_for_each(|n| {
                    let (key, value) = (account(n), balance(n, 1000));
                    table.insert_new(&*key, &*value)?;
                    rows.insert(key, value);
                    Ok::<_, Error>(())
                })
            })?;
            db.step();
        }
        db.run(|tx| GROUPS[1].into_iter().try_for_each(|name| tx.open(Raw::new(name)).map(drop)))?;
        db.close(std::time::Duration::ZERO)?;
        Ok((sim.crash_image(&Persist::None, 0), Contents::from([("accounts".to_owned(), rows)])))
    }

    /// A history of `seed` on `sim`, which holds `contents`.
    #[must_use]
    pub fn new(sim: &Sim, seed: u64, contents: Contents) -> Self {
        let oracle = Oracle::starting_with(contents);
        Self { sim: sim.clone(), random: Random::new(seed), oracle, went_back: 0, forgets: false, spills: spills(seed) }
    }

    /// Has every way back to a savepoint forget one change, as an engine might. For tests of the oracle.
    #[must_use]
    pub fn forgetful(mut self) -> Self {
        self.forgets = true;
        self
    }

    /// Runs `rounds` of two transactions each, or until one meets an error of the disk.
    ///
    /// # Errors
    /// The error.
    ///
    /// # Panics
    /// If a scan finds other rows than the script has left.
    pub fn run(&mut self, db: &Db, rounds: u32) -> Result<(), Error> {
        // The first open of a table reads the catalogue, which a transaction that creates a table keeps locked to its
        // end.
        let known = GROUPS[0][..1].iter().chain(&GROUPS[1]);
        db.run(|tx| known.clone().try_for_each(|name| tx.open(Raw::new(name)).map(drop)))?;
        let mut held: Option<Held> = None;
        for round in 0..rounds {
            if self.spills && round % HELD == 0 {
                held.replace(self.hold(db)).map_or(Ok(()), Held::look)?;
            }
            let mut open = GROUPS.map(|tables| Open { tables, tx: db.begin(), writes: Writes::new() });
            for _ in 0..2 + self.random.below(6) {
                let which = self.random.below(2) as usize;
                self.change(&mut open[which])?;
            }
            for open in open {
                self.end(open, round)?;
                self.background(db);
            }
            if round % 25 == 24 {
                db.checkpoint()?;
            }
            if round % 7 == 6 {
                self.oracle.wait_for_one(|| self.sim.ops())?;
            }
        }
        held.map_or(Ok(()), Held::look)
    }

    /// A snapshot of what has been committed.
    fn hold(&self, db: &Db) -> Held {
        let sees = self.oracle.contents.get("accounts").cloned().unwrap_or_default();
        Held { tx: db.read_with(ReadOptions::new().latest()), sees }
    }

    /// What the history has made the engine do since `db` was opened.
    #[must_use]
    pub fn marks(&self, db: &Db) -> Marks {
        let stats = db.stats();
        Marks {
            operations: self.sim.ops(),
            evictions: stats.pool.evictions,
            doublewrites: stats.pool.doublewrite_batches,
            checkpoints: stats.checkpoint.checkpoints,
            segments: stats.log.segments_made + stats.log.segments_recycled,
            leaf_splits: stats.tree.leaf_splits,
            root_splits: stats.tree.root_splits,
            purges: stats.tree.purges,
            merges: stats.tree.merges,
            aborts: stats.txn.aborts,
            went_back: self.went_back,
            undo_fetches: stats.txn.undo_fetches,
            chains_built: stats.tree.chains_built,
            chains_freed: stats.tree.chains_freed,
            tables: GROUPS[0][1..].iter().filter(|&&name| self.oracle.contents.contains_key(name)).count(),
        }
    }

    fn background(&mut self, db: &Db) {
        for _ in 0..self.random.below(4) {
            db.step();
        }
        self.oracle.poll(self.sim.ops());
    }

    fn change(&mut self, open: &mut Open) -> Result<(), Error> {
        match self.random.below(10) {
            8 => self.go_back(open),
            9 => self.scan_down(open),
            which => self.step(open, which),
        }
    }

    /// Makes some changes and takes them back.
    fn go_back(&mut self, open: &mut Open) -> Result<(), Error> {
        let (savepoint, before) = (open.tx.savepoint()?, open.writes.clone());
        for _ in 0..1 + self.random.below(4) {
            let which = self.random.below(8);
            self.step(open, which)?;
        }
        open.tx.rollback_to(&savepoint)?;
        let undone = std::mem::replace(&mut open.writes, before);
        let forgotten = undone.iter().find(|(place, value)| open.writes.get(place) != Some(value));
        self.went_back += u64::from(forgotten.is_some());
        if let Some(((name, key), value)) = forgotten.filter(|_| self.forgets) {
            let table = open.tx.open(TableDef::<&[u8], &[u8]>::new(name))?;
            match value {
                Some(value) => drop(table.insert(&**key, &**value)?),
                None => drop(table.remove(&**key)?),
            }
        }
        self.scan_down(open)
    }

    /// Scans a small table from the back.
    fn scan_down(&mut self, open: &Open) -> Result<(), Error> {
        let name = open.tables[1 + self.random.below(2) as usize];
        let mut left = self.oracle.contents.get(name).cloned().unwrap_or_default();
        for ((_, key), value) in open.writes.iter().filter(|((table, _), _)| table == name) {
            match value {
                Some(value) => drop(left.insert(key.clone(), value.clone())),
                None => drop(left.remove(key)),
            }
        }
        let rows: Vec<_> = open.table(name)?.iter().rev().take(LOCKED).collect::<Result<_, _>>()?;
        assert!(rows.into_iter().eq(left.into_iter().rev().take(LOCKED)), "{name} is not as the script has left it");
        Ok(())
    }

    fn step(&mut self, open: &mut Open, which: u64) -> Result<(), Error> {
        match which {
            0..4 if open.tables[0] == "accounts" => self.transfer(open),
            0..5 => {
                let key = self.random.below(150).to_be_bytes();
                let (byte, len) = (self.random.below(256) as u8, self.random.below(1500) as usize);
                // Some lie in pages of their own, up to eight of them.
                let value = vec![byte; if len.is_multiple_of(12) { 43 * len } else { len }];
                open.insert(open.tables[self.random.below(3) as usize], &key, value)
            }
            5 | 6 => {
                let key = self.random.below(150).to_be_bytes();
                open.remove(open.tables[1 + self.random.below(2) as usize], &key)
            }
            _ => {
                // A scan of the accounts goes through more pages than there are frames, and more rows than there is
                // room for locks.
                let table = open.table(open.tables[self.random.below(2) as usize])?;
                table.iter().take(LOCKED).try_for_each(|row| row.map(drop))?;
                table.lock_against_writes()?;
                table.iter().try_for_each(|row| row.map(drop))
            }
        }
    }

    /// Moves money from one account to another.
    fn transfer(&mut self, open: &mut Open) -> Result<(), Error> {
        let (from, to) = (self.random.below(ACCOUNTS), self.random.below(ACCOUNTS));
        let amount = self.random.below(100);
        for (n, add) in [(from, amount.wrapping_neg()), (to, amount)] {
            let key = account(n);
            let old = open.table("accounts")?.get_for_update(&*key)?.expect("accounts stay");
            let held = u64::from_le_bytes(*old.first_chunk().expect("a balance"));
            open.insert("accounts", &key, balance(n, held.wrapping_add(add)))?;
        }
        Ok(())
    }

    fn end(&mut self, open: Open, round: u32) -> Result<(), Error> {
        let Open { tx, writes, .. } = open;
        match self.random.below(8) {
            0 => return tx.rollback(),
            1 => {
                drop(tx);
                return Ok(());
            }
            _ => {}
        }
        if writes.is_empty() {
            // A commit without writes is acknowledged together with what it has read.
            return tx.commit().map(drop);
        }
        self.oracle.commit(self.sim.ops(), writes);
        if round.is_multiple_of(3) {
            tx.commit()?;
            self.oracle.acknowledge(self.sim.ops());
        } else {
            self.oracle.follow(tx.commit_pipelined()?);
        }
        Ok(())
    }
}

/// A reader, and the accounts that it sees.
struct Held {
    tx: ReadTransaction,
    sees: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Held {
    /// Reads all accounts, unless the snapshot was given up.
    fn look(self) -> Result<(), Error> {
        let read = || self.tx.open(Raw::new("accounts"))?.iter().collect::<Result<Vec<_>, Error>>();
        match read() {
            Err(Error::SnapshotTooOld { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(rows) => {
                assert!(rows.into_iter().eq(self.sees), "a snapshot sees other accounts than it has seen");
                Ok(())
            }
        }
    }
}

/// A transaction and what it has done.
struct Open {
    tables: [&'static str; 3],
    tx: Transaction,
    writes: Writes,
}

impl Open {
    fn table(&self, name: &'static str) -> Result<Table<'_, &'static [u8], &'static [u8]>, Error> {
        self.tx.open(Raw::new(name))
    }

    fn insert(&mut self, table: &'static str, key: &[u8], value: Vec<u8>) -> Result<(), Error> {
        self.table(table)?.insert(key, &*value)?;
        self.writes.insert((table.to_owned(), key.to_vec()), Some(value));
        Ok(())
    }

    fn remove(&mut self, table: &'static str, key: &[u8]) -> Result<(), Error> {
        // A remove that finds no row is a read.
        if self.table(table)?.remove(key)?.is_some() {
            self.writes.insert((table.to_owned(), key.to_vec()), None);
        }
        Ok(())
    }
}

pub(crate) fn account(n: u64) -> Vec<u8> {
    [&b"account "[..], &n.to_be_bytes()].concat()
}

pub(crate) fn balance(n: u64, held: u64) -> Vec<u8> {
    let mut value = vec![n as u8; ACCOUNT];
    value[..8].copy_from_slice(&held.to_le_bytes());
    value
}
