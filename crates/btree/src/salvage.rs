//! The leaves of a table, found without the nodes above them, for the salvage of its rows.
//!
//! A damaged inner node hides the leaves below it. But each leaf has the id of its table, and its fences. So all
//! allocated pages are read once, and the leaves of the table are listed by their low fences. A descent that a damaged
//! node stops goes to the listed leaf that covers its key. If the leaves are many, all pages are read again for each
//! [window](crate::leaf_list) of them.
//!
//! **Invariant:** no listed leaf is one that the tree had before. A page is allocated exactly if a tree has it. In a
//! region whose map was rebuilt it may not be, so the leaves there are not listed. If a write was lost unnoticed, a
//! leaf of before may overlap others: see [`LeafList`].

use crate::access::{Access, ReadGuard, Reading};
use crate::descend::Restarts;
use crate::leaf_list::{LeafList, Listed};
use crate::node::{Goal, NodeView};
use crate::tree::Tree;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::AccessPattern;
use foreshore_buffer::format::page_lsn;

impl Tree {
    /// Returns where the leaf after that of `key` begins; `None` if there is none. If a damaged node hides that, the
    /// leaves of the table from `key` on are listed, and this handle finds them from then on. The list takes up to a
    /// quarter as many bytes as the pool. No other thread changes the tree.
    ///
    /// # Errors
    /// `Io` and other errors of a read, but no damage of a node.
    pub fn next_leaf(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let max_bytes = self.pool().frames() * PAGE_SIZE / 4;
        self.next_listed(key, max_bytes)
    }

    fn next_listed(&mut self, key: &[u8], max_bytes: usize) -> Result<Option<Vec<u8>>> {
        match self.next_separator_on(key, 1) {
            Err(Error::Corrupted { .. }) => {}
            next => return next,
        }
        if self.leaf_list().is_none() {
            let found = self.descend::<ReadGuard<'_>>(Goal::At(key), 0, false, &mut Restarts::default());
            if found.is_ok_and(|found| found.is_ok_and(|leaf| leaf.pid() == self.root())) {
                return Ok(None);
            }
            *self = self.with_leaf_list(self.list_leaves(LeafList::new(max_bytes))?);
        }
        while let Some(window) = self.leaf_list().and_then(|list| list.next_window(key)) {
            *self = self.with_leaf_list(self.list_leaves(window)?);
        }
        let listed = self.leaf_list().and_then(|list| list.next_behind(key));
        Ok(self.next_after_damage(key)?.into_iter().chain(listed).min())
    }

    /// Does what [`next_leaf`](Self::next_leaf) does, after a scan from `key` on has met damage. Returns `key` itself
    /// if this has listed the leaves, so that the scan may find more now. The list is of all leaves.
    ///
    /// # Errors
    /// Those of [`next_leaf`](Self::next_leaf).
    pub fn next_leaf_after_damage(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let was_listed = self.leaf_list().is_some();
        let next = self.next_listed(key, usize::MAX)?;
        Ok(if !was_listed && self.leaf_list().is_some() { Some(key.to_vec()) } else { next })
    }

    /// Adds the sound leaves of this table to an empty list.
    fn list_leaves(&self, mut list: LeafList) -> Result<LeafList> {
        let space = self.trees().space();
        space.each_allocated(&mut |pid| {
            let page = match self.pool().shared_as(pid, AccessPattern::Scan) {
                Ok(page) => page,
                // A page that cannot be read hides no other one.
                Err(Error::Corrupted { .. } | Error::Io { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let fences = NodeView::view(&*page).and_then(|node| {
                let is_ours = node.is_leaf() && node.table() == self.table();
                Ok(is_ours.then_some((node.low()?, node.high()?)))
            });
            if let Ok(Some((low, high))) = fences {
                let listed = Listed { leaf: pid, lsn: page_lsn(&page), high: high.map(<[u8]>::to_vec) };
                let low = low.to_vec();
                drop(page);
                if !space.may_be_unused(pid)? {
                    list.insert(low, listed);
                }
            }
            Ok(())
        })?;
        list.remove_overlaps();
        Ok(list)
    }

    /// Fixes the listed leaf that covers `key`, if there is one.
    pub(crate) fn listed_leaf<'p, G: Access<'p>>(&'p self, key: &[u8]) -> Option<G> {
        let pid: PageId = self.leaf_list()?.toward(key)?;
        let leaf = G::fix(self.pool(), pid, Reading::Latched).ok()?;
        let covers = NodeView::view(leaf.page()).and_then(|node| {
            Ok(node.is_leaf() && node.table() == self.table() && !node.falls_short_of(Goal::At(key))?)
        });
        covers.is_ok_and(|covers| covers).then_some(leaf)
    }
}
