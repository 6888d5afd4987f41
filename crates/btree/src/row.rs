//! The change of one row under the latch of its leaf: lock, undo entry, edit, log record.

use crate::before::{before, before_lock};
use crate::format::{GHOST, RowHeader};
use crate::node::{self, Place};
use crate::record::{Delta, Logged, RowInsert, RowLock, RowWrite, TreeKind};
use crate::split::structure_cost;
use crate::tree::Tree;
use foreshore_base::{PageId, Result, Xid};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{Change, ExclusiveGuard};
use foreshore_lock::Target;
use foreshore_sync::model::mutant;
use foreshore_txn::{Before, Txn, UndoPtr, Undoable};
use foreshore_wal::Dep;

/// A value as its row holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    /// The value, or a stub.
    pub(crate) bytes: &'a [u8],
    /// [`OVERFLOW`](crate::format::OVERFLOW) with a stub.
    pub(crate) flags: u16,
    /// What its record depends on: those of the chain, with a stub.
    pub(crate) dep: Dep,
}

impl<'a> Stored<'a> {
    /// A value that lies in its row.
    pub(crate) const fn value(bytes: &'a [u8]) -> Self {
        Self { bytes, flags: 0, dep: Dep::none() }
    }
}

/// The new state of an existing row.
#[derive(Clone, Copy)]
pub(crate) enum New<'a> {
    Value(Stored<'a>),
    /// The row is deleted.
    Ghost,
}

/// A row that may be changed, and its state before.
pub(crate) struct Found {
    pub(crate) at: usize,
    pub(crate) place: Place,
    /// Whether the transaction holds the row already.
    pub(crate) mine: bool,
}

impl Tree {
    /// Inserts a row before entry `at` of a leaf that has the space. Returns false if other transactions hold shared
    /// locks of its key.
    pub(crate) fn insert_row(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        at: usize,
        (key, value): (&[u8], Stored<'_>),
    ) -> Result<bool> {
        let (locks, owner) = txn.locks();
        if locks.shared_by_other(owner, Target::row(self.table(), key)) && !mutant("sabotage: an insert asks no reader")
        {
            return Ok(false);
        }
        let Stored { bytes: value, flags, dep } = value;
        let header = RowHeader { xid, flags, undo: 0 };
        let tuple = node::insert_leaf(leaf, at, header, key, value).map_err(|why| self.corrupted(leaf.pid(), why))?;
        let mut bytes = txn.take_buffer();
        let logged = RowInsert { root: self.root(), owner: header.owner(), key, value }.logged(&mut bytes);
        let undo = self.enter_row(txn, leaf.pid(), &logged, None);
        self.log_row(txn, leaf, &logged, dep);
        node::put_undo(leaf, tuple, undo.bits(), value.len());
        txn.return_buffer(bytes);
        Ok(true)
    }

    /// Takes the lock of a row and gives it another value, or makes it a ghost. Returns false if other transactions
    /// hold shared locks of it.
    pub(crate) fn write_row(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        found: &Found,
        (old, new): (&[u8], New<'_>),
    ) -> Result<bool> {
        let pid = leaf.pid();
        let (before_header, lock) = before_lock(txn, found.mine, found.place.header);
        let value = &leaf[found.place.value.clone()];
        let (delta, flags, dep) = match new {
            New::Value(new) => (Delta::between(value, new.bytes), new.flags, new.dep),
            New::Ghost => (Delta { prefix: value.len(), old: &[], new: &[] }, GHOST, Dep::none()),
        };
        let header = RowHeader { xid, flags, undo: 0 };
        let (old_owner, owner) = (before_header.owner(), header.owner());
        let mut bytes = txn.take_buffer();
        let logged = RowWrite { root: self.root(), old_owner, owner, key, delta }.logged(&mut bytes);
        // The page changes from here on, so only numbers are kept.
        let (prefix, cut, len) = (delta.prefix, delta.old.len(), delta.new.len());
        let middle = if let New::Value(new) = new { &new.bytes[prefix..prefix + len] } else { &[] };
        let is_taken = found.mine || self.take_header(txn, xid, leaf, key, found)?;
        if is_taken {
            let at = RowWrite::old_middle(key);
            let before = Before { lock, ..before(before_header, old, prefix..prefix + cut, at) };
            if cut == len {
                // Such an edit cannot fail, so the undo entry may come before it.
                let undo = self.enter_row(txn, pid, &logged, Some(before)).bits();
                node::splice_in_place(leaf, &found.place, RowHeader { undo, ..header }, prefix, middle);
                self.log_row(txn, leaf, &logged, dep);
            } else {
                // The edit comes before the undo entry, so that a damaged page leaves no entry without its change.
                let damage = |why| self.corrupted(pid, why);
                node::splice_value(leaf, found.at, header, (prefix, cut, middle)).map_err(damage)?;
                let undo = self.enter_row(txn, pid, &logged, Some(before)).bits();
                self.log_row(txn, leaf, &logged, dep);
                node::set_header(leaf, found.at, RowHeader { undo, ..header }).map_err(damage)?;
            }
            if flags == GHOST {
                self.note_ghost(pid, key);
            }
        }
        txn.return_buffer(bytes);
        Ok(is_taken)
    }

    /// Takes the lock of a row that is not changed. Returns false if other transactions hold shared locks of it.
    pub(crate) fn lock_alone(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        found: &Found,
        value: &[u8],
    ) -> Result<bool> {
        let is_taken = self.take_header(txn, xid, leaf, key, found)?;
        if is_taken {
            self.enter_lock(txn, xid, leaf, key, &found.place, value);
        }
        Ok(is_taken)
    }

    /// Stores the xid in the header of a row without a holder. If other transactions hold shared locks of the row,
    /// restores the old header and returns false.
    pub(crate) fn take_header(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        Found { place, .. }: &Found,
    ) -> Result<bool> {
        assert_ne!(place.header.xid, xid, "a transaction takes a row of {} that is its own", leaf.pid());
        node::put_header(leaf, place, RowHeader { xid, ..place.header });
        let (locks, owner) = txn.locks();
        let is_shared = locks.shared_by_other(owner, Target::row(self.table(), key));
        if is_shared {
            node::put_header(leaf, place, place.header);
        }
        Ok(!is_shared)
    }

    /// Adds the undo entry of a row lock, and stores its pointer in the header. Nothing is logged, because a crash ends
    /// the lock.
    fn enter_lock(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        place: &Place,
        value: &[u8],
    ) {
        let header = place.header;
        let mut body = txn.take_buffer();
        RowLock { root: self.root(), old_owner: header.owner(), key }.encode(&mut body);
        // The entry has the unchanged value too. A reader of an older version takes it from here when the entries of
        // later versions are gone.
        let before = Some(before(header, value, 0..0, 0));
        let change = Undoable { kind: TreeKind::RowLock as u8, table: self.table(), body: &body, before, structure: 0 };
        let (pid, undo) = (leaf.pid(), txn.push_undo(&change));
        txn.return_buffer(body);
        assert_ne!(undo, UndoPtr::NULL, "a row of {pid} is locked and has no undo entry");
        node::put_header(leaf, place, RowHeader { xid, flags: header.flags, undo: undo.bits() });
        leaf.mark_dirty();
    }

    /// Adds the undo entry of a change of a row of page `pid`, and returns its pointer for the row's header.
    fn enter_row(&self, txn: &mut Txn, pid: PageId, logged: &Logged<'_>, before: Option<Before<'_>>) -> UndoPtr {
        let undo = Undoable {
            kind: logged.undo_kind as u8,
            table: self.table(),
            body: logged.undo,
            before,
            structure: structure_cost(logged.grows),
        };
        let undo = txn.push_undo(&undo);
        assert_ne!(undo, UndoPtr::NULL, "a row of {pid} is written and has no undo entry");
        undo
    }

    /// Logs the change of a row, whose undo entry is the newest.
    fn log_row(&self, txn: &mut Txn, leaf: &mut ExclusiveGuard<'_>, logged: &Logged<'_>, dep: Dep) {
        let body = [logged.body];
        let change =
            Change { kind: logged.kind as u8, flags: UNDOABLE, init_mask: 0, table: self.table(), body: &body };
        txn.log_change(&change, dep, &mut [leaf]);
    }

    /// Stores an undo pointer in the header of a row that was just written.
    pub(crate) fn point_to_undo(&self, leaf: &mut ExclusiveGuard<'_>, key: &[u8], undo: UndoPtr) -> Result<()> {
        self.edit_header(leaf, key, |header| RowHeader { undo: undo.bits(), ..header })
    }

    /// Changes the header of an existing row.
    pub(crate) fn edit_header(
        &self,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        edit: impl FnOnce(RowHeader) -> RowHeader,
    ) -> Result<()> {
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, leaf)?;
        let at = node.search(key).map_err(damage)?.map_err(|_| damage("a row that was written or locked is gone"))?;
        let header = edit(node.row(at).map_err(damage)?.header);
        node::set_header(leaf, at, header).map_err(damage)
    }
}
