//! Commits that keep what they have leased until they are durable, and who waits for that.
//!
//! Without early release of all locks a commit gives its lease back when it is acknowledged, in whatever thread that
//! happens. Commits that nobody waits for can be as many as there are leases: the next transaction makes them durable then,
//! and does not hear that there are too many.

use crate::leases::Leases;
use crate::manager::{Lease, TxnManager};
use foreshore_base::{Csn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;

impl TxnManager {
    /// The lease of a transaction that has ended, after a wait if a commit that is not durable has it; `None` if running ones
    /// have all.
    pub(crate) fn returned_lease(&self, leases: &Leases) -> Result<Option<Box<Lease>>> {
        loop {
            let key = self.returned.prepare();
            // Before the look: one that is not counted any more is idle, or another has it.
            let before = *leases.lingering.lock();
            pause::point("txn: counted who lingers");
            let lease = leases.take_any();
            // And after it: another may have committed with the one that came back, and have taken that one's place.
            let none_since = leases.lingering.lock().ever == before.ever || mutant("leases: lingering read once");
            if lease.is_some() || (before.now == 0 && none_since) {
                self.returned.cancel(key);
                return Ok(lease);
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

    /// A commit keeps its lease until it is durable, and then [comes back with it](Self::give_back_late).
    pub(crate) fn linger(&self, lease: &Lease) {
        let mut lingering = self.leases(lease.is_own).lingering.lock();
        lingering.now += 1;
        lingering.ever += 1;
    }

    /// As [`give_back`](Self::give_back), of a commit that has [lingered](Self::linger).
    pub(crate) fn give_back_late(&self, lease: Box<Lease>, csn: Csn) {
        let leases = self.leases(lease.is_own);
        self.give_back(lease, csn);
        leases.lingering.lock().now -= 1;
        if !mutant("leases: one comes back without a word") {
            // All: who finds it taken again may have nothing left to wait for.
            self.returned.notify_all();
        }
    }
}
