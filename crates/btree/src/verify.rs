//! Checking a whole tree.

use crate::node::Node;
use crate::tree::Tree;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Result};
use std::collections::HashSet;

/// What [`Tree::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// All pages of the tree.
    pub pages: HashSet<PageId>,
    /// Levels, one for a tree that is a single leaf.
    pub height: usize,
    /// Nodes without children.
    pub leaves: usize,
    /// Rows that are not deleted, by committed and by running transactions.
    pub rows: u64,
    /// Deleted rows that are still in their leaves.
    pub ghosts: u64,
    /// Splits whose second step is open.
    pub open_splits: usize,
}

/// A node that is still to be visited: what its parent, or its left sibling, says of it.
struct Visit {
    pid: PageId,
    level: u8,
    low: Vec<u8>,
    /// Where the part of the parent's keys that leads here ends.
    high: Option<Vec<u8>>,
}

impl Tree {
    /// Reads the whole tree and checks every node, the order of all keys, fences against parents and siblings, levels, and
    /// that each page is reached once. Every page comes through the pool, whose checks apply. Nobody changes the tree
    /// meanwhile.
    ///
    /// # Errors
    /// `Corrupted` with the first page that is wrong; `Io`, `OutOfFrames`, `Poisoned`.
    pub fn verify(&self) -> Result<TreeReport> {
        let mut report = TreeReport::default();
        let level = self.parse(self.root(), &self.pool().shared(self.root())?)?.level();
        report.height = usize::from(level) + 1;
        // Who comes next on each level: the right sibling of the last node visited there.
        let mut siblings: Vec<Option<PageId>> = vec![None; report.height];
        let mut visits = vec![Visit { pid: self.root(), level, low: Vec::new(), high: None }];
        while let Some(visit) = visits.pop() {
            let expected = &mut siblings[usize::from(visit.level)];
            if expected.is_some_and(|expected| expected != visit.pid) {
                return Err(self.corrupted(visit.pid, "not the right sibling of the node on its left"));
            }
            *expected = Some(self.visit(&visit, &mut report, &mut visits)?);
        }
        if siblings.iter().any(|&right| right != Some(PageId::ZERO)) {
            return Err(self.corrupted(self.root(), "the last node of a level has a sibling"));
        }
        Ok(report)
    }

    /// Checks one node, enters what it leads to, and returns its right sibling.
    fn visit(&self, visit: &Visit, report: &mut TreeReport, visits: &mut Vec<Visit>) -> Result<PageId> {
        let mut page = [0; PAGE_SIZE];
        page.copy_from_slice(&self.pool().shared(visit.pid)?);
        let damage = |why| self.corrupted(visit.pid, why);
        if !report.pages.insert(visit.pid) {
            return Err(damage("the page is reached twice"));
        }
        let node = self.parse(visit.pid, &page)?;
        node.validate().map_err(damage)?;
        if node.level() != visit.level {
            return Err(damage("a node on the wrong level"));
        }
        if node.low().map_err(damage)? != visit.low {
            return Err(damage("the low fence is not what leads to the node"));
        }
        let high = node.high().map_err(damage)?;
        if node.is_incomplete() {
            let high = high.unwrap_or_default();
            if visit.high.as_ref().is_some_and(|end| high >= &end[..]) {
                return Err(damage("an open split beyond the node"));
            }
            report.open_splits += 1;
            visits.push(Visit { pid: node.right(), level: visit.level, low: high.to_vec(), high: visit.high.clone() });
        } else if high != visit.high.as_deref() {
            return Err(damage("the high fence is not where the next node begins"));
        }
        if node.is_leaf() {
            report.leaves += 1;
            for at in 0..node.len() {
                let ghost = node.row(at).map_err(damage)?.header.is_ghost();
                *if ghost { &mut report.ghosts } else { &mut report.rows } += 1;
            }
        } else {
            self.enter_children(visit, &node, visits)?;
        }
        Ok(node.right())
    }

    /// Enters the children of an inner node, so that the first is visited first.
    fn enter_children(&self, visit: &Visit, node: &Node<'_>, visits: &mut Vec<Visit>) -> Result<()> {
        let damage = |why| self.corrupted(visit.pid, why);
        let mut high = node.high().map_err(damage)?.map(<[u8]>::to_vec);
        for at in (0..node.len()).rev() {
            let low = node.key(at).map_err(damage)?.to_vec();
            let pid = node.child(at).map_err(damage)?;
            visits.push(Visit { pid, level: visit.level - 1, low: low.clone(), high: high.replace(low) });
        }
        let pid = node.leftmost().map_err(damage)?;
        visits.push(Visit { pid, level: visit.level - 1, low: visit.low.clone(), high });
        Ok(())
    }
}
