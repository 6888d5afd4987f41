//! Parked rollbacks: rollbacks that stopped because they met a full disk, full buffers or a damaged page.
//!
//! The undo of a row that was made smaller may need a split, and a split needs a page. If the disk has no free page,
//! the rollback stops before that change and is parked. What it has undone is logged, its other rows stay locked, and
//! the log goes on. Its transaction counts as running: checkpoints list it. If this run does not complete the rollback,
//! the next restart does.
//!
//! | state | row headers | slot of its lock owner | list |
//! |---|---|---|---|
//! | running | its xid, live | shows the xid | - |
//! | parked | its xid, live | hides it | has it |
//! | retried, or copied forward ([`crate::manager`]) | its xid, live | shows the xid | - |
//! | ended | as before the transaction | free | - |
//!
//! **Protocol.**
//!
//! 1. To park a rollback, add it to the list, then hide its xid.
//! 2. To retry it, show its xid, then remove it from the list.
//!
//! So a writer that finds no holder to wait for finds the rollback in the list. The writer is refused with
//! [`Error::RollbackParked`] and never spins.
//!
//! The owner of the manager calls [`TxnManager::retry_parked`](crate::TxnManager::retry_parked) when space was freed,
//! and from time to time. The signal of [`TxnManager::signal_parked`](crate::TxnManager::signal_parked) tells it when
//! to start.
//!
//! **Invariant:** a rollback is parked only between two of its changes, so a retry continues where it stopped.

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
    /// The transaction is prepared, and the decision to roll it back is not durable yet.
    pub(crate) is_prepared: bool,
    /// The error of a change on a damaged page, which only a restart can undo; `None` if there is no such change.
    pub(crate) lost: Option<Error>,
    /// Bytes of log that a copy of the remaining changes takes, if known.
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
    /// The number of rollbacks in the list or being retried. It is mostly zero, and then the list is not locked.
    count: AtomicUsize,
    signal: OnceLock<Signal>,
    time: SystemClock,
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Parked>,
    /// The number of rollbacks that were taken out and are being retried.
    tried: usize,
}

/// What a retry of the parked rollbacks has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried {
    /// Rollbacks that this call has ended.
    pub ended: usize,
    /// Rollbacks that are parked afterwards.
    pub left: usize,
}

/// A parked rollback, as [`TxnManager::parked`](crate::TxnManager::parked) lists it.
#[derive(Clone, Debug)]
pub struct ParkedRollback {
    /// The label of its transaction.
    pub label: &'static str,
    /// The xid in the headers of its rows.
    pub xid: Xid,
    /// The time since it was last parked.
    pub age: Duration,
    /// The reason why it stopped.
    pub cause: Arc<Error>,
}

impl ParkedList {
    pub(crate) fn new() -> Self {
        let list = Mutex::new(LockRank::ParkedRollbacks, List::default());
        Self { list, count: AtomicUsize::new(0), signal: OnceLock::new(), time: SystemClock::new() }
    }

    /// Sets the thread that [`signal`](Self::signal) notifies. Later calls have no effect.
    pub(crate) fn set_signal(&self, signal: Signal) {
        let _ = self.signal.set(signal);
    }

    /// Signals that a rollback was parked for the first time. It is not called for one that was retried and parked
    /// again, because the retrying thread would wake itself over and over.
    pub(crate) fn signal(&self) {
        if let Some(signal) = self.signal.get() {
            signal.notify();
        }
    }

    /// Returns the rollbacks that wait to be retried, the oldest first.
    pub(crate) fn all(&self) -> Vec<ParkedRollback> {
        let now = self.time.now();
        let shown = |parked: &Parked| {
            let Rollback { label, xid, .. } = parked.rollback;
            ParkedRollback { label, xid, age: now.since(parked.since), cause: Arc::clone(&parked.cause) }
        };
        self.list.lock().waiting.iter().map(shown).collect()
    }

    /// Returns the error for a writer that meets a row of `holder`, if the rollback of `holder` is parked.
    pub(crate) fn refusal(&self, holder: Xid) -> Option<Error> {
        if self.count() == 0 {
            return None;
        }
        let list = self.list.lock();
        list.waiting.iter().find(|parked| parked.rollback.xid == holder).map(Parked::refusal)
    }

    /// Returns the list entry of `rollback`, which is parked now because of `cause`.
    pub(crate) fn entry(&self, rollback: Rollback, cause: Error) -> Parked {
        assert_ne!(rollback.xid, Xid::ZERO, "the rollback of a transaction without an xid has nothing to undo");
        Parked { rollback, cause: Arc::new(cause), since: self.time.now() }
    }

    /// Adds a rollback to the list, then hides it under the lock of the list. So a retry that takes it out shows it
    /// later.
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

    /// Returns the slots of the rollbacks that have all their changes in memory, and whether any rollback is being
    /// retried.
    pub(crate) fn movable(&self) -> (Vec<usize>, bool) {
        let list = self.list.lock();
        let movable = list.waiting.iter().filter(|parked| parked.rollback.lost.is_none());
        (movable.map(|parked| parked.rollback.lease.owner.index()).collect(), list.tried > 0)
    }

    /// Ends a retry: the rollback that was taken out has ended or is back in the list.
    pub(crate) fn end_try(&self) {
        let mut list = self.list.lock();
        assert!(list.tried > 0, "a rollback comes back to {} parked ones, and none was tried", list.waiting.len());
        list.tried -= 1;
        self.note_count(&list);
    }

    /// Takes out the rollback that was parked first. From here on its waiters find it live.
    pub(crate) fn take(&self) -> Option<Parked> {
        let mut list = self.list.lock();
        let parked = list.waiting.front_mut()?;
        parked.show();
        list.tried += 1;
        list.waiting.pop_front()
    }

    /// Adds the lock owners of the rollbacks that wait to be retried. Such an owner frees no memory by itself.
    pub(crate) fn add_owners(&self, owners: &mut Vec<usize>) {
        if self.count() > 0 {
            owners.extend(self.list.lock().waiting.iter().map(|parked| parked.rollback.lease.owner.index()));
        }
    }

    /// Takes out the rollbacks for which `wanted` returns true.
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
    /// Returns the error for the caller of its transaction, and for writers that meet its rows.
    pub(crate) fn refusal(&self) -> Error {
        Error::RollbackParked { label: self.rollback.label, cause: Arc::clone(&self.cause) }
    }

    /// Shows its xid. This happens before the rollback leaves the list: see the module head.
    fn show(&mut self) {
        self.rollback.lease.owner.set_xid(self.rollback.xid);
    }
}

/// Returns whether a rollback that met `cause` at a change may retry that change later. Any other error stops the log.
#[must_use]
pub const fn may_wait(cause: &Error) -> bool {
    matches!(cause, Error::DiskFull { .. } | Error::Corrupted { .. } | Error::OutOfFrames { .. })
}

/// The reason why a rollback stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The rollback stopped before a change that may be undone later.
    Waits(Error),
    /// The rollback cannot continue in this run: the log has stopped, or undo in the spill file cannot be read.
    Ends(Error),
}

impl Stop {
    /// Returns the stop for an error of the resource manager at a change.
    pub(crate) fn at_change(cause: Error) -> Self {
        if may_wait(&cause) { Self::Waits(cause) } else { Self::Ends(cause) }
    }
}

impl From<Error> for Stop {
    fn from(cause: Error) -> Self {
        Self::Ends(cause)
    }
}
