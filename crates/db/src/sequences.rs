//! Numbers that the database hands out for its tables, each at most once.
//!
//! 1. The table of sequences has a row for each table that has handed out a number: the first number that is not
//!    reserved. A table that replaces a cleared one goes on with its numbers, so both have one sequence. Its row, which
//!    the clear writes, names the table that has the sequence.
//! 2. A thread that finds no reserved number reserves a block, in a transaction of the engine's own, and waits until
//!    that is durable. One thread at a time does so.
//! 3. The numbers of the block are handed out from memory. What becomes of the transaction that asks does not matter.
//! 4. A clear of a table that goes on with the numbers of another one removes the row that says so. Transactions that
//!    have opened the table before may still ask for numbers. So the clear notes in memory whose they are, before it
//!    removes the row and before another thread reserves a block. A start does that for the tables that prepared
//!    transactions end. Where it can it does so for all others, too: a prepared transaction that has taken a clear back
//!    keeps the row locked.
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
use foreshore_txn::Txn;
use foreshore_wal::Log;
use std::collections::HashMap;
use std::ops::{Bound, Range};
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
    known: Mutex<HashMap<TableId, Numbers>>,
}

/// The numbers of a table, as far as they are known.
enum Numbers {
    /// The reserved ones that are left.
    Left(Range<u64>),
    /// They are those of this table, which has numbers of its own.
    Of(TableId),
}

impl Sequences {
    pub(crate) fn new(trees: &Trees, log: Log, data: PathBuf) -> Self {
        let reserving = Arc::<Turns>::default();
        let queue = Arc::clone(&reserving);
        log.on_stop(move || queue.close());
        let known = Mutex::new(LockRank::Leaf, HashMap::new());
        Self { tree: trees.tree(SEQUENCES, SEQUENCES_ROOT), log, data, reserving, known }
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
        let mut reserved = self.reserve(admission, table, 1)?;
        let number = reserved.range.next().expect("a block is not empty");
        self.keep(table, reserved);
        Ok(number)
    }

    /// Skips the numbers of a table up to `last`, for calls that begin later.
    pub(crate) fn skip(&self, admission: &Admission, table: TableId, last: u64) -> Result<()> {
        // WAIT: park - as in `next`.
        let Some(_turn) = self.reserving.take(&SystemClock::new(), Duration::MAX) else {
            admission.check_open()?;
            return Err(Storage::Closed.into());
        };
        if let Some(left) = left(&mut self.known.lock(), table)
            && last < left.end
        {
            left.start = left.start.max(last + 1);
            return Ok(());
        }
        let reserved = self.reserve(admission, table, last + 1)?;
        self.keep(table, reserved);
        Ok(())
    }

    /// Makes the table `new`, which transaction `txn` creates, go on with the numbers of `old`.
    pub(crate) fn follow(&self, txn: &mut Txn, admission: &Admission, old: TableId, new: TableId) -> Result<()> {
        // The thread that has the turn may wait for the lane of the log that this transaction has reserved.
        txn.release();
        // WAIT: park - as in `next`.
        let Some(turn) = self.reserving.take(&SystemClock::new(), Duration::MAX) else {
            admission.check_open()?;
            return Err(Storage::Closed.into());
        };
        let of = self.source_of(admission, old)?;
        {
            // Under the turn: the next thread that has it reads this first. It might read the row only after this
            // transaction has committed, and find none. A rollback changes neither: the old table keeps its numbers,
            // and the id of the new one is not used again.
            let mut known = self.known.lock();
            known.insert(new, Numbers::Of(of));
            if of != old {
                known.insert(old, Numbers::Of(of));
            }
        }
        drop(turn);
        pause::point("db: a clear has found the numbers of its table");
        self.tree.put_only(txn, &new.0.to_be_bytes(), &of.0.to_be_bytes(), &mut Vec::new())?;
        if of != old {
            // Transactions that have opened the old table do not need its row.
            self.tree.remove_only(txn, &old.0.to_be_bytes(), &mut Vec::new())?;
        }
        Ok(())
    }

    /// Notes whose numbers `table` goes on with, before a prepared transaction of the previous run may remove the row
    /// that says so. The caller reads by a snapshot.
    pub(crate) fn note_source(&self, txn: &mut Txn, table: TableId) -> Result<()> {
        let mut row = Vec::new();
        match self.tree.get(txn, &table.0.to_be_bytes(), &mut row) {
            Ok(true) => {}
            // A call that asks for a number meets the damaged page, or row, again.
            Ok(false) | Err(Storage::Corrupted { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if let Ok(Err(of)) = self.decode(&row) {
            self.known.lock().insert(table, Numbers::Of(of));
        }
        Ok(())
    }

    /// Returns the largest id of a table that has a row. The caller reads by a snapshot.
    pub(crate) fn last_table(&self, txn: &mut Txn) -> foreshore_base::Result<Option<TableId>> {
        let mut cursor = self.tree.range(txn, Bound::Unbounded, Bound::Unbounded)?;
        let malformed = || Storage::corrupted(&self.data, Place::File, MALFORMED);
        let decode = |key: &[u8]| Ok(TableId(u32::from_be_bytes(key.try_into().map_err(|_| malformed())?)));
        cursor.next_key_back(txn)?.map(decode).transpose()
    }

    /// Returns the table that has the numbers of `table`. A table that the caller's transaction has cleared is known.
    fn source_of(&self, admission: &Admission, table: TableId) -> Result<TableId> {
        match self.known.lock().get(&table) {
            Some(Numbers::Of(of)) => return Ok(*of),
            Some(Numbers::Left(_)) => return Ok(table),
            None => {}
        }
        pause::point("db: a table is asked whose numbers it has");
        let (mut txn, mut row) = (admission.begin_for_running(TxnOptions::new().label(LABEL))?, Vec::new());
        let mut of = table;
        while self.tree.get_newest(&mut txn, &of.0.to_be_bytes(), &mut row)?
            && let Err(before) = self.decode(&row)?
        {
            if before >= of {
                return Err(Storage::corrupted(&self.data, Place::File, MALFORMED).into());
            }
            of = before;
        }
        txn.rollback()?;
        Ok(of)
    }

    /// Takes a number that is reserved.
    fn take(&self, table: TableId) -> Option<u64> {
        left(&mut self.known.lock(), table)?.next()
    }

    fn keep(&self, table: TableId, Reserved { of, range }: Reserved) {
        let mut known = self.known.lock();
        known.insert(of, Numbers::Left(range));
        if of != table {
            known.insert(table, Numbers::Of(of));
        }
    }

    /// Returns the first number that is not reserved, or the table that has the numbers.
    fn decode(&self, row: &[u8]) -> Result<std::result::Result<u64, TableId>> {
        if let Ok(of) = row.try_into() {
            return Ok(Err(TableId(u32::from_be_bytes(of))));
        }
        let next = row.try_into().map_err(|_| Storage::corrupted(&self.data, Place::File, MALFORMED))?;
        Ok(Ok(u64::from_le_bytes(next)))
    }

    /// Reserves a block of numbers for a table, from `least` on, durably.
    fn reserve(&self, admission: &Admission, table: TableId, least: u64) -> Result<Reserved> {
        let of = self.source_of(admission, table)?;
        let mut txn = admission.begin_for_running(TxnOptions::new().label(LABEL))?;
        let (key, mut row) = (of.0.to_be_bytes(), Vec::new());
        let damage = |why| Storage::corrupted(&self.data, Place::File, why);
        let start = match self.tree.get_locked(&mut txn, &key, RowLock::update(), &mut row)? {
            Locked::Row(()) => self.decode(&row)?.map_err(|_| damage("a sequence is that of a table without one"))?,
            Locked::Absent | Locked::Skipped => 1,
        };
        pause::point("db: a sequence is locked");
        let start = start.max(least);
        let end = start.checked_add(BLOCK).ok_or_else(|| damage("a table has handed out all numbers"))?;
        self.tree.put_only(&mut txn, &key, &end.to_le_bytes(), &mut row)?;
        let csn = txn.commit()?.csn();
        pause::point("db: a block of numbers is reserved");
        // WAIT: help - or park behind the leader.
        self.log.force(csn.lsn())?;
        Ok(Reserved { of, range: start..end })
    }
}

/// A reserved block of numbers.
struct Reserved {
    /// The table that has the sequence.
    of: TableId,
    range: Range<u64>,
}

/// Returns the reserved numbers that are left for a table, if that is known.
fn left(known: &mut HashMap<TableId, Numbers>, table: TableId) -> Option<&mut Range<u64>> {
    let of = if let Numbers::Of(of) = known.get(&table)? { *of } else { table };
    if let Numbers::Left(left) = known.get_mut(&of)? { Some(left) } else { None }
}
