//! Waits for memory that running transactions hold.
//!
//! Such a wait ends when *any* holder gives memory up, so it has no edge to one owner and takes no part in the search for cycles of locks.
//! The wait is in vain if every holder waits for memory too, or, by way of locks, for an owner that does. The manager of the memory
//! knows the holders and the waiters. It asks [`LockManager::any_goes_on`] whenever a wait of either kind begins.

use crate::manager::LockManager;
use foreshore_sync::EventCount;
use foreshore_sync::model::mutant;
use std::sync::Arc;

impl LockManager {
    /// Has `watcher` notified whenever an owner begins to wait for a lock.
    ///
    /// # Panics
    /// The second time.
    pub fn watch_waits(&self, watcher: Arc<EventCount>) {
        assert!(self.watcher.set(watcher).is_ok(), "waits are watched by one");
    }

    /// Whether one of `holders` is not among `waiters` and waits, by way of locks, for none of them. Owners are given by their indices.
    #[must_use]
    pub fn any_goes_on(&self, holders: &[usize], waiters: &[usize]) -> bool {
        let waits = |owner: u32| waiters.contains(&(owner as usize));
        holders.iter().any(|&holder| !self.leads_to(holder as u32, waits))
    }

    /// Whether `start` is one of those that `waits` names, or waits for one by way of locks.
    fn leads_to(&self, start: u32, waits: impl Fn(u32) -> bool) -> bool {
        let (mut met, mut blockers, mut next) = (vec![start], Vec::new(), 0);
        while let Some(&owner) = met.get(next) {
            next += 1;
            if waits(owner) {
                return true;
            }
            if !mutant("memory: waits for locks are not followed") {
                self.blockers(owner, &mut blockers);
            }
            for blocker in blockers.drain(..) {
                if !met.contains(&blocker) {
                    met.push(blocker);
                }
            }
        }
        false
    }
}
