//! The way down to a node, by optimistic lock coupling (Leis, Haubenschild and Neumann, "Optimistic Lock Coupling",
//! 2019).
//!
//! Nodes on the way are read without a latch, so that readers of the root do not meet on its cache line:
//!
//! 1. note the version of a node, read in it where the key leads;
//! 2. find the child: note its version, or latch it;
//! 3. validate the version of the upper node, and only now believe the child. From here on the child is known to have
//!    been the right one when its version was noted, whatever becomes of the upper node.
//! 4. A child that does not cover the key has an open split: go on to its sibling in the same three steps.
//!
//! A version that does not validate starts the way again from the root. After [`MAX_RESTARTS`] of them nodes are
//! latched shared on the way, each one before the one above it is released. So every way ends, however many threads
//! write in turns on however few cores.
//!
//! A writer latches the node that it came for in step 2, and waits for the latch there, parked: that costs the
//! one exchange that raising a noted version to a latch would cost, and a hot leaf makes its writers queue instead of
//! restart. A reader validates the leaf itself, once it has copied what it wants ([`Access::holds`]).
//!
//! What is read before it is validated may be nonsense: every offset is checked, loops are bounded, and damage counts
//! only if the version holds ([`Tree::sound`]). A page that is not in memory is pinned, which may read it, with nothing
//! latched; then the way starts again. That is no restart to be counted, as pins stay. The same goes for a page that
//! another thread has latched while another one is latched here, unless it is pinned: a thread waits with a latch only for a
//! page that stays.

use crate::format::MAX_LEVEL;
use crate::node::{Damage, Goal, NodeView};
use crate::tree::{Structure, Tree};
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{AccessPattern, ExclusiveGuard, OptimisticGuard, PageRead, Pinned, Pool, SharedGuard};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use std::cmp::Ordering;

/// Restarts of one operation after which it latches what it reads.
const MAX_RESTARTS: u32 = if MODEL { 1 } else { 8 };

/// How nodes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Optimistic,
    Latched,
}

/// The restarts of one operation: validations that have failed.
#[derive(Debug, Default)]
pub(crate) struct Restarts(u32);

impl Restarts {
    pub(crate) const fn reading(&self) -> Reading {
        if self.0 < MAX_RESTARTS { Reading::Optimistic } else { Reading::Latched }
    }
}

/// Access to a page on the way down.
pub(crate) trait Access<'p>: Sized {
    type Page<'a>: PageRead
    where
        Self: 'a;

    fn fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Self>;
    /// `None` if the page must be pinned first, with nothing latched. The node above it is held as `reading` says.
    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>>;
    /// Pins a page that must be.
    fn pin(pool: &'p Pool, pid: PageId) -> Result<Pinned<'p>> {
        pool.pin(pid)
    }
    /// [`Access::try_fix`] while this access goes on.
    fn try_next(&self, pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>>;
    fn pid(&self) -> PageId;
    fn page(&self) -> Self::Page<'_>;
    /// Whether everything read so far was one state of the page.
    fn holds(&self) -> bool;
}

/// Access for who reads; `ONCE`, for a scan that does not want the page again.
pub(crate) struct ReadGuard<'p, const ONCE: bool = false> {
    page: OptimisticGuard<'p>,
    /// Held where reading without it has failed too often.
    _latch: Option<SharedGuard<'p>>,
}

impl<'p, const ONCE: bool> From<OptimisticGuard<'p>> for ReadGuard<'p, ONCE> {
    fn from(page: OptimisticGuard<'p>) -> Self {
        Self { page, _latch: None }
    }
}

impl<'p, const ONCE: bool> From<SharedGuard<'p>> for ReadGuard<'p, ONCE> {
    fn from(latch: SharedGuard<'p>) -> Self {
        Self { page: latch.as_optimistic(), _latch: Some(latch) }
    }
}

impl<const ONCE: bool> ReadGuard<'_, ONCE> {
    const PATTERN: AccessPattern = if ONCE { AccessPattern::Scan } else { AccessPattern::Random };
}

impl<'p, const ONCE: bool> Access<'p> for ReadGuard<'p, ONCE> {
    type Page<'a>
        = &'a OptimisticGuard<'p>
    where
        Self: 'a;

    #[inline]
    fn fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Self> {
        match reading {
            Reading::Optimistic => pool.optimistic(pid, Self::PATTERN).map(Self::from),
            Reading::Latched => pool.shared_as(pid, Self::PATTERN).map(Self::from),
        }
    }

    #[inline]
    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        Ok(match reading {
            Reading::Optimistic => pool.try_optimistic(pid, Self::PATTERN)?.map(Self::from),
            Reading::Latched => pool.try_shared(pid, Self::PATTERN)?.map(Self::from),
        })
    }

    fn pin(pool: &'p Pool, pid: PageId) -> Result<Pinned<'p>> {
        pool.pin_as(pid, Self::PATTERN)
    }

    fn try_next(&self, pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        Self::try_fix(pool, pid, reading)
    }

    fn pid(&self) -> PageId {
        self.page.pid()
    }

    #[inline]
    fn page(&self) -> &OptimisticGuard<'p> {
        &self.page
    }

    #[inline]
    fn holds(&self) -> bool {
        self.page.validate()
    }
}

impl<'p> Access<'p> for ExclusiveGuard<'p> {
    type Page<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn fix(pool: &'p Pool, pid: PageId, _: Reading) -> Result<Self> {
        pool.exclusive(pid)
    }

    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        match reading {
            Reading::Optimistic => pool.exclusive_resident(pid),
            Reading::Latched => pool.try_exclusive(pid),
        }
    }

    fn try_next(&self, pool: &'p Pool, pid: PageId, _: Reading) -> Result<Option<Self>> {
        pool.try_exclusive(pid)
    }

    fn pid(&self) -> PageId {
        Self::pid(self)
    }

    fn page(&self) -> &[u8] {
        self
    }

    fn holds(&self) -> bool {
        true
    }
}

/// A split whose second step is open: the parent of `left` does not know the sibling that begins at `separator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlinked {
    pub(crate) left: PageId,
    pub(crate) level: u8,
    pub(crate) separator: Vec<u8>,
}

/// Why a way has not led to its end.
pub(crate) enum Halt {
    /// An open split is in front of it.
    Open(Unlinked),
    /// A page, on that level, must be pinned: it is not in memory, or latched and might leave.
    Missing(PageId, u8),
    /// A node has changed while it was read.
    Changed,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Tree {
    /// Finds the node on `level` that covers the goal; the root where that level is gone since the caller knew of it.
    /// Finishes open splits that it meets; one that lacks the space is passed by over its sibling.
    ///
    /// Log space of `bytes` is reserved when the latch is there, although the finished splits have used some.
    pub(crate) fn find<'p, G: Access<'p>>(
        &'p self,
        structure: &mut Structure<'_>,
        key: &[u8],
        level: u8,
        bytes: usize,
    ) -> Result<G> {
        self.find_again(structure, Goal::At(key), level, bytes, &mut Restarts::default())
    }

    /// [`Tree::find`] for an operation that has been disturbed before. Readers by a snapshot pass by all open splits.
    pub(crate) fn find_again<'p, G: Access<'p>>(
        &'p self,
        structure: &mut Structure<'_>,
        goal: Goal<'_>,
        level: u8,
        bytes: usize,
        restarts: &mut Restarts,
    ) -> Result<G> {
        let mut report = structure.links;
        let mut linked: Option<Unlinked> = None;
        loop {
            structure.reserve(bytes)?;
            let open = match self.descend(goal, level, report, restarts)? {
                Ok(guard) => return Ok(guard),
                Err(open) => open,
            };
            // A node that splits again does so at a smaller key, and one that was about to be merged may be so again.
            if linked.as_ref() == Some(&open) {
                report = false;
                continue;
            }
            match self.link(structure, &open) {
                Ok(()) => linked = Some(open),
                Err(Error::DiskFull { .. } | Error::LogSpace) => report = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same without any change of the tree: an open split is reported, if `report` says so, or passed by.
    pub(crate) fn descend<'p, G: Access<'p>>(
        &'p self,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        restarts: &mut Restarts,
    ) -> Result<Result<G, Unlinked>> {
        // One a level, so that a way down makes progress however small the pool is.
        let mut pins: Vec<(u8, Pinned<'p>)> = Vec::new();
        let mut refused = None;
        loop {
            match self.walk(goal, level, report, restarts.reading()) {
                Ok(guard) => return Ok(Ok(guard)),
                Err(Halt::Open(open)) => return Ok(Err(open)),
                Err(Halt::Missing(pid, missing)) => {
                    let pin = if missing == level { G::pin } else { Pool::pin };
                    pins.retain(|&(pinned, _)| pinned != missing);
                    match pin(self.pool(), pid) {
                        Ok(pin) => {
                            pins.push((missing, pin));
                            assert!(pins.len() <= usize::from(MAX_LEVEL) + 1, "{} pins on one way down", pins.len());
                        }
                        // It may have been merged away since it was found, and cut off. If not, the same way leads to
                        // it.
                        Err(Error::Corrupted { .. }) if refused != Some(pid) => refused = Some(pid),
                        Err(error) => return Err(error.in_table(self.table)),
                    }
                }
                Err(Halt::Changed) => self.restart(restarts),
                Err(Halt::Failed(error)) => return Err(error.in_table(self.table)),
            }
        }
    }

    /// Notes that a validation has failed.
    pub(crate) fn restart(&self, restarts: &mut Restarts) {
        restarts.0 += 1;
        self.trees.counters().restarts.add(1);
    }

    fn walk<'p, G: Access<'p>>(&'p self, goal: Goal<'_>, level: u8, report: bool, reading: Reading) -> Result<G, Halt> {
        let mut current = ReadGuard::fix(self.pool(), self.root, reading)?;
        let root_level = self.sound(&current, self.node(&current)?.root_level())?;
        if root_level <= level {
            drop(current);
            let root = G::fix(self.pool(), self.root, reading)?;
            // It may have grown in the meantime.
            let same = self.sound(&root, self.node(&root)?.root_level())? == root_level;
            return if same && root.holds() { Ok(root) } else { Err(Halt::Changed) };
        }
        for below in (level + 1..root_level).rev() {
            current = self.step_down(current, goal, below, report, reading)?;
        }
        self.step_down(current, goal, level, report, reading)
    }

    /// From a node to the one on `level` below it that covers the goal.
    pub(crate) fn step_down<'p, G: Access<'p>>(
        &'p self,
        above: ReadGuard<'p>,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        reading: Reading,
    ) -> Result<G, Halt> {
        self.move_right(self.step_to_child(above, goal, level, reading)?, goal, level, report, reading)
    }

    /// From a node to its child on `level` that leads to the goal. Reads nothing of the child.
    #[inline(always)]
    pub(crate) fn step_to_child<'p, G: Access<'p>>(
        &'p self,
        above: ReadGuard<'p>,
        goal: Goal<'_>,
        level: u8,
        reading: Reading,
    ) -> Result<G, Halt> {
        let child = self.node(&above)?.child_toward(goal);
        // A thread that latches both would wait for itself.
        let leads_down = |&child: &PageId| child != above.pid();
        let child =
            self.sound(&above, child.and_then(|pid| Some(pid).filter(leads_down).ok_or("a node leads to itself")))?;
        led_to(&above, G::try_fix(self.pool(), child, reading))?.ok_or(Halt::Missing(child, level))
    }

    /// Goes to the sibling that covers the goal; a left node that is latched stays so until the right one is.
    ///
    /// A node that does not cover the goal that its parent sent here has an open split: parents learn of siblings and
    /// nodes lose the mark in one step, under both latches, and a sibling is linked only after the node on its left.
    pub(crate) fn move_right<'p, G: Access<'p>>(
        &'p self,
        mut guard: G,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        reading: Reading,
    ) -> Result<G, Halt> {
        loop {
            let pid = guard.pid();
            let node = self.node(&guard)?;
            let on_level = if node.level() == level { Ok(()) } else { Err("a node on the wrong level") };
            self.sound(&guard, on_level)?;
            if !self.sound(&guard, node.falls_short_of(goal))? {
                return if guard.holds() { Ok(guard) } else { Err(Halt::Changed) };
            }
            let (high, right) = self.sound(&guard, node.open_split(pid))?;
            if report {
                let open = Unlinked { left: pid, level, separator: high };
                return Err(if guard.holds() { Halt::Open(open) } else { Halt::Changed });
            }
            let next = led_to(&guard, guard.try_next(self.pool(), right, reading))?;
            let next = next.ok_or(Halt::Missing(right, level))?;
            let meet = match self.sound(&next, self.node(&next)?.compare_low(&high))? {
                Ordering::Equal => Ok(()),
                _ => Err("siblings do not meet"),
            };
            self.sound(&next, meet)?;
            guard = next;
        }
    }

    /// A view of a page of this tree.
    pub(crate) fn node<'g, 'p: 'g, G: Access<'p>>(&self, guard: &'g G) -> Result<NodeView<G::Page<'g>>, Halt> {
        let node = self.sound(guard, NodeView::view(guard.page()))?;
        let ours = if node.table() == self.table { Ok(()) } else { Err("a node of another table") };
        self.sound(guard, ours)?;
        Ok(node)
    }

    /// Passes `result` on; damage counts only if what was read belongs together.
    #[inline]
    pub(crate) fn sound<'p, T>(&self, guard: &impl Access<'p>, result: Result<T, Damage>) -> Result<T, Halt> {
        result.map_err(|why| if guard.holds() { self.corrupted(guard.pid(), why).into() } else { Halt::Changed })
    }
}

/// Passes on what was found by an id that was read in `node`. Only if that holds the id was ever there, and an error
/// counts.
fn led_to<'p, T>(node: &impl Access<'p>, found: Result<Option<T>>) -> Result<Option<T>, Halt> {
    let too_early = found.is_err() && mutant("btree: an id is refused before it is validated");
    if !node.holds() && !too_early && !mutant("btree: child read without validating the parent") {
        return Err(Halt::Changed);
    }
    found.map_err(Halt::from)
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_disturbed_eight_times_latches() {
        assert_eq!(Restarts(0).reading(), Reading::Optimistic);
        assert_eq!(Restarts(7).reading(), Reading::Optimistic);
        assert_eq!(Restarts(8).reading(), Reading::Latched);
    }
}
