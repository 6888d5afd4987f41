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
//! **One victim.** Of two that publish at once both may see the cycle. So a waiter that saw one walks again under the lock
//! `confirming` and decides there, by [`crate::victim`], which member is the victim:
//!
//! 1. Itself: it takes its edge back under `confirming`, and its request is refused.
//! 2. Another one: it marks that one with a *verdict*, under the lock of its slot and only if it still waits as it did, and wakes it.
//!    From here on walks pass it as if it did not wait. Then it walks again, because its edge may close more than one cycle.
//!
//! A waiter looks for a verdict before it walks under `confirming`, before each sleep, and when its wait ends. A verdict counts unless
//! the request was granted meanwhile. In both cases the victim's edge is gone, so a walk that passed it has missed no cycle. The
//! marker raises the victim's signal behind the verdict, and a waiter sleeps only while its signal stands still, so it misses none.
//!
//! **No cycle of what was.** A walk reads one edge after another. Who was in the way when its waiter was passed may have ended
//! when it is passed itself, and wait as its slot's next transaction. So the edges of a cycle are read once more, and its
//! owners must be the same transactions before and after that. Locks are held to the end, so each edge still
//! stands then, unless a waiter gave up: that may refuse a wait that would have ended, which costs a retry.

use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use crate::victim::{self, Member};
use foreshore_base::{Error, MAX_NAMED, Result, Waiter};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::sync::Arc;

impl LockManager {
    /// Shows that `owner` waits, and refuses the wait if it closes a cycle. The edge is taken back then. The wait is counted
    /// once that is decided.
    pub(crate) fn publish(&self, owner: &Owner, edge: Wait, what: &What<'_>) -> Result<()> {
        let closes_none =
            mutant("deadlock: walks before it publishes") && self.cycle_through(owner.index, edge).is_none();
        owner.begin_wait(edge, what);
        let outcome = if closes_none { Ok(()) } else { self.break_cycles(owner, edge) };
        self.count_wait();
        if let Some(watcher) = self.watcher.get().filter(|_| !mutant("memory: a wait for a lock is not told")) {
            watcher.notify_all();
        }
        outcome
    }

    /// Breaks the cycles that `edge` closes. Fails if `owner` is a victim itself.
    fn break_cycles(&self, owner: &Owner, edge: Wait) -> Result<()> {
        let Some(mut cycle) = self.cycle_through(owner.index, edge) else { return Ok(()) };
        let confirmed = self.confirming.lock();
        let is_hasty = mutant("deadlock: a waiter that sees a cycle is its victim");
        let cycle = loop {
            self.check_verdict(owner)?;
            if !is_hasty {
                let Some(found) = self.cycle_through(owner.index, edge) else { return Ok(()) };
                cycle = found;
            }
            // Otherwise a waiter has gone on meanwhile, and there may be another cycle.
            let Some(members) = self.stands(&cycle).or_else(|| is_hasty.then(|| self.members(&cycle))) else {
                continue;
            };
            let victim = victim::choose(&members, owner.index);
            cycle.rotate_left(victim);
            if members[victim].index == owner.index {
                break self.named(&cycle);
            }
            pause::point("lock: a victim is chosen");
            self.mark(&members[victim], self.named(&cycle));
        };
        owner.end_wait();
        drop(confirmed);
        Err(self.refused(cycle))
    }

    fn refused(&self, cycle: Arc<[Waiter]>) -> Error {
        self.deadlocks.add(1);
        Error::Deadlock { cycle }
    }

    /// Fails if the wait of `owner` has a verdict. The edge is taken back then.
    pub(crate) fn check_verdict(&self, owner: &Owner) -> Result<()> {
        let is_victim = owner.slot().shown().verdict.is_some();
        if is_victim { self.end_ungranted(owner) } else { Ok(()) }
    }

    /// Ends a wait that has not been granted. Fails if it has a verdict.
    pub(crate) fn end_ungranted(&self, owner: &Owner) -> Result<()> {
        owner.end_wait().map_or(Ok(()), |cycle| Err(self.refused(cycle)))
    }

    /// Has another waiter be the victim of `cycle`, unless the wait that was seen has ended: then there is no cycle any more.
    fn mark(&self, victim: &Member, cycle: Arc<[Waiter]>) {
        let is_early = mutant("deadlock: a victim is woken before its verdict");
        if is_early {
            self.wake_victim(victim.index, self.slots.get(victim.index).shown().wait);
        }
        let edge = {
            let mut shown = self.slots.get(victim.index).shown();
            if !shown.waits_as(victim) && !mutant("deadlock: a verdict meets a later wait") {
                return;
            }
            shown.verdict = Some(cycle);
            shown.wait
        };
        if !is_early {
            self.wake_victim(victim.index, edge);
        }
    }

    /// It waits in a queue or for a row.
    fn wake_victim(&self, index: u32, edge: Wait) {
        self.wake(&[index]);
        if let Wait::Holder { row, .. } = edge {
            self.park.unpark_role(row.park_key(), index, 0);
        }
    }

    fn members(&self, cycle: &[u32]) -> Vec<Member> {
        cycle.iter().map(|&index| self.slots.get(index).member(index)).collect()
    }

    /// The members of `cycle`, if each waits for the next one, and the last one for the first, all in the same waits.
    fn stands(&self, cycle: &[u32]) -> Option<Vec<Member>> {
        let before = self.members(cycle);
        if mutant("deadlock: a cycle is read once") {
            return Some(before);
        }
        let mut blockers = Vec::new();
        let next = cycle.iter().cycle().skip(1);
        let waits = cycle.iter().zip(next).all(|(&waiter, next)| {
            blockers.clear();
            self.blockers(waiter, &mut blockers);
            blockers.contains(next)
        });
        (waits && self.members(cycle) == before).then_some(before)
    }

    fn named(&self, cycle: &[u32]) -> Arc<[Waiter]> {
        cycle.iter().take(MAX_NAMED).filter_map(|&index| self.waiter(index)).collect()
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
                        assert!(path.len() < from.len(), "the walk of owner {start} does not lead back: {path:?}");
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

    /// Adds the owners that `index` waits for: none, if its wait has a verdict.
    pub(crate) fn blockers(&self, index: u32, into: &mut Vec<u32>) {
        let edge = {
            let shown = self.slots.get(index).shown();
            if shown.verdict.is_some() {
                return;
            }
            shown.wait
        };
        self.blockers_by(edge, index, into);
    }

    /// Label of a transaction of this thread that `owner` waits for by `edge`, or through other waiters, and that does not wait itself:
    /// it cannot end before this wait does.
    pub(crate) fn own_thread_blocker(&self, owner: &Owner, edge: Wait) -> Option<&'static str> {
        let mut met = vec![false; self.slots.len()];
        let (mut open, mut blockers) = (vec![owner.index], Vec::new());
        while let Some(waiter) = open.pop() {
            if waiter == owner.index {
                self.blockers_by(edge, waiter, &mut blockers);
            } else {
                self.blockers(waiter, &mut blockers);
            }
            for blocker in blockers.drain(..) {
                if std::mem::replace(&mut met[blocker as usize], true) || blocker == owner.index {
                    continue;
                }
                let slot = self.slots.get(blocker);
                let shown = slot.shown();
                if shown.wait == Wait::Nothing && slot.is_of_this_thread() {
                    return Some(shown.label);
                }
                drop(shown);
                open.push(blocker);
            }
        }
        None
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
                    into.extend((!mutant("sabotage: a wait for a row leads to no holder")).then_some(holder));
                } else {
                    self.park.unpark_role(row.park_key(), index, 0);
                }
            }
        }
    }
}
