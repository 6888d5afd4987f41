//! A slot: the state that an owner publishes to other threads.
//!
//! - The xid of its transaction. The headers of the rows that it writes name this xid.
//! - What it waits for, the *edge*. If it is the victim of a deadlock, also the *verdict*.
//! - Its *wake-up obligations*: a set of rows. When the owner ends, it wakes one waiter of each
//!   (`manager/row_wait.rs`).
//!
//! **Invariant:** the xid is stored under the slot's lock. An obligation is added under the same lock, and only while
//! the xid is published. So every obligation is paid.

use crate::hash::RowHash;
use crate::victim::{Attempt, Member};
use foreshore_base::{Lockable, TableId, Waiter, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{BiasedMutex, LockRank, Nanos, rmw, thread_index};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an owner waits for. Each walk looks up the blocking owners anew, because queues change while waiters sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Does not wait.
    #[default]
    Nothing,
    /// Waits for the end of one term of another owner, whose xid the header of a row names.
    Holder { index: u32, term: u64, row: RowHash },
    /// Waits for its turn in the queue of a table.
    Table(TableId),
    /// Waits for the writers queued at the entry of a key, to read the key.
    Row(RowHash),
    /// Waits for its turn to write a key of a table.
    Turn(RowHash, TableId),
    /// Waits for the writers queued on keys of an interval in a table.
    Range(TableId),
}

/// The published state of one owner.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The xid; zero if there is none. Written under `shown`. Read without that lock only to find a candidate.
    xid: AtomicU64,
    /// Counts wake-ups by queues. A waiter reads it before it checks the queue, and sleeps only while it is unchanged.
    signal: AtomicU32,
    /// The thread that works for its transaction; [`NO_THREAD`] if none is known.
    thread: AtomicUsize,
    /// Locked at the begin and the end of each transaction by its own thread, and visited by waiters.
    shown: BiasedMutex<Shown>,
}

/// The value of `thread` when no thread is known.
const NO_THREAD: usize = usize::MAX;

/// The part of a slot that needs its lock.
#[derive(Debug)]
struct Shown {
    label: &'static str,
    began: Nanos,
    leased: bool,
    edge: Edge,
    /// The owner as a member of a cycle. An edge to an earlier term points to a finished transaction.
    member: Member,
    /// The cycle of which this waiter is the victim, starting with it. The waiter that closed the cycle sets it. It is
    /// cleared when the wait ends.
    verdict: Option<Arc<[Waiter]>>,
    /// The name of what it waits for, in errors of other transactions.
    name: Option<Lockable>,
    obligations: BTreeSet<RowHash>,
}

impl Slot {
    pub(crate) fn new(index: u32) -> Self {
        let member = Member { index, ..Member::default() };
        let (label, began, edge) = ("", Nanos::ZERO, Edge::Nothing);
        let shown = Shown {
            label,
            began,
            leased: false,
            edge,
            member,
            verdict: None,
            name: None,
            obligations: BTreeSet::new(),
        };
        Self {
            xid: AtomicU64::new(0),
            signal: AtomicU32::new(0),
            thread: AtomicUsize::new(NO_THREAD),
            shown: BiasedMutex::new(LockRank::LockOwner, shown),
        }
    }

    /// Starts a term.
    pub(crate) fn begin(&self, label: &'static str, began: Nanos, attempt: Attempt) {
        let mut shown = self.shown.lock();
        let (edge, obligations) = (shown.edge, shown.obligations.len());
        assert!(
            edge == Edge::Nothing && obligations == 0,
            "{label:?} begins with the wait {edge:?} and {obligations} obligations"
        );
        (shown.label, shown.began, shown.leased) = (label, began, true);
        let Attempt { first, losses } = attempt;
        shown.member = Member { first: first.unwrap_or(began), losses, undo_bytes: 0, ..shown.member };
    }

    /// Ends the term, and returns its obligations. The transaction's status is final before the call.
    pub(crate) fn end(&self) -> BTreeSet<RowHash> {
        let mut shown = self.shown.lock();
        // ORDERING: publish, after the status was made final; pairs with `shows`.
        self.xid.store(0, Ordering::Release);
        self.set_thread(None);
        shown.member.term += 1;
        shown.leased = false;
        assert!(shown.edge == Edge::Nothing, "a transaction ends while it waits for {:?}", shown.edge);
        std::mem::take(&mut shown.obligations)
    }

    /// Publishes the xid, before it is written to a tuple header.
    pub(crate) fn show(&self, xid: Xid) {
        assert!(xid > Xid::ZERO, "zero means no transaction");
        let shown = self.shown.lock();
        assert!(shown.leased, "transaction {xid} is shown and none has begun");
        // ORDERING: Relaxed, written under the lock that is held.
        let before = self.xid.load(Ordering::Relaxed);
        assert_eq!(before, 0, "transaction {xid} is shown beside an earlier one");
        // ORDERING: publish, pairs with `shows`: a waiter that finds this xid in place of an earlier one sees that
        // one's end.
        self.xid.store(xid.0, Ordering::Release);
    }

    /// Hides the xid, and returns a copy of the obligations. The obligations stay. A waiter may be woken and find the
    /// xid published again; it then relies on them.
    pub(crate) fn hide(&self) -> BTreeSet<RowHash> {
        let mut shown = self.shown.lock();
        // ORDERING: publish, pairs with `shows` and with the validation of a waiter that is about to park.
        self.xid.store(0, Ordering::Release);
        match mutant("parked: a hidden holder forgets its obligations") {
            true => std::mem::take(&mut shown.obligations),
            false => shown.obligations.clone(),
        }
    }

    /// Returns whether the slot publishes `xid`.
    pub(crate) fn shows(&self, xid: Xid) -> bool {
        // ORDERING: Acquire, pairs with `end` and `hide`: a waiter that no longer finds the xid sees that its status
        // is final, or that it is hidden.
        self.xid.load(Ordering::Acquire) == xid.0
    }

    /// Makes the row an obligation of `holder`, and returns its term; `None` if the holder has ended or is hidden.
    pub(crate) fn oblige_as(&self, holder: Xid, row: RowHash) -> Option<u64> {
        let mut shown = self.shown.visit();
        if !self.shows(holder) {
            return None;
        }
        if !mutant("hand-off: row not entered with the holder") {
            shown.oblige(row);
        }
        Some(shown.member.term)
    }

    /// Makes the row an obligation of the running transaction.
    pub(crate) fn oblige(&self, row: RowHash) {
        self.shown.lock().oblige(row);
    }

    /// Sets the thread that works for its transaction. Threads of a model have no numbers, so nothing is set there.
    pub(crate) fn set_thread(&self, thread: Option<usize>) {
        if !MODEL {
            // ORDERING: Relaxed, see `is_of_this_thread`.
            self.thread.store(thread.unwrap_or(NO_THREAD), Ordering::Relaxed);
        }
    }

    /// Returns whether the calling thread works for its transaction.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        // ORDERING: Relaxed. A thread sees its own store, and no other thread stores its number. A late view of another
        // thread's store only makes a waiter check once more.
        self.thread.load(Ordering::Relaxed) == thread_index()
    }

    pub(crate) fn label(&self) -> &'static str {
        self.shown.visit().label
    }

    /// Returns the label of the transaction, if its xid is `xid`.
    pub(crate) fn label_as(&self, xid: Xid) -> Option<&'static str> {
        let shown = self.shown.visit();
        self.shows(xid).then_some(shown.label)
    }

    /// Returns label and start of the running transaction.
    pub(crate) fn running(&self) -> Option<(&'static str, Nanos)> {
        let shown = self.shown.visit();
        shown.leased.then_some((shown.label, shown.began))
    }

    pub(crate) fn is_in_term(&self, term: u64) -> bool {
        self.shown.visit().member.term == term
    }

    pub(crate) fn set_undo_bytes(&self, bytes: u64) {
        self.shown.lock().member.undo_bytes = bytes;
    }

    /// Publishes what it waits for, and how an error names that.
    pub(crate) fn begin_wait(&self, edge: Edge, name: Lockable) {
        let mut shown = self.shown.lock();
        assert!(shown.edge == Edge::Nothing, "{edge:?} begins within {:?}", shown.edge);
        (shown.edge, shown.name) = (edge, Some(name));
        shown.member.wait_no += 1;
    }

    /// Withdraws the edge. If this waiter is the victim of a cycle, returns that cycle.
    pub(crate) fn end_wait(&self) -> Option<Arc<[Waiter]>> {
        let mut shown = self.shown.lock();
        (shown.edge, shown.name) = (Edge::Nothing, None);
        shown.verdict.take()
    }

    pub(crate) fn edge(&self) -> Edge {
        self.shown.visit().edge
    }

    /// Returns the edge; [`Edge::Nothing`] if the waiter has a verdict.
    pub(crate) fn standing_edge(&self) -> Edge {
        let shown = self.shown.visit();
        if shown.verdict.is_some() { Edge::Nothing } else { shown.edge }
    }

    /// Returns the label of the transaction, if it waits for nothing and the calling thread works for it.
    pub(crate) fn runs_in_this_thread(&self) -> Option<&'static str> {
        let shown = self.shown.visit();
        (shown.edge == Edge::Nothing && self.is_of_this_thread()).then_some(shown.label)
    }

    /// Returns the owner and what it waits for; `None` if the wait has ended.
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        let shown = self.shown.visit();
        shown.name.clone().map(|waits_for| Waiter { label: shown.label, waits_for })
    }

    /// Returns the owner as a member of a cycle.
    pub(crate) fn member(&self) -> Member {
        self.shown.visit().member
    }

    /// Sets the verdict, if the owner is still in the wait that `member` describes. Returns its edge then.
    pub(crate) fn sentence(&self, member: &Member, cycle: Arc<[Waiter]>) -> Option<Edge> {
        let mut shown = self.shown.visit();
        let is_as_seen = (shown.member.term, shown.member.wait_no) == (member.term, member.wait_no);
        if (shown.edge == Edge::Nothing || !is_as_seen) && !mutant("deadlock: a verdict meets a later wait") {
            return None;
        }
        shown.verdict = Some(cycle);
        Some(shown.edge)
    }

    /// Makes a waiter of a queue check it again.
    pub(crate) fn raise_signal(&self) {
        rmw::contended(1);
        // ORDERING: Release, pairs with `signal`: a waiter that reads the new count sees the queue as it was left.
        // Parking validates the count, and unparking fences, so the wake-up is not lost.
        self.signal.fetch_add(1, Ordering::Release);
    }

    /// Returns the count on which a waiter sleeps. The waiter reads it before it checks the queue.
    pub(crate) fn signal(&self) -> u32 {
        // ORDERING: Acquire, pairs with `raise_signal`.
        self.signal.load(Ordering::Acquire)
    }
}

impl Shown {
    /// Adds an obligation, unless the row is already one.
    fn oblige(&mut self, row: RowHash) {
        self.obligations.insert(row);
    }
}
