//! Tables come and go.
//!
//! Creating a table is one record of a transaction: the row in the catalogue, the root and its allocation. Its undo is one
//! record too, after the pages below the root have been freed one by one, each together with the entry that leads to it.
//! So neither a crash nor a rollback at any point leaks a page or leaves a table half there.

use crate::descend::Unlinked;
use crate::format::{LEAF_HEADER, MAX_LEVEL, RowHeader, SLOT};
use crate::node::{self, NO_WRITER, Node};
use crate::record::{CreateTable, Delta, RowChange, RowInsert, RowWrite, TreeKind};
use crate::recover::FreedRoot;
use crate::split::NewPage;
use crate::tree::{Structure, Tree, Trees, record, to_log};
use foreshore_base::limits::{MAX_KEY, MAX_VALUE};
use foreshore_base::{Error, PageId, Result, TableId};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{ExclusiveGuard, Pinned, SharedGuard, change_cost};
use foreshore_lock::TableMode;
use foreshore_space::{CATALOGUE_ROOT, Purpose};
use foreshore_txn::{RowHolder, Txn, UndoContext, UndoEntry};
use foreshore_wal::{Dep, Session};

/// Largest body of the creation of a table or of its undo.
const MAX_CREATE_BODY: usize = 64 + MAX_KEY + 2 * MAX_VALUE;

impl Trees {
    /// Creates the catalogue, the first tree of a new database, at [`CATALOGUE_ROOT`]. Not part of a transaction.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn create_catalogue(&self, session: &mut Session, table: TableId) -> Result<Tree> {
        let structure = &mut Structure { session, purpose: Purpose::Data };
        let mut new = NewPage::take(self, structure)?;
        assert_eq!(new.page.pid(), CATALOGUE_ROOT, "the catalogue is created before anything else");
        structure.reserve(change_cost(2, 0))?;
        {
            let (mut root, mut map) = (new.page.exclusive(), new.map.exclusive());
            let record = record(TreeKind::CreateRoot, 0, 0b01, table, &[root.pid(), map.pid()], &[]);
            structure.apply(self, &record, &mut [&mut root, &mut map], Dep::none())?;
        }
        new.linked();
        Ok(self.tree(table, CATALOGUE_ROOT))
    }
}

impl Tree {
    /// Creates the tree of a new table, with a row for it in `self`, the catalogue. `value` makes that row from the root
    /// page. If the transaction is rolled back the row goes, and all pages of the table are free.
    ///
    /// # Errors
    /// `KeyExists` if the row exists; otherwise as [`Tree::put`].
    pub fn create_table(
        &self,
        txn: &mut Txn,
        key: &[u8],
        table: TableId,
        value: impl FnOnce(PageId) -> Vec<u8>,
    ) -> Result<Tree> {
        Self::check_key(key)?;
        txn.lock_table(self.table, TableMode::IntentExclusive)?;
        txn.ensure_xid()?;
        let mut new = NewPage::take(&self.trees, &mut Structure::of(txn))?;
        let value = value(new.page.pid());
        Self::check_value(&value)?;
        loop {
            let bytes = change_cost(3, MAX_CREATE_BODY);
            txn.reserve(bytes, MAX_CREATE_BODY)?;
            let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, bytes)?;
            let pid = leaf.pid();
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &leaf)?;
            let at = node.search(key).map_err(damage)?;
            if let Ok(at) = at {
                let header = node.row(at).map_err(damage)?.header;
                match txn.row_holder(header.xid) {
                    RowHolder::Nobody | RowHolder::Me => {}
                    RowHolder::Other(holder) => {
                        drop(leaf);
                        txn.wait_row(self.table, key, holder)?;
                        continue;
                    }
                    RowHolder::Unknown => return Err(damage(NO_WRITER)),
                }
                if !header.is_ghost() {
                    return Err(Error::KeyExists);
                }
            }
            let (row, need) = self.catalogue_row(txn, &node, at, key, &value).map_err(damage)?;
            if need > node.free() {
                drop(leaf);
                self.room_for_row(txn, key, need)?;
                continue;
            }
            self.log_creation(txn, &mut leaf, &new, key, table, (row.0, &row.1))?;
            drop(leaf);
            new.linked();
            return Ok(self.trees.tree(table, new.page.pid()));
        }
    }

    /// The row change that enters a table, and the room that it needs: a new row, or the return of a ghost.
    fn catalogue_row(
        &self,
        txn: &Txn,
        node: &Node<'_>,
        at: Result<usize, usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<((TreeKind, Vec<u8>), usize), node::Damage> {
        let xid = txn.xid().expect("drawn before the first latch");
        let owner = RowHeader { xid, flags: 0, undo: 0 }.owner();
        let mut body = Vec::with_capacity(MAX_CREATE_BODY);
        if let Ok(at) = at {
            let ghost = node.row(at)?;
            let delta = Delta::between(ghost.value, value);
            RowWrite { root: self.root, old_owner: ghost.header.owner(), owner, key, delta }.encode(&mut body);
            return Ok(((TreeKind::RowWrite, body), value.len().saturating_sub(ghost.value.len())));
        }
        RowInsert { root: self.root, owner, key, value }.encode(&mut body);
        Ok(((TreeKind::RowInsert, body), SLOT + LEAF_HEADER + key.len() + value.len()))
    }

    fn log_creation<'p>(
        &'p self,
        txn: &mut Txn,
        leaf: &mut ExclusiveGuard<'p>,
        new: &NewPage<'p>,
        key: &[u8],
        table: TableId,
        (kind, row): (TreeKind, &[u8]),
    ) -> Result<()> {
        let (mut root, mut map) = (new.page.exclusive(), new.map.exclusive());
        let mut body = Vec::with_capacity(MAX_CREATE_BODY);
        CreateTable { root: root.pid(), table, row: RowChange { kind, body: row } }.encode(&mut body);
        let pages = [leaf.pid(), root.pid(), map.pid()];
        let record = record(TreeKind::CreateTable, UNDOABLE, 0b010, self.table, &pages, &body);
        self.trees.apply(&record, &mut [leaf, &mut root, &mut map])?;
        let undo = txn.push_undo(TreeKind::CreateTable as u8, self.table, &[&body]).bits();
        txn.log_change(&to_log(&record, &[&body]), Dep::none(), &mut [leaf, &mut root, &mut map]);
        self.point_to_undo(leaf, key, undo)
    }
}

impl Trees {
    /// Takes the creation of a table back. All its rows have been taken back before.
    pub(crate) fn undo_create(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<()> {
        let create = CreateTable::decode(entry.body).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let table = self.tree(create.table, create.root);
        table.free_below_root(&mut Structure::of_undo(context))?;
        let lsn = self.pool().shared(create.root)?.lsn();
        let map = self.space().map_page(create.root, context.session(), Purpose::Rollback)?;
        let freed = FreedRoot { root: create.root, map: &map, lsn };
        self.undo_row(context, entry, create.row, Some(freed))?;
        self.space().give_back(create.root);
        Ok(())
    }
}

impl Tree {
    /// Frees every page of the tree but the root, which ends as an empty leaf. Nobody else uses the tree.
    ///
    /// Always the last leaf of the tree goes, and with it the entry that leads to it; an inner node that has lost its last
    /// child is a leaf. Stopped anywhere, the tree is whole as far as it goes, and the next try goes on.
    fn free_below_root(&self, structure: &mut Structure<'_>) -> Result<()> {
        loop {
            let Some((parent, child)) = self.last_leaf(structure)? else { return Ok(()) };
            let map = self.trees.space().map_page(child, structure.session, Purpose::Rollback)?;
            let freed = self.pool().shared(child)?.lsn();
            structure.reserve(change_cost(2, 8))?;
            {
                let (mut parent, mut map) = (parent.exclusive(), map.exclusive());
                let body = child.0.to_le_bytes();
                let record = record(TreeKind::FreeLast, 0, 0, self.table, &[parent.pid(), map.pid()], &body);
                structure.apply(&self.trees, &record, &mut [&mut parent, &mut map], Dep::none().freed(freed))?;
            }
            self.trees.space().give_back(child);
        }
    }

    /// The last leaf of the tree and its parent; `None` if the root is the only page.
    fn last_leaf(&self, structure: &mut Structure<'_>) -> Result<Option<(Pinned<'_>, PageId)>> {
        let (mut parent, mut pid, mut above) = (None, self.root, MAX_LEVEL + 1);
        let mut linked: Option<Unlinked> = None;
        loop {
            let page: SharedGuard<'_> = self.pool().shared(pid)?;
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &page)?;
            // Not always the next level: an inner node that has lost its last child is a leaf.
            if node.level() >= above {
                return Err(damage("a node on the wrong level"));
            }
            above = node.level();
            if node.is_incomplete() {
                // Its sibling has no entry yet and would be missed.
                let separator = node.high().map_err(damage)?.unwrap_or_default().to_vec();
                let open = Unlinked { left: pid, level: node.level(), separator };
                if linked.as_ref() == Some(&open) {
                    return Err(damage("the split of a node stays open"));
                }
                drop(page);
                self.link(structure, &open)?;
                linked = Some(open);
                (parent, pid, above) = (None, self.root, MAX_LEVEL + 1);
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
            parent = Some(self.pool().pin(pid)?);
            pid = child;
        }
    }
}
