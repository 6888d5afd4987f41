//! The creation of tables, and its undo.
//!
//! Creating a table is one record of a transaction: the row in the catalogue, the root and its allocation. Its undo is
//! one record too, after the pages below the root have been freed (see [`crate::drop`]). So neither a crash nor a
//! rollback leaks a page or leaves half a table.

use crate::before::before;
use crate::format::{LEAF_HEADER, RowHeader, SLOT};
use crate::node::{self, NO_WRITER, Node};
use crate::record::{CreateTable, Delta, RowChange, RowInsert, RowWrite, TreeKind};
use crate::recover::FreedRoot;
use crate::split::NewPage;
use crate::tree::{Structure, Tree, Trees, record, to_log};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY};
use foreshore_base::{Error, PageId, Result, TableId};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_lock::TableMode;
use foreshore_space::{CATALOGUE_ROOT, Purpose};
use foreshore_sync::pause;
use foreshore_txn::{RowHolder, Txn, UndoContext, UndoEntry, UndoPtr, Undoable};
use foreshore_wal::{Dep, Session};

/// Largest body of the creation of a table or of its undo.
const MAX_CREATE_BODY: usize = 64 + MAX_KEY + 2 * MAX_INLINE_VALUE;

impl Trees {
    /// Creates the catalogue, the first tree of a new database, at [`CATALOGUE_ROOT`]. This is not part of a
    /// transaction.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn create_catalogue(&self, session: &mut Session, table: TableId) -> Result<Tree> {
        self.create_root(session, table, CATALOGUE_ROOT)
    }

    /// Creates a tree of the engine's own in a new database, at page `pid`.
    ///
    /// # Errors
    /// Those of [`create_catalogue`](Self::create_catalogue).
    ///
    /// # Panics
    /// When another page was created in between.
    pub fn create_root(&self, session: &mut Session, table: TableId, pid: PageId) -> Result<Tree> {
        let structure = &mut Structure { session, purpose: Purpose::Data, pages: Purpose::Data, links: true };
        let mut new = NewPage::take(self, structure)?;
        assert_eq!(new.page.pid(), pid, "the trees of the engine are created before anything else");
        structure.reserve(change_cost(2, 0))?;
        {
            let (mut root, mut map) = (new.page.exclusive(), new.map.exclusive());
            let record = record(TreeKind::CreateRoot, 0, 0b01, table, &[root.pid(), map.pid()], &[]);
            structure.apply(self, &record, &mut [&mut root, &mut map], Dep::none())?;
        }
        new.linked();
        Ok(self.tree(table, pid))
    }
}

impl Tree {
    /// Creates the tree of a new table, with a row for it in `self`, the catalogue. `value` makes that row from the
    /// root page. A rollback removes the row and frees all pages of the table.
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
        self.check_key(key)?;
        // An exclusive lock of the catalogue: no other transaction has read a key of it.
        self.lock(txn, TableMode::Exclusive)?;
        txn.ensure_xid()?;
        let mut new = txn.with_space(|txn| NewPage::take(self.trees(), &mut Structure::of(txn)))?;
        let value = value(new.page.pid());
        self.check_value(&value)?;
        loop {
            let bytes = change_cost(3, MAX_CREATE_BODY);
            txn.reserve(bytes, MAX_CREATE_BODY)?;
            let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, bytes)?;
            let pid = leaf.pid();
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &leaf)?;
            let at = node.search(key).map_err(damage)?;
            let mut ghost = None;
            if let Ok(at) = at {
                let header = node.row(at).map_err(damage)?.header;
                match txn.row_holder(header.xid) {
                    RowHolder::None | RowHolder::Me => {}
                    RowHolder::Other(holder) => {
                        drop(leaf);
                        txn.wait_row(self.table(), key, holder)?;
                        continue;
                    }
                    RowHolder::Unknown => return Err(damage(NO_WRITER)),
                }
                if !header.is_ghost() {
                    return Err(self.key_exists(key));
                }
                ghost = Some(header);
            }
            let (row, need) = self.catalogue_row(txn, &node, at, key, &value).map_err(damage)?;
            if need > node.free() {
                drop(leaf);
                self.room_for_row(txn, key, need)?;
                continue;
            }
            self.log_creation(txn, &mut leaf, &new, (key, ghost), table, (row.0, &row.1))?;
            pause::point("btree: a table is created");
            drop(leaf);
            new.linked();
            return Ok(self.trees().tree(table, new.page.pid()));
        }
    }

    pub(crate) fn key_exists(&self, key: &[u8]) -> Error {
        Error::KeyExists { table: self.table().into(), key: key.into() }
    }

    /// Returns the row change that enters a table, and the space that it needs: a new row, or a ghost made alive
    /// again.
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
            RowWrite { root: self.root(), old_owner: ghost.header.owner(), owner, key, delta }.encode(&mut body);
            return Ok(((TreeKind::RowWrite, body), value.len().saturating_sub(ghost.value.len())));
        }
        RowInsert { root: self.root(), owner, key, value }.encode(&mut body);
        Ok(((TreeKind::RowInsert, body), SLOT + LEAF_HEADER + key.len() + value.len()))
    }

    fn log_creation<'p>(
        &'p self,
        txn: &mut Txn,
        leaf: &mut ExclusiveGuard<'p>,
        new: &NewPage<'p>,
        (key, ghost): (&[u8], Option<RowHeader>),
        table: TableId,
        (kind, row): (TreeKind, &[u8]),
    ) -> Result<()> {
        let (mut root, mut map) = (new.page.exclusive(), new.map.exclusive());
        let mut body = Vec::with_capacity(MAX_CREATE_BODY);
        CreateTable { root: root.pid(), table, row: RowChange { kind, body: row } }.encode(&mut body);
        assert!(body.len() <= MAX_CREATE_BODY, "a new table logs {} of {MAX_CREATE_BODY} bytes", body.len());
        let pages = [leaf.pid(), root.pid(), map.pid()];
        let record = record(TreeKind::CreateTable, UNDOABLE, 0b010, self.table(), &pages, &body);
        self.trees().apply(&record, &mut [leaf, &mut root, &mut map])?;
        let before = ghost.map(|header| before(header, &[], 0..0, 0));
        let change =
            Undoable { kind: TreeKind::CreateTable as u8, table: self.table(), body: &body, before, structure: 0 };
        let undo = txn.push_undo(&change);
        assert_ne!(undo, UndoPtr::NULL, "a table is created and has no undo entry");
        txn.log_change(&to_log(&record, &[&body]), Dep::none(), &mut [leaf, &mut root, &mut map]);
        self.point_to_undo(leaf, key, undo)
    }
}

impl Trees {
    /// Undoes the creation of a table. All changes of its rows were undone before.
    pub(crate) fn undo_create(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<()> {
        let create = CreateTable::decode(entry.body).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let table = self.tree(create.table, create.root);
        loop {
            match table.free_last(&mut Structure::of_undo(context), Dep::none()) {
                Ok(true) => {}
                Ok(false) => break,
                // Pages below a damaged one stay allocated, and belong to no table.
                Err(Error::Corrupted { .. }) if context.is_at_restart() => break,
                Err(error) => return Err(error),
            }
        }
        let lsn = table.leave_page(create.root)?;
        let map = self.space().map_page(create.root, context.session(), Purpose::Rollback)?;
        let freed = FreedRoot { root: create.root, map: &map, lsn };
        self.undo_row(context, entry, create.row, Some(freed))?;
        self.space().give_back(create.root);
        Ok(())
    }
}
