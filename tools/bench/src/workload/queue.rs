//! A queue in a table: producers insert at its end, consumers take its first free row, remove it and commit.
//!
//! There are always between `backlog` and twice as many rows: a producer waits while there are more, a consumer while
//! there are fewer. Every row passes through the same few leaves, so every later claim meets the ghosts of removed
//! rows.

use super::tables::{Bytes, number_of};
use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::{
    Progress,
    config::{Claim, Sides},
};
use foreshore::{Db, Error, Result, RowLock, TableDef, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NAME: &str = "queue";
const QUEUE: TableDef<'_, u64, Bytes> = TableDef::new(NAME);
/// How long a worker with nothing to do sleeps before it checks again. Tens of rows pass meanwhile, fewer than a
/// backlog.
const PAUSE: Duration = Duration::from_micros(50);

/// The workload. Its table begins empty, so it has no scale.
#[derive(Debug)]
pub(super) struct Queue {
    producers: usize,
    row_bytes: usize,
    claim: Claim,
    flow: Arc<Flow>,
}

/// What keeps the rows within their bounds. Set by each audit, when nothing runs.
#[derive(Debug)]
struct Flow {
    least: u64,
    most: u64,
    /// The key of the next row.
    next: AtomicU64,
    /// Rows that are there or will be, without those of which the removal has committed.
    expected: AtomicU64,
    /// Rows that are there and that no consumer has been told to take.
    free: AtomicU64,
    inserted: AtomicU64,
    removed: AtomicU64,
}

// ORDERING of all numbers here: Relaxed, they are tickets and counts, and no data rests on them.
impl Flow {
    fn new(sides: &Sides) -> Self {
        let [next, expected, free, inserted, removed] = std::array::from_fn(|_| AtomicU64::new(0));
        let most = if sides.consumers == 0 { u64::MAX } else { sides.backlog * 2 };
        Self { least: sides.backlog, most, next, expected, free, inserted, removed }
    }

    fn begin(&self, next: u64, rows: u64) {
        self.next.store(next, Ordering::Relaxed);
        self.expected.store(rows, Ordering::Relaxed);
        self.free.store(rows, Ordering::Relaxed);
        self.inserted.store(0, Ordering::Relaxed);
        self.removed.store(0, Ordering::Relaxed);
    }

    fn may_insert(&self) -> bool {
        let below = |rows: u64| (rows < self.most).then_some(rows + 1);
        self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok()
    }

    fn may_take(&self) -> bool {
        let above = |rows: u64| (rows > self.least).then(|| rows - 1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, above).is_ok()
    }
}

impl Queue {
    pub(super) fn new(sides: &Sides, row_bytes: usize) -> Self {
        Self { producers: sides.producers, row_bytes, claim: sides.claim, flow: Arc::new(Flow::new(sides)) }
    }
}

impl Work for Queue {
    fn checks(&self) -> [&'static str; 2] {
        ["rows", "queue"]
    }

    fn load(&self, db: &Db, _: &dyn Progress) -> Result<()> {
        let tx = db.begin();
        let table = tx.open(QUEUE)?;
        (0..self.flow.least).try_for_each(|key| table.insert_new(key, &row(key, self.row_bytes)[..]))?;
        drop(table);
        tx.commit()?;
        mark::set(db, NAME, self.row_bytes as u64)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("row-bytes", self.row_bytes as u64))
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        let tx = db.begin();
        let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
        let mut next = 0;
        let table = tx.open(QUEUE)?;
        table.lock_against_writes()?;
        for entry in table.iter() {
            let (key, value) = entry?;
            audit.is_sound &= number_of(&value, self.row_bytes) == Some(key);
            audit.count += 1;
            next = key + 1;
        }
        tx.rollback()?;
        self.flow.begin(next, audit.count);
        Ok(audit)
    }

    fn count_after(&self, before: u64, _: u64) -> u64 {
        before + self.flow.inserted.load(Ordering::Relaxed) - self.flow.removed.load(Ordering::Relaxed)
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        let flow = self.flow.clone();
        if (worker.thread as usize) < self.producers {
            Box::new(Inserts { flow, row_bytes: self.row_bytes, key: 0 })
        } else {
            Box::new(Claims { flow, claim: self.claim })
        }
    }
}

fn row(key: u64, bytes: usize) -> Vec<u8> {
    let mut row = vec![b'.'; bytes];
    row[..8].copy_from_slice(&key.to_le_bytes());
    row
}

struct Inserts {
    flow: Arc<Flow>,
    row_bytes: usize,
    key: u64,
}

impl Transactions for Inserts {
    fn wait_due(&mut self) -> bool {
        let may_insert = self.flow.may_insert();
        if !may_insert {
            std::thread::sleep(PAUSE);
        }
        may_insert
    }

    fn draw(&mut self) {
        self.key = self.flow.next.fetch_add(1, Ordering::Relaxed);
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        tx.open(QUEUE)?.insert_new(self.key, &row(self.key, self.row_bytes)[..])?;
        Ok(End::Commit)
    }

    fn ended(&mut self, _: End) {
        self.flow.inserted.fetch_add(1, Ordering::Relaxed);
        self.flow.free.fetch_add(1, Ordering::Relaxed);
    }
}

struct Claims {
    flow: Arc<Flow>,
    claim: Claim,
}

impl Transactions for Claims {
    fn wait_due(&mut self) -> bool {
        let may_take = self.flow.may_take();
        if !may_take {
            std::thread::sleep(PAUSE);
        }
        may_take
    }

    fn draw(&mut self) {}

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let table = tx.open(QUEUE)?;
        let first = match self.claim {
            Claim::First => table.first()?,
            Claim::SkipLocked => table.range_locked(.., RowLock::update().skip_locked()).next().transpose()?,
        };
        let lost = || Error::Foreign { path: NAME.into(), why: "fewer rows than were committed" };
        let (key, _) = first.ok_or_else(lost)?;
        table.remove(key)?.ok_or_else(lost)?;
        Ok(End::Commit)
    }

    fn ended(&mut self, _: End) {
        self.flow.removed.fetch_add(1, Ordering::Relaxed);
        self.flow.expected.fetch_sub(1, Ordering::Relaxed);
    }
}
