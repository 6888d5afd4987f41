//! A table of a few rows in memory that uses the lock manager as an engine does: headers under latches, a status by
//! xid.

use foreshore_base::{Csn, Result, TableId, Xid};
use foreshore_lock::{LockManager, LockOptions, Owner, Patience, TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TABLE: TableId = TableId(7);
/// Long enough that a lost wake-up cannot be mistaken for a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Row {
    header: u64,
    value: i64,
}

pub(crate) struct Toy {
    pub(crate) locks: Arc<LockManager>,
    /// The latch of a row ranks above the locks, as a page latch does.
    rows: Vec<Mutex<Row>>,
    ended: Vec<AtomicBool>,
    next_xid: AtomicU64,
    clock: AtomicU64,
    timeout: Duration,
}

pub(crate) struct ToyTxn<'a> {
    toy: &'a Toy,
    pub(crate) owner: Owner,
    pub(crate) xid: Xid,
    undo: Vec<(usize, u64, i64)>,
    over: bool,
}

impl Toy {
    pub(crate) fn new(values: &[i64], max_xids: usize, timeout: Duration) -> Self {
        let row = |&value: &i64| Mutex::new(LockRank::Database, Row { header: 0, value });
        Self {
            locks: Arc::new(LockManager::new(LockOptions {
                max_owners: 64,
                share_slots: 64,
                ..LockOptions::default()
            })),
            rows: values.iter().map(row).collect(),
            ended: (0..max_xids).map(|_| AtomicBool::new(false)).collect(),
            next_xid: AtomicU64::new(1),
            clock: AtomicU64::new(0),
            timeout,
        }
    }

    pub(crate) fn begin(&self, label: &'static str) -> ToyTxn<'_> {
        let mut owner = self.locks.lease(label).expect("fewer transactions than slots");
        let xid = Xid(self.next_xid.fetch_add(1, Ordering::Relaxed));
        owner.set_xid(xid);
        ToyTxn { toy: self, owner, xid, undo: Vec::new(), over: false }
    }

    fn is_live(&self, xid: u64) -> bool {
        xid != 0 && !self.ended[xid as usize].load(Ordering::Acquire)
    }

    pub(crate) fn sum(&self) -> i64 {
        self.rows.iter().map(|row| row.lock().value).sum()
    }
}

pub(crate) fn key(row: usize) -> [u8; 8] {
    (row as u64).to_be_bytes()
}

impl ToyTxn<'_> {
    pub(crate) fn table(&mut self, mode: TableMode) -> Result<Csn> {
        self.toy.locks.lock_table(&mut self.owner, TABLE, mode, self.toy.timeout)
    }

    pub(crate) fn read(&mut self, row: usize) -> Result<i64> {
        let toy = self.toy;
        let mut patience = Patience::new(toy.timeout);
        loop {
            toy.locks.share(&mut self.owner, Target::row(TABLE, &key(row)), toy.timeout)?;
            let holder = {
                let row = toy.rows[row].lock();
                if row.header == self.xid.0 || !toy.is_live(row.header) {
                    return Ok(row.value);
                }
                row.header
            };
            self.wait(row, holder, &mut patience)?;
        }
    }

    fn wait(&mut self, row: usize, holder: u64, patience: &mut Patience) -> Result<()> {
        let toy = self.toy;
        toy.locks.wait_xid(&mut self.owner, TABLE, &key(row), Xid(holder), &|| toy.is_live(holder), patience)
    }

    /// Locks the row and returns its value.
    pub(crate) fn lock(&mut self, row: usize) -> Result<i64> {
        let toy = self.toy;
        let (mut has_turn, mut patience) = (false, Patience::new(toy.timeout));
        loop {
            let found = self.try_lock(row);
            if std::mem::take(&mut has_turn) {
                toy.locks.end_exclusive(&mut self.owner);
            }
            match found {
                Found::Mine(value) => return Ok(value),
                Found::Held(holder) => self.wait(row, holder, &mut patience)?,
                Found::Shared => {
                    toy.locks.wait_exclusive(&mut self.owner, Target::row(TABLE, &key(row)), toy.timeout)?;
                    has_turn = true;
                }
            }
        }
    }

    fn try_lock(&mut self, at: usize) -> Found {
        let mut row = self.toy.rows[at].lock();
        if row.header == self.xid.0 {
            return Found::Mine(row.value);
        }
        if self.toy.is_live(row.header) {
            return Found::Held(row.header);
        }
        let before = row.header;
        row.header = self.xid.0;
        if self.toy.locks.shared_by_other(&self.owner, Target::row(TABLE, &key(at))) {
            row.header = before;
            return Found::Shared;
        }
        self.undo.push((at, before, row.value));
        Found::Mine(row.value)
    }

    pub(crate) fn add(&mut self, row: usize, amount: i64) -> Result<()> {
        self.lock(row)?;
        self.toy.rows[row].lock().value += amount;
        Ok(())
    }

    pub(crate) fn commit(mut self) {
        let csn = Csn(self.toy.clock.fetch_add(1, Ordering::AcqRel) + 1);
        self.end(Some(csn));
    }

    fn end(&mut self, csn: Option<Csn>) {
        self.over = true;
        self.toy.ended[self.xid.0 as usize].store(true, Ordering::Release);
        self.toy.locks.finish(&mut self.owner, csn);
    }
}

impl Drop for ToyTxn<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        for (at, header, value) in std::mem::take(&mut self.undo).into_iter().rev() {
            let mut row = self.toy.rows[at].lock();
            (row.header, row.value) = (header, value);
        }
        self.end(None);
    }
}

enum Found {
    Mine(i64),
    Held(u64),
    Shared,
}
