//! The check of a whole tree while other threads read and change it.
//!
//! The caller prevents merges ([`Tree::merge_leaf`](crate::Tree::merge_leaf)) during the check.
//!
//! Nodes are copied one at a time, each under a shared latch. The tree changes between two copies, but there are no
//! false alarms, because some facts never change while the table exists:
//!
//! - A node stays, and the key at which it begins stays the same.
//! - An entry of an inner node leads to the same child, in that node or in one to its right.
//! - A copied node ends where the sibling that it names begins.
//!
//! So the walk goes from left to right on all levels at once, along the copied siblings, and copies a node before its
//! children. Every copied entry must lead to a node that the walk meets. A node met without an entry was split off
//! meanwhile. Then either its left neighbour is marked incomplete, or the parent has the entry by now. A node that is
//! split off behind the walk is not met: see [`Tree::reaches`].
//!
//! A walk may continue after damage. It skips the nodes below a damaged node and continues with the next entry of the
//! parent. It then ignores sibling links.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::node::{Goal, Node, NodeView};
use crate::overflow::ChainRef;
use crate::tree::Tree;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::AccessPattern;
use foreshore_sync::model::mutant;
use std::collections::HashSet;

/// The result of [`Tree::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// All pages of the tree that were met.
    pub pages: HashSet<PageId>,
    /// Levels, one for a tree that is a single leaf.
    pub height: usize,
    /// Nodes without children.
    pub leaves: usize,
    /// Rows that neither a committed nor a running transaction has deleted.
    pub rows: u64,
    /// Deleted rows that are still in their leaves.
    pub ghosts: u64,
    /// Splits whose second step is open.
    pub open_splits: usize,
}

/// The mutant that trusts the copy of a parent, however old it is.
const STALE: &str = "btree: verify believes the parent that it copied";

/// The next node on a level, according to its left sibling or first parent; page zero at the end.
#[derive(Clone, Debug)]
struct Next {
    pid: PageId,
    low: Vec<u8>,
}

struct Walk<'t, 'w> {
    tree: &'t Tree,
    watch: &'w mut dyn FnMut(PageId) -> Result<()>,
    damage: &'w mut dyn FnMut(Error) -> Result<()>,
    refers: &'w mut dyn FnMut(&ChainRef<'_>) -> Result<()>,
    report: TreeReport,
    /// The next node of each level; `None` if damage hides it.
    next: Vec<Option<Next>>,
}

impl Tree {
    /// Reads the whole tree and checks every node, the order of all keys, fences against parents and siblings, levels,
    /// and that each page is reached once. Every page comes through the pool, whose checks apply. Other threads may
    /// change the tree meanwhile, but the table is not dropped, and no node is merged.
    ///
    /// # Errors
    /// `Corrupted` with the first damaged page; `Io`, `OutOfFrames`, `Poisoned`.
    pub fn verify(&self) -> Result<TreeReport> {
        self.verify_with(&mut |_| Ok(()), &mut Err, &mut |_| Ok(()))
    }

    /// Does the same as [`verify`](Self::verify) with three callbacks. `watch` is called before each page is read, with
    /// no latch held. `damage` is called with each `Corrupted` that the walk or `watch` finds. `refers` is called for
    /// each row that refers to a chain, with no latch held. The walk ends at an error of `damage` or `refers`, or at
    /// any other error of `watch`. The report's pages are all that were met, including damaged ones.
    ///
    /// # Errors
    /// Those of [`verify`](Self::verify), and what `watch`, `damage` and `refers` return.
    pub fn verify_with(
        &self,
        watch: &mut dyn FnMut(PageId) -> Result<()>,
        damage: &mut dyn FnMut(Error) -> Result<()>,
        refers: &mut dyn FnMut(&ChainRef<'_>) -> Result<()>,
    ) -> Result<TreeReport> {
        let mut walk = Walk { tree: self, watch, damage, refers, report: TreeReport::default(), next: Vec::new() };
        match walk.walk_all() {
            Err(error @ Error::Corrupted { .. }) => {
                walk.report.pages.insert(self.root());
                (walk.damage)(error)?;
            }
            walked => walked?,
        }
        Ok(walk.report)
    }

    /// Returns whether a descent for the keys of the node at `pid` leads to it. It is for pages that a walk has not
    /// met. The table is not dropped meanwhile.
    ///
    /// # Errors
    /// `Corrupted` if there is no node of this tree, or for damage on the path to it; `Io`, `OutOfFrames`, `Poisoned`.
    pub fn reaches(&self, pid: PageId) -> Result<bool> {
        let page = self.copy_page(pid)?;
        let node = self.parse(pid, &page)?;
        let low = node.low().map_err(|why| self.corrupted(pid, why))?;
        // Open splits are passed and not finished, because a check changes nothing.
        let found = self.descend::<ReadGuard<'_>>(Goal::At(low), node.level(), false, &mut Restarts::default())?;
        Ok(found.is_ok_and(|guard| guard.pid() == pid))
    }

    pub(crate) fn copy_page(&self, pid: PageId) -> Result<Box<[u8]>> {
        let mut page = vec![0; PAGE_SIZE].into_boxed_slice();
        page.copy_from_slice(&self.named(self.pool().shared_as(pid, AccessPattern::Scan))?);
        Ok(page)
    }

    /// Returns whether the node on `level` that covers `key` leads from `key` to `child`.
    fn leads_to(&self, key: &[u8], level: u8, child: PageId) -> Result<bool> {
        let mut restarts = Restarts::default();
        loop {
            let Ok(guard) = self.descend::<ReadGuard<'_>>(Goal::At(key), level, false, &mut restarts)? else {
                return Ok(false);
            };
            let found = NodeView::view(guard.page()).and_then(|node| node.child_for(key));
            if guard.holds() {
                return found.map(|found| found == child).map_err(|why| self.corrupted(guard.pid(), why));
            }
            self.restart(&mut restarts);
        }
    }
}

impl Walk<'_, '_> {
    fn walk_all(&mut self) -> Result<()> {
        let root = self.tree.root();
        (self.watch)(root)?;
        let page = self.tree.copy_page(root)?;
        let level = self.tree.parse(root, &page)?.root_level().map_err(|why| self.tree.corrupted(root, why))?;
        let level = usize::from(level);
        (self.report.height, self.next) = (level + 1, vec![None; level + 1]);
        self.visit(level, &Next { pid: root, low: Vec::new() }, &page)?;
        match self.next.iter().flatten().find(|next| next.pid != PageId::ZERO) {
            Some(next) => Err(self.tree.corrupted(next.pid, "a node behind the end of the level above")),
            None => Ok(()),
        }
    }

    /// Copies a node that an entry or sibling leads to, and [visits](Self::visit) it.
    fn enter(&mut self, level: usize, at: &Next) -> Result<bool> {
        (self.watch)(at.pid)?;
        let page = self.tree.copy_page(at.pid)?;
        self.visit(level, at, &page)
    }

    /// Skips the nodes below a damaged node, and continues at `entry`.
    fn skip(&mut self, level: usize, at: &Next, entry: Option<&Next>, error: Error) -> Result<()> {
        self.report.pages.insert(at.pid);
        (self.damage)(error)?;
        self.next[..level].fill(None);
        self.next[level] = entry.cloned();
        Ok(())
    }

    /// Checks a copied node and the nodes below it. Returns whether it has an open split.
    fn visit(&mut self, level: usize, at: &Next, page: &[u8]) -> Result<bool> {
        let damage = |why| self.tree.corrupted(at.pid, why);
        let node = self.tree.parse(at.pid, page)?;
        node.validate().map_err(damage)?;
        if usize::from(node.level()) != level {
            return Err(damage("a node on the wrong level"));
        }
        if node.low().map_err(damage)? != at.low {
            return Err(damage("the low fence is not what leads to the node"));
        }
        if !self.report.pages.insert(at.pid) {
            return Err(self.tree.corrupted(at.pid, "the page is reached twice"));
        }
        let low = node.high().map_err(damage)?.unwrap_or_default().to_vec();
        self.next[level] = Some(Next { pid: node.right(), low });
        if node.is_leaf() {
            self.report.leaves += 1;
            for row in 0..node.len() {
                let row = node.row(row).map_err(damage)?;
                if row.header.is_ghost() {
                    self.report.ghosts += 1;
                    continue;
                }
                self.report.rows += 1;
                if let Some(found) = self.tree.chain_ref(&row).map_err(damage)? {
                    (self.refers)(&found)?;
                }
            }
        } else {
            self.children(level, at, &node)?;
        }
        Ok(node.is_incomplete())
    }

    /// Walks the children of a node up to its end.
    fn children(&mut self, level: usize, at: &Next, node: &Node<'_>) -> Result<()> {
        let tree = self.tree;
        let damage = |why| tree.corrupted(at.pid, why);
        let below = level - 1;
        let first = Next { pid: node.leftmost().map_err(damage)?, low: at.low.clone() };
        self.next[below].get_or_insert(first.clone());
        let mut entries = std::iter::once(Ok::<_, Error>(first)).chain((0..node.len()).map(|index| {
            Ok(Next { pid: node.child(index).map_err(damage)?, low: node.key(index).map_err(damage)?.to_vec() })
        }));
        let mut entry = entries.next().transpose()?;
        let high = node.high().map_err(damage)?;
        // Whether the left neighbour is marked incomplete.
        let mut is_open = false;
        loop {
            // `None` only after a damaged last child, whose upper bound is unknown.
            let Some(child) = self.next[below].clone() else { return Ok(()) };
            let is_beyond = child.pid == PageId::ZERO || high.is_some_and(|high| &child.low[..] >= high);
            match &entry {
                Some(next) if is_beyond || next.low < child.low => {
                    return Err(damage("an entry leads to a node that is not on the level below"));
                }
                None if is_beyond => return self.end(at, high, &child, is_open),
                Some(next) if next.low == child.low => {
                    if next.pid != child.pid {
                        return Err(tree.corrupted(next.pid, "not the right sibling of the node on its left"));
                    }
                    // The entry was copied before the left neighbour.
                    if is_open {
                        return Err(tree.corrupted(child.pid, "its split is open, and the parent knows it"));
                    }
                    entry = entries.next().transpose()?;
                }
                _ if is_open => self.report.open_splits += 1,
                _ if tree.leads_to(&child.low, node.level(), child.pid)? && !mutant(STALE) => {}
                _ => return Err(tree.corrupted(child.pid, "no parent leads to the node")),
            }
            is_open = match self.enter(below, &child) {
                Err(error @ Error::Corrupted { .. }) => {
                    self.skip(below, &child, entry.as_ref(), error).map(|()| false)?
                }
                entered => entered?,
            };
        }
    }

    /// Checks that the last child of a node ends where the node does.
    fn end(&self, at: &Next, high: Option<&[u8]>, next: &Next, is_open: bool) -> Result<()> {
        let meets = match high {
            Some(high) => next.pid != PageId::ZERO && next.low == high,
            None => next.pid == PageId::ZERO,
        };
        let why = match (meets, is_open) {
            (true, false) => return Ok(()),
            (true, true) => "an open split beyond the node",
            (false, _) => "the last child does not end where the node does",
        };
        Err::<(), Error>(self.tree.corrupted(at.pid, why))
    }
}
