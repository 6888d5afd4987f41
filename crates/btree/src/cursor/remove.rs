//! The removal of several rows of one leaf, in one step.
//!
//! A remove of one row finds its leaf, latches it and logs a record. If neighbours are removed, one descent, one latch
//! and one record do for the rows of a leaf:
//!
//! 1. Read the leaf without its latch. The *run* is made of the wanted rows from the first on that no other transaction
//!    holds, as many as one chunk has undo space for. Deleted rows between them are passed.
//! 2. Reserve log and undo space.
//! 3. A serializable transaction covers the keys of a range up to the last row, or up to the end of the leaf, by its
//!    interval, as a scan does.
//! 4. Latch the leaf exclusively if it is unchanged. So all that was read there counts, and an insert into it came
//!    before the read or finds the interval.
//! 5. Change each row as any write does: take its header, ask for shared locks, add its undo entry. A row of which
//!    others have shared locks ends the run.
//! 6. Log the run by one record.
//!
//! **Each row has its own undo entry.** Rows of a leaf part later, by splits and merges, and other transactions change
//! them one by one. So readers, rollbacks and savepoints see removals of single rows. An entry costs little beside a
//! descent and a record.
//!
//! Whatever else is met is left to scans and to the removal of a single row: a row that is held or locked, a large
//! value, damage, short undo space. Nothing is locked then.

use super::span::{End, Rest, Span};
use crate::access::{Access, ReadGuard};
use crate::before::{before, before_lock};
use crate::descend::Restarts;
use crate::format::{GHOST, OVERFLOW, RowHeader};
use crate::node::{self, Damage, Goal, NodeView};
use crate::record::TreeKind;
use crate::row::Found;
use crate::rows_record::{DeletedRow, RESTORE_BODY, ROW_IN_ROWS, ROWS_FRONT, RowsBody};
use crate::sound::assert_fits;
use crate::tree::{Structure, Tree};
use foreshore_base::{Result, Xid};
use foreshore_buffer::format::{SEVERAL, UNDOABLE};
use foreshore_buffer::{Change, ExclusiveGuard, PagePosition, PageRead, change_cost};
use foreshore_lock::{LockWait, TableMode};
use foreshore_sync::model::mutant;
use foreshore_txn::{Before, RowHolder, RowPosition, SeveralUndo, Txn, UndoPtr, Undoable};
use foreshore_wal::Dep;
use std::cmp::Ordering;
use std::ops::Bound;

/// Rows of a leaf for which memory is taken at first.
const SOME: usize = 64;

const OUT_OF_ORDER: Damage = "keys are out of order";

/// How many rows a step has removed, and the lower bound of those that are left, `None` if none are.
pub type RemovedFirst = (usize, Option<Bound<Vec<u8>>>);

/// Free rows of one leaf, and what their removal needs.
#[derive(Default)]
struct Run {
    rows: Vec<Found>,
    /// Their keys, one behind the other, and the end of each.
    keys: Vec<u8>,
    ends: Vec<usize>,
    undo: SeveralUndo,
    /// Bytes of the record behind its front.
    body: usize,
    /// Whether deleted rows lie before the end of the run.
    has_ghosts: bool,
    /// The key of the last entry if its row is deleted, otherwise empty.
    ghost: Vec<u8>,
    /// The last writer that was asked about, and whether it is the transaction itself.
    writer: Option<(Xid, bool)>,
}

/// An entry of a leaf.
enum Entry {
    /// Its row is part of the run.
    Added,
    /// Its row is deleted.
    Passed,
    /// The run ends before it.
    Stops,
}

impl Run {
    fn new() -> Self {
        Self { rows: Vec::with_capacity(SOME), ends: Vec::with_capacity(SOME), ..Self::default() }
    }

    fn key(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[from..self.ends[index]]
    }

    /// Adds the row of entry `at` if the transaction can take it at once.
    fn add<P: PageRead>(&mut self, txn: &mut Txn, tree: &Tree, node: &NodeView<P>, at: usize) -> Result<Entry, Damage> {
        let place = node.place(at)?;
        let RowHeader { xid, flags, .. } = place.header;
        let mine = match self.writer {
            Some((writer, mine)) if writer == xid => mine,
            _ => {
                let mine = match txn.row_holder(xid) {
                    RowHolder::Me => true,
                    RowHolder::None => false,
                    RowHolder::Other(_) | RowHolder::Unknown => return Ok(Entry::Stops),
                };
                // A row that has changed since the snapshot is a conflict, a deleted one, too.
                if txn.check_conflict(tree.table(), &[], xid).is_err() {
                    return Ok(Entry::Stops);
                }
                self.writer = Some((xid, mine));
                mine
            }
        };
        let last = self.rows.len().checked_sub(1).map(|last| self.key(last));
        let before = if self.ghost.is_empty() { last } else { Some(&self.ghost[..]) };
        if before.map_or(Ok(false), |before| node.compare_key(at, before).map(Ordering::is_le))? {
            return Err(OUT_OF_ORDER);
        }
        self.ghost.clear();
        if place.header.is_ghost() {
            self.has_ghosts = true;
            node.append_to(place.key, &mut self.ghost);
            return Ok(Entry::Passed);
        }
        let key = place.key.len();
        if flags & OVERFLOW != 0 || !self.undo.add(RESTORE_BODY + key, place.value.len()) {
            return Ok(Entry::Stops);
        }
        self.body += ROW_IN_ROWS + key;
        node.append_to(place.key.clone(), &mut self.keys);
        self.ends.push(self.keys.len());
        self.rows.push(Found { at, place, mine });
        Ok(Entry::Added)
    }

    /// Checks that a search finds each row, as redo and rollbacks do. The entries ascend from the first row to the
    /// last, so the searches for these two show it for all.
    fn must_be_found<P: PageRead>(&self, node: &NodeView<P>) -> Result<(), Damage> {
        let ends = [0, self.rows.len().saturating_sub(1)];
        let mut ends = ends.into_iter().filter_map(|index| Some((self.rows.get(index)?.at, index)));
        ends.try_for_each(|(at, index)| node.must_lead_to(self.key(index), at))
    }
}

impl Tree {
    /// Deletes the first rows between two bounds, as many as one step takes. Returns how many, and the bound from which
    /// rows are left; `None` if none are. Returns `None` if the first row takes more than one step; nothing is removed
    /// or locked then.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove_first(
        &self,
        txn: &mut Txn,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Result<Option<RemovedFirst>> {
        let mut span = Span { lower, upper };
        if span.is_empty() {
            return Ok(Some((0, None)));
        }
        self.lock_by(txn, TableMode::IntentExclusive, LockWait::Wait)?;
        // Removes still work on a full disk.
        let step = txn.freeing(|txn| self.remove_in(txn, &span))?;
        Ok(step.map(|(count, rest)| {
            let is_left = span.rest(End::Front, rest, &mut Vec::new());
            (count, is_left.then_some(span.lower))
        }))
    }

    /// Deletes the rows of the first of `keys`, which ascend, as many as one step takes. Returns how many: none if the
    /// first one takes more. The transaction has locked what it does not want to change.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove_several(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<usize> {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys of rows to be removed are out of order");
        let Some(first) = keys.first() else { return Ok(0) };
        self.lock_by(txn, TableMode::IntentExclusive, LockWait::Wait)?;
        txn.freeing(|txn| {
            let Some((leaf, run)) = self.run_of(txn, first, keys)? else { return Ok(0) };
            if !self.reserve_run(txn, &run) {
                return Ok(0);
            }
            let removed = self.remove_run(txn, leaf, &run)?;
            txn.after_xid().map(|()| removed.unwrap_or_default())
        })
    }

    /// Makes the run of the first of `keys`, in the leaf of `first`.
    fn run_of(&self, txn: &mut Txn, first: &[u8], keys: &[Vec<u8>]) -> Result<Option<(PagePosition, Run)>> {
        let leaf = self.leaf_to_read(txn, Goal::At(first))?;
        // An inconsistent page and a damaged one are left to the removal of a single row.
        let Ok(node) = self.node(&leaf) else { return Ok(None) };
        let mut run = Run::new();
        for key in keys {
            let next = run.rows.last().map_or(0, |last| last.at + 1);
            let is_next = next < node.len() && node.compare_key(next, key).is_ok_and(Ordering::is_eq);
            let found = if is_next { Ok(Ok(next)) } else { node.search(key) };
            let Ok(Ok(at)) = found else { break };
            let Ok(Entry::Added) = run.add(txn, self, &node, at) else { break };
        }
        Ok(run.must_be_found(&node).is_ok().then(|| (leaf.position(), run)))
    }

    /// Reads the first leaf of a span, and removes the rows in it. Returns how many, and the end of the step.
    fn remove_in(&self, txn: &mut Txn, span: &Span) -> Result<Option<(usize, Rest)>> {
        let Some((leaf, run, rest)) = self.run_of_span(txn, span)? else { return Ok(None) };
        if !run.rows.is_empty() && !self.reserve_run(txn, &run) {
            return Ok(None);
        }
        let Some(covered) = self.cover_passed(txn, || span.passed(End::Front, &rest)) else { return Ok(None) };
        let step = if run.rows.is_empty() {
            Ok(self.pass_leaf(txn, leaf, run.has_ghosts))
        } else {
            self.remove_run(txn, leaf, &run)
        };
        if !matches!(step, Ok(Some(_)))
            && let Some(covered) = covered
        {
            let (locks, owner) = txn.locks();
            locks.uncover(owner, covered);
        }
        let step = step?.map(|count| match count == run.rows.len() {
            true => (count, rest),
            false => (count, Rest::Row(run.key(count - 1).to_vec())),
        });
        txn.after_xid().map(|()| step)
    }

    /// Makes the run of the first leaf of a span. Returns it with the end of the step.
    fn run_of_span(&self, txn: &mut Txn, span: &Span) -> Result<Option<(PagePosition, Run, Rest)>> {
        let leaf = self.leaf_to_read(txn, span.goal(End::Front))?;
        // An inconsistent page and a damaged one are left to the scan.
        let Ok(node) = self.node(&leaf) else { return Ok(None) };
        let mut run = Run::new();
        let Ok(Some(rest)) = self.run_in(txn, span, &node, &mut run) else { return Ok(None) };
        // Keys that no consistent page had are not locked.
        Ok(leaf.holds().then(|| (leaf.position(), run, rest)))
    }

    /// Makes the run of the entries of a span in a leaf. Returns the end of the step; `None` if it takes no entry.
    fn run_in<P: PageRead>(
        &self,
        txn: &mut Txn,
        span: &Span,
        node: &NodeView<P>,
        run: &mut Run,
    ) -> Result<Option<Rest>, Damage> {
        let inside = span.entries(node, End::Front)?;
        let (mut last, mut memory) = (None, Vec::new());
        for at in inside.clone() {
            if let Entry::Stops = run.add(txn, self, node, at)? {
                run.must_be_found(node)?;
                return last.map(|last| span.rest_behind(node, last, End::Front, &mut memory)).transpose();
            }
            last = Some(at);
        }
        run.must_be_found(node)?;
        span.rest_of(node, &inside, End::Front, &mut memory).map(Some)
    }

    fn leaf_to_read(&self, txn: &mut Txn, goal: Goal<'_>) -> Result<ReadGuard<'_>> {
        self.find_again(&mut Structure::of(txn), goal, 0, 0, &mut Restarts::default())
    }

    /// Ends a step in a leaf in which the span has no row. Returns `None` if the leaf has changed, or if the
    /// transaction's snapshot is cancelled: rows that it sees may have been purged.
    fn pass_leaf(&self, txn: &Txn, position: PagePosition, has_ghosts: bool) -> Option<usize> {
        txn.check_conflict(self.table(), &[], Xid::ZERO).ok()?;
        let leaf = ReadGuard::<false>::at(self.pool(), position)?;
        let node = self.node(&leaf).ok()?;
        let low = node.copy_low(Vec::new()).ok()?;
        let is_unchanged = leaf.holds();
        if is_unchanged && has_ghosts {
            self.note_ghost(leaf.pid(), &low);
        } else if is_unchanged {
            self.note_if_empty(leaf.pid(), &node);
        }
        is_unchanged.then_some(0)
    }

    /// Reserves log and undo space for a run. Returns false if there is too little; the removal of a single row, which
    /// needs less, then waits or reports the error.
    fn reserve_run(&self, txn: &mut Txn, run: &Run) -> bool {
        !run.rows.is_empty()
            && matches!(txn.try_reserve_several(change_cost(1, ROWS_FRONT + run.body), &run.undo), Ok(true))
    }

    /// Removes the rows of a run, up to one of which others have shared locks. Returns `None` if that is the first, or
    /// if the leaf has changed.
    fn remove_run(&self, txn: &mut Txn, position: PagePosition, run: &Run) -> Result<Option<usize>> {
        let unchanged = match mutant("sabotage: several rows are removed from a leaf that has changed") {
            true => {
                Some(self.find_again(&mut Structure::of(txn), Goal::At(run.key(0)), 0, 0, &mut Restarts::default())?)
            }
            false => self.pool().exclusive_at(position),
        };
        let Some(mut leaf) = unchanged else { return Ok(None) };
        let Some(xid) = txn.try_xid() else { return Ok(None) };
        let owner = RowHeader { xid, flags: GHOST, undo: 0 }.owner();
        let most = ROWS_FRONT + run.body;
        let mut body = RowsBody::begin(most, self.root(), owner);
        let (mut last, mut undo) = (None::<(&[u8], usize)>, txn.take_buffer());
        for (index, found) in run.rows.iter().enumerate() {
            let key = run.key(index);
            if !self.remove_one_of_run(txn, xid, &mut leaf, (key, found), (&mut body, &mut undo))? {
                break;
            }
            last = Some((key, found.at));
        }
        txn.return_buffer(undo);
        let Some((key, at)) = last else { return Ok(None) };
        let (count, body) = body.end();
        assert!(usize::from(count) <= run.rows.len(), "{count} rows of a run of {} are removed", run.rows.len());
        assert_fits(&body, most, "a removal of several rows");
        let (kind, flags) = (TreeKind::RowsDelete as u8, UNDOABLE | SEVERAL);
        let change = Change { kind, flags, init_mask: 0, table: self.table(), body: &[&body] };
        txn.log_several(count, &change, Dep::none(), &mut [&mut leaf]);
        self.note_ghost(leaf.pid(), key);
        txn.note_row(self.table(), RowPosition { page: leaf.position(), at }, false);
        Ok(Some(usize::from(count)))
    }

    /// Removes a row of a run: adds it to `body`, and adds its undo entry, for which `undo` is memory. Returns false if
    /// others have shared locks of it.
    fn remove_one_of_run(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        (key, found): (&[u8], &Found),
        (body, undo): (&mut RowsBody, &mut Vec<u8>),
    ) -> Result<bool> {
        let (header, lock) = before_lock(txn, found.mine, found.place.header);
        let is_taken = found.mine || self.take_header(txn, xid, leaf, key, found)?;
        if !is_taken && !mutant("sabotage: several rows are removed without asking their readers") {
            return Ok(false);
        }
        let row = DeletedRow { old_owner: header.owner(), key };
        undo.clear();
        row.encode_undo(self.root(), undo);
        let before = Some(Before { lock, ..before(header, &leaf[found.place.value.clone()], 0..0, 0) });
        let kind = TreeKind::RowRestore as u8;
        let entry = Undoable { kind, table: self.table(), body: undo, before, structure: 0 };
        let undo = txn.push_one_of_several(&entry).bits();
        assert_ne!(undo, UndoPtr::NULL.bits(), "a row of {} is removed and has no undo entry", leaf.pid());
        node::put_header(leaf, &found.place, RowHeader { xid, flags: GHOST, undo });
        body.push(&row);
        Ok(true)
    }
}
