//! The graph of waits. A walk replaces what an owner waits for by the owners that block it now.
//!
//! An edge records *what* is waited for, not the blocking owners. The holders of a table or a row may change while its
//! waiters sleep. A walk holds one latch at a time, so it reads one edge after another.

use crate::keys::KeyLocks;
use crate::slot::Edge;
use crate::slots::Slots;
use crate::table::TableLocks;
use crate::table_head::QueueOrder;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;

/// A view of all locks as a graph of waits.
#[derive(Clone, Copy)]
pub(crate) struct WaitGraph<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) tables: &'a TableLocks,
    pub(crate) keys: &'a KeyLocks,
    pub(crate) order: QueueOrder,
}

impl WaitGraph<'_> {
    /// Returns the graph without the waits of owners that may overtake those for which they wait.
    pub(crate) fn hard(self) -> Self {
        let is_mutant = mutant("deadlock: the order of a queue makes victims");
        Self { order: if is_mutant { QueueOrder::Counts } else { QueueOrder::UnlessSoft }, ..self }
    }

    /// Returns the graph without the waits for owners that may be overtaken, now or when holders have ended.
    pub(crate) fn lasting(self) -> Self {
        Self { order: QueueOrder::UnlessOvertakable, ..self }
    }

    /// Lets one of these waiters overtake others in a queue. Returns false if none may.
    pub(crate) fn overtake(self, waiters: &[u32]) -> bool {
        waiters.iter().any(|&index| match self.slots.get(index).standing_edge() {
            Edge::Table(table) => self.tables.overtake(self.slots, index, table),
            _ => false,
        })
    }

    /// Returns the members of a cycle of waits through `start`, beginning with `start`. `edge` is what `start` waits
    /// for.
    pub(crate) fn cycle_through(self, start: u32, edge: Edge) -> Option<Vec<u32>> {
        let (path, ()) = self.path(start, edge, |owner| (owner == start).then_some(()))?;
        Some(path)
    }

    /// Returns the waiters on a path from `start`, beginning with `start`, to the first owner for which `met` returns
    /// an answer, and that answer.
    fn path<T>(self, start: u32, edge: Edge, met: impl Fn(u32) -> Option<T>) -> Option<(Vec<u32>, T)> {
        // For each owner, the waiter from which the walk reached it.
        let mut from = vec![start; self.slots.len()];
        let (last, answer) = self.walk(start, edge, |owner, waiter| {
            from[owner as usize] = waiter;
            met(owner).map(|answer| (waiter, answer))
        })?;
        let mut path = vec![last];
        while let Some(&member) = path.last().filter(|&&member| member != start) {
            assert!(path.len() < from.len(), "the walk of owner {start} does not lead back: {path:?}");
            path.push(from[member as usize]);
        }
        path.reverse();
        Some((path, answer))
    }

    /// Returns whether each member of `cycle` waits for the next one, and the last one for the first.
    pub(crate) fn is_cycle(self, cycle: &[u32]) -> bool {
        let mut blockers = Vec::new();
        let next = cycle.iter().cycle().skip(1);
        cycle.iter().zip(next).all(|(&waiter, next)| {
            blockers.clear();
            self.blockers(waiter, &mut blockers);
            blockers.contains(next)
        })
    }

    /// Returns a path of waits from `owner` to a running transaction of this thread, and that transaction's label. Such
    /// a transaction cannot end before this wait ends.
    pub(crate) fn path_to_own_thread(self, owner: u32, edge: Edge) -> Option<(Vec<u32>, &'static str)> {
        let runs = |blocker| self.slots.get(blocker).runs_in_this_thread();
        self.path(owner, edge, |blocker| (blocker != owner).then(|| runs(blocker)).flatten())
    }

    /// Returns whether `waits` holds for `start`, or for an owner that `start` waits for by way of locks.
    pub(crate) fn leads_to(self, start: u32, waits: impl Fn(u32) -> bool) -> bool {
        let is_followed = !mutant("memory: waits for locks are not followed");
        let edge = if is_followed { self.slots.get(start).standing_edge() } else { Edge::Nothing };
        waits(start) || self.walk(start, edge, |owner, _| waits(owner).then_some(())).is_some()
    }

    /// Walks the waits depth first from `start`, whose own edge is `edge`. Calls `met` once for each owner reached,
    /// with that owner and the waiter before it. Ends as soon as `met` returns an answer.
    fn walk<T>(self, start: u32, edge: Edge, mut met: impl FnMut(u32, u32) -> Option<T>) -> Option<T> {
        let mut is_met = vec![false; self.slots.len()];
        let (mut open, mut blockers) = (vec![start], Vec::new());
        while let Some(waiter) = open.pop() {
            if waiter == start {
                self.blockers_by(edge, waiter, &mut blockers);
            } else {
                pause::point("lock: a walk goes on");
                self.blockers(waiter, &mut blockers);
            }
            for blocker in blockers.drain(..).filter(|&blocker| !std::mem::replace(&mut is_met[blocker as usize], true))
            {
                if let Some(answer) = met(blocker, waiter) {
                    return Some(answer);
                }
                open.extend((blocker != start).then_some(blocker));
            }
        }
        None
    }

    /// Returns the label of one owner that `owner` waits for.
    pub(crate) fn first_blocker(self, owner: u32) -> &'static str {
        let mut blockers = Vec::new();
        self.blockers(owner, &mut blockers);
        blockers.first().map_or("", |&blocker| self.slots.get(blocker).label())
    }

    /// Adds the owners that `index` waits for. Adds none if its wait has a verdict.
    fn blockers(self, index: u32, into: &mut Vec<u32>) {
        self.blockers_by(self.slots.get(index).standing_edge(), index, into);
    }

    /// Adds the owners to which an edge of `index` leads. If the edge names a holder that has ended, wakes the waiter
    /// so that it checks again.
    fn blockers_by(self, edge: Edge, index: u32, into: &mut Vec<u32>) {
        match edge {
            Edge::Nothing => (),
            Edge::Table(table) => self.tables.blockers(index, table, self.order, into),
            Edge::Row(row) => self.keys.points().blockers(index, row, into),
            Edge::Turn(row, table) => {
                self.keys.points().blockers(index, row, into);
                self.keys.ranges().covering(index, table, into);
            }
            Edge::Range(table) => self.keys.scan_blockers(index, table, into),
            Edge::Holder { index: holder, term, row } => {
                if self.slots.get(holder).is_in_term(term) {
                    into.extend((!mutant("sabotage: a wait for a row leads to no holder")).then_some(holder));
                } else {
                    self.slots.wake_at_row(row, index);
                }
            }
        }
    }
}
