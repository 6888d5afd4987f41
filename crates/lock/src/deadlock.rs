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
//! the waiter that closed the cycle and confirmed first, which has done least waiting.
//!
//! **No cycle of what was.** A walk reads one edge after another. Who was in the way when its waiter was passed may have ended
//! when it is passed itself, and wait as its slot's next transaction. So the edges of a cycle are read once more, and its
//! owners must be the same transactions before and after that. Locks are held to the end, so each edge still
//! stands then, unless a waiter gave up: that may refuse a wait that would have ended, which costs a retry.

use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use foreshore_base::{Error, MAX_NAMED, Result, Waiter};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;

impl LockManager {
    /// Shows that `owner` waits, and refuses the wait if it closes a cycle. The edge is taken back then. The wait is counted
    /// once that is decided.
    pub(crate) fn publish(&self, owner: &Owner, edge: Wait, what: &What<'_>) -> Result<()> {
        let closes_none =
            mutant("deadlock: walks before it publishes") && self.cycle_through(owner.index, edge).is_none();
        owner.set_wait(edge, Some(what));
        let outcome = if closes_none { Ok(()) } else { self.refuse_cycle(owner, edge) };
        self.count_wait();
        if let Some(watcher) = self.watcher.get().filter(|_| !mutant("memory: a wait for a lock is not told")) {
            watcher.notify_all();
        }
        outcome
    }

    fn refuse_cycle(&self, owner: &Owner, edge: Wait) -> Result<()> {
        let Some(seen) = self.cycle_through(owner.index, edge) else { return Ok(()) };
        let confirmed = self.confirming.lock();
        let cycle = loop {
            if mutant("deadlock: who sees a cycle is its victim") {
                break seen;
            }
            let Some(cycle) = self.cycle_through(owner.index, edge) else { return Ok(()) };
            // Otherwise somebody has gone on meanwhile, and there may be another one.
            if self.stands(&cycle) || mutant("deadlock: a cycle is read once") {
                break cycle;
            }
        };
        let cycle = cycle.into_iter().take(MAX_NAMED).filter_map(|index| self.waiter(index)).collect();
        owner.set_wait(Wait::Nothing, None);
        drop(confirmed);
        self.deadlocks.add(1);
        Err(Error::Deadlock { cycle })
    }

    /// Whether each of `cycle` waits for the next one, and the last one for the first, all in the same transactions.
    fn stands(&self, cycle: &[u32]) -> bool {
        let terms = || cycle.iter().map(|&index| self.slots.get(index).shown().term).collect::<Vec<_>>();
        let before = terms();
        let mut blockers = Vec::new();
        let next = cycle.iter().cycle().skip(1);
        let waits = cycle.iter().zip(next).all(|(&waiter, next)| {
            blockers.clear();
            self.blockers(waiter, &mut blockers);
            blockers.contains(next)
        });
        waits && terms() == before
    }

    /// An owner and what it waits for; `None` if that wait has ended since.
    fn waiter(&self, index: u32) -> Option<Waiter> {
        let shown = self.slots.get(index).shown();
        shown.named.clone().map(|waits_for| Waiter { label: shown.label, waits_for })
    }

    /// Label of somebody that `owner` waits for.
    pub(crate) fn first_blocker(&self, owner: &Owner) -> &'static str {
        let mut blockers = Vec::new();
        self.blockers(owner.index, &mut blockers);
        blockers.first().map_or("", |&blocker| self.label_of(blocker))
    }

    pub(crate) fn label_of(&self, index: u32) -> &'static str {
        self.slots.get(index).shown().label
    }

    /// A path of waits from `start`, by its own `edge`, back to itself, without its end. Visits each owner at most once.
    fn cycle_through(&self, start: u32, edge: Wait) -> Option<Vec<u32>> {
        // From whom the walk came to an owner; itself for one that was not met.
        let mut from: Vec<u32> = (0..self.slots.len() as u32).collect();
        let (mut open, mut blockers) = (vec![start], Vec::new());
        while let Some(owner) = open.pop() {
            if owner == start {
                self.blockers_by(edge, owner, &mut blockers);
            } else {
                pause::point("lock: a walk goes on");
                self.blockers(owner, &mut blockers);
            }
            for blocker in blockers.drain(..) {
                if blocker == start {
                    let mut path = vec![owner];
                    while let Some(&last) = path.last().filter(|&&last| last != start) {
                        path.push(from[last as usize]);
                    }
                    path.reverse();
                    return Some(path);
                }
                if from[blocker as usize] == blocker {
                    from[blocker as usize] = owner;
                    open.push(blocker);
                }
            }
        }
        None
    }

    /// Adds whom `index` waits for.
    pub(crate) fn blockers(&self, index: u32, into: &mut Vec<u32>) {
        let edge = self.slots.get(index).shown().wait;
        self.blockers_by(edge, index, into);
    }

    /// Adds those to whom an edge of `index` leads. A waiter whose holder has ended is made to look again.
    fn blockers_by(&self, edge: Wait, index: u32, into: &mut Vec<u32>) {
        match edge {
            Wait::Nothing => (),
            Wait::Table(table) => self.table_blockers(index, table, into),
            Wait::Row(row) => self.row_blockers(index, row, into),
            Wait::Turn(row, table) => {
                self.row_blockers(index, row, into);
                self.covering(index, table, into);
            }
            Wait::Range(table) => self.range_blockers(index, table, into),
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
