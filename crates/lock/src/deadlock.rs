//! The search for deadlocks. Every waiter publishes what it waits for, then walks the graph of waits.
//!
//! **Every cycle is found.** An edge of the graph arises in one of three ways:
//!
//! - Its owner begins to wait. The owner walks the graph afterwards.
//! - A running owner is granted something that other owners wait for. It walks the graph when it waits itself.
//! - An upgrade of a table lock enters the queue ahead of others. Its owner is in the queue before it walks.
//!
//! An owner that overtakes others in a queue (below) runs on: the second case.
//!
//! So the member of a cycle that begins to wait last finds all other edges in place. Publishing locks the owner's slot,
//! and a walk locks each slot that it visits. Of two owners that publish at the same time, at least one sees the other.
//!
//! **Soft waits.** A request for a table waits for holders and for earlier requests that conflict with it. If all
//! holders allow it, the order of the queue alone keeps it waiting: a *soft* wait, as in PostgreSQL's `DeadLockCheck`.
//! A cycle with a soft wait is broken without a victim: the soft waiter overtakes the queue, and is granted. No request
//! is overtaken more than a fixed number of times, so no queued request starves. A request that has been overtaken as
//! often makes the requests behind it wait as a holder does.
//!
//! The same rule ends a path of waits from a waiter to a transaction of its own thread (see [`crate::waits`]). Waits
//! for memory know no soft waits: such a wait ends with an error also if only the order of a queue blocks all holders.
//!
//! A victim may be chosen that another order of the queue would have spared:
//!
//! - A request that any holder excludes is not soft, also if that holder is in no cycle and soon ends. So a cycle that
//!   only the order of the queue closes may have a victim.
//! - Two soft waiters of one queue may exclude each other. One overtakes, and its lock keeps the other one waiting.
//!
//! **One victim.** Two owners that publish at the same time may both see the cycle. So a waiter that saw a cycle walks
//! again under the lock `confirming`. If the cycle has no soft wait, it chooses the victim by [`crate::victim`] there:
//!
//! 1. The waiter itself: it withdraws its edge under `confirming`, and its request is refused.
//! 2. Another member: the waiter marks that member with a *verdict* and wakes it. It does so under the lock of the
//!    member's slot, and only if the member is still in the same wait. Later walks treat a marked member as one that
//!    does not wait. The waiter then walks again, because its edge may close more than one cycle.
//!
//! A waiter checks for a verdict before it walks under `confirming`, before each sleep, and when its wait ends. A
//! verdict is void if the request was granted meanwhile. In both cases the victim's edge is gone, so a walk that
//! ignored the victim has missed no cycle. The member that sets a verdict raises the victim's signal afterwards. A
//! waiter sleeps only while its signal is unchanged, so it misses no verdict.
//!
//! **No stale cycle.** A walk reads one edge after another. Between two reads a blocker may end, and the next
//! transaction in its slot may wait. So the edges of a found cycle are read a second time. Its members must be the same
//! transactions, in the same waits, before and after that second reading. Locks are held to the end, so every edge then
//! still stands, unless a waiter gave up. In that case a wait may be refused that would have ended, which costs one
//! retry.
//!
//! Walks for a transaction of the own thread and those of waits for memory are not confirmed. Such a walk may join two
//! edges that never stood at one time, for instance if a scan takes its interval back and waits. The wait is then
//! refused, or ends too early, which costs one retry as well. Or a request overtakes another without need. So may a
//! member of a cycle that is granted just then, and waits for a table again.

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

    /// Publishes that `owner` waits, and refuses the wait if it closes a cycle. A refusal withdraws the edge.
    pub(crate) fn publish(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge, name: &LockName<'_>) -> Result<()> {
        let closes_none = mutant("deadlock: walks before it publishes") && graph.cycle_through(owner, edge).is_none();
        graph.slots.get(owner).begin_wait(edge, name.to_lockable());
        if closes_none { Ok(()) } else { self.break_cycles(graph, owner, edge) }
    }

    /// Breaks the cycles that `edge` closes. Fails if `owner` itself is the victim.
    fn break_cycles(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge) -> Result<()> {
        let slots = graph.slots;
        let Some(mut cycle) = graph.cycle_through(owner, edge) else { return Ok(()) };
        let confirmed = self.confirming.lock();
        let is_hasty = mutant("deadlock: a waiter that sees a cycle is its victim");
        let hard = graph.hard();
        let cycle = loop {
            self.check_verdict(slots, owner)?;
            if !is_hasty {
                let Some(found) = hard.cycle_through(owner, edge) else {
                    let Some(soft) = graph.cycle_through(owner, edge) else { return Ok(()) };
                    if standing(graph, &soft).is_some() {
                        graph.overtake(&soft);
                    }
                    continue;
                };
                cycle = found;
            }
            // If the cycle no longer stands, a waiter has continued meanwhile. There may be another cycle.
            let Some(members) = standing(hard, &cycle).or_else(|| is_hasty.then(|| members(slots, &cycle))) else {
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

    /// Returns the label of a running transaction of this thread for which `owner` waits, directly or through other
    /// waiters. If only the order of a queue makes the path, a soft waiter on it overtakes instead. If a holder still
    /// excludes that waiter, it overtakes in a later check, when the holder has ended.
    pub(crate) fn own_thread_blocker(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge) -> Option<&'static str> {
        loop {
            if let Some((_, holder)) = graph.lasting().path_to_own_thread(owner, edge) {
                return Some(holder);
            }
            let (path, _) = graph.path_to_own_thread(owner, edge)?;
            let _confirmed = self.confirming.lock();
            if !graph.overtake(&path) {
                // A wait on the path has ended meanwhile, or a holder excludes it. The waiter checks again later.
                return None;
            }
        }
    }

    /// Fails if `owner`, which has published its edge, has a verdict. A failure withdraws the edge.
    pub(crate) fn check_verdict(&self, slots: &Slots, owner: u32) -> Result<()> {
        let is_victim = slots.get(owner).standing_edge() == Edge::Nothing;
        if is_victim { self.end_ungranted(slots, owner) } else { Ok(()) }
    }

    /// Ends a wait that was not granted. Fails if the waiter has a verdict.
    pub(crate) fn end_ungranted(&self, slots: &Slots, owner: u32) -> Result<()> {
        slots.get(owner).end_wait().map_or(Ok(()), |cycle| Err(self.refusal(cycle)))
    }
}

/// Makes another waiter the victim of `cycle`. Does nothing if that waiter's wait has ended, because then the cycle is
/// gone.
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

/// Wakes a waiter that sleeps in a queue or at a row.
fn wake_victim(slots: &Slots, index: u32, edge: Edge) {
    slots.wake(&[index]);
    if let Edge::Holder { row, .. } = edge {
        slots.wake_at_row(row, index);
    }
}

fn members(slots: &Slots, cycle: &[u32]) -> Vec<Member> {
    cycle.iter().map(|&index| slots.get(index).member()).collect()
}

/// Returns the members of `cycle` if it stands: each waits for the next, and all are still in the waits seen before.
fn standing(graph: WaitGraph<'_>, cycle: &[u32]) -> Option<Vec<Member>> {
    let before = members(graph.slots, cycle);
    let stands = graph.is_cycle(cycle) && members(graph.slots, cycle) == before;
    (stands || mutant("deadlock: a cycle is read once")).then_some(before)
}

/// Returns the first members of a cycle that still wait, to name them in an error.
fn named(slots: &Slots, cycle: &[u32]) -> Arc<[Waiter]> {
    cycle.iter().take(MAX_NAMED).filter_map(|&index| slots.get(index).waiter()).collect()
}
