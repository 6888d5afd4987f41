//! Owners: what a transaction is to the lock manager, and what it shows to those who wait for it.

use crate::hash::RowHash;
use crate::intent::Intents;
use crate::manager::{LockManager, What};
use crate::mode::TableMode;
use crate::share::Shares;
use crate::victim::{Attempt, Member};
use foreshore_base::{Csn, Error, Lockable, Result, TableId, Waiter, Xid};
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, Nanos, thread_index};
use std::sync::Arc;

/// What an owner waits for. Who that is, is looked up anew by each walk, because queues change while their waiters sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Nothing,
    /// The end of one term of another owner, whose xid stands in the header of a row.
    Holder { index: u32, term: u64, row: RowHash },
    /// Its turn in the queue of a table.
    Table(TableId),
    /// Writers at the entry of a key, to read it.
    Row(RowHash),
    /// Its turn to write a key of a table.
    Turn(RowHash, TableId),
    /// Writers queued on keys of an interval in a table.
    Range(TableId),
}

/// What others see of an owner.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The xid, zero without one. Written under `state`; read without it only to find a candidate.
    pub(crate) xid: AtomicU64,
    /// Counts wake-ups by queues. A waiter reads it before it looks at the queue and sleeps only while it stands still.
    pub(crate) signal: AtomicU32,
    /// The thread that works for its transaction, [`NO_THREAD`] if none is known to (see [`Owner::set_thread`]).
    thread: AtomicUsize,
    /// Its tables, if intents take the fast path.
    pub(crate) intents: Intents,
    state: Mutex<Shown>,
}

/// In place of a thread's number.
const NO_THREAD: usize = usize::MAX;

/// The part of a slot that needs its lock.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Number of the transaction in this slot; an edge to an earlier one is an edge to a finished transaction.
    pub(crate) term: u64,
    pub(crate) label: &'static str,
    pub(crate) began: Nanos,
    /// Start of its first attempt, and how often it was the victim of a deadlock.
    first: Nanos,
    losses: u32,
    pub(crate) leased: bool,
    pub(crate) wait: Wait,
    /// Number of the wait; and what the transaction had to undo when that began.
    wait_no: u64,
    undo_bytes: u64,
    /// The cycle of which this waiter is the victim, from it on. Set by the waiter that closed the cycle. It goes with the wait.
    pub(crate) verdict: Option<Arc<[Waiter]>>,
    /// How errors of others name what it waits for.
    pub(crate) named: Option<Lockable>,
    /// Rows of which this transaction wakes one waiter each when it ends.
    pub(crate) rows: Vec<RowHash>,
}

impl Slot {
    fn new() -> CachePadded<Self> {
        let shown = Shown {
            term: 1,
            label: "",
            began: Nanos::ZERO,
            first: Nanos::ZERO,
            losses: 0,
            leased: false,
            wait: Wait::Nothing,
            wait_no: 0,
            undo_bytes: 0,
            verdict: None,
            named: None,
            rows: Vec::new(),
        };
        CachePadded::new(Self {
            xid: AtomicU64::new(0),
            signal: AtomicU32::new(0),
            thread: AtomicUsize::new(NO_THREAD),
            intents: Intents::new(),
            state: Mutex::new(LockRank::LockOwner, shown),
        })
    }

    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.state.lock()
    }

    /// Names the thread that works for its transaction. Threads of a model have no numbers.
    fn set_thread(&self, thread: Option<usize>) {
        if !MODEL {
            // ORDERING: Relaxed, see `is_of_this_thread`.
            self.thread.store(thread.unwrap_or(NO_THREAD), Ordering::Relaxed);
        }
    }

    /// Whether the calling thread works for its transaction.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        // ORDERING: Relaxed. A thread sees its own store, and no other thread stores its number. Another one's that is seen late
        // only makes a waiter look once more.
        self.thread.load(Ordering::Relaxed) == thread_index()
    }

    /// Its transaction as a member of a cycle.
    pub(crate) fn member(&self, index: u32) -> Member {
        let Shown { term, wait_no, undo_bytes, first, losses, .. } = *self.shown();
        Member { index, term, wait_no, undo_bytes, first, losses }
    }
}

impl Shown {
    /// Whether it still waits as it did when `member` was read.
    pub(crate) fn waits_as(&self, member: &Member) -> bool {
        self.wait != Wait::Nothing && (self.term, self.wait_no) == (member.term, member.wait_no)
    }
}

/// The slots of all owners.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    free: Mutex<Vec<u32>>,
    /// No slot from here on was ever leased: bounds scans.
    used: AtomicU32,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        let count = u32::try_from(count).expect("owners are numbered in 32 bits");
        Self {
            slots: (0..count).map(|_| Slot::new()).collect(),
            free: Mutex::new(LockRank::Leaf, (0..count).rev().collect()),
            used: AtomicU32::new(0),
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// Slots that were ever leased.
    pub(crate) fn used(&self) -> &[CachePadded<Slot>] {
        // ORDERING: Acquire, pairs with `take`: an owner whose xid the caller met is among them.
        &self.slots[..self.used.load(Ordering::Acquire) as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn take(&self) -> Option<u32> {
        let index = self.free.lock().pop()?;
        debug_assert!(!self.get(index).shown().leased, "owner {index} is leased while its transaction runs");
        // ORDERING: raise; pairs with `used`.
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        Some(index)
    }

    /// Whether the calling thread works for a transaction other than that of slot `index`.
    pub(crate) fn has_another_of_this_thread(&self, index: u32) -> bool {
        (0..).zip(self.used()).any(|(other, slot)| other != index && slot.is_of_this_thread())
    }

    fn give_back(&self, index: u32) {
        let mut free = self.free.lock();
        debug_assert!(!free.contains(&index), "owner {index} is given back twice");
        free.push(index);
    }

    /// The slot and term of the transaction with `xid`, with its slot locked; `None` once it has finished.
    pub(crate) fn find(&self, xid: Xid) -> Option<(u32, MutexGuard<'_, Shown>)> {
        for (index, slot) in (0..).zip(self.used()) {
            // ORDERING: Acquire, pairs with `end_term`: who no longer finds the xid sees that its status is final. It is not
            // missed before: the caller read it in a tuple header, and the owner had published it before it wrote there.
            if slot.xid.load(Ordering::Acquire) == xid.0 {
                let shown = slot.shown();
                // ORDERING: Relaxed, written under the lock that is held.
                return (slot.xid.load(Ordering::Relaxed) == xid.0).then_some((index, shown));
            }
        }
        None
    }

    /// The label and start of the transaction that runs longest.
    pub(crate) fn oldest(&self) -> Option<(&'static str, Nanos)> {
        let leased = self.used().iter().map(|slot| slot.shown()).filter(|shown| shown.leased);
        leased.map(|shown| (shown.label, shown.began)).min_by_key(|&(_, began)| began)
    }
}

/// A transaction's lease of a slot, with what it holds. Dropped: releases everything.
#[derive(Debug)]
pub struct Owner {
    pub(crate) manager: Arc<LockManager>,
    pub(crate) index: u32,
    pub(crate) tables: Vec<(TableId, TableMode)>,
    /// Its point locks.
    pub(crate) shares: Shares,
    /// Tables in which it has intervals, and what these take of its share.
    pub(crate) ranges: Vec<(TableId, usize)>,
    /// What point locks and intervals take of its share.
    pub(crate) charged: usize,
    /// Its share, in the same units.
    pub(crate) room: usize,
    /// How often its locks have been merged for want of memory.
    pub(crate) widened: u64,
    /// The key, by its row and table, of which this owner has an exclusive turn.
    pub(crate) turn: Option<(RowHash, TableId)>,
    began: Nanos,
    /// As the slot has it, which others read, until its transaction ends.
    thread: Option<usize>,
    /// What its transaction has to undo; shown when it begins to wait.
    undo_bytes: u64,
}

impl Owner {
    /// Number of the slot, below [`LockOptions::max_owners`](crate::LockOptions::max_owners); nobody else has it now.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Starts a transaction in this slot under `label`, which errors of others will name. The calling thread works for it.
    ///
    /// # Panics
    /// When locks of an earlier one are still held.
    pub fn begin(&mut self, label: &'static str) {
        self.begin_attempt(label, Attempt::default());
    }

    /// As [`begin`](Self::begin), for a transaction that is run again.
    ///
    /// # Panics
    /// As [`begin`](Self::begin).
    pub fn begin_attempt(&mut self, label: &'static str, attempt: Attempt) {
        assert!(self.is_idle(), "a transaction begins without locks");
        (self.began, self.thread, self.undo_bytes) = (self.manager.now(), Some(thread_index()), 0);
        let mut shown = self.slot().shown();
        let (index, wait, rows) = (self.index, shown.wait, shown.rows.len());
        assert!(wait == Wait::Nothing && rows == 0, "owner {index} begins with the wait {wait:?} and {rows} debts");
        (shown.label, shown.began, shown.leased) = (label, self.began, true);
        (shown.first, shown.losses) = (attempt.first.unwrap_or(self.began), attempt.losses);
        self.slot().set_thread(self.thread);
    }

    /// When the transaction began, by [`LockManager::now`].
    #[must_use]
    pub const fn began(&self) -> Nanos {
        self.began
    }

    /// Names the thread that works for the transaction: the one without which it does not end. `None` where another can end it, too.
    pub fn set_thread(&mut self, thread: Option<usize>) {
        if self.thread != thread {
            self.thread = thread;
            self.slot().set_thread(thread);
        }
    }

    /// Sets what the transaction has to undo, by which victims of deadlocks are chosen. Others see it when the owner waits.
    pub const fn set_undo_bytes(&mut self, bytes: u64) {
        self.undo_bytes = bytes;
    }

    /// Shows the xid to those who will wait for it. Called before the xid is written to a tuple header.
    pub fn set_xid(&mut self, xid: Xid) {
        assert!(xid > Xid::ZERO, "zero means no transaction");
        let slot = self.slot();
        let shown = slot.shown();
        assert!(shown.leased, "owner {} shows transaction {xid} and none has begun", self.index);
        // ORDERING: Relaxed, written under the lock that is held.
        let before = slot.xid.load(Ordering::Relaxed);
        assert_eq!(before, 0, "owner {} shows transaction {xid} beside an earlier one", self.index);
        // ORDERING: publish, pairs with `Slots::find`: who finds this xid in place of an earlier one sees that one's end.
        slot.xid.store(xid.0, Ordering::Release);
    }

    /// The label given at the start.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.slot().shown().label
    }

    /// The mode in which it has a table.
    pub(crate) fn table_mode(&self, table: TableId) -> Option<TableMode> {
        self.tables.iter().find(|&&(id, _)| id == table).map(|&(_, mode)| mode)
    }

    /// Whether its lock of a table allows all that `mode` does.
    pub(crate) fn covers(&self, table: TableId, mode: TableMode) -> bool {
        self.table_mode(table).is_some_and(|held| held.covers(mode))
    }

    /// What its intervals in a table take of its share.
    pub(crate) fn ranges_cost(&self, table: TableId) -> usize {
        self.ranges.iter().find(|&&(id, _)| id == table).map_or(0, |&(_, cost)| cost)
    }

    /// Notes what its intervals in a table take now.
    pub(crate) fn note_ranges(&mut self, table: TableId, cost: usize) {
        let left = self.charged.checked_sub(self.ranges_cost(table));
        self.charged = left.expect("intervals take no more than all locks") + cost;
        match self.ranges.iter_mut().find(|(id, _)| *id == table) {
            Some((_, noted)) => *noted = cost,
            None => self.ranges.push((table, cost)),
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        self.manager.slots.get(self.index)
    }

    /// What its locks take of its share, added up anew.
    pub(crate) fn charged_by_parts(&self) -> usize {
        self.shares.cost() + self.ranges.iter().map(|&(_, cost)| cost).sum::<usize>()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.tables.is_empty() && self.shares.is_empty() && self.ranges.is_empty() && self.turn.is_none()
    }

    /// Shows what it waits for, how an error names that, and what its transaction has to undo.
    pub(crate) fn begin_wait(&self, wait: Wait, what: &What<'_>) {
        let named = Some(what.named());
        let mut shown = self.slot().shown();
        assert!(shown.wait == Wait::Nothing, "owner {} begins {wait:?} within {:?}", self.index, shown.wait);
        (shown.wait, shown.named) = (wait, named);
        shown.wait_no += 1;
        shown.undo_bytes = self.undo_bytes;
    }

    /// Takes the edge back. Returns the cycle of which this waiter has become the victim.
    pub(crate) fn end_wait(&self) -> Option<Arc<[Waiter]>> {
        let mut shown = self.slot().shown();
        (shown.wait, shown.named) = (Wait::Nothing, None);
        shown.verdict.take()
    }

    /// Ends the term: what it shows goes back, and the rows to wake come out.
    pub(crate) fn end_term(&mut self) -> Vec<RowHash> {
        let slot = self.slot();
        let mut shown = slot.shown();
        // ORDERING: publish, after the status was made final; pairs with `Slots::find`.
        slot.xid.store(0, Ordering::Release);
        slot.set_thread(None);
        shown.term += 1;
        shown.leased = false;
        assert!(shown.wait == Wait::Nothing, "a transaction ends while it waits for {:?}", shown.wait);
        std::mem::take(&mut shown.rows)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let manager = self.manager.clone();
        manager.finish(self, None::<Csn>);
        manager.slots.give_back(self.index);
    }
}

impl LockManager {
    /// Leases a slot for a transaction, or for one after another (see [`Owner::begin`]).
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`] when all slots are leased.
    pub fn lease(self: &Arc<Self>, label: &'static str) -> Result<Owner> {
        let Some(index) = self.slots.take() else {
            let oldest = self.slots.oldest().map_or("", |(label, _)| label);
            return Err(Error::TooManyTransactions { max: self.slots.len(), oldest });
        };
        let mut owner = Owner {
            manager: self.clone(),
            index,
            tables: Vec::new(),
            shares: Shares::default(),
            ranges: Vec::new(),
            charged: 0,
            room: self.room.own(),
            widened: 0,
            turn: None,
            began: Nanos::ZERO,
            thread: None,
            undo_bytes: 0,
        };
        owner.begin(label);
        Ok(owner)
    }
}
