//! Parked rollbacks: those that found no free page, no log space or a damaged page on their way.
//!
//! A row that was made smaller may need a split to come back, and a split needs a page. Where the disk has none the
//! rollback stops in front of that change and is parked: what it has taken back is logged, the rest of its rows stay
//! locked, and nothing is poisoned. Its transaction counts as running: checkpoints list it, and the next restart takes
//! it back if this run does not.
//!
//! | state | row headers | slot of its lock owner | list |
//! |---|---|---|---|
//! | running | its xid, live | shows the xid | - |
//! | parked | its xid, live | hides it | has it |
//! | tried again, or copied forward ([`crate::forward`]) | its xid, live | shows the xid | - |
//! | ended | as before the transaction | free | - |
//!
//! To park: enter the list, then hide. To try again: show, then leave the list. So a writer that finds no holder to
//! wait for finds the rollback in the list, and is refused with [`Error::RollbackParked`]; it never spins.
//!
//! The owner of the manager calls [`TxnManager::retry_parked`] when space was freed and from time to time; the signal
//! of [`TxnManager::signal_parked`] tells when there is a reason to begin.
//!
//! **Invariant:** a rollback is parked only between two of its changes, so it is tried again from where it stopped.

use crate::manager::{Lease, TxnManager};
use crate::prepared::{LoggedChange, TakeOver};
use crate::txn::{Txn, TxnOptions};
use foreshore_base::{Error, GroupNo, Lsn, Result, TableId, Xid};
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, Signal};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Label of a transaction that a restart hands over.
const RESTART: &str = "rollback at restart";

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
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Parked>,
    /// Rollbacks that were taken out and are being tried.
    tried: usize,
}

/// A parked rollback, as [`TxnManager::parked`] lists it.
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

/// A transaction that a restart could not take back as a whole.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The xid in the log.
    pub xid: Xid,
    /// No record of it lies in an earlier group.
    pub first_group: GroupNo,
    /// LSN of its last record, compensations included.
    pub last_lsn: Lsn,
    /// Its changes that are not compensated, in log order.
    pub changes: Vec<LoggedChange>,
    /// Why they could not be taken back.
    pub cause: Error,
}

impl ParkedList {
    pub(crate) fn new() -> Self {
        let list = Mutex::new(LockRank::ParkedRollbacks, List::default());
        Self { list, count: AtomicUsize::new(0), signal: OnceLock::new() }
    }

    /// Enters the list, then hides under the lock of the list: a try that takes it out shows it later.
    fn add(&self, parked: Parked, hide: impl FnOnce()) {
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
    fn end_try(&self) {
        let mut list = self.list.lock();
        assert!(list.tried > 0, "a rollback comes back to {} parked ones, and none was tried", list.waiting.len());
        list.tried -= 1;
        self.note_count(&list);
    }

    /// Takes out the one that was parked first. Its waiters find it live from here on.
    fn take(&self) -> Option<Parked> {
        let mut list = self.list.lock();
        let parked = list.waiting.front_mut()?;
        parked.show();
        list.tried += 1;
        list.waiting.pop_front()
    }

    /// Adds the lock owners of those that wait to be tried again: they give nothing up by themselves.
    fn add_owners(&self, owners: &mut Vec<usize>) {
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
    /// Shows its xid. Before it leaves the list: see the head of the file.
    fn show(&mut self) {
        self.rollback.lease.owner.set_xid(self.rollback.xid);
    }
}

/// Whether a rollback that met `cause` at a change may try that again later. Any other error stops the log.
#[must_use]
pub const fn may_wait(cause: &Error) -> bool {
    matches!(cause, Error::DiskFull { .. } | Error::Corrupted { .. } | Error::OutOfFrames { .. })
}

/// Why a rollback has not been completed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It stands in front of a change that may be taken back later.
    Waits(Error),
    /// It cannot go on in this run: the log has stopped, or undo that was moved to a file cannot be read.
    Ends(Error),
}

impl Stop {
    /// What the resource manager has answered for a change.
    pub(crate) fn at_change(cause: Error) -> Self {
        if may_wait(&cause) { Self::Waits(cause) } else { Self::Ends(cause) }
    }
}

impl From<Error> for Stop {
    fn from(cause: Error) -> Self {
        Self::Ends(cause)
    }
}

impl TxnManager {
    /// Names the thread that calls [`retry_parked`](Self::retry_parked): it is signalled when a rollback is parked for the
    /// first time. The first call counts.
    pub fn signal_parked(&self, signal: Signal) {
        let _ = self.parked.signal.set(signal);
    }

    /// The parked rollbacks, the oldest first.
    #[must_use]
    pub fn parked(&self) -> Vec<ParkedRollback> {
        let now = self.time.now();
        let shown = |parked: &Parked| {
            let Rollback { label, xid, .. } = parked.rollback;
            ParkedRollback { label, xid, age: now.since(parked.since), cause: Arc::clone(&parked.cause) }
        };
        self.parked.list.lock().waiting.iter().map(shown).collect()
    }

    /// Tries each parked rollback once more. Returns how many are parked when it ends. For one thread or several.
    pub fn retry_parked(&self) -> usize {
        for _ in 0..self.parked.count() {
            let Some(Parked { rollback, .. }) = self.parked.take() else { break };
            // One that is parked again is in the list; one that stops the log tells all callers.
            let _ = self.roll_back(rollback);
            self.parked.end_try();
        }
        self.parked.count()
    }

    /// Takes over a transaction that a restart has undone in part, and parks its rollback. Its rows get a new xid and
    /// are locked, as those of a prepared transaction. A change on a damaged page is left to the next restart, for
    /// which the transaction stays in the log. Before any other transaction begins, and after all that can be undone
    /// has been.
    ///
    /// # Errors
    /// Those of [`ResourceManager::take_over`](crate::ResourceManager::take_over) but for `Corrupted` pages, and of
    /// drawing an xid.
    pub fn park(self: &Arc<Self>, unfinished: Unfinished) -> Result<()> {
        let Unfinished { xid: was, first_group, last_lsn, changes, cause } = unfinished;
        let mut txn = self.begin(TxnOptions { label: RESTART, ..TxnOptions::default() })?;
        let xid = txn.draw_xid(Some((was, first_group)))?;
        // From here on its end does not take it back: it is handed to the list, or stays for the next restart.
        txn.prepared_as = Some(was);
        self.prepare_status(xid)?;
        txn.last_lsn = last_lsn;
        let mut again = TakeOver::of_loser(&mut txn, was);
        self.resources().take_over(&mut again, &changes)?;
        let lost = again.into_lost();
        let tables: BTreeSet<TableId> = changes.iter().map(|change| change.table).collect();
        for table in tables {
            // A prepared transaction that excludes it cannot have run beside it.
            txn.try_lock_table(table, TableMode::IntentExclusive);
        }
        txn.release();
        let lease = txn.lease.take().expect("a running transaction has its lease");
        let rollback = Rollback {
            lease,
            xid,
            logged_as: was,
            last_lsn,
            label: RESTART,
            is_prepared: false,
            lost,
            copy_cost: None,
        };
        let _ = self.park_rollback(rollback, cause);
        self.tell_parked();
        Ok(())
    }

    /// Ends `rollback` if it can be completed, and parks it if it can be tried again.
    pub(crate) fn roll_back(&self, rollback: Rollback) -> Result<()> {
        let (rollback, outcome) = self.try_rollback(rollback);
        match outcome {
            Ok(()) => self.end_rollback(rollback.lease, true, Ok(())),
            Err(Stop::Waits(cause)) if !mutant("parked: a rollback without a page stops the log") => {
                Err(self.park_rollback(rollback, cause))
            }
            Err(Stop::Waits(cause) | Stop::Ends(cause)) => self.end_rollback(rollback.lease, true, Err(cause)),
        }
    }

    pub(crate) fn park_rollback(&self, rollback: Rollback, cause: Error) -> Error {
        let (label, cause) = (rollback.label, Arc::new(cause));
        self.put_into_list(Parked { rollback, cause: Arc::clone(&cause), since: self.time.now() });
        Error::RollbackParked { label, cause }
    }

    /// Ends the try of a rollback that stands where it stood before.
    pub(crate) fn end_try(&self, parked: Parked) {
        self.put_into_list(parked);
        self.parked.end_try();
    }

    fn put_into_list(&self, mut parked: Parked) {
        let lease = &mut *parked.rollback.lease;
        lease.session.release();
        lease.undo.release(false);
        // What it has read protects nothing any more. What it has written keeps its tables from being dropped.
        self.locks.release_shared(&mut lease.owner);
        lease.owner.set_thread(None);
        let owner = lease.owner.index();
        self.parked.add(parked, || self.locks.hide(owner));
        // It keeps its undo memory until it is tried again: a session that waits for that waits in vain from here on.
        if !mutant("parked: no session that waits for memory is told") {
            self.undo.tell();
        }
    }

    /// Signals that a rollback has been parked. Not for one that was tried again and parked anew: the thread that tries would wake
    /// itself, over and over.
    pub(crate) fn tell_parked(&self) {
        if let Some(signal) = self.parked.signal.get() {
            signal.notify();
        }
    }

    /// Whether one of the lock owners `holders` of undo memory goes on, now that `waiters` wait for some.
    pub(crate) fn any_holder_goes_on(&self, holders: &[usize], mut waiters: Vec<usize>) -> bool {
        if !mutant("parked: a parked rollback goes on") {
            self.parked.add_owners(&mut waiters);
        }
        self.locks.any_goes_on(holders, &waiters)
    }

    /// The answer for a writer that meets a row of `holder`, if the rollback of that is parked.
    pub(crate) fn parked_refusal(&self, holder: Xid) -> Option<Error> {
        if self.parked.count() == 0 {
            return None;
        }
        let list = self.parked.list.lock();
        let parked = list.waiting.iter().find(|parked| parked.rollback.xid == holder)?;
        Some(Error::RollbackParked { label: parked.rollback.label, cause: Arc::clone(&parked.cause) })
    }
}

impl Txn {
    /// What is left of a transaction that has changed or locked rows: its rollback.
    pub(crate) fn to_rollback(&self, lease: Box<Lease>) -> Result<Rollback, Box<Lease>> {
        let (Some(xid), Some(logged_as)) = (self.xid, self.logged_as()) else { return Err(lease) };
        let Self { last_lsn, label, .. } = *self;
        let is_prepared = self.prepared_as.is_some();
        Ok(Rollback { lease, xid, logged_as, last_lsn, label, is_prepared, lost: None, copy_cost: None })
    }
}
