//! Loads of many rows with ascending keys at the end of a table.
//!
//! A loader packs rows into a leaf of its own. When that is full, one record of the transaction gives the last leaf of
//! the tree a right sibling with its content. The record has the leaf as an image, and no record for each row. The
//! sibling is linked as that of a split, and inner nodes grow as they do for splits. So the tree is valid after every
//! record, and a crash between two records needs nothing that splits do not need.
//!
//! **Readers.** The rows have the xid of the transaction in their headers, as all rows have. Snapshots do not see them
//! before it commits. In place of an entry of its own each row has [`UndoPtr::ABSENT`], since no older version exists.
//! Others that lock what they read, and writers, are kept out by an exclusive lock of the table.
//!
//! **Undo.** The transaction has one undo entry for each leaf. It names the first and the last key, and its undo
//! removes the rows wherever they are by then ([`undo`]). Empty leaves are merged away as all others are. The lock is
//! kept until the commit is durable, and a restart takes it again. So while a load may have to be undone, no other
//! transaction has written between its keys.
//!
//! **One by one.** A leaf cannot be attached in two cases: deleted rows lie at or behind its keys, or it would follow
//! an empty leaf. Its rows are then inserted one by one. So are the last few rows, if the last leaf has the space.
//!
//! **Invariant:** a leaf that is attached has only keys behind all others of the table, deleted ones included.

mod undo;

use crate::descend::Unlinked;
use crate::format::{ChainId, OVERFLOW, RowHeader};
use crate::intent::Intent;
use crate::load_record::{Load, Loaded};
use crate::node::{CAPACITY, Goal, Node, Packed, encode_image, separator};
use crate::record::TreeKind;
use crate::row::Stored;
use crate::sound::{all_sound, assert_fits, assert_incomplete, assert_sound};
use crate::split::NewPage;
use crate::tree::{Structure, Tree, record, to_log};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY, PAGE_SIZE};
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_lock::{LockWait, TableMode};
use foreshore_sync::pause;
use foreshore_txn::{MAX_STRUCTURE, Txn, UndoPtr, Undoable};
use foreshore_wal::Dep;

/// Largest body of the record of a load.
const MAX_LOAD_BODY: usize = 16 + PAGE_SIZE;
/// Largest body of its undo entry.
const MAX_LOADED_BODY: usize = 16 + 2 * (2 + MAX_KEY);

/// Log space that its undo may take if the rows have come into other leaves meanwhile: two more records.
pub(crate) const UNDO_STRUCTURE: u64 = 2 * change_cost(1, 64) as u64;

const _: () = assert!(UNDO_STRUCTURE <= MAX_STRUCTURE);

/// A load of rows, made by [`Tree::begin_load`].
///
/// After an error the transaction has to be rolled back, at least to where it was before the load. The same holds if
/// this is dropped before [`finish`](Self::finish).
pub struct Loader<'t> {
    tree: &'t Tree,
    xid: Xid,
    /// Bytes of a leaf that are in use at most.
    fill: usize,
    leaf: Packed,
    /// Large values of rows in the leaf, and what these depend on.
    chains: Vec<ChainId>,
    dep: Dep,
    /// The largest key so far.
    last: Option<Vec<u8>>,
    taken: u64,
    entered: u64,
}

impl Tree {
    /// Begins a load of rows with keys behind all that the table has. Locks the table exclusively. Leaves are filled to
    /// `percent`.
    ///
    /// # Errors
    /// `Conflict` if the transaction does not see the last row of the table. Those of [`Tree::put`].
    pub fn begin_load(&self, txn: &mut Txn, percent: u8) -> Result<Loader<'_>> {
        txn.exclude_others(self.table())?;
        self.lock(txn, TableMode::Exclusive)?;
        let xid = txn.ensure_xid()?;
        let last = self.last_row_of_all(txn)?;
        if let Some((key, writer)) = &last {
            txn.check_conflict(self.table(), key, *writer)?;
        }
        Ok(Loader {
            tree: self,
            xid,
            fill: CAPACITY * usize::from(percent.min(100)) / 100,
            leaf: Packed::new(self.table()),
            chains: Vec::new(),
            dep: Dep::none(),
            last: last.map(|(key, _)| key),
            taken: 0,
            entered: 0,
        })
    }

    /// Returns the key of the last row that is not deleted, and its writer. The table is locked exclusively.
    fn last_row_of_all(&self, txn: &mut Txn) -> Result<Option<(Vec<u8>, Xid)>> {
        let (mut page, mut before): (_, Option<Vec<u8>>) = ([0; PAGE_SIZE], None);
        loop {
            let goal = before.as_deref().map_or(Goal::End, Goal::Before);
            let pid = self.copy_node::<false>(&mut Structure::of(txn), goal, 0, &mut page)?;
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &page)?;
            for at in (0..node.len()).rev() {
                let row = node.row(at).map_err(damage)?;
                if !row.header.is_ghost() {
                    return Ok(Some((row.key.to_vec(), row.header.xid)));
                }
            }
            let low = node.low().map_err(damage)?;
            if low.is_empty() {
                return Ok(None);
            }
            if before.as_deref().is_some_and(|before| before <= low) {
                return Err(damage("leaves are out of order"));
            }
            before = Some(low.to_vec());
        }
    }

    /// Returns whether a leaf that begins at `low` can be attached behind the leaf `left`, and is to be.
    fn can_follow(&self, pid: PageId, left: &Node<'_>, (leaf, low): (&Packed, &[u8]), is_end: bool) -> Result<bool> {
        let damage = |why| self.corrupted(pid, why);
        let Some(end) = left.len().checked_sub(1) else { return Ok(false) };
        let is_behind = !left.has_high() && left.low().map_err(damage)? < low && left.key(end).map_err(damage)? < low;
        Ok(is_behind && !(is_end && leaf.used() <= left.free()))
    }

    /// Attaches a leaf behind the last one of the tree. Returns false if that cannot be done. `is_end`: no other leaf
    /// follows soon.
    fn attach(&self, txn: &mut Txn, leaf: &Packed, dep: Dep, is_end: bool) -> Result<bool> {
        self.lock(txn, TableMode::Exclusive)?;
        let damage = |why| self.corrupted(self.root(), why);
        let packed = Node::parse(leaf.page()).map_err(damage)?;
        let low = packed.low().map_err(damage)?;
        let (first, last) = (packed.key(0).map_err(damage)?, packed.key(packed.len() - 1).map_err(damage)?);
        let mut body = Vec::with_capacity(MAX_LOAD_BODY);
        Load::encode_front(&mut body, self.root());
        encode_image(&mut body, leaf.page()).map_err(damage)?;
        assert_fits(&body, MAX_LOAD_BODY, "a load");
        let mut undo = Vec::with_capacity(MAX_LOADED_BODY);
        Loaded { root: self.root(), first, last }.encode(&mut undo);
        assert_fits(&undo, MAX_LOADED_BODY, "the undo of a load");
        // A page may be hard to get.
        let mut copy = [0; PAGE_SIZE];
        let pid = self.copy_node::<false>(&mut Structure::of(txn), Goal::At(first), 0, &mut copy)?;
        let can_follow = self.parse(pid, &copy).and_then(|left| self.can_follow(pid, &left, (leaf, low), is_end))?;
        if !can_follow {
            return Ok(false);
        }
        let mut new = txn.with_space(|txn| NewPage::take(self.trees(), &mut Structure::of(txn)))?;
        let open = loop {
            let bytes = change_cost(3, body.len());
            txn.reserve(bytes, undo.len())?;
            let mut left: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), first, 0, bytes)?;
            let pid = left.pid();
            let node = self.parse(pid, &left)?;
            if !self.can_follow(pid, &node, (leaf, low), is_end)? {
                return Ok(false);
            }
            if pid == self.root() || node.free() < low.len() {
                drop(left);
                txn.with_space(|txn| {
                    let structure = &mut Structure::of(txn);
                    if pid == self.root() {
                        self.grow_root(structure)
                    } else {
                        self.make_room(structure, first, 0, low.len())
                    }
                })?;
                continue;
            }
            let was_sound = all_sound(&[&left, leaf.page()]);
            let (mut right, mut map) = (new.page.exclusive(), new.map.exclusive());
            let pages = [pid, right.pid(), map.pid()];
            let record = record(TreeKind::Load, UNDOABLE, 0b010, self.table(), &pages, &body);
            self.trees().apply(&record, &mut [&mut left, &mut right, &mut map])?;
            let kind = TreeKind::Unload as u8;
            let structure = UNDO_STRUCTURE;
            let undo = txn.push_undo(&Undoable { kind, table: self.table(), body: &undo, before: None, structure });
            assert_ne!(undo, UndoPtr::NULL, "a leaf is loaded and has no undo entry");
            txn.log_change(&to_log(&record, &[&body]), dep, &mut [&mut left, &mut right, &mut map]);
            assert_sound(was_sound, &[&left, &right], "the load", pid);
            assert_incomplete(&left, right.pid());
            pause::point("btree: a leaf is loaded");
            new.linked();
            break Unlinked { left: pid, level: 0, separator: low.to_vec() };
        };
        self.trees().counters().loaded_leaves.add(1);
        match self.link(&mut Structure::of(txn), &open) {
            // The leaf stays unlinked. The next operation that finds the space links it.
            Ok(()) | Err(Error::DiskFull { .. } | Error::LogSpace) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Loader<'_> {
    /// Takes the next row. Its key is larger than those before, and than all keys of the table. Rows enter the table a
    /// leaf at a time; [`entered`](Self::entered) says how many have.
    ///
    /// # Errors
    /// `LoadOrder` for a key that is not. `KeyTooLarge`, `ValueTooLarge`. `KeyExists` if the transaction has inserted
    /// rows since the load began. Those of [`Tree::put`].
    pub fn add(&mut self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.check_key(key)?;
        if self.last.as_deref().is_some_and(|last| key <= last) {
            return Err(Error::LoadOrder { table: self.tree.table().into(), row: self.taken, key: key.into() });
        }
        if value.len() <= MAX_INLINE_VALUE {
            self.make_space(txn, key, value.len())?;
            self.leaf.push(self.header(0), key, value);
        } else {
            self.tree.check_large(value.len() as u64)?;
            let (stub, dep) = self.tree.build_chain(txn, value)?;
            let bytes = stub.encode();
            self.make_space(txn, key, bytes.len())?;
            self.chains.push(stub.chain);
            self.dep = self.dep.page(dep.lsn());
            self.leaf.push(self.header(OVERFLOW), key, &bytes);
        }
        self.taken += 1;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Enters the rows that are left, and returns how many rows were loaded.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn finish(mut self, txn: &mut Txn) -> Result<u64> {
        self.flush(txn, true)?;
        assert_eq!(self.taken, self.entered, "rows that a load has taken and entered");
        Ok(self.taken)
    }

    /// Returns how many of the rows that it has taken are in the table.
    #[must_use]
    pub const fn entered(&self) -> u64 {
        self.entered
    }

    fn header(&self, flags: u16) -> RowHeader {
        RowHeader { xid: self.xid, flags, undo: UndoPtr::ABSENT.bits() }
    }

    /// Makes the leaf one in which the row has space, and begins it if it is empty.
    fn make_space(&mut self, txn: &mut Txn, key: &[u8], len: usize) -> Result<()> {
        if !self.leaf.fits(key.len(), len, self.fill) {
            self.flush(txn, false)?;
        }
        if self.leaf.len() == 0 {
            let before = self.last.as_deref().unwrap_or_default();
            // The empty key is the smallest one, and has no separator before it.
            let low = if key.is_empty() { Ok(key) } else { separator(before, key) };
            self.leaf.begin(low.map_err(|why| self.tree.corrupted(self.tree.root(), why))?);
        }
        Ok(())
    }

    /// Enters the rows of the leaf.
    fn flush(&mut self, txn: &mut Txn, is_end: bool) -> Result<()> {
        if self.leaf.len() == 0 {
            return Ok(());
        }
        // Before the rows: an undo removes them first (see `overflow`).
        for chain in self.chains.drain(..) {
            self.tree.adopt(txn, chain)?;
        }
        let dep = std::mem::replace(&mut self.dep, Dep::none());
        if !self.tree.attach(txn, &self.leaf, dep, is_end)? {
            self.insert_all(txn, dep)?;
        }
        self.entered += self.leaf.len() as u64;
        self.leaf.clear();
        Ok(())
    }

    /// Inserts the rows of the leaf one by one.
    fn insert_all(&self, txn: &mut Txn, dep: Dep) -> Result<()> {
        let mut old = Vec::new();
        for at in 0..self.leaf.len() {
            let row = self.leaf.row(at).map_err(|why| self.tree.corrupted(self.tree.root(), why))?;
            let stored = Stored { bytes: row.value, flags: row.header.flags, dep };
            let done = self.tree.write_by(txn, (row.key, Intent::Insert(stored)), LockWait::Wait, &mut old)?;
            if done.is_row() {
                return Err(self.tree.key_exists(row.key));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Loader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("table", &self.tree.table()).field("taken", &self.taken).finish_non_exhaustive()
    }
}
