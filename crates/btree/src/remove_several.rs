//! The removal of several rows of one leaf, in one step.
//!
//! A remove of one row finds its leaf, latches it and logs a record. Where many rows go, mostly the next one lies in the
//! same leaf and is free, too. Then one descent, one latch and one record do for all of them:
//!
//! 1. Copy the leaf of the first key, without its latch. The run is made of the keys from the first on that have a free
//!    row there, as many as one chunk has undo space for.
//! 2. Reserve log and undo space.
//! 3. Latch the leaf exclusively if it is unchanged. So all that was read there counts.
//! 4. Change each row as any write does: take its header, ask for shared locks, add its undo entry. A row that others
//!    have shared locks of ends the run.
//! 5. Log the run.
//!
//! Each row has its own undo entry, since rows of a leaf go different ways later: by splits and merges, and by what
//! other transactions do with them. So readers, rollbacks and savepoints see single removals, and each is compensated
//! by itself. Entries cost little beside a record and a descent.
//!
//! Whatever else is met is left to the removal of a single row: a row that is held or locked, a large value, damage,
//! short undo space. Nothing is locked then.

use crate::access::{Access, ReadGuard};
use crate::before::{before, before_lock};
use crate::descend::Restarts;
use crate::format::{GHOST, OVERFLOW, RowHeader};
use crate::node::{self, Goal, Node};
use crate::record::TreeKind;
use crate::row::Found;
use crate::rows_record::{DeletedRow, RESTORE_BODY, ROW_IN_ROWS, ROWS_FRONT, RowsBody};
use crate::sound::assert_fits;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Result, Xid};
use foreshore_buffer::format::{SEVERAL, UNDOABLE};
use foreshore_buffer::{Change, PagePosition, change_cost};
use foreshore_lock::{LockWait, TableMode};
use foreshore_txn::{Before, RowHolder, RowPosition, SeveralUndo, Txn, UndoPtr, Undoable};
use foreshore_wal::Dep;
use std::cmp::Ordering;

/// Free rows of one leaf, and what their removal needs.
struct Run {
    leaf: PagePosition,
    rows: Vec<Found>,
    undo: SeveralUndo,
    /// Bytes of the record's body.
    body: usize,
}

impl Tree {
    /// Deletes the rows of the first of `keys`, which ascend, if that takes one step. Returns how many rows: none if the
    /// first one is to be removed by itself.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove_several(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<usize> {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys of rows to be removed are out of order");
        if keys.len() < 2 {
            return Ok(0);
        }
        self.lock_by(txn, TableMode::IntentExclusive, LockWait::Wait)?;
        // Removes still work on a full disk.
        txn.freeing(|txn| {
            let Some(run) = self.run_of(txn, keys)? else { return Ok(0) };
            // The error is reported by the removal of a single row, which needs less.
            if !matches!(txn.try_reserve_several(change_cost(1, run.body), &run.undo), Ok(true)) {
                return Ok(0);
            }
            let removed = self.remove_run(txn, &run, keys)?;
            txn.after_xid().map(|()| removed)
        })
    }

    /// Reads the leaf of the first key and returns its run; `None` if there is none.
    fn run_of(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<Option<Run>> {
        let mut page = [0; PAGE_SIZE];
        let leaf: ReadGuard<'_> =
            self.find_again(&mut Structure::of(txn), Goal::At(&keys[0]), 0, 0, &mut Restarts::default())?;
        leaf.page().copy_to(0..PAGE_SIZE, &mut page);
        if !leaf.holds() {
            return Ok(None);
        }
        // Damage is reported by the removal of a single row.
        let Ok(node) = self.parse(leaf.pid(), &page) else { return Ok(None) };
        let mut run = Run { leaf: leaf.position(), rows: Vec::new(), undo: SeveralUndo::default(), body: ROWS_FRONT };
        let (mut next, mut known) = (0, None);
        for key in keys {
            let Some(found) = self.free_row(txn, &node, key, next, &mut known) else { break };
            if !run.undo.add(RESTORE_BODY + key.len(), found.place.value.len()) {
                break;
            }
            txn.expect_undo(UndoPtr::from_bits(found.place.header.undo));
            next = found.at + 1;
            run.body += ROW_IN_ROWS + key.len();
            run.rows.push(found);
        }
        Ok((run.rows.len() > 1).then_some(run))
    }

    /// Returns the row of `key`, which is probably entry `next`, if this transaction can take it at once. `known` has
    /// the last writer of a row that was asked for, and whether it is this transaction.
    fn free_row(
        &self,
        txn: &mut Txn,
        node: &Node<'_>,
        key: &[u8],
        next: usize,
        known: &mut Option<(Xid, bool)>,
    ) -> Option<Found> {
        let is_next = next < node.len() && node.compare_key(next, key).is_ok_and(Ordering::is_eq);
        let at = if is_next { next } else { node.search(key).ok()?.ok()? };
        let place = node.place(at).ok()?;
        let RowHeader { xid, flags, .. } = place.header;
        if place.header.is_ghost() || flags & OVERFLOW != 0 {
            return None;
        }
        if let Some((_, mine)) = known.filter(|&(writer, _)| writer == xid) {
            return Some(Found { at, place, mine });
        }
        let mine = match txn.row_holder(xid) {
            RowHolder::Me => true,
            RowHolder::None => false,
            RowHolder::Other(_) | RowHolder::Unknown => return None,
        };
        // A row that has changed since the snapshot is a conflict.
        txn.check_conflict(self.table(), key, xid).ok()?;
        *known = Some((xid, mine));
        Some(Found { at, place, mine })
    }

    /// Removes the rows of a run, up to one that others have shared locks of, if their leaf is unchanged. Returns how
    /// many.
    fn remove_run(&self, txn: &mut Txn, run: &Run, keys: &[Vec<u8>]) -> Result<usize> {
        let Some(mut leaf) = self.pool().exclusive_at(run.leaf) else { return Ok(0) };
        let Some(xid) = txn.try_xid() else { return Ok(0) };
        let owner = RowHeader { xid, flags: GHOST, undo: 0 }.owner();
        let mut body = RowsBody::begin(Vec::new(), run.body, self.root(), owner);
        let (mut last, mut undo) = (None, txn.take_buffer());
        for (found, key) in run.rows.iter().zip(keys) {
            let (header, lock) = before_lock(txn, found.mine, found.place.header);
            if !found.mine && !self.take_header(txn, xid, &mut leaf, key, found)? {
                break;
            }
            let row = DeletedRow { old_owner: header.owner(), key };
            let pointer = self.enter_removal(txn, &leaf[found.place.value.clone()], &row, (header, lock), &mut undo);
            node::put_header(&mut leaf, &found.place, RowHeader { xid, flags: GHOST, undo: pointer.bits() });
            body.push(&row);
            last = Some(found.at);
        }
        txn.return_buffer(undo);
        let Some(at) = last else { return Ok(0) };
        let (count, body) = body.end();
        assert_fits(&body, run.body, "a removal of several rows");
        let change = Change {
            kind: TreeKind::RowsDelete as u8,
            flags: UNDOABLE | SEVERAL,
            init_mask: 0,
            table: self.table(),
            body: &[&body],
        };
        txn.log_several(count, &change, Dep::none(), &mut [&mut leaf]);
        self.note_ghost(leaf.pid(), &keys[0]);
        txn.note_row(self.table(), RowPosition { page: leaf.position(), at }, false);
        Ok(usize::from(count))
    }

    /// Adds the undo entry of the removal of a row with `value`. `header` is from before the entry `lock`, which the
    /// new one replaces unless it is null. Overwrites `undo`.
    fn enter_removal(
        &self,
        txn: &mut Txn,
        value: &[u8],
        row: &DeletedRow<'_>,
        (header, lock): (RowHeader, UndoPtr),
        undo: &mut Vec<u8>,
    ) -> UndoPtr {
        undo.clear();
        row.encode_undo(self.root(), undo);
        let before = Some(Before { lock, ..before(header, value, 0..0, 0) });
        let kind = TreeKind::RowRestore as u8;
        let pointer =
            txn.push_one_of_several(&Undoable { kind, table: self.table(), body: undo, before, structure: 0 });
        assert_ne!(pointer, UndoPtr::NULL, "a row is removed and has no undo entry");
        pointer
    }
}
