//! Scans in key order, from both ends.
//!
//! A backward scan goes from leaf to leaf without left links. To find the leaf before another one, it descends from the
//! root to the leaf that covers the keys right below the low fence. So latches are only taken downwards and to the
//! right. If that leaf has been split meanwhile, the scan meets its parts one by one.

mod ahead;
mod copy;
mod locked;
mod span;
mod spilled;

use self::ahead::ReadAhead;
use self::copy::Copied;
use self::locked::{Entered, Locking};
use self::span::{End, Rest, Rows, Span};
use self::spilled::FetchedAhead;
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::{GHOST, RowHeader, SLOT};
use crate::node::NO_VERSION;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, Result, TableId};
use foreshore_buffer::AccessPattern;
use foreshore_lock::{RowLock, Strength, TableMode};
use foreshore_txn::{Seen, Snapshot, SnapshotRef, Txn, UndoPtr};
use std::ops::Bound;

/// Entries that the first step of a snapshot scan takes. It is small because most scans end soon.
const FIRST_STEP: usize = 16;
/// Upper bound of the entries of a leaf.
const MAX_STEP: usize = PAGE_SIZE / SLOT;

/// A scan of part of a tree, made by [`Tree::range`]. Rows may be taken from both ends alternately, and each is
/// returned once.
///
/// Leaves are copied without a latch, and rows are returned once the copy has validated. The next leaf is found from
/// the root by a fence, so splits in between do no harm. The cursor sees rows that its own transaction writes between
/// its two ends. A snapshot cursor reads all leaves by the same snapshot.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// The snapshot by which it reads; `None` if it locks what it reads.
    snapshot: Option<SnapshotRef>,
    locking: Locking,
    /// The keys that are not read yet, between the rows at hand; `None` if there are none.
    unread: Option<Span>,
    /// The range that remains if the rows at hand are dropped: the keys between the last rows returned before these
    /// were read.
    from: Span,
    /// Rows at hand.
    front: Rows,
    back: Rows,
    /// The transaction's last change when the rows were copied.
    copied_at: Lsn,
    /// Shared locks of the running step that it may still release, in the order of its requests.
    entered: Vec<Entered>,
    /// The most entries of a leaf that the next step takes. It starts small, and is smaller if each row is locked or
    /// the transaction writes between steps.
    step: usize,
    ahead: ReadAhead,
    spilled: FetchedAhead,
    /// The large value that was returned last.
    large: Vec<u8>,
}

impl Tree {
    /// Scans the rows between two bounds, from either end or both. For a serializable transaction, the found rows stay
    /// unchanged and missing rows stay missing to its end.
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

    /// Scans the newest rows as [`range`](Self::range) does, and locks each row when it is returned, to the end of the
    /// transaction. A serializable transaction locks the keys between them too, unless the lock skips rows.
    ///
    /// A transaction that reads by a snapshot gets a conflict for each row that has changed since. A scan with
    /// `skip_locked` for update also skips rows that were deleted since.
    ///
    /// # Errors
    /// Those of [`range`](Self::range). `RowLocked` if the request is `no_wait` and the table is locked.
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
        snapshot: Option<SnapshotRef>,
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
            large: Vec::new(),
        }
    }
}

impl Cursor {
    /// Returns the next row, or `None` at the end. `txn` is the transaction that the cursor was made for.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `RowLocked`, `Conflict`, `SnapshotTooOld`, `TableDropped`, `DiskFull`, `Corrupted`,
    /// `Io`, `OutOfFrames`, `Poisoned`; with locks for update also `TooManyTransactions`, `TransactionTooLarge`,
    /// `UndoMemory`. The next call continues where this one began.
    pub fn next(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        self.take(txn, End::Front)
    }

    /// Returns the last row that has not been returned, or `None` at the end.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_back(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        self.take(txn, End::Back)
    }

    /// Returns the next row if the cursor has read it already. `None` does not mean that there is no further row.
    #[inline]
    pub fn next_at_hand(&mut self, txn: &Txn) -> Option<(&[u8], &[u8])> {
        if txn.last_lsn() == self.copied_at && self.front.next_stub(End::Front).is_none() {
            self.front.take(End::Front)
        } else {
            None
        }
    }

    /// Returns the key of the next row, or `None` at the end. Unlike [`next`](Self::next) it reads no large value.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_key(&mut self, txn: &mut Txn) -> Result<Option<&[u8]>> {
        self.take_key(txn, End::Front)
    }

    /// Returns the key of the last row that has not been returned, or `None` at the end. Reads no large value.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_key_back(&mut self, txn: &mut Txn) -> Result<Option<&[u8]>> {
        self.take_key(txn, End::Back)
    }

    fn take_key(&mut self, txn: &mut Txn, end: End) -> Result<Option<&[u8]>> {
        let side = self.read(txn, end)?;
        Ok(self.rows(side).take(end).map(|(key, _)| key))
    }

    fn take(&mut self, txn: &mut Txn, end: End) -> Result<Option<(&[u8], &[u8])>> {
        let side = self.read(txn, end)?;
        let stub = self.rows(side).next_stub(end).map(<[u8]>::to_vec);
        let is_large = stub.is_some();
        if let Some(stub) = stub {
            // An error leaves the row at hand.
            self.load_large(txn, stub)?;
        }
        let rows = if side == End::Front { &mut self.front } else { &mut self.back };
        let row = rows.take(end);
        Ok(if is_large { row.map(|(key, _)| (key, &self.large[..])) } else { row })
    }

    /// Reads until a row is at hand, unless none is left, and returns the end from which it was read.
    fn read(&mut self, txn: &mut Txn, end: End) -> Result<End> {
        if txn.last_lsn() != self.copied_at {
            self.forget();
        }
        // No row of a failed step is kept, because the next read may find new rows.
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
        // If no unread keys are left between them, the rows of one end continue with those of the other.
        let is_near = !self.rows(end).is_empty();
        Ok(if is_near == (end == End::Front) { End::Front } else { End::Back })
    }

    /// Reads a large value, for which the caller has the snapshot or the lock of the row.
    #[cold]
    fn load_large(&mut self, txn: &mut Txn, stub: Vec<u8>) -> Result<()> {
        self.large = stub;
        match self.snapshot.clone() {
            Some(snapshot) => self.tree.load_at(txn, &snapshot, &mut self.large),
            None => self.tree.load(&mut self.large),
        }
    }

    fn rows(&mut self, end: End) -> &mut Rows {
        match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        }
    }

    /// Drops the rows at hand, because the transaction has written. They may be stale, and rows may have been added
    /// between the returned ones.
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
        // A transaction that writes between rows has no use for many at a time.
        self.step = 1;
        self.unread = self.from.clone().unless_empty();
    }

    /// Returns the id of the table.
    #[must_use]
    pub const fn table(&self) -> TableId {
        self.tree.table()
    }

    /// Copies the rows of one leaf at one end of the unread keys. A locking scan may copy only some of them.
    fn fill(&mut self, txn: &mut Txn, span: &mut Span, end: End) -> Result<Rest> {
        self.copied_at = txn.last_lsn();
        if let Some(snapshot) = self.snapshot.clone() {
            return self.fill_at(txn, &snapshot, span, end);
        }
        if self.tree.is_retired() {
            // This transaction created the table and rolled that back.
            return Err(Error::TableDropped { table: self.tree.table().into() });
        }
        self.lock_leaf(txn, span, end)
    }

    /// [`fill`](Self::fill) of a scan that reads by `snapshot`.
    fn fill_at(&mut self, txn: &mut Txn, snapshot: &Snapshot, span: &Span, end: End) -> Result<Rest> {
        let _operation = self.tree.begin_read(txn, snapshot)?;
        txn.swap_fetched(&mut self.spilled.fetched);
        let copied = match self.ahead.pattern() {
            AccessPattern::Random => self.copy_leaf::<false>(txn, snapshot, span, end),
            AccessPattern::Scan => self.copy_leaf::<true>(txn, snapshot, span, end),
        };
        txn.swap_fetched(&mut self.spilled.fetched);
        let rest = copied.map_err(|error| self.tree.judge(txn, snapshot, error))?;
        self.take_more();
        Ok(rest)
    }

    /// Doubles the size of the next step.
    fn take_more(&mut self) {
        self.step = (2 * self.step).min(MAX_STEP);
    }

    /// Sets the unread keys after a step.
    fn go_on(&mut self, txn: &mut Txn, span: Span, end: End, rest: Rest) {
        let is_leaf = matches!(rest, Rest::Leaf(_));
        self.unread = span.rest(end, rest);
        if is_leaf {
            self.read_ahead(txn, end);
        }
    }

    /// Copies the rows of a leaf as the snapshot sees them, at most one step.
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
            // This reads without a latch. The copy is valid if the page is unchanged after the versions have been read.
            let rest = tree.copy_rows(&leaf, rows, (span, end, step), |header, image| {
                if is_unfinished {
                    return Ok(Copied::Nothing);
                }
                let RowHeader { xid, undo, .. } = header;
                Ok(match txn.see(snapshot, xid, UndoPtr::from_bits(undo), image, || leaf.holds()) {
                    Seen::Newest if header.is_ghost() => Copied::Ghost,
                    Seen::Newest => Copied::Newest,
                    Seen::Older(flags) if flags & GHOST == 0 => Copied::Older(flags),
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
