//! Numbers that the database hands out for its tables, each at most once.
//!
//! 1. The table of sequences has a row for each table that has handed out a number: the first number that is not
//!    reserved.
//! 2. A thread that finds no reserved number reserves a block, in a transaction of the engine's own, and waits until
//!    that is durable. One thread at a time does so.
//! 3. The numbers of the block are handed out from memory. What becomes of the transaction that asks does not matter.
//!
//! **Invariant:** a number is handed out after the durable commit that has reserved it. So it is not handed out again,
//! whatever is rolled back or lost in a crash.

use crate::admission::Admission;
use crate::format::{SEQUENCES, SEQUENCES_ROOT};
use crate::{Result, TxnOptions};
use foreshore_base::{Error as Storage, Place, TableId};
use foreshore_btree::{Tree, Trees};
use foreshore_lock::{Locked, RowLock};
use foreshore_sync::{LockRank, Mutex, SystemClock, Turns, pause};
use foreshore_wal::Log;
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::{sync::Arc, time::Duration};

/// The label of the transactions that reserve numbers.
const LABEL: &str = "next_id";
/// Numbers that are reserved at once. A restart skips up to as many.
const BLOCK: u64 = 1000;
const MALFORMED: &str = "a row of the table of sequences is malformed";

/// The numbers that tables hand out.
pub(crate) struct Sequences {
    tree: Tree,
    log: Log,
    /// The data file, which errors name.
    data: PathBuf,
    /// The queue of threads that reserve a block: one session is kept for them.
    reserving: Arc<Turns>,
    /// The reserved numbers that are left, by table.
    left: Mutex<HashMap<TableId, Range<u64>>>,
}

impl Sequences {
    pub(crate) fn new(trees: &Trees, log: Log, data: PathBuf) -> Self {
        let reserving = Arc::<Turns>::default();
        let queue = Arc::clone(&reserving);
        log.on_stop(move || queue.close());
        let left = Mutex::new(LockRank::Leaf, HashMap::new());
        Self { tree: trees.tree(SEQUENCES, SEQUENCES_ROOT), log, data, reserving, left }
    }

    /// Returns the table of sequences.
    pub(crate) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the next number of a table.
    pub(crate) fn next(&self, admission: &Admission, table: TableId) -> Result<u64> {
        if let Some(number) = self.take(table) {
            return Ok(number);
        }
        // WAIT: park - for threads that reserve a block. Their transactions wait for no other.
        let turn = self.reserving.take(&SystemClock::new(), Duration::MAX);
        // The threads before may have reserved some for this table.
        if let Some(number) = self.take(table) {
            return Ok(number);
        }
        if turn.is_none() {
            admission.check_open()?;
            return Err(Storage::Closed.into());
        }
        let Range { start, end } = self.reserve(admission, table, 1)?;
        self.left.lock().insert(table, start + 1..end);
        Ok(start)
    }

    /// Skips the numbers of a table up to `last`, for calls that begin later.
    pub(crate) fn skip(&self, admission: &Admission, table: TableId, last: u64) -> Result<()> {
        // WAIT: park - as in `next`.
        let Some(_turn) = self.reserving.take(&SystemClock::new(), Duration::MAX) else {
            admission.check_open()?;
            return Err(Storage::Closed.into());
        };
        if let Some(left) = self.left.lock().get_mut(&table)
            && last < left.end
        {
            left.start = left.start.max(last + 1);
            return Ok(());
        }
        let reserved = self.reserve(admission, table, last + 1)?;
        self.left.lock().insert(table, reserved);
        Ok(())
    }

    /// Lets the numbers of a new table begin behind those that are reserved for `old`.
    pub(crate) fn follow(&self, admission: &Admission, old: TableId, new: TableId) -> Result<()> {
        // WAIT: park - as in `next`.
        let Some(_turn) = self.reserving.take(&SystemClock::new(), Duration::MAX) else {
            admission.check_open()?;
            return Err(Storage::Closed.into());
        };
        let (mut txn, mut row) = (admission.begin_for_running(TxnOptions::new().label(LABEL))?, Vec::new());
        let is_used = self.tree.get_newest(&mut txn, &old.0.to_be_bytes(), &mut row)?;
        txn.rollback()?;
        if !is_used {
            return Ok(());
        }
        let end = row[..].try_into().map_err(|_| Storage::corrupted(&self.data, Place::File, MALFORMED))?;
        let reserved = self.reserve(admission, new, u64::from_le_bytes(end))?;
        self.left.lock().insert(new, reserved);
        Ok(())
    }

    /// Takes a number that is reserved.
    fn take(&self, table: TableId) -> Option<u64> {
        self.left.lock().get_mut(&table)?.next()
    }

    /// Reserves a block of numbers for a table, from `least` on, durably.
    fn reserve(&self, admission: &Admission, table: TableId, least: u64) -> Result<Range<u64>> {
        let mut txn = admission.begin_for_running(TxnOptions::new().label(LABEL))?;
        let (key, mut row) = (table.0.to_be_bytes(), Vec::new());
        let damage = |why| Storage::corrupted(&self.data, Place::File, why);
        let start = match self.tree.get_locked(&mut txn, &key, RowLock::update(), &mut row)? {
            Locked::Row(()) => {
                let bytes = row[..].try_into().map_err(|_| damage(MALFORMED))?;
                u64::from_le_bytes(bytes)
            }
            Locked::Absent | Locked::Skipped => 1,
        };
        let start = start.max(least);
        let end = start.checked_add(BLOCK).ok_or_else(|| damage("a table has handed out all numbers"))?;
        self.tree.put_only(&mut txn, &key, &end.to_le_bytes(), &mut row)?;
        let csn = txn.commit()?.csn();
        pause::point("db: a block of numbers is reserved");
        // WAIT: help - or park behind the leader.
        self.log.force(csn.lsn())?;
        Ok(start..end)
    }
}
