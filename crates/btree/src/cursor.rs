//! Scans in key order.

mod locked;

use self::locked::Locking;
use crate::descend::{Access, ReadGuard, Restarts};
use crate::format::{GHOST, RowHeader};
use crate::node::{NO_VERSION, Row};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, PageId, Result};
use foreshore_buffer::Scan;
use foreshore_lock::{NewShare, RowLock, Strength, TableMode};
use foreshore_txn::{Seen, Snapshot, Txn, UndoPtr};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// A scan of part of a tree. Made by [`Tree::range`].
///
/// Leaves are copied without a latch, and rows are handed out once the copy has been validated. The next leaf is found
/// from the root by the high fence, so splits in between do no harm. Rows that the same transaction writes ahead of the
/// cursor are seen. A cursor that reads by a snapshot reads all of its leaves by the same one.
#[derive(Debug)]
pub struct Cursor {
    tree: Tree,
    /// What it reads by; without one it locks what it reads.
    snapshot: Option<Arc<Snapshot>>,
    locking: Locking,
    /// Where the next rows begin; `None` at the end.
    from: Option<Bound<Vec<u8>>>,
    upper: Bound<Vec<u8>>,
    /// Where the rows at hand begin.
    start: Bound<Vec<u8>>,
    /// Keys and values of the rows at hand.
    bytes: Vec<u8>,
    rows: Vec<(Range<usize>, Range<usize>)>,
    /// The row to hand out next.
    at: usize,
    /// The transaction's last change when the rows were copied.
    copied_at: Lsn,
    /// What the step that runs has locked shared and may give up.
    entered: Vec<NewShare>,
    /// How many entries of a leaf the next step takes at most, if it locks them.
    step: usize,
    ahead: ReadAhead,
}

/// How far leaves are read ahead: not for the first one, as most scans are short, and twice as many each time after that.
#[derive(Debug, Default)]
struct ReadAhead {
    /// Its part in what all scans may read ahead, once it does so.
    scan: Option<Scan>,
    /// Leaves that were asked for last.
    window: usize,
    /// Those of them that have not been scanned.
    left: usize,
}

impl Tree {
    /// A scan of the rows between two bounds, in ascending order. What a serializable transaction finds, and what it does not
    /// find, holds to its end.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `SnapshotTooOld`, `TooManyTransactions`.
    pub fn range(&self, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Cursor> {
        let snapshot = txn.reads_at()?;
        self.lock(txn, TableMode::IntentShared)?;
        Ok(self.cursor(txn, snapshot, RowLock::share(), (lower, upper)))
    }

    /// As [`range`](Self::range) over the newest rows, each of which is locked when it is handed out and stays so to the end of the
    /// transaction. A serializable one locks what lies between them too, but for a lock that passes over rows.
    ///
    /// One that reads by a snapshot has a conflict with each row that has changed since. A lock for update that passes over rows
    /// passes over those that have been removed since, too.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn range_locked(
        &self,
        txn: &mut Txn,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        lock: RowLock,
    ) -> Result<Cursor> {
        self.lock(
            txn,
            match lock.strength() {
                Strength::Share => TableMode::IntentShared,
                Strength::Update => TableMode::IntentExclusive,
            },
        )?;
        Ok(self.cursor(txn, None, lock, (lower, upper)))
    }

    fn cursor(
        &self,
        txn: &Txn,
        snapshot: Option<Arc<Snapshot>>,
        lock: RowLock,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Cursor {
        Cursor {
            tree: self.clone(),
            snapshot,
            locking: Locking::new(lock, txn.isolation()),
            from: Some(lower.map(<[u8]>::to_vec)),
            upper: upper.map(<[u8]>::to_vec),
            start: lower.map(<[u8]>::to_vec),
            bytes: Vec::new(),
            rows: Vec::new(),
            at: 0,
            copied_at: txn.last_lsn(),
            entered: Vec::new(),
            step: 1,
            ahead: ReadAhead::default(),
        }
    }

    /// Copies the node on `level` that covers `key`.
    fn copy_node(
        &self,
        structure: &mut Structure<'_>,
        key: &[u8],
        level: u8,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<PageId> {
        let mut restarts = Restarts::default();
        loop {
            let node: ReadGuard<'_> = self.find_again(structure, key, level, 0, &mut restarts)?;
            node.page().copy_to(0..PAGE_SIZE, page);
            if node.holds() {
                return Ok(node.pid());
            }
            self.restart(&mut restarts);
        }
    }

    /// Up to `most` leaves side by side, the first of which covers `key`, where another leaf ends; those below one node, and
    /// none but the first that lies beyond `upper`.
    fn leaves_from(
        &self,
        structure: &mut Structure<'_>,
        key: &[u8],
        upper: &Bound<Vec<u8>>,
        most: usize,
    ) -> Result<Vec<PageId>> {
        let mut page = [0; PAGE_SIZE];
        let pid = self.copy_node(structure, key, 1, &mut page)?;
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &page)?;
        let first = match node.search(key).map_err(damage)? {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        };
        let mut leaves = vec![node.child_for(key).map_err(damage)?];
        for index in first + 1..node.len().min(first + most) {
            let begins = node.key(index).map_err(damage)?;
            match upper {
                Bound::Included(upper) if begins > &upper[..] => break,
                Bound::Excluded(upper) if begins >= &upper[..] => break,
                _ => leaves.push(node.child(index).map_err(damage)?),
            }
        }
        Ok(leaves)
    }
}

impl Cursor {
    /// The next row, or `None` at the end. `txn` is the transaction that the cursor was made for.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `SnapshotTooOld`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`. The next call goes on where
    /// this one began.
    pub fn next(&mut self, txn: &mut Txn) -> Result<Option<(&[u8], &[u8])>> {
        if txn.last_lsn() != self.copied_at {
            // The transaction has written: what is at hand may be stale, and rows may have come behind the last one.
            self.from = Some(match self.at.checked_sub(1) {
                Some(last) => Bound::Excluded(self.bytes[self.rows[last].0.clone()].to_vec()),
                None => self.start.clone(),
            });
            self.rows.clear();
            self.at = 0;
        }
        while self.at == self.rows.len() {
            let Some(from) = self.from.take() else { return Ok(None) };
            self.start = from;
            self.rows.clear();
            self.at = 0;
            if let Err(error) = self.copy_leaf(txn) {
                self.rows.clear();
                self.from = Some(self.start.clone());
                return Err(error);
            }
        }
        let (key, value) = self.rows[self.at].clone();
        self.at += 1;
        Ok(Some((&self.bytes[key], &self.bytes[value])))
    }

    /// Copies the rows of one leaf, or, if they are locked, some of them, that lie between `start` and the upper bound.
    fn copy_leaf(&mut self, txn: &mut Txn) -> Result<()> {
        self.copied_at = txn.last_lsn();
        if self.tree.is_retired() {
            // Created by this transaction, which has taken that back.
            return Err(Error::TableDropped);
        }
        let (tree, snapshot) = (self.tree.clone(), self.snapshot.clone());
        let mut page = [0; PAGE_SIZE];
        let Some(snapshot) = snapshot else {
            self.take_step(txn, self.locking)?;
            self.read_ahead(txn);
            return Ok(());
        };
        let mut restarts = Restarts::default();
        loop {
            let leaf: ReadGuard<'_> =
                tree.find_again(&mut Structure::of(txn), self.first_key(), 0, 0, &mut restarts)?;
            leaf.page().copy_to(0..PAGE_SIZE, &mut page);
            // The copy has to be whole before it is looked at, and the page unchanged until the versions have been read.
            if leaf.holds() {
                let pid = leaf.pid();
                let high = self.copy_rows(pid, &page, |row, image| {
                    let RowHeader { xid, undo, .. } = row.header;
                    match txn.see(&snapshot, xid, UndoPtr::from_bits(undo), image, || leaf.holds()) {
                        Seen::Newest => Ok((!row.header.is_ghost()).then_some(false)),
                        Seen::Older(flags) => Ok((flags & GHOST == 0).then_some(true)),
                        Seen::Nothing => Ok(None),
                        Seen::Lost => Err(tree.corrupted(pid, NO_VERSION)),
                    }
                });
                if leaf.holds() {
                    txn.check_snapshot(&snapshot)?;
                    drop(leaf);
                    self.go_on(txn, high?);
                    return Ok(());
                }
            }
            tree.restart(&mut restarts);
        }
    }

    /// Where the rows at hand begin.
    fn first_key(&self) -> &[u8] {
        match &self.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }

    /// Copies the rows of a leaf, and returns the high fence if the scan goes on behind it. `see` says whether there is a row, and if so,
    /// whether its value is the one that it has put into the buffer.
    fn copy_rows(
        &mut self,
        pid: PageId,
        page: &[u8],
        mut see: impl FnMut(&Row<'_>, &mut Vec<u8>) -> Result<Option<bool>>,
    ) -> Result<Option<Vec<u8>>> {
        self.rows.clear();
        self.bytes.clear();
        self.at = 0;
        let tree = self.tree.clone();
        let damage = |why| tree.corrupted(pid, why);
        let node = tree.parse(pid, page)?;
        let first = match node.search(self.first_key()).map_err(damage)? {
            Ok(at) => at + usize::from(matches!(self.start, Bound::Excluded(_))),
            Err(at) => at,
        };
        let mut image = Vec::new();
        for at in first..node.len() {
            let row = node.row(at).map_err(damage)?;
            if self.ends_before(row.key) {
                return Ok(None);
            }
            let Some(is_older) = see(&row, &mut image)? else { continue };
            self.push(row.key, if is_older { &image } else { row.value });
        }
        Ok(node.high().map_err(damage)?.map(<[u8]>::to_vec))
    }

    /// Whether the scan ends before `key`.
    fn ends_before(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key > &upper[..],
            Bound::Excluded(upper) => key >= &upper[..],
            Bound::Unbounded => false,
        }
    }

    fn push(&mut self, row_key: &[u8], row_value: &[u8]) {
        let key = self.bytes.len();
        self.bytes.extend_from_slice(row_key);
        let value = self.bytes.len();
        self.bytes.extend_from_slice(row_value);
        self.rows.push((key..value, value..self.bytes.len()));
    }

    /// Notes where the next leaf begins.
    fn go_on(&mut self, txn: &mut Txn, high: Option<Vec<u8>>) {
        self.from = high.map(Bound::Included);
        self.read_ahead(txn);
    }

    /// Has the leaves from the next one on read in the background, when half of those asked for before have been scanned.
    fn read_ahead(&mut self, txn: &mut Txn) {
        let Some(Bound::Included(key)) = &self.from else { return };
        let ahead = &mut self.ahead;
        ahead.left = ahead.left.saturating_sub(1);
        if 2 * ahead.left > ahead.window {
            return;
        }
        if ahead.window == 0 {
            ahead.window = 1;
            return;
        }
        let pool = self.tree.pool();
        let most = ahead.scan.get_or_insert_with(|| pool.scan()).depth();
        if most == 0 {
            return;
        }
        ahead.window = (2 * ahead.window).min(most);
        // An error is for the scan, if it gets there.
        let leaves = self.tree.leaves_from(&mut Structure::of(txn), key, &self.upper, ahead.window).unwrap_or_default();
        // At the end of a node there are fewer.
        ahead.left = leaves.len();
        pool.prefetch(&leaves);
    }
}
