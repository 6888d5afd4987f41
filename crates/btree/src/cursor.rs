//! Scans in key order, from both ends.
//!
//! A scan from the back comes to leaves from their right. There are no links to the left, so the leaf before another is found
//! from the root, as the one that covers what lies right before the low fence; latches are taken on no way but down and to the
//! right. A leaf that has been split meanwhile is met in its parts.

mod ahead;
mod locked;
mod span;
mod spilled;

use self::ahead::ReadAhead;
use self::locked::{Entered, Locking};
use self::span::{End, Rest, Rows, Span};
use self::spilled::FetchedAhead;
use crate::descend::{Access, ReadGuard, Restarts};
use crate::format::{GHOST, RowHeader, SLOT};
use crate::node::{Damage, NO_VERSION, NodeView, Place};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, Result, TableId};
use foreshore_buffer::AccessPattern;
use foreshore_lock::{RowLock, Strength, TableMode};
use foreshore_txn::{Seen, Snapshot, Txn, UndoPtr};
use std::ops::Bound;
use std::sync::Arc;

/// Entries that a scan by a snapshot takes first: most scans end soon.
const FIRST_STEP: usize = 16;
/// No leaf has more entries.
const MAX_STEP: usize = PAGE_SIZE / SLOT;

/// A scan of part of a tree. Made by [`Tree::range`]. Rows may be taken from both ends in turns; each is handed out once.
///
/// Leaves are copied without a latch, and rows are handed out once the copy has been validated. The next leaf is found
/// from the root by a fence, so splits in between do no harm. Rows that the same transaction writes between the ends of the
/// cursor are seen. A cursor that reads by a snapshot reads all of its leaves by the same one.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// What it reads by; without one it locks what it reads.
    snapshot: Option<Arc<Snapshot>>,
    locking: Locking,
    /// What has not been read yet, between the rows at hand; `None` if that is nothing.
    unread: Option<Span>,
    /// What lies between the last rows that were handed out before those at hand.
    from: Span,
    /// Rows at hand.
    front: Rows,
    back: Rows,
    /// The transaction's last change when the rows were copied.
    copied_at: Lsn,
    /// What the step that runs has locked shared and may give up, in the order of its requests.
    entered: Vec<Entered>,
    /// How many entries of a leaf the next step takes at most: few at first, fewer where each is locked, or the transaction writes
    /// between them.
    step: usize,
    ahead: ReadAhead,
    spilled: FetchedAhead,
}

impl Tree {
    /// A scan of the rows between two bounds, from either end or both. What a serializable transaction finds, and what it does not
    /// find, holds to its end.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `TableDropped`, `SnapshotTooOld`, `TooManyTransactions`.
    pub fn range(&self, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Cursor> {
        let snapshot = txn.reads_at()?;
        match &snapshot {
            Some(snapshot) => drop(self.begin_read(txn, snapshot)?),
            None => self.lock(txn, TableMode::IntentShared)?,
        }
        Ok(self.cursor(txn, snapshot, RowLock::share(), (lower, upper)))
    }

    /// As [`range`](Self::range) over the newest rows, each of which is locked when it is handed out and stays so to the end of the
    /// transaction. A serializable one locks what lies between them too, but for a lock that passes over rows.
    ///
    /// One that reads by a snapshot has a conflict with each row that has changed since. A lock for update that passes over rows
    /// passes over those that have been removed since, too.
    ///
    /// # Errors
    /// As [`range`](Self::range). `RowLocked` if it does not wait, and the table is not free.
    pub fn range_locked(
        &self,
        txn: &mut Txn,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        lock: RowLock,
    ) -> Result<Cursor> {
        let mode = match lock.strength() {
            Strength::Share => TableMode::IntentShared,
            Strength::Update => TableMode::IntentExclusive,
        };
        self.lock_by(txn, mode, lock.on_conflict())?;
        Ok(self.cursor(txn, None, lock, (lower, upper)))
    }

    fn cursor(
        &self,
        txn: &Txn,
        snapshot: Option<Arc<Snapshot>>,
        lock: RowLock,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Cursor {
        let step = if snapshot.is_some() { FIRST_STEP } else { 1 };
        let from = Span { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec) };
        Cursor {
            tree: self.clone(),
            snapshot,
            locking: Locking::new(lock, txn.isolation()),
            unread: from.clone().unless_empty(),
            from,
            front: Rows::default(),
            back: Rows::default(),
            copied_at: txn.last_lsn(),
            entered: Vec::new(),
            step,
            ahead: ReadAhead::default(),
            spilled: FetchedAhead::default(),
        }
    }
}

impl Cursor {
    /// The next row, or `None` at the end. `txn` is the transaction that the cursor was made for.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `RowLocked`, `Conflict`, `SnapshotTooOld`, `TableDropped`, `DiskFull`, `Corrupted`,
    /// `Io`, `OutOfFrames`, `Poisoned`; with locks for update also `TooManyTransactions`, `TransactionTooLarge`, `UndoMemory`. The next call
    /// goes on where this one began.
    pub fn next(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        self.take(txn, End::Front)
    }

    /// The last row of those that have not been handed out, or `None` if all have.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_back(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        self.take(txn, End::Back)
    }

    fn take(&mut self, txn: &mut Txn, end: End) -> Result<Option<(&[u8], &[u8])>> {
        if txn.last_lsn() != self.copied_at {
            self.forget();
        }
        // Not what a step has read: it may fail, or find no row, and there may be rows in it when it is read again.
        if self.rows(end).is_empty()
            && let Some(key) = self.rows(end).last(end).map(<[u8]>::to_vec)
        {
            *self.from.bound(end) = Bound::Excluded(key);
        }
        while self.rows(end).is_empty()
            && let Some(mut span) = self.unread.take()
        {
            match self.fill(txn, &mut span, end) {
                Ok(rest) => self.go_on(txn, span, end, rest),
                Err(error) => {
                    self.rows(end).clear();
                    self.unread = Some(span);
                    return Err(error);
                }
            }
        }
        // With nothing left between them the rows of one end are followed by those of the other.
        let is_near = !self.rows(end).is_empty();
        Ok(match (end, is_near) {
            (End::Front, true) | (End::Back, false) => self.front.take(end),
            (End::Back, true) | (End::Front, false) => self.back.take(end),
        })
    }

    fn rows(&mut self, end: End) -> &mut Rows {
        match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        }
    }

    /// The transaction has written: what is at hand may be stale, and rows may have come between what has been handed out.
    fn forget(&mut self) {
        let last = |near: &Rows, far: &Rows, end| far.last(end).or_else(|| near.last(end)).map(<[u8]>::to_vec);
        if let Some(key) = last(&self.front, &self.back, End::Front) {
            self.from.lower = Bound::Excluded(key);
        }
        if let Some(key) = last(&self.back, &self.front, End::Back) {
            self.from.upper = Bound::Excluded(key);
        }
        self.front.clear();
        self.back.clear();
        // Who writes between rows has no use for many at a time.
        self.step = 1;
        self.unread = self.from.clone().unless_empty();
    }

    /// Its table.
    #[must_use]
    pub const fn table(&self) -> TableId {
        self.tree.table()
    }

    /// Copies the rows of one leaf, or, if they are locked, some of them, at one end of what has not been read.
    fn fill(&mut self, txn: &mut Txn, span: &mut Span, end: End) -> Result<Rest> {
        self.copied_at = txn.last_lsn();
        if let Some(snapshot) = self.snapshot.clone() {
            let _operation = self.tree.begin_read(txn, &snapshot)?;
            txn.swap_fetched(&mut self.spilled.fetched);
            let copied = match self.ahead.pattern() {
                AccessPattern::Random => self.copy_leaf::<false>(txn, &snapshot, span, end),
                AccessPattern::Scan => self.copy_leaf::<true>(txn, &snapshot, span, end),
            };
            txn.swap_fetched(&mut self.spilled.fetched);
            let rest = copied.map_err(|error| self.tree.judge(txn, &snapshot, error))?;
            self.take_more();
            return Ok(rest);
        }
        if self.tree.is_retired() {
            // Created by this transaction, which has rolled that back.
            return Err(Error::TableDropped { table: self.tree.table().into() });
        }
        self.lock_leaf(txn, span, end)
    }

    /// The next step takes twice as much.
    fn take_more(&mut self) {
        self.step = (2 * self.step).min(MAX_STEP);
    }

    /// Notes what is left behind a step.
    fn go_on(&mut self, txn: &mut Txn, span: Span, end: End, rest: Rest) {
        let is_leaf = matches!(rest, Rest::Leaf(_));
        self.unread = span.rest(end, rest);
        if is_leaf {
            self.read_ahead(txn, end);
        }
    }

    /// Copies the rows of a leaf as the snapshot has them, a step at most.
    fn copy_leaf<const ONCE: bool>(
        &mut self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        span: &Span,
        end: End,
    ) -> Result<Rest> {
        let mut restarts = Restarts::default();
        if !self.spilled.begin_leaf(span, end, txn.fetched_is_over()) {
            txn.forget_fetched();
        }
        txn.unwant(0);
        loop {
            let (tree, step) = (&self.tree, self.step);
            let rows = if end == End::Front { &mut self.front } else { &mut self.back };
            let leaf: ReadGuard<'_, ONCE> =
                tree.find_again(&mut Structure::of_reader(txn), span.goal(end), 0, 0, &mut restarts)?;
            let (pid, mut is_spilled, mut is_unfinished) = (leaf.pid(), false, false);
            // Without a latch: what is read counts if the page is unchanged once the versions have been read.
            let rest = tree.copy_rows(&leaf, rows, (span, end, step), |header, image| {
                if is_unfinished {
                    return Ok(Copied::Nothing);
                }
                let RowHeader { xid, undo, .. } = header;
                Ok(match txn.see(snapshot, xid, UndoPtr::from_bits(undo), image, || leaf.holds()) {
                    Seen::Newest if header.is_ghost() => Copied::Ghost,
                    Seen::Newest => Copied::Newest,
                    Seen::Older(flags) if flags & GHOST == 0 => Copied::Older,
                    Seen::Older(_) | Seen::Nothing => Copied::Nothing,
                    Seen::Spilled => {
                        is_spilled = true;
                        Copied::Nothing
                    }
                    Seen::Unfinished => {
                        is_unfinished = true;
                        Copied::Nothing
                    }
                    Seen::Lost => return Err(NO_VERSION),
                })
            });
            if leaf.holds() {
                txn.check_snapshot(snapshot)?;
                let rest = rest.map_err(|why| tree.corrupted(pid, why));
                if is_spilled && !is_unfinished {
                    drop(leaf);
                    let needed = txn.wanted();
                    if let Ok(rest) = rest {
                        self.want_ahead::<ONCE>(txn, snapshot, (span, end), rest);
                    }
                    txn.fetch(snapshot, needed)?;
                    continue;
                }
                if !is_unfinished {
                    return rest;
                }
            }
            txn.unwant(0);
            tree.restart(&mut restarts);
        }
    }
}

/// What a reader finds of a row.
enum Copied {
    /// The row as it is in the leaf.
    Newest,
    /// A version that was put into the buffer.
    Older,
    /// A row that is deleted for everybody who reads from now on.
    Ghost,
    /// Nothing.
    Nothing,
}

impl Tree {
    /// Copies rows of a leaf that lie in a span, a step at most, from one end. `see` says what is found of a row by its header.
    /// All of it counts only if the leaf holds afterwards.
    fn copy_rows<const ONCE: bool>(
        &self,
        leaf: &ReadGuard<'_, ONCE>,
        rows: &mut Rows,
        (span, end, step): (&Span, End, usize),
        mut see: impl FnMut(RowHeader, &mut Vec<u8>) -> Result<Copied, Damage>,
    ) -> Result<Rest, Damage> {
        let node = NodeView::view(leaf.page())?;
        if node.table() != self.table {
            return Err("a node of another table");
        }
        if node.len() == 0 && leaf.holds() {
            self.note_if_empty(leaf.pid(), &node);
        }
        let all = span.entries(&node)?;
        let inside = match end {
            End::Front => all.start..all.end.min(all.start + step),
            End::Back => all.start.max(all.end.saturating_sub(step))..all.end,
        };
        rows.clear();
        let (mut image, mut taken) = (Vec::new(), 0);
        for at in inside.clone() {
            let Place { header, key, value } = node.place(at)?;
            // What is no node, or one that changes, could name the same bytes again and again.
            taken += key.len() + value.len();
            if taken > PAGE_SIZE {
                return Err("the entries of a node overlap");
            }
            match see(header, &mut image)? {
                Copied::Newest => {
                    if rows.is_empty() {
                        rows.make_room(inside.len(), key.len() + value.len());
                    }
                    rows.push(&node, key, value);
                }
                Copied::Older => rows.push_older(&node, key, &image),
                Copied::Ghost => {
                    image.clear();
                    node.append_to(key, &mut image);
                    if leaf.holds() {
                        self.note_ghost(leaf.pid(), &image);
                    }
                }
                Copied::Nothing => {}
            }
        }
        if inside == all {
            return span.rest_of(&node, &inside, end);
        }
        let last = if end == End::Front { inside.end - 1 } else { inside.start };
        let key = node.copy_key(last)?;
        node.must_lead_to(&key, last)?;
        Ok(Rest::Row(key))
    }
}
