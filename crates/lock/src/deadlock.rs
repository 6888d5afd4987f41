//! Deadlocks: every waiter publishes what it waits for, then walks the graph of waits.
//!
//! **Every cycle is found.** An edge arises when its owner begins to wait (it walks afterwards), or when a running
//! owner is granted something that sleepers wait for (it walks when it waits itself). So the owner that waits last has
//! all edges of the cycle before it. Publishing and walking pass through the locks of the slots: of two owners that
//! publish at once, at least one sees the other.
//!
//! **One victim.** Of two that publish at once both may see the cycle. So a waiter that saw one walks again under the
//! lock `confirming` and decides there, by [`crate::victim`], which member is the victim:
//!
//! 1. Itself: it takes its edge back under `confirming`, and its request is refused.
//! 2. Another one: it marks that one with a *verdict*, under the lock of its slot and only if it still waits as it
//!    did, and wakes it. From here on walks pass it as if it did not wait. Then it walks again, because its edge may
//!    close more than one cycle.
//!
//! A waiter looks for a verdict before it walks under `confirming`, before each sleep, and when its wait ends. A
//! verdict counts unless the request was granted meanwhile. In both cases the victim's edge is gone, so a walk that
//! passed it has missed no cycle. The marker raises the victim's signal behind the verdict, and a waiter sleeps only
//! while its signal stands still, so it misses none.
//!
//! **No cycle of what was.** A walk reads one edge after another. A blocker may have ended between two looks, and wait
//! as its slot's next transaction. So the edges of a cycle are read once more, and its owners must be the same
//! transactions before and after that. Locks are held to the end, so each edge still stands then, unless a waiter gave
//! up: that may refuse a wait that would have ended, which costs a retry.

use crate::graph::WaitGraph;
use crate::slot::Edge;
use crate::slots::Slots;
use crate::target::LockName;
use crate::victim::{self, Member};
use foreshore_base::{Error, MAX_NAMED, Result, Waiter};
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, ShardedCounter, pause};
use std::sync::Arc;

/// The search for deadlocks.
#[derive(Debug)]
pub(crate) struct Detector {
    /// Held by a waiter while it confirms a cycle and chooses the victim.
    confirming: Mutex<()>,
    /// Waits that ended as the victim of a cycle.
    refused: ShardedCounter,
}

impl Detector {
    pub(crate) fn new() -> Self {
        Self { confirming: Mutex::new(LockRank::Deadlock, ()), refused: ShardedCounter::new() }
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.sum()
    }

    /// Shows that `owner` waits, and refuses the wait if it closes a cycle. The edge is taken back then.
    pub(crate) fn publish(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge, name: &LockName<'_>) -> Result<()> {
        let closes_none = mutant("deadlock: walks before it publishes") && graph.cycle_through(owner, edge).is_none();
        graph.slots.get(owner).begin_wait(edge, name.to_lockable());
        if closes_none { Ok(()) } else { self.break_cycles(graph, owner, edge) }
    }

    /// Breaks the cycles that `edge` closes. Fails if `owner` is a victim itself.
    fn break_cycles(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge) -> Result<()> {
        let slots = graph.slots;
        let Some(mut cycle) = graph.cycle_through(owner, edge) else { return Ok(()) };
        let confirmed = self.confirming.lock();
        let is_hasty = mutant("deadlock: a waiter that sees a cycle is its victim");
        let cycle = loop {
            self.check_verdict(slots, owner)?;
            if !is_hasty {
                let Some(found) = graph.cycle_through(owner, edge) else { return Ok(()) };
                cycle = found;
            }
            // Otherwise a waiter has gone on meanwhile, and there may be another cycle.
            let Some(members) = standing(graph, &cycle).or_else(|| is_hasty.then(|| members(slots, &cycle))) else {
                continue;
            };
            let victim = victim::choose(&members, owner);
            cycle.rotate_left(victim);
            if members[victim].index == owner {
                break named(slots, &cycle);
            }
            pause::point("lock: a victim is chosen");
            mark(slots, &members[victim], named(slots, &cycle));
        };
        slots.get(owner).end_wait();
        drop(confirmed);
        Err(self.refusal(cycle))
    }

    fn refusal(&self, cycle: Arc<[Waiter]>) -> Error {
        self.refused.add(1);
        Error::Deadlock { cycle }
    }

    /// Fails if `owner`, which has published its edge, has a verdict. The edge is taken back then.
    pub(crate) fn check_verdict(&self, slots: &Slots, owner: u32) -> Result<()> {
        let is_victim = slots.get(owner).standing_edge() == Edge::Nothing;
        if is_victim { self.end_ungranted(slots, owner) } else { Ok(()) }
    }

    /// Ends a wait that has not been granted. Fails if it has a verdict.
    pub(crate) fn end_ungranted(&self, slots: &Slots, owner: u32) -> Result<()> {
        slots.get(owner).end_wait().map_or(Ok(()), |cycle| Err(self.refusal(cycle)))
    }
}

/// Makes another waiter the victim of `cycle`, unless the wait that was seen has ended: then there is no cycle any
/// more.
fn mark(slots: &Slots, victim: &Member, cycle: Arc<[Waiter]>) {
    let is_early = mutant("deadlock: a victim is woken before its verdict");
    if is_early {
        wake_victim(slots, victim.index, slots.get(victim.index).edge());
    }
    if let Some(edge) = slots.get(victim.index).sentence(victim, cycle)
        && !is_early
    {
        wake_victim(slots, victim.index, edge);
    }
}

/// Wakes a waiter, in a queue or at a row.
fn wake_victim(slots: &Slots, index: u32, edge: Edge) {
    slots.wake(&[index]);
    if let Edge::Holder { row, .. } = edge {
        slots.wake_at_row(row, index);
    }
}

fn members(slots: &Slots, cycle: &[u32]) -> Vec<Member> {
    cycle.iter().map(|&index| slots.get(index).member()).collect()
}

/// The members of `cycle`, if it stands: each waits for the next one, all in the same waits.
fn standing(graph: WaitGraph<'_>, cycle: &[u32]) -> Option<Vec<Member>> {
    let before = members(graph.slots, cycle);
    let stands = graph.is_cycle(cycle) && members(graph.slots, cycle) == before;
    (stands || mutant("deadlock: a cycle is read once")).then_some(before)
}

/// The first members of a cycle that still wait, for an error.
fn named(slots: &Slots, cycle: &[u32]) -> Arc<[Waiter]> {
    cycle.iter().take(MAX_NAMED).filter_map(|&index| slots.get(index).waiter()).collect()
}
