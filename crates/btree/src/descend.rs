//! The descent to a node, by optimistic lock coupling (Leis, Haubenschild and Neumann, "Optimistic Lock Coupling",
//! 2019).
//!
//! Nodes on the path are read without a latch, so that readers of the root do not contend for its cache line:
//!
//! 1. Note the version of a node, and read which child leads to the key.
//! 2. Find the child: note its version, or latch it.
//! 3. Validate the version of the upper node, and only then trust the child. The child was then the right one when its
//!    version was noted, even if the upper node changes later.
//! 4. A child that does not cover the key has an open split: go to its sibling by the same three steps.
//!
//! If validation fails, the descent restarts from the root. After [`MAX_RESTARTS`] restarts nodes are latched shared,
//! each one before the one above it is released. So every descent ends, however many threads write.
//!
//! A writer latches its target node in step 2, and parks if the latch is taken. That costs one exchange, as upgrading a
//! noted version to a latch would. At a hot leaf writers then queue instead of restarting. A reader validates the leaf
//! itself after it has copied its rows ([`Access::holds`]).
//!
//! Bytes read before validation may be inconsistent. So every offset is checked, loops are bounded, and damage counts
//! only if the version holds ([`Tree::sound`]).
//!
//! A page that is not in memory is pinned while no latch is held, which may read it from disk. Then the descent
//! restarts. This restart is not counted, because pins stay. The same holds for a page that another thread has latched,
//! if this thread holds a latch, because it may wait only for a pinned page.

use crate::access::{Access, ReadGuard, Reading};
use crate::format::MAX_LEVEL;
use crate::node::{Damage, Goal, NodeView};
use crate::tree::{Structure, Tree};
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{Pinned, Pool};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use std::cmp::Ordering;

/// Restarts of one operation after which it latches the nodes that it reads.
const MAX_RESTARTS: u32 = if MODEL { 1 } else { 8 };

/// The number of restarts of one operation, that is, of failed validations.
#[derive(Debug, Default)]
pub(crate) struct Restarts(u32);

impl Restarts {
    pub(crate) const fn reading(&self) -> Reading {
        if self.0 < MAX_RESTARTS { Reading::Optimistic } else { Reading::Latched }
    }
}

/// A split whose second step is open: the parent of `left` does not know the sibling that begins at `separator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlinked {
    pub(crate) left: PageId,
    pub(crate) level: u8,
    pub(crate) separator: Vec<u8>,
}

/// The reason why a descent has not reached its goal.
pub(crate) enum Halt {
    /// The descent met an open split.
    Open(Box<Unlinked>),
    /// A page on a level must be pinned: it is not in memory, or it is latched and may be evicted.
    Missing(PageId, u8),
    /// A node changed while it was read.
    Changed,
    Failed(Box<Error>),
}

// It is returned at each level of each descent. A large one takes longer to copy than a node to read.
const _: () = assert!(size_of::<Halt>() <= 24);

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl Tree {
    /// Finds the node on `level` that covers the goal; the root if that level is gone. Finishes open splits on the
    /// path. A split that lacks the space for that is passed through its sibling.
    ///
    /// On return log space of `bytes` is reserved, even if finishing splits has used some.
    pub(crate) fn find<'p, G: Access<'p>>(
        &'p self,
        structure: &mut Structure<'_>,
        key: &[u8],
        level: u8,
        bytes: usize,
    ) -> Result<G> {
        self.find_again(structure, Goal::At(key), level, bytes, &mut Restarts::default())
    }

    /// Does the same as [`Tree::find`] again after a disturbance. Snapshot readers pass all open splits.
    #[inline(always)]
    pub(crate) fn find_again<'p, G: Access<'p>>(
        &'p self,
        structure: &mut Structure<'_>,
        goal: Goal<'_>,
        level: u8,
        bytes: usize,
        restarts: &mut Restarts,
    ) -> Result<G> {
        if bytes > 0 {
            structure.reserve(bytes)?;
        }
        match self.walk(goal, level, structure.links, restarts.reading()) {
            Ok(guard) => Ok(guard),
            Err(halt) => self.find_after(halt, structure, (goal, level, bytes), restarts),
        }
    }

    /// Finds the node after the first descent has halted.
    #[cold]
    fn find_after<'p, G: Access<'p>>(
        &'p self,
        halt: Halt,
        structure: &mut Structure<'_>,
        (goal, level, bytes): (Goal<'_>, u8, usize),
        restarts: &mut Restarts,
    ) -> Result<G> {
        let mut report = structure.links;
        let mut linked: Option<Box<Unlinked>> = None;
        let mut ended = self.descend_after(Some(halt), goal, level, report, restarts);
        loop {
            let open = match ended? {
                Ok(guard) => return Ok(guard),
                Err(open) => open,
            };
            // A second split of the node has a smaller separator. But a node that was about to be merged may be
            // unlinked again, with the same separator.
            if linked.as_ref() == Some(&open) {
                report = false;
            } else {
                match self.link(structure, &open) {
                    Ok(()) => linked = Some(open),
                    Err(Error::DiskFull { .. } | Error::LogSpace) => report = false,
                    Err(error) => return Err(error),
                }
            }
            structure.reserve(bytes)?;
            ended = self.descend(goal, level, report, restarts);
        }
    }

    /// Descends without changing the tree. An open split is reported if `report` is set, otherwise passed.
    pub(crate) fn descend<'p, G: Access<'p>>(
        &'p self,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        restarts: &mut Restarts,
    ) -> Result<Result<G, Box<Unlinked>>> {
        self.descend_after(None, goal, level, report, restarts)
    }

    /// Descends, after an earlier descent with `halt` if there was one. Behind damage it goes to a listed leaf.
    fn descend_after<'p, G: Access<'p>>(
        &'p self,
        halt: Option<Halt>,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        restarts: &mut Restarts,
    ) -> Result<Result<G, Box<Unlinked>>> {
        let ended = self.descend_by_nodes(halt, goal, level, report, restarts);
        if let (Err(Error::Corrupted { .. }), 0, Goal::At(key)) = (&ended, level, goal)
            && let Some(leaf) = self.listed_leaf(key)
        {
            return Ok(Ok(leaf));
        }
        ended
    }

    /// Descends from the root, after an earlier descent with `halt` if there was one.
    fn descend_by_nodes<'p, G: Access<'p>>(
        &'p self,
        mut halt: Option<Halt>,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        restarts: &mut Restarts,
    ) -> Result<Result<G, Box<Unlinked>>> {
        // One pin per level, so that a descent makes progress however small the pool is.
        let mut pins: Vec<(u8, Pinned<'p>)> = Vec::new();
        let mut refused = None;
        loop {
            let ended = halt.take().map_or_else(|| self.walk(goal, level, report, restarts.reading()), Err);
            match ended {
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
                        // The page may have been merged away since it was found, and truncated. If not, the descent
                        // leads to it again.
                        Err(Error::Corrupted { .. }) if refused != Some(pid) => refused = Some(pid),
                        Err(error) => return Err(error.in_table(self.table())),
                    }
                }
                Err(Halt::Changed) => self.restart(restarts),
                Err(Halt::Failed(error)) => return Err((*error).in_table(self.table())),
            }
        }
    }

    /// Counts a failed validation.
    pub(crate) fn restart(&self, restarts: &mut Restarts) {
        restarts.0 += 1;
        self.trees().counters().restarts.add(1);
    }

    // Inlined, as all functions of a descent are. Guards then stay in registers, and are not copied from result to
    // result.
    #[inline(always)]
    fn walk<'p, G: Access<'p>>(&'p self, goal: Goal<'_>, level: u8, report: bool, reading: Reading) -> Result<G, Halt> {
        let mut current = ReadGuard::fix(self.pool(), self.root(), reading)?;
        let root_level = self.sound(&current, self.node(&current)?.root_level())?;
        if root_level <= level {
            drop(current);
            let root = G::fix(self.pool(), self.root(), reading)?;
            // The tree may have grown in the meantime.
            let same = self.sound(&root, self.node(&root)?.root_level())? == root_level;
            return if same && root.holds() { Ok(root) } else { Err(Halt::Changed) };
        }
        for below in (level + 1..root_level).rev() {
            current = self.step_down(current, goal, below, report, reading)?;
        }
        self.step_down(current, goal, level, report, reading)
    }

    /// Goes from a node to the one on `level` below it that covers the goal.
    #[inline(always)]
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

    /// Goes from a node to its child on `level` that leads to the goal, without reading the child.
    #[inline(always)]
    pub(crate) fn step_to_child<'p, G: Access<'p>>(
        &'p self,
        above: ReadGuard<'p>,
        goal: Goal<'_>,
        level: u8,
        reading: Reading,
    ) -> Result<G, Halt> {
        let child = self.node(&above)?.child_toward(goal);
        // A thread that latches both would deadlock with itself.
        let leads_down = |&child: &PageId| child != above.pid();
        let child =
            self.sound(&above, child.and_then(|pid| Some(pid).filter(leads_down).ok_or("a node leads to itself")))?;
        led_to(&above, G::try_fix(self.pool(), child, reading))?.ok_or(Halt::Missing(child, level))
    }

    /// Returns the node that covers the goal: this one or, past open splits, a sibling on its right.
    ///
    /// If a parent leads here and the node does not cover the goal, the node has an open split. A parent gets a
    /// separator, and the node loses its mark, in one step under both latches. A sibling is linked only after the node
    /// on its left. So the high fence of an inner node without the mark need not be read. The high fence of a leaf is
    /// always read, because it reveals damage above.
    #[inline(always)]
    pub(crate) fn move_right<'p, G: Access<'p>>(
        &'p self,
        guard: G,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        reading: Reading,
    ) -> Result<G, Halt> {
        let node = self.node(&guard)?;
        let on_level = if node.level() == level { Ok(()) } else { Err("a node on the wrong level") };
        self.sound(&guard, on_level)?;
        let may_fall_short = node.is_incomplete() || node.is_leaf();
        if may_fall_short && self.sound(&guard, node.falls_short_of(goal))? {
            return self.pass_open_splits(guard, goal, level, report, reading);
        }
        if guard.holds() { Ok(guard) } else { Err(Halt::Changed) }
    }

    /// Moves right to the sibling that covers the goal. A latched left node stays latched until the right one is.
    #[cold]
    fn pass_open_splits<'p, G: Access<'p>>(
        &'p self,
        mut guard: G,
        goal: Goal<'_>,
        level: u8,
        report: bool,
        reading: Reading,
    ) -> Result<G, Halt> {
        loop {
            let pid = guard.pid();
            let (high, right) = self.sound(&guard, self.node(&guard)?.open_split(pid))?;
            if report {
                let open = Box::new(Unlinked { left: pid, level, separator: high });
                return Err(if guard.holds() { Halt::Open(open) } else { Halt::Changed });
            }
            let next = led_to(&guard, guard.try_next(self.pool(), right, reading))?;
            let next = next.ok_or(Halt::Missing(right, level))?;
            let node = self.node(&next)?;
            let meet = match self.sound(&next, node.compare_low(&high))? {
                Ordering::Equal if node.level() == level => Ok(()),
                Ordering::Equal => Err("a node on the wrong level"),
                _ => Err("siblings do not meet"),
            };
            self.sound(&next, meet)?;
            let falls_short = self.sound(&next, node.falls_short_of(goal))?;
            guard = next;
            if !falls_short {
                return if guard.holds() { Ok(guard) } else { Err(Halt::Changed) };
            }
        }
    }

    /// Returns a view of a page of this tree.
    #[inline(always)]
    pub(crate) fn node<'g, 'p: 'g, G: Access<'p>>(&self, guard: &'g G) -> Result<NodeView<G::Page<'g>>, Halt> {
        let node = self.sound(guard, NodeView::view(guard.page()))?;
        let ours = if node.table() == self.table() { Ok(()) } else { Err("a node of another table") };
        self.sound(guard, ours)?;
        Ok(node)
    }

    /// Returns `result`. Damage counts only if all reads saw one state of the page.
    #[inline(always)]
    pub(crate) fn sound<'p, T>(&self, guard: &impl Access<'p>, result: Result<T, Damage>) -> Result<T, Halt> {
        result.map_err(|why| if guard.holds() { self.corrupted(guard.pid(), why).into() } else { Halt::Changed })
    }
}

/// Returns a page found by an id that was read in `node`. The id is valid, and an error counts, only if `node`
/// validates.
#[inline(always)]
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
    fn a_descent_that_failed_eight_times_latches() {
        assert_eq!(Restarts(0).reading(), Reading::Optimistic);
        assert_eq!(Restarts(7).reading(), Reading::Optimistic);
        assert_eq!(Restarts(8).reading(), Reading::Latched);
    }
}
