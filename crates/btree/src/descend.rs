//! The way down to a node.

use crate::format::MAX_LEVEL;
use crate::tree::{Structure, Tree};
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{ExclusiveGuard, Pinned, Pool, SharedGuard};
use std::ops::Deref;

/// A latch on a page, shared or exclusive.
pub(crate) trait Latched<'p>: Sized + Deref<Target = [u8]> {
    fn take(pool: &'p Pool, pid: PageId) -> Result<Self>;
    fn try_take(pool: &'p Pool, pid: PageId) -> Result<Option<Self>>;
    fn page(&self) -> PageId;
}

impl<'p> Latched<'p> for SharedGuard<'p> {
    fn take(pool: &'p Pool, pid: PageId) -> Result<Self> {
        pool.shared(pid)
    }

    fn try_take(pool: &'p Pool, pid: PageId) -> Result<Option<Self>> {
        pool.try_shared(pid)
    }

    fn page(&self) -> PageId {
        self.pid()
    }
}

impl<'p> Latched<'p> for ExclusiveGuard<'p> {
    fn take(pool: &'p Pool, pid: PageId) -> Result<Self> {
        pool.exclusive(pid)
    }

    fn try_take(pool: &'p Pool, pid: PageId) -> Result<Option<Self>> {
        pool.try_exclusive(pid)
    }

    fn page(&self) -> PageId {
        self.pid()
    }
}

/// A split whose second step is open: the parent of `left` does not know the sibling that begins at `separator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unlinked {
    pub(crate) left: PageId,
    pub(crate) level: u8,
    pub(crate) separator: Vec<u8>,
}

/// Where a way down has led.
pub(crate) enum Way<G> {
    /// To the node that covers the key.
    Found(G),
    /// To an open split in front of it.
    Open(Unlinked),
    /// To a page, on that level, that is not in memory.
    Missing(PageId, u8),
    /// To a root that has grown in the meantime.
    Grown,
}

impl Tree {
    /// Latches the node on `level` that covers `key`, the node below it on the way being latched before the node above is
    /// released. Finishes open splits that it meets; one that lacks the space is passed by over its sibling.
    ///
    /// Log space of `bytes` is reserved when the latch is there, although the finished splits have used some.
    pub(crate) fn find<'p, G: Latched<'p>>(
        &'p self,
        structure: &mut Structure<'_>,
        key: &[u8],
        level: u8,
        bytes: usize,
    ) -> Result<G> {
        let mut report = true;
        let mut linked: Option<Unlinked> = None;
        loop {
            structure.reserve(bytes)?;
            let open = match self.descend(key, level, report)? {
                Ok(guard) => return Ok(guard),
                Err(open) => open,
            };
            // A node that splits again does so at a smaller key.
            if linked.as_ref() == Some(&open) {
                return Err(self.corrupted(open.left, "the split of a node stays open"));
            }
            match self.link(structure, &open) {
                Ok(()) => linked = Some(open),
                Err(Error::DiskFull { .. }) => report = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same without any change of the tree: an open split is reported, if `report` says so, or passed by.
    pub(crate) fn descend<'p, G: Latched<'p>>(
        &'p self,
        key: &[u8],
        level: u8,
        report: bool,
    ) -> Result<Result<G, Unlinked>> {
        // One a level, so that a way down makes progress however small the pool is.
        let mut pins: [Option<Pinned<'p>>; MAX_LEVEL as usize + 1] = [const { None }; MAX_LEVEL as usize + 1];
        loop {
            match self.walk(key, level, report)? {
                Way::Found(guard) => return Ok(Ok(guard)),
                Way::Open(open) => return Ok(Err(open)),
                Way::Missing(pid, level) => pins[usize::from(level)] = Some(self.pool().pin(pid)?),
                Way::Grown => {}
            }
        }
    }

    fn walk<'p, G: Latched<'p>>(&'p self, key: &[u8], level: u8, report: bool) -> Result<Way<G>> {
        let pool = self.pool();
        let mut current = pool.shared(self.root)?;
        let root_level = self.parse(self.root, &current)?.level();
        if root_level < level {
            return Err(self.corrupted(self.root, "a level above the root is referred to"));
        }
        if root_level == level {
            drop(current);
            let root = G::take(pool, self.root)?;
            let grown = self.parse(self.root, &root)?.level() != level;
            return Ok(if grown { Way::Grown } else { Way::Found(root) });
        }
        for below in (level..root_level).rev() {
            let pid = current.pid();
            let child = self.parse(pid, &current)?.child_for(key).map_err(|why| self.corrupted(pid, why))?;
            if below == level {
                let Some(guard) = G::try_take(pool, child)? else { return Ok(Way::Missing(child, below)) };
                drop(current);
                return self.move_right(guard, key, below, report);
            }
            let Some(guard) = pool.try_shared(child)? else { return Ok(Way::Missing(child, below)) };
            drop(current);
            current = match self.move_right(guard, key, below, report)? {
                Way::Found(guard) => guard,
                Way::Open(open) => return Ok(Way::Open(open)),
                Way::Missing(pid, level) => return Ok(Way::Missing(pid, level)),
                Way::Grown => return Ok(Way::Grown),
            };
        }
        unreachable!("the loop ends on the level asked for")
    }

    /// Goes to the sibling that covers `key`, the left node being latched until the right one is.
    ///
    /// A node that does not cover the key that its parent sent here has an open split: parents learn of siblings and nodes
    /// lose the mark in one step, under both latches, and a sibling is linked only after the node on its left.
    fn move_right<'p, G: Latched<'p>>(&'p self, mut guard: G, key: &[u8], level: u8, report: bool) -> Result<Way<G>> {
        let damage = |pid: PageId| move |why| self.corrupted(pid, why);
        loop {
            let pid = guard.page();
            let node = self.parse(pid, &guard)?;
            if node.level() != level {
                return Err(self.corrupted(pid, "a node on the wrong level"));
            }
            let Some(high) = node.high().map_err(damage(pid))?.filter(|&high| key >= high) else {
                return Ok(Way::Found(guard));
            };
            if !node.is_incomplete() {
                return Err(self.corrupted(pid, "a node does not cover the keys that lead to it"));
            }
            if report {
                return Ok(Way::Open(Unlinked { left: pid, level, separator: high.to_vec() }));
            }
            let right = node.right();
            let Some(next) = G::try_take(self.pool(), right)? else { return Ok(Way::Missing(right, level)) };
            if self.parse(right, &next)?.low().map_err(damage(right))? != high {
                return Err(self.corrupted(right, "siblings do not meet"));
            }
            guard = next;
        }
    }
}
