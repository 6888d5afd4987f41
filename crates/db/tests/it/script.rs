//! A sequence of transactions from one thread on a simulated disk, and what may be found after it was cut short.

use crate::support::{DIR, NUMBERS, POLICIES};
use foreshore::{CommitTicket, Db, Error, Isolation, Lsn, Options, TableDef, Transaction, TxnOptions};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Sim};
use std::{collections::BTreeMap, path::Path, sync::Arc};

const ROWS: TableDef<u32, &[u8]> = TableDef::new("rows");
const OTHERS: TableDef<&str, u64> = TableDef::new("others");
/// Its keys are so long that few of them make a tree of several levels.
const DEEP: TableDef<&str, u64> = TableDef::new("deep");

/// All tables. One that was dropped counts as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    rows: BTreeMap<u32, Vec<u8>>,
    others: BTreeMap<String, u64>,
    deep: BTreeMap<String, u64>,
}

/// A transaction that was asked to commit.
struct Commit {
    /// What the database holds after it.
    after: Model,
    /// Operations on the disk when it was asked for.
    asked: u64,
    /// Operations on the disk when it was known to be durable.
    acknowledged: Option<u64>,
    ticket: Option<CommitTicket>,
    /// The LSN of its record, if a ticket has told it.
    record: Option<Lsn>,
}

/// What happened so far.
pub(crate) struct Script {
    sim: Sim,
    random: Random,
    model: Model,
    commits: Vec<Commit>,
}

pub(crate) fn options(sim: &Sim) -> Options {
    Options::new().memory_limit(4 << 20).lab(|lab| lab.segment_bytes = 64 << 10).log_budget(256 << 10).lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::new(sim.clone()) as Arc<dyn Fs>);
    })
}

pub(crate) fn open(sim: &Sim) -> Result<Db, Error> {
    options(sim).open(DIR)
}

/// A disk with the directory that holds the database's.
pub(crate) fn disk(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    if let Some(parent) = Path::new(DIR).parent() {
        assert!(sim.kind(parent).unwrap().is_some());
    }
    sim
}

/// What a crash leaves of a commit whose record may be lost, under the lock of another transaction.
pub(crate) struct LostCommit {
    pub(crate) image: Sim,
    pub(crate) is_durable: bool,
    /// Whether its page was written with the lock: the lock is in the row and not in the log.
    pub(crate) went_home: bool,
}

/// A transaction changes row 1 from 10 to 20, and commits. Another one locks that row. It has changed row 2 before, if
/// `writes` is set.
pub(crate) fn lost_commit(seed: u64, writes: bool) -> LostCommit {
    let sim = disk(seed);
    let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    db.run(|tx| (1..3).try_for_each(|key| tx.open(NUMBERS)?.insert(key, 10).map(drop))).unwrap();
    db.checkpoint().unwrap();
    let (first, second) = (db.begin(), db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted)));
    first.open(NUMBERS).unwrap().insert(1, 20).unwrap();
    if writes {
        second.open(NUMBERS).unwrap().insert(2, 20).unwrap();
    }
    db.sync().unwrap();
    let ticket = first.commit_pipelined().unwrap();
    assert_eq!(second.open(NUMBERS).unwrap().get_for_update(1).unwrap(), Some(20));
    let written = db.stats().pool.pages_written;
    (0..3).for_each(|_| db.step());
    let (is_durable, went_home) = (ticket.is_durable(), db.stats().pool.pages_written > written);
    LostCommit { image: sim.crash_image(&Persist::None, seed), is_durable, went_home }
}

/// A disk as a power loss has left it.
pub(crate) struct Loss {
    pub(crate) image: Sim,
    /// The operation in which power was lost.
    pub(crate) op: u64,
    /// Whether it was lost after the last operation.
    pub(crate) is_last: bool,
    pub(crate) what: String,
}

/// Loses power in every `stride`-th operation from `first` on, and in each of the last ones, and shows what is left.
/// The policies take turns. Returns the number of losses.
pub(crate) fn lose_power(sim: &Sim, (first, stride): (u64, u64), mut show: impl FnMut(&Loss)) -> u64 {
    let mut points = sim.crash_points();
    while points.op() < first {
        assert!(points.advance());
    }
    let mut losses = 0;
    loop {
        let (op, is_last) = (points.op(), !points.clone().advance());
        if op.is_multiple_of(stride) || is_last || sim.ops() - op < 12 {
            let policy = &POLICIES[((first + losses) % POLICIES.len() as u64) as usize];
            losses += 1;
            let what = format!("power lost in operation {op} of {first}.., {policy:?}");
            show(&Loss { image: points.image(policy, op), op, is_last, what });
        }
        if !points.advance() {
            return losses;
        }
    }
}

impl Script {
    pub(crate) fn new(sim: &Sim, seed: u64) -> Self {
        Self { sim: sim.clone(), random: Random(seed), model: Model::default(), commits: Vec::new() }
    }

    /// A history that continues with what the database holds.
    pub(crate) fn behind(sim: &Sim, seed: u64, found: Model) -> Self {
        let commit = Commit { after: found.clone(), asked: 0, acknowledged: Some(0), ticket: None, record: None };
        Self { sim: sim.clone(), random: Random(seed), model: found, commits: vec![commit] }
    }

    /// Runs `count` transactions with little background work between them.
    pub(crate) fn run_alone(&mut self, db: &Db, count: u32) -> Result<(), Error> {
        (0..count).try_for_each(|n| self.transaction(db, n))
    }

    /// Runs one transaction and does not wait for its commit. The LSN of its record is known.
    pub(crate) fn run_pipelined(&mut self, db: &Db) -> Result<(), Error> {
        self.transaction(db, 1)?;
        self.poll();
        Ok(())
    }

    /// Waits until all commits are durable, and notes that.
    pub(crate) fn sync(&mut self, db: &Db) -> Result<(), Error> {
        db.sync()?;
        self.poll();
        Ok(())
    }

    /// Runs transactions until `count` of them are through or one meets an error that others are not to blame for.
    pub(crate) fn run(&mut self, db: &Db, count: u32) -> Result<(), Error> {
        for n in 0..count {
            self.transaction(db, n)?;
            for _ in 0..self.random.below(4) {
                db.step();
            }
            self.poll();
            match n % 40 {
                19 => drop(db.compact()?),
                39 => db.checkpoint()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn transaction(&mut self, db: &Db, n: u32) -> Result<(), Error> {
        let tx = db.begin();
        let mut after = self.model.clone();
        let mut savepoints = vec![(tx.savepoint()?, after.clone())];
        for _ in 0..=self.random.below(6) {
            if self.random.below(3) == 0 {
                savepoints.push((tx.savepoint()?, after.clone()));
            }
            self.change(&tx, &mut after)?;
            if self.random.below(5) == 0 {
                savepoints.truncate(1 + self.random.below(savepoints.len() as u64) as usize);
                let (savepoint, then) = savepoints.last().expect("the first one stays");
                tx.rollback_to(savepoint)?;
                after.clone_from(then);
                // Pages and log may go out between this and the end of the transaction.
                (0..self.random.below(3)).for_each(|_| db.step());
            }
        }
        match self.random.below(10) {
            0 => return tx.rollback(),
            1 => {
                drop(tx);
                return Ok(());
            }
            _ => {}
        }
        if after == self.model {
            // A transaction without writes is acknowledged with what it has read, which need not include commits
            // before it.
            return tx.commit().map(drop);
        }
        let asked = self.sim.ops();
        self.commits.push(Commit { after: after.clone(), asked, acknowledged: None, ticket: None, record: None });
        let commit = self.commits.last_mut().expect("just pushed");
        if n.is_multiple_of(3) {
            tx.commit()?;
            commit.acknowledged = Some(self.sim.ops());
        } else {
            let ticket = tx.commit_pipelined()?;
            (commit.record, commit.ticket) = (Some(ticket.record_lsn()), Some(ticket));
        }
        self.model = after;
        Ok(())
    }

    fn change(&mut self, tx: &Transaction, after: &mut Model) -> Result<(), Error> {
        let key = self.random.below(120) as u32;
        let name = format!("name {}", self.random.below(20));
        match self.random.below(12) {
            0 => {
                let old = tx.open(ROWS)?.remove(key)?;
                assert_eq!(old, after.rows.remove(&key));
            }
            1 => {
                let end = key + self.random.below(30) as u32;
                let removed = tx.open(ROWS)?.remove_range(key..end)?;
                let before = after.rows.len();
                after.rows.retain(|number, _| !(key..end).contains(number));
                assert_eq!(removed, (before - after.rows.len()) as u64);
            }
            2 => {
                let number = self.random.below(1000);
                let old = tx.open(OTHERS)?.insert(&*name, number)?;
                assert_eq!(old, after.others.insert(name, number));
            }
            3 => assert_eq!(tx.open(OTHERS)?.get(&*name)?, after.others.get(&name).copied()),
            4 | 5 => {
                let table = tx.open(DEEP)?;
                for _ in 0..self.random.below(40) {
                    let (name, number) = (format!("{:0900}", self.random.below(300)), self.random.below(1000));
                    let old = table.insert(&*name, number)?;
                    assert_eq!(old, after.deep.insert(name, number));
                }
            }
            11 => {
                let table = tx.open(DEEP)?;
                // All of them, or a part in a row: leaves become empty, and inner nodes with them.
                let names: Vec<String> = after.deep.keys().cloned().collect();
                let (from, of) = (self.random.below(names.len() as u64 + 1), [1, 2, names.len()]);
                let count = names.len() / of[self.random.below(3) as usize].max(1);
                for name in names.into_iter().cycle().skip(from as usize).take(count) {
                    assert_eq!(table.remove(&*name)?, after.deep.remove(&name));
                }
            }
            6 if self.random.below(3) == 0 => match self.random.below(4) {
                0 => self.drop(tx, ROWS.name(), &mut after.rows)?,
                1 => self.drop(tx, OTHERS.name(), &mut after.others)?,
                _ => self.drop(tx, DEEP.name(), &mut after.deep)?,
            },
            _ => {
                let (byte, len) = (self.random.below(256) as u8, self.random.below(900) as usize);
                // Some lie in pages of their own.
                let value = vec![byte; if len.is_multiple_of(8) { 30 * len } else { len }];
                let old = tx.open(ROWS)?.insert(key, &*value)?;
                assert_eq!(old, after.rows.insert(key, value));
            }
        }
        Ok(())
    }

    fn drop<K, V>(&self, tx: &Transaction, name: &str, rows: &mut BTreeMap<K, V>) -> Result<(), Error> {
        let was_there = tx.drop_table(name)?;
        assert!(was_there || rows.is_empty());
        rows.clear();
        Ok(())
    }

    /// Notes which tickets have come true.
    fn poll(&mut self) {
        for commit in &mut self.commits {
            if commit.ticket.as_ref().is_some_and(CommitTicket::is_durable) {
                commit.ticket = None;
                commit.acknowledged = Some(self.sim.ops());
            }
        }
    }

    /// The commits that must survive, since they were acknowledged by operation `first`, and those that may, since they
    /// were asked for by operation `last`.
    fn bounds(&self, first: u64, last: u64) -> (usize, usize) {
        let acknowledged = |commit: &Commit| commit.acknowledged.is_some_and(|at| at <= first);
        let least = self.commits.iter().rposition(acknowledged).map_or(0, |last| last + 1);
        let most = self.commits.iter().take_while(|commit| commit.asked <= last).count();
        (least, most)
    }

    /// Checks that `db` holds what some prefix of the commits left, all acknowledged ones among them, when power was
    /// lost during operation `op`.
    pub(crate) fn verify(&self, db: &Db, op: u64) -> Result<Model, String> {
        self.verify_between(db, op, op)
    }

    /// Checks that `db` holds what some prefix of the commits left: those acknowledged by operation `first` at least,
    /// and those asked for by operation `last` at most.
    pub(crate) fn verify_between(&self, db: &Db, first: u64, last: u64) -> Result<Model, String> {
        db.check().map_err(|error| format!("check: {error}"))?;
        let found = read(db).map_err(|error| format!("read: {error}"))?;
        let (least, most) = self.bounds(first, last);
        match (least..=most).any(|count| self.state(count) == found) {
            true => Ok(found),
            false => Err(format!("the state is that of no prefix of {least} to {most} commits")),
        }
    }

    /// Whether `found` may be the state when the power is lost now.
    pub(crate) fn may_find(&self, found: &Model) -> bool {
        let (least, most) = self.bounds(u64::MAX, u64::MAX);
        (least..=most).any(|count| self.state(count) == *found)
    }

    /// Whether `later` is the state after more commits than `found`, when power was lost during operation `op`.
    pub(crate) fn continues(&self, op: u64, found: &Model, later: &Model) -> bool {
        let (least, most) = self.bounds(op, op);
        let first = (least..=most).find(|&count| self.state(count) == *found);
        first.is_some_and(|first| (first + 1..=most).any(|count| self.state(count) == *later))
    }

    /// The state after the commits with records up to `lsn`, and how many of those that were not acknowledged by
    /// operation `began` are in it and are not. These all have come from [`run_pipelined`](Self::run_pipelined).
    pub(crate) fn state_at(&self, lsn: Lsn, began: u64) -> (Model, [usize; 2]) {
        let least = self.bounds(began, began).0;
        let is_in = |commit: &&Commit| commit.record.expect("the commits beside have told it") <= lsn;
        let others = self.commits[least..].iter().take_while(is_in).count();
        let count = least + others;
        let is_early = |commit: &Commit| commit.record.is_some_and(|record| record > lsn);
        assert!(!self.commits[..count].iter().any(is_early), "an acknowledged commit is behind {lsn:?}");
        (self.state(count), [others, self.commits.len() - count])
    }

    /// The state after the first `count` commits.
    fn state(&self, count: usize) -> Model {
        count.checked_sub(1).map_or_else(Model::default, |i| self.commits[i].after.clone())
    }
}

/// Everything in the database.
pub(crate) fn read(db: &Db) -> Result<Model, Error> {
    let tx = db.begin();
    let rows = tx.open(ROWS)?.iter().collect::<Result<_, _>>()?;
    let others = tx.open(OTHERS)?.iter().collect::<Result<_, _>>()?;
    let deep = tx.open(DEEP)?.iter().collect::<Result<_, _>>()?;
    // Opening creates what is missing; this must not.
    tx.rollback()?;
    Ok(Model { rows, others, deep })
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
