//! Scans in key order, from both ends.
//!
//! A backward scan goes from leaf to leaf without left links. To find the leaf before another one, it descends from the
//! root to the leaf that covers the keys right below the low fence. So latches are only taken downwards and to the
//! right. If that leaf has been split meanwhile, the scan meets its parts one by one.

mod ahead;
mod copy;
mod keys;
mod left;
mod locked;
mod locking;
mod page_copy;
mod pop;
mod remove;
mod resume;
mod span;
mod spilled;
mod steps;

use self::ahead::ReadAhead;
use self::keys::Keys;
use self::locking::{Entered, Locking};
pub use self::remove::RemovedFirst;
use self::resume::Resume;
pub use self::span::End;
use self::span::{Rest, Rows, Span, last_taken};
use self::spilled::FetchedAhead;
use self::steps::Steps;
use crate::tree::Tree;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, Result, TableId};
use foreshore_buffer::AccessPattern;
use foreshore_lock::{RowLock, Strength, TableMode};
use foreshore_txn::{Isolation, Snapshot, SnapshotRef, Txn};
use std::ops::Bound;

/// Why a cursor has its tree.
const HAS_TREE: &str = "a cursor has its tree between two steps";

/// Bytes of each buffer that an idle cursor keeps.
const KEPT_BYTES: usize = 4 * PAGE_SIZE;

/// A scan of part of a tree, made by [`Tree::range`]. Rows may be taken from both ends alternately, and each is
/// returned once.
///
/// Leaves are copied without a latch, and rows are returned once the copy has validated. The next leaf is found
/// from the root by a fence, so splits in between do no harm. The cursor sees rows that its own transaction writes
/// between its two ends. A snapshot cursor reads all leaves by the same snapshot.
///
/// One scan after another may use its memory: [`aim`](Self::aim), [`begin`](Self::begin), [`rest`](Self::rest).
#[derive(Debug)]
pub struct Cursor {
    /// `None` only while a step of a locking scan has it. A clone would count references that all threads share.
    tree: Option<Tree>,
    /// The snapshot by which it reads; `None` if it locks what it reads.
    snapshot: Option<SnapshotRef>,
    locking: Locking,
    keys: Keys,
    resume: Resume,
    copied: Copied,
    /// Shared locks of the running step that it may still release, in the order of its requests.
    entered: Vec<Entered>,
    steps: Steps,
    ahead: ReadAhead,
    spilled: FetchedAhead,
    /// The large value that was returned last.
    large: Vec<u8>,
}

/// The rows at hand, for each end.
#[derive(Debug)]
struct Copied {
    front: Rows,
    back: Rows,
    /// The transaction's last change when they were copied.
    at: Lsn,
}

impl Tree {
    /// Scans the rows between two bounds, from either end or both. For a serializable transaction, the found rows stay
    /// unchanged and missing rows stay missing to its end.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `TableDropped`, `SnapshotTooOld`, `TooManyTransactions`.
    pub fn range(&self, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Cursor> {
        let mut cursor = self.cursor(lower, upper);
        cursor.begin(txn)?;
        if let Some(snapshot) = &cursor.snapshot {
            drop(self.begin_read(txn, snapshot)?);
        }
        Ok(cursor)
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
        let mut cursor = self.cursor(lower, upper);
        cursor.begin_locked(txn, lock)?;
        Ok(cursor)
    }

    fn cursor(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Cursor {
        let mut cursor = Cursor::new(self);
        cursor.aim(self, |_| [lower, upper].map(|bound| bound.map(<[u8]>::to_vec)));
        cursor
    }
}

impl Cursor {
    /// Returns a cursor that has no scan.
    #[must_use]
    pub fn new(tree: &Tree) -> Self {
        Self {
            tree: Some(tree.clone()),
            snapshot: None,
            locking: Locking::new(RowLock::share(), Isolation::Snapshot),
            keys: Keys::default(),
            resume: Resume::default(),
            copied: Copied { front: Rows::default(), back: Rows::default(), at: Lsn::ZERO },
            entered: Vec::new(),
            steps: Steps::default(),
            ahead: ReadAhead::default(),
            spilled: FetchedAhead::default(),
            large: Vec::new(),
        }
    }

    /// Sets the tree of the next scan, and its lower and upper bound. `bounds` makes these in two empty vectors, whose
    /// memory is that of earlier bounds.
    pub fn aim(&mut self, tree: &Tree, bounds: impl FnOnce([Vec<u8>; 2]) -> [Bound<Vec<u8>>; 2]) {
        if !self.tree.as_ref().is_some_and(|own| own.is_same(tree)) {
            self.tree = Some(tree.clone());
        }
        self.keys.set(bounds);
    }

    /// Begins a scan, as [`Tree::range`] does. If the table was dropped, the first step of a snapshot scan says so.
    ///
    /// # Errors
    /// Those of [`Tree::range`].
    pub fn begin(&mut self, txn: &mut Txn) -> Result<()> {
        let snapshot = txn.reads_at()?;
        if snapshot.is_none() {
            self.tree().lock(txn, TableMode::IntentShared)?;
        }
        self.start(txn, snapshot, RowLock::share());
        Ok(())
    }

    /// Begins a scan, as [`Tree::range_locked`] does.
    ///
    /// # Errors
    /// Those of [`Tree::range_locked`].
    pub fn begin_locked(&mut self, txn: &mut Txn, lock: RowLock) -> Result<()> {
        let mode = match lock.strength() {
            Strength::Share => TableMode::IntentShared,
            Strength::Update => TableMode::IntentExclusive,
        };
        self.tree().lock_by(txn, mode, lock.on_conflict())?;
        self.start(txn, None, lock);
        Ok(())
    }

    /// Sets the state of a new scan.
    fn start(&mut self, txn: &Txn, snapshot: Option<SnapshotRef>, lock: RowLock) {
        self.steps.begin(snapshot.is_none());
        (self.snapshot, self.locking) = (snapshot, Locking::new(lock, txn.isolation()));
        self.keys.read_again();
        self.resume.clear();
        self.copied.front.clear();
        self.copied.back.clear();
        self.entered.clear();
        self.copied.at = txn.last_lsn();
        (self.ahead, self.spilled) = (ReadAhead::default(), FetchedAhead::default());
    }

    /// Ends a scan. A limited part of its memory is kept.
    pub fn rest(&mut self) {
        self.snapshot = None;
        self.steps.note_taken(self.copied.front.taken() + self.copied.back.taken());
        self.steps.end();
        self.keys.end();
        self.resume.clear();
        (self.ahead, self.spilled) = (ReadAhead::default(), FetchedAhead::default());
        self.copied.front.shrink_to(KEPT_BYTES);
        self.copied.back.shrink_to(KEPT_BYTES);
        self.large.clear();
        self.large.shrink_to(KEPT_BYTES);
    }

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

    /// Returns whether the cursor has read the next row already, with its value. False does not mean that there is no
    /// further row, and rows read before the last write of the transaction do not count.
    #[inline]
    #[must_use]
    pub fn has_at_hand(&self, txn: &Txn) -> bool {
        txn.last_lsn() == self.copied.at
            && !self.copied.front.is_empty()
            && self.copied.front.next_stub(End::Front).is_none()
    }

    /// Takes the next row if the cursor [has read](Self::has_at_hand) it already.
    #[inline]
    pub fn next_at_hand(&mut self) -> Option<(&[u8], &[u8])> {
        self.copied.front.take(End::Front)
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
        let rows = if side == End::Front { &mut self.copied.front } else { &mut self.copied.back };
        let row = rows.take(end);
        Ok(if is_large { row.map(|(key, _)| (key, &self.large[..])) } else { row })
    }

    /// Reads until a row is at hand, unless none is left, and returns the end from which it was read.
    fn read(&mut self, txn: &mut Txn, end: End) -> Result<End> {
        if txn.last_lsn() != self.copied.at {
            self.forget();
        }
        // No row of a failed step is kept, because the next read may find new rows.
        let rows = if end == End::Front { &self.copied.front } else { &self.copied.back };
        if rows.is_empty()
            && let Some(key) = rows.last(end)
        {
            self.keys.set_returned(end, key);
        }
        while self.rows(end).is_empty()
            && let Some(mut span) = self.keys.take_unread()
        {
            let taken = self.rows(end).taken();
            self.steps.note_taken(taken);
            let filled = self.fill(txn, &mut span, end);
            self.keys.put_back(span);
            match filled {
                Ok(rest) => self.go_on(txn, end, rest),
                Err(error) => {
                    self.rows(end).clear();
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
        let tree = self.tree.as_ref().expect(HAS_TREE);
        match &self.snapshot {
            Some(snapshot) => tree.load_at(txn, snapshot, &mut self.large),
            None => tree.load(&mut self.large),
        }
    }

    fn rows(&mut self, end: End) -> &mut Rows {
        match end {
            End::Front => &mut self.copied.front,
            End::Back => &mut self.copied.back,
        }
    }

    /// Drops the rows at hand, because the transaction has written. They may be stale, and rows may have been added
    /// between the returned ones.
    fn forget(&mut self) {
        for end in [End::Front, End::Back] {
            if let Some(key) = last_taken(&self.copied.front, &self.copied.back, end) {
                self.keys.set_returned(end, key);
            }
        }
        self.copied.front.clear();
        self.copied.back.clear();
        // A transaction that writes between rows has no use for many at a time.
        self.steps.take_one();
        self.resume.clear();
        self.keys.read_again();
    }

    /// Returns the key of the last row taken from one end, until the cursor has read other rows.
    #[must_use]
    pub fn last(&self, end: End) -> Option<&[u8]> {
        last_taken(&self.copied.front, &self.copied.back, end)
    }

    /// Returns the id of the table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.tree().table()
    }

    fn tree(&self) -> &Tree {
        self.tree.as_ref().expect(HAS_TREE)
    }

    /// Copies the rows of one leaf at one end of the unread keys. A locking scan may copy only some of them.
    fn fill(&mut self, txn: &mut Txn, span: &mut Span, end: End) -> Result<Rest> {
        self.copied.at = txn.last_lsn();
        if let Some(snapshot) = self.snapshot.take() {
            let rest = self.fill_at(txn, &snapshot, span, end);
            self.snapshot = Some(snapshot);
            return rest;
        }
        if self.tree().is_retired() {
            // This transaction created the table and rolled that back.
            return Err(Error::TableDropped { table: self.table().into() });
        }
        let tree = self.tree.take().expect(HAS_TREE);
        let rest = self.lock_leaf(&tree, txn, span, end);
        self.tree = Some(tree);
        rest
    }

    /// [`fill`](Self::fill) of a scan that reads by `snapshot`.
    fn fill_at(&mut self, txn: &mut Txn, snapshot: &Snapshot, span: &Span, end: End) -> Result<Rest> {
        let _operation = self.tree().begin_read(txn, snapshot)?;
        txn.swap_fetched(&mut self.spilled.fetched);
        let copied = match self.ahead.pattern() {
            AccessPattern::Random => self.copy_leaf::<false>(txn, snapshot, span, end),
            AccessPattern::Scan => self.copy_leaf::<true>(txn, snapshot, span, end),
        };
        txn.swap_fetched(&mut self.spilled.fetched);
        let rest = copied.map_err(|error| self.tree().judge(txn, snapshot, error))?;
        self.steps.grow();
        Ok(rest)
    }

    /// Sets the unread keys after a step.
    fn go_on(&mut self, txn: &mut Txn, end: End, rest: Rest) {
        let is_leaf = matches!(rest, Rest::Leaf(_));
        self.keys.pass(end, rest);
        if is_leaf && let Some(span) = self.keys.unread() {
            let tree = self.tree.as_ref().expect(HAS_TREE);
            self.ahead.request(txn, tree, self.snapshot.as_deref(), (span, end));
        }
    }
}
