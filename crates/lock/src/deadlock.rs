//! Deadlocks: every waiter publishes what it waits for, then walks the graph of waits.
//!
//! Edges are kept as *what* is waited for and turned into owners when a walk passes: the holders of a table or a row may
//! change while its waiters sleep, and so do the edges.
//!
//! **Every cycle is found.** An edge arises when its owner begins to wait (it walks afterwards), or when a running owner is
//! granted something that sleepers wait for (it walks when it waits itself). So the owner that waits last has all edges of
//! the cycle before it: publishing and walking pass through the locks of the slots, and of two that publish at once at
//! least one sees the other.
//!
//! **One victim.** Of two that publish at once both may see the cycle. A waiter that saw one walks again under the lock
//! `confirming`, and takes its edge back under it if the cycle still stands; the other then finds it broken. So the victim is
//! the waiter that closed the cycle and confirmed first, which has done least waiting. Locks are held to the end, so an edge
//! seen early in a walk still stands at its end, unless a waiter gave up: then the walk may refuse a wait that would
//! have ended, which costs a retry.

use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use foreshore_base::{Error, Result};

impl LockManager {
    /// Refuses the wait that `owner` has just published if it closes a cycle. The edge is taken back then.
    pub(crate) fn refuse_cycle(&self, owner: &Owner, what: &What<'_>) -> Result<()> {
        if self.blocker_in_cycle(owner.index).is_none() {
            return Ok(());
        }
        let confirmed = self.confirming.lock();
        let Some(blocker) = self.blocker_in_cycle(owner.index) else { return Ok(()) };
        owner.set_wait(Wait::Nothing);
        drop(confirmed);
        self.deadlocks.add(1);
        Err(Error::Deadlock { holder: self.label_of(blocker), what: what.to_string() })
    }

    /// Label of somebody that `owner` waits for.
    pub(crate) fn first_blocker(&self, owner: &Owner) -> &'static str {
        let mut blockers = Vec::new();
        self.blockers(owner.index, &mut blockers);
        blockers.first().map_or("", |&blocker| self.label_of(blocker))
    }

    fn label_of(&self, index: u32) -> &'static str {
        self.slots.get(index).shown().label
    }

    /// The owner that `start` waits for directly on a path back to itself. Visits each owner at most once.
    fn blocker_in_cycle(&self, start: u32) -> Option<u32> {
        let mut visited = vec![false; self.slots.len()];
        let (mut first, mut open) = (Vec::new(), Vec::new());
        self.blockers(start, &mut first);
        for blocker in first {
            open.push(blocker);
            while let Some(owner) = open.pop() {
                if owner == start {
                    return Some(blocker);
                }
                if !std::mem::replace(&mut visited[owner as usize], true) {
                    self.blockers(owner, &mut open);
                }
            }
        }
        None
    }

    /// Adds whom `index` waits for. A waiter whose holder has ended is made to look again.
    fn blockers(&self, index: u32, into: &mut Vec<u32>) {
        let wait = self.slots.get(index).shown().wait;
        match wait {
            Wait::Nothing => (),
            Wait::Table(table) => self.table_blockers(index, table, into),
            Wait::Row(row, part) => self.row_blockers(index, row, part, into),
            Wait::Holder { index: holder, term, row } => {
                if self.slots.get(holder).shown().term == term {
                    into.push(holder);
                } else {
                    self.park.unpark_all(row.park_key(), 0);
                }
            }
        }
    }
}
