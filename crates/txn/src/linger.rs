//! Commits that keep what they have leased until they are durable, and who waits for that.
//!
//! Without early release of all locks a commit gives its lease back when it is acknowledged, in whatever thread that
//! happens. Commits that nobody waits for can be as many as there are leases: the next transaction makes them durable then,
//! and does not hear that there are too many. It may begin in a callback of a ticket, on the thread that acknowledges those very
//! commits: leases come back before any callback is called there.

use crate::finish::HaltOnPanic;
use crate::leases::Leases;
use crate::manager::{Lease, TxnManager};
use foreshore_base::{Csn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::mem;
use std::sync::Arc;

impl TxnManager {
    /// The lease of a transaction that has ended, after a wait if a commit that is not durable has it; `None` if running ones
    /// have all.
    pub(crate) fn returned_lease(&self, leases: &Leases) -> Result<Option<Box<Lease>>> {
        loop {
            let key = self.returned.prepare();
            // Before the look: one that is not counted any more is idle, or another has it.
            let before = *leases.lingering.lock();
            pause::point("txn: counted the commits that linger");
            let lease = leases.take_any();
            // And after it: another may have committed with the one that came back, and have taken that one's place.
            let none_since = leases.lingering.lock().ever == before.ever || mutant("leases: lingering read once");
            if lease.is_some() || (before.now == 0 && none_since) {
                self.returned.cancel(key);
                return Ok(lease);
            }
            if let Some(error) = self.stop_error() {
                self.returned.cancel(key);
                return Err(error);
            }
            // WAIT: help - or park behind the leader: the commit has only its durability to wait for.
            if let Err(error) = self.log.force(self.log.current()) {
                self.returned.cancel(key);
                return Err(error);
            }
            // WAIT: park - for who acknowledges the commit, which is durable, and gives its lease back.
            self.returned.wait(key, None);
        }
    }

    /// A commit keeps its locks and its lease until it is durable.
    pub(crate) fn linger(self: &Arc<Self>, mut lease: Box<Lease>, csn: Csn) {
        // It ends in whatever thread acknowledges it.
        lease.owner.set_thread(None);
        let lingers = Lingers::new(self, lease.is_own);
        self.log.release_when_durable(csn.lsn(), move || lingers.end(lease, csn));
    }
}

/// A commit that is counted as one that lingers.
struct Lingers {
    manager: Arc<TxnManager>,
    is_own: bool,
}

impl Lingers {
    fn new(manager: &Arc<TxnManager>, is_own: bool) -> Self {
        let mut lingering = manager.leases(is_own).lingering.lock();
        lingering.now += 1;
        lingering.ever += 1;
        drop(lingering);
        Self { manager: Arc::clone(manager), is_own }
    }

    /// The commit is durable. If the log has stopped instead, nothing will be any more, and who is let on hears of that.
    fn end(self, mut lease: Box<Lease>, csn: Csn) {
        let unwinds = HaltOnPanic(&self.manager);
        pause::point("txn: a lease comes back");
        self.manager.locks.finish(&mut lease.owner, Some(csn));
        self.manager.give_back(lease, csn);
        mem::forget(unwinds);
    }
}

impl Drop for Lingers {
    /// After the lease has come back, or is lost by a panic: who waits looks again.
    fn drop(&mut self) {
        {
            let mut lingering = self.manager.leases(self.is_own).lingering.lock();
            assert!(lingering.now > 0, "a lease comes back, and none of {} is held any more", lingering.ever);
            lingering.now -= 1;
        }
        if !mutant("leases: one comes back without a word") {
            // All: who finds it taken again may have nothing left to wait for.
            self.manager.returned.notify_all();
        }
    }
}
