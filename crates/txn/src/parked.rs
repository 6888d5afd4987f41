//! Parked rollbacks: those that found no free page, no log space or a damaged page on their way.
//!
//! A row that was made smaller may need a split to come back, and a split needs a page. Where the disk has none the
//! rollback stops in front of that change and is parked. What it has undone is logged, the rest of its rows stay
//! locked, and nothing is poisoned. Its transaction counts as running: checkpoints list it, and the next restart rolls
//! it back if this run does not.
//!
//! | state | row headers | slot of its lock owner | list |
//! |---|---|---|---|
//! | running | its xid, live | shows the xid | - |
//! | parked | its xid, live | hides it | has it |
//! | tried again, or copied forward ([`crate::manager`]) | its xid, live | shows the xid | - |
//! | ended | as before the transaction | free | - |
//!
//! To park: enter the list, then hide. To try again: show, then leave the list. So a writer that finds no holder to
//! wait for finds the rollback in the list, and is refused with [`Error::RollbackParked`]; it never spins.
//!
//! The owner of the manager calls [`TxnManager::retry_parked`](crate::TxnManager::retry_parked) when space was freed
//! and from time to time; the signal of [`TxnManager::signal_parked`](crate::TxnManager::signal_parked) tells when
//! there is a reason to begin.
//!
//! **Invariant:** a rollback is parked only between two of its changes, so it is tried again from where it stopped.

use crate::sessions::Lease;
use foreshore_base::{Error, Lsn, Xid};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, Signal, SystemClock};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The rollback of a whole transaction.
#[derive(Debug)]
pub(crate) struct Rollback {
    pub(crate) lease: Box<Lease>,
    pub(crate) xid: Xid,
    /// The xid that its records carry.
    pub(crate) logged_as: Xid,
    /// LSN of its last record, zero before the first.
    pub(crate) last_lsn: Lsn,
    pub(crate) label: &'static str,
    /// It is prepared, and the decision to roll it back is not durable yet.
    pub(crate) is_prepared: bool,
    /// Some of its changes lie on damaged pages: only a restart can take them back.
    pub(crate) lost: Option<Error>,
    /// Log that a copy of what is left takes, if that is known.
    pub(crate) copy_cost: Option<u64>,
}

/// A rollback in the list.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) rollback: Rollback,
    cause: Arc<Error>,
    since: Nanos,
}

/// The parked rollbacks of a manager.
#[derive(Debug)]
pub(crate) struct ParkedList {
    list: Mutex<List>,
    /// The length of the list and those that are being tried: mostly zero, and then the list is not locked.
    count: AtomicUsize,
    signal: OnceLock<Signal>,
    time: SystemClock,
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Parked>,
    /// Rollbacks that were taken out and are being tried.
    tried: usize,
}

/// A parked rollback, as [`TxnManager::parked`](crate::TxnManager::parked) lists it.
#[derive(Clone, Debug)]
pub struct ParkedRollback {
    /// The label of its transaction.
    pub label: &'static str,
    /// The xid in the headers of its rows.
    pub xid: Xid,
    /// Time since it was parked last.
    pub age: Duration,
    /// Why it could not go on.
    pub cause: Arc<Error>,
}

impl ParkedList {
    pub(crate) fn new() -> Self {
        let list = Mutex::new(LockRank::ParkedRollbacks, List::default());
        Self { list, count: AtomicUsize::new(0), signal: OnceLock::new(), time: SystemClock::new() }
    }

    /// Names the thread that is signalled by [`signal`](Self::signal). The first call counts.
    pub(crate) fn set_signal(&self, signal: Signal) {
        let _ = self.signal.set(signal);
    }

    /// Signals that a rollback has been parked. Not for one that was tried again and parked anew: the thread that tries
    /// would wake itself, over and over.
    pub(crate) fn signal(&self) {
        if let Some(signal) = self.signal.get() {
            signal.notify();
        }
    }

    /// Returns the rollbacks that wait to be tried again, the oldest first.
    pub(crate) fn all(&self) -> Vec<ParkedRollback> {
        let now = self.time.now();
        let shown = |parked: &Parked| {
            let Rollback { label, xid, .. } = parked.rollback;
            ParkedRollback { label, xid, age: now.since(parked.since), cause: Arc::clone(&parked.cause) }
        };
        self.list.lock().waiting.iter().map(shown).collect()
    }

    /// Returns the answer for a writer that meets a row of `holder`, if the rollback of that is parked.
    pub(crate) fn refusal(&self, holder: Xid) -> Option<Error> {
        if self.count() == 0 {
            return None;
        }
        let list = self.list.lock();
        list.waiting.iter().find(|parked| parked.rollback.xid == holder).map(Parked::refusal)
    }

    /// Returns `rollback` as it is parked now because of `cause`.
    pub(crate) fn entry(&self, rollback: Rollback, cause: Error) -> Parked {
        Parked { rollback, cause: Arc::new(cause), since: self.time.now() }
    }

    /// Enters the list, then hides under the lock of the list: a try that takes it out shows it later.
    pub(crate) fn add(&self, parked: Parked, hide: impl FnOnce()) {
        let mut list = self.list.lock();
        let xid = parked.rollback.xid;
        let is_new = list.waiting.iter().all(|other| other.rollback.xid != xid);
        assert!(is_new, "the rollback of {xid} is parked twice");
        list.waiting.push_back(parked);
        self.note_count(&list);
        hide();
    }

    fn note_count(&self, list: &List) {
        // ORDERING: Release, pairs with `count`.
        self.count.store(list.waiting.len() + list.tried, Ordering::Release);
    }

    /// Slots of those that have all their changes in memory, and whether any rollback is being tried.
    pub(crate) fn movable(&self) -> (Vec<usize>, bool) {
        let list = self.list.lock();
        let movable = list.waiting.iter().filter(|parked| parked.rollback.lost.is_none());
        (movable.map(|parked| parked.rollback.lease.owner.index()).collect(), list.tried > 0)
    }

    /// One that was taken out has ended or is back in the list.
    pub(crate) fn end_try(&self) {
        let mut list = self.list.lock();
        assert!(list.tried > 0, "a rollback comes back to {} parked ones, and none was tried", list.waiting.len());
        list.tried -= 1;
        self.note_count(&list);
    }

    /// Takes out the one that was parked first. Its waiters find it live from here on.
    pub(crate) fn take(&self) -> Option<Parked> {
        let mut list = self.list.lock();
        let parked = list.waiting.front_mut()?;
        parked.show();
        list.tried += 1;
        list.waiting.pop_front()
    }

    /// Adds the lock owners of those that wait to be tried again: they give nothing up by themselves.
    pub(crate) fn add_owners(&self, owners: &mut Vec<usize>) {
        if self.count() > 0 {
            owners.extend(self.list.lock().waiting.iter().map(|parked| parked.rollback.lease.owner.index()));
        }
    }

    /// Takes out those that `wanted` says so of.
    pub(crate) fn take_all(&self, wanted: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let mut list = self.list.lock();
        let List { waiting, tried } = &mut *list;
        let (mut taken, left): (Vec<Parked>, Vec<Parked>) = waiting.drain(..).partition(wanted);
        taken.iter_mut().for_each(Parked::show);
        *waiting = left.into();
        *tried += taken.len();
        taken
    }

    pub(crate) fn count(&self) -> usize {
        // ORDERING: Acquire, pairs with `add`: a waiter that finds its holder hidden finds it in the list.
        self.count.load(Ordering::Acquire)
    }
}

impl Parked {
    /// Returns what is told of it to the caller of its transaction, and to writers that meet its rows.
    pub(crate) fn refusal(&self) -> Error {
        Error::RollbackParked { label: self.rollback.label, cause: Arc::clone(&self.cause) }
    }

    /// Shows its xid. Before it leaves the list: see the head of the file.
    fn show(&mut self) {
        self.rollback.lease.owner.set_xid(self.rollback.xid);
    }
}

/// Returns whether a rollback that met `cause` at a change may try that again later. Any other error stops the log.
#[must_use]
pub const fn may_wait(cause: &Error) -> bool {
    matches!(cause, Error::DiskFull { .. } | Error::Corrupted { .. } | Error::OutOfFrames { .. })
}

/// Why a rollback has not been completed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It stands in front of a change that may be undone later.
    Waits(Error),
    /// It cannot go on in this run: the log has stopped, or undo that was moved to a file cannot be read.
    Ends(Error),
}

impl Stop {
    /// Returns what the resource manager has answered for a change.
    pub(crate) fn at_change(cause: Error) -> Self {
        if may_wait(&cause) { Self::Waits(cause) } else { Self::Ends(cause) }
    }
}

impl From<Error> for Stop {
    fn from(cause: Error) -> Self {
        Self::Ends(cause)
    }
}
