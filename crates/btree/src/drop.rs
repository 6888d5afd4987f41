//! The end of a table: the pages of its tree become free.
//!
//! A table ends when its creation is rolled back. It also ends when the transaction that dropped it has committed and
//! no snapshot reader needs it ([`crate::end`]). Then no operation uses the tree.
//!
//! Its pages are freed one by one, the last leaf first. One record frees each page and removes the entry that leads to
//! it. An interrupted drop leaves a smaller but valid tree, and the next try continues. The record that frees the root
//! also removes the row from the catalogue. So the row exists as long as a page does.
//!
//! **Why a freed page may be reused at once.** The record that frees a page depends on three things: the last change of
//! the page, the commit that dropped the table, and the map page. The record that reuses the page depends on the map
//! page too, so its LSN is above that of the record that freed it. A restart keeps the log up to some LSN. So it never
//! has the reuse without the freeing, nor the freeing without the commit. Until the reuse is durable, the old content
//! stays at the page's place in the file (see [`foreshore_buffer::Pool::pin_unread`]).

use crate::descend::Unlinked;
use crate::format::{LEAF_HEADER, MAX_LEVEL, SLOT};
use crate::merge::expire;
use crate::record::{DropTable, RowChange, TreeKind};
use crate::recover::{GHOST_BODY, to_ghost};
use crate::tree::{Structure, Tree, record};
use foreshore_base::codec::Put;
use foreshore_base::limits::MAX_KEY;
use foreshore_base::{Csn, Error, Lsn, PageId, Result};
use foreshore_buffer::{ExclusiveGuard, Pinned, SharedGuard, change_cost};
use foreshore_lock::{TableMode, Target};
use foreshore_txn::Txn;
use foreshore_wal::Dep;
use std::collections::HashSet;

/// Largest body of the record that ends a table.
const MAX_DROP_BODY: usize = 16 + MAX_KEY + GHOST_BODY;

impl Tree {
    /// Inserts a row into a catalogue as [`insert_new`](Self::insert_new) does, for a transaction that drops a table.
    /// On a full disk a full leaf is split with a page that is reserved for rollbacks, since the drop frees more.
    ///
    /// # Errors
    /// Those of [`insert_new`](Self::insert_new).
    pub fn insert_dropped(&self, txn: &mut Txn, key: &[u8], row: &[u8]) -> Result<()> {
        let need = SLOT + LEAF_HEADER + key.len() + row.len();
        // The first split of a full root only grows the tree.
        for _ in 0..2 {
            match self.insert_new(txn, key, row) {
                Err(Error::DiskFull { .. }) => self.make_room(&mut Structure::of_freeing(txn), key, 0, need)?,
                inserted => return inserted,
            }
        }
        self.insert_new(txn, key, row)
    }

    /// Frees up to `pages` pages, or parts of large values, of a tree whose table was dropped by commit `dropped`.
    /// Returns whether only the root is left. The transaction holds the table exclusively, and
    /// [`Visibility::passed`](foreshore_txn::Visibility::passed) has reached `dropped`. The freed pages cannot be
    /// rolled back.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`. Freed pages stay free, and the next try continues.
    pub fn free_some(&self, txn: &mut Txn, dropped: Csn, pages: usize) -> Result<bool> {
        for _ in 0..pages {
            let dep = Dep::none().observed(dropped);
            let structure = &mut Structure::of_freeing(txn);
            let leaf = self.last_leaf(structure)?.map_or(self.root(), |(_, leaf)| leaf);
            if !self.free_last_chain(structure, leaf, dep)? && !self.free_last(structure, dep)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a table of which only the root is left: removes the row of `key` from `self`, the catalogue, and frees the
    /// root. The last row of a leaf stays as a ghost, as after a rollback. Keys of dropped tables only grow, so without
    /// ghosts a search for the next key would pass many empty leaves.
    ///
    /// # Errors
    /// Those of [`free_some`](Self::free_some).
    pub fn end_table(&self, txn: &mut Txn, key: &[u8], table: &Self, dropped: Csn) -> Result<()> {
        self.lock(txn, TableMode::IntentExclusive)?;
        let structure = &mut Structure::of_freeing(txn);
        let lsn = table.named(self.leave_page(table.root()))?;
        let map = self.trees().space().map_page(table.root(), structure.session, structure.purpose)?;
        let mut erase = Vec::new();
        erase.put_short_bytes(key);
        let erase = RowChange { kind: TreeKind::RowErase, body: &erase };
        let ghost = to_ghost(key);
        let ghost = RowChange { kind: TreeKind::RowRestore, body: &ghost };
        loop {
            let structure = &mut Structure::of_freeing(txn);
            let mut leaf: ExclusiveGuard<'_> = self.find(structure, key, 0, change_cost(2, MAX_DROP_BODY))?;
            // A transaction that has read the row, or scanned over it, sees the same catalogue to its end.
            let target = Target::row(self.table(), key);
            let (locks, owner) = txn.locks();
            if locks.shared_by_other(owner, target) {
                drop(leaf);
                txn.wait_exclusive(target)?;
                let (locks, owner) = txn.locks();
                locks.end_exclusive(owner);
                continue;
            }
            let is_last = self.parse(leaf.pid(), &leaf)?.len() == 1 && leaf.pid() != self.root();
            let mut body = Vec::with_capacity(MAX_DROP_BODY);
            DropTable { root: table.root(), row: if is_last { ghost } else { erase } }.encode(&mut body);
            assert!(body.len() <= MAX_DROP_BODY, "the end of a table logs {} of {MAX_DROP_BODY} bytes", body.len());
            let mut map = map.exclusive();
            let record = record(TreeKind::DropTable, 0, 0, self.table(), &[leaf.pid(), map.pid()], &body);
            let dep = Dep::none().freed(lsn).observed(dropped);
            Structure::of_freeing(txn).apply(self.trees(), &record, &mut [&mut leaf, &mut map], dep)?;
            break;
        }
        self.trees().space().give_back(table.root());
        Ok(())
    }

    /// Returns all pages of a tree that may have lost some to an interrupted drop. No other thread changes it
    /// meanwhile.
    ///
    /// # Errors
    /// `Corrupted` for a page that is reached twice or is not of the tree; errors of a read.
    pub fn pages(&self) -> Result<HashSet<PageId>> {
        let mut found = HashSet::new();
        let mut ahead = vec![self.root()];
        while let Some(pid) = ahead.pop() {
            let page = self.named(self.pool().shared(pid))?;
            let damage = |why| self.corrupted(pid, why);
            if !found.insert(pid) {
                return Err(damage("the page is reached twice"));
            }
            let node = self.parse(pid, &page)?;
            if node.is_incomplete() {
                ahead.push(node.right());
            }
            if !node.is_leaf() {
                ahead.push(node.leftmost().map_err(damage)?);
                for at in 0..node.len() {
                    ahead.push(node.child(at).map_err(damage)?);
                }
            }
        }
        Ok(found)
    }

    /// Counts the pages of a tree that no operation changes. Reads only its inner nodes, and calls `goes_on` before
    /// each.
    ///
    /// # Errors
    /// `Corrupted` for a node that is reached twice or is not of the tree; errors of a read, or of `goes_on`.
    pub fn count_pages(&self, goes_on: impl Fn() -> Result<()>) -> Result<u64> {
        let (mut count, mut found, mut ahead) = (0, HashSet::new(), vec![self.root()]);
        while let Some(pid) = ahead.pop() {
            goes_on()?;
            let page = self.named(self.pool().shared(pid))?;
            let damage = |why| self.corrupted(pid, why);
            if !found.insert(pid) {
                return Err(damage("the page is reached twice"));
            }
            count += 1;
            let node = self.parse(pid, &page)?;
            if node.is_leaf() {
                continue;
            }
            if node.is_incomplete() {
                ahead.push(node.right());
            }
            if node.level() == 1 {
                count += 1 + node.len() as u64;
                continue;
            }
            ahead.push(node.leftmost().map_err(damage)?);
            for at in 0..node.len() {
                ahead.push(node.child(at).map_err(damage)?);
            }
        }
        Ok(count)
    }

    /// Frees the last leaf of the tree and removes the entry that leads to it. An inner node without children is a
    /// leaf. Returns false if the root is the only page; it is then an empty leaf. No other thread uses the tree.
    pub(crate) fn free_last(&self, structure: &mut Structure<'_>, dep: Dep) -> Result<bool> {
        let Some((parent, child)) = self.last_leaf(structure)? else { return Ok(false) };
        let map = self.trees().space().map_page(child, structure.session, structure.purpose)?;
        let freed = self.named(self.leave_page(child))?;
        structure.reserve(change_cost(2, 8))?;
        {
            let (mut parent, mut map) = (parent.exclusive(), map.exclusive());
            let body = child.0.to_le_bytes();
            let record = record(TreeKind::FreeLast, 0, 0, self.table(), &[parent.pid(), map.pid()], &body);
            structure.apply(self.trees(), &record, &mut [&mut parent, &mut map], dep.freed(freed))?;
        }
        self.trees().space().give_back(child);
        Ok(true)
    }

    /// Returns the LSN of a page that is about to be freed. Makes optimistic readers of the page fail.
    pub(crate) fn leave_page(&self, pid: PageId) -> Result<Lsn> {
        let mut page = self.pool().exclusive(pid)?;
        expire(&mut page);
        Ok(page.lsn())
    }

    /// Returns the last leaf of the tree and its parent; `None` if the root is the only page.
    fn last_leaf(&self, structure: &mut Structure<'_>) -> Result<Option<(Pinned<'_>, PageId)>> {
        let (mut parent, mut pid, mut above) = (None, self.root(), MAX_LEVEL + 1);
        let mut linked: Option<Unlinked> = None;
        loop {
            let page: SharedGuard<'_> = self.named(self.pool().shared(pid))?;
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &page)?;
            // The level need not be the next one: an inner node that has lost its last child is a leaf.
            if node.level() >= above {
                return Err(damage("a node on the wrong level"));
            }
            above = node.level();
            if pid == self.root() {
                node.root_level().map_err(damage)?;
            }
            if node.is_incomplete() {
                // Its sibling has no entry in the parent yet and would be missed.
                let separator = node.high().map_err(damage)?.unwrap_or_default().to_vec();
                let open = Unlinked { left: pid, level: node.level(), separator };
                if linked.as_ref() == Some(&open) {
                    return Err(damage("the split of a node stays open"));
                }
                drop(page);
                self.link(structure, &open)?;
                linked = Some(open);
                (parent, pid, above) = (None, self.root(), MAX_LEVEL + 1);
                continue;
            }
            if node.is_leaf() {
                return Ok(parent.map(|parent| (parent, pid)));
            }
            let child = match node.len() {
                0 => node.leftmost(),
                len => node.child(len - 1),
            };
            let child = child.map_err(damage)?;
            drop(page);
            parent = Some(self.named(self.pool().pin(pid))?);
            pid = child;
        }
    }
}
