//! Scans that lock what they read.
//!
//! A serializable scan covers the keys that it passes by an interval. With each step the interval grows to exactly the
//! last key that the step returns. At the end of a leaf it grows to the leaf's fence, and at the end of the range to
//! the requested bound. A backward scan does the same downwards. The interval grows between the read of a leaf and its
//! validation ([`foreshore_lock`], `range.rs`). So it locks exactly the returned rows, which need no locks of their
//! own.
//!
//! At other isolation levels, and if it skips locked rows, a scan locks only rows. The first steps take few rows, so a
//! caller that wants one row locks one. Rows for update are locked one by one, as by a write, and read again under that
//! lock.
//!
//! **`no_wait` and `skip_locked`** leave no lock on rows that the scan does not return. A step releases its new locks
//! if the leaf has changed or a row is refused. A row lock for update comes last, when no other request of the step can
//! be refused. So the interval comes before it.
//!
//! **`skip_locked` for update** ignores deleted rows. A row that a snapshot still shows is also skipped if it was
//! deleted, whether its deleter has ended or not. An existing row that has changed since is a conflict, as in any scan.
//!
//! **The holder first.** The holder of a row may be about to insert next to it. So the interval grows over a row only
//! when the row is free, and not while the scan waits for its holder.

use super::Cursor;
use super::locking::{Entered, Locking};
use super::page_copy::LeafCopy;
use super::span::{End, Rest, Span};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::OVERFLOW;
use crate::intent::Intent;
use crate::node::{NO_WRITER, Node, Row};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::AccessPattern;
use foreshore_lock::{Interval, LockWait, Locked, Strength, Target};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread;
use foreshore_txn::{RowHolder, Txn};
use std::cmp::Ordering;
use std::mem;
use std::ops::Bound;

/// The outcome of a step.
enum Step {
    /// The rows are at hand.
    Done(Rest),
    /// The leaf has changed while it was read.
    Changed,
    /// A writer is queued on a key that the step would cover. With fewer rows the step may end before that key.
    Fewer,
    /// Another transaction holds the row.
    Held(Vec<u8>, Xid),
    /// The row is to be locked for update.
    Free(Vec<u8>),
    /// A writer has its turn at the row, or waits for it.
    Busy(Vec<u8>),
    /// A writer is queued on a key of the interval.
    Behind(Interval),
}

/// The outcome for one key of a step.
enum Met {
    /// The key is locked, and it has a row.
    Row,
    /// The key has no row, or the row is skipped.
    Nothing,
    /// The scan has to do something else first.
    First(Step),
}

impl Cursor {
    /// Takes the next rows of one leaf from one end of a span. Skipped keys at that end are removed from the span.
    pub(super) fn lock_leaf(&mut self, tree: &Tree, txn: &mut Txn, span: &mut Span, end: End) -> Result<Rest> {
        let locking = self.locking;
        let mut restarts = Restarts::default();
        let rest = loop {
            self.rows(end).clear();
            self.copied.at = txn.last_lsn();
            if span.is_empty() {
                break Rest::Nothing;
            }
            let step = match self.ahead.pattern() {
                AccessPattern::Random => self.lock_rows::<false>(tree, txn, span, end, &mut restarts),
                AccessPattern::Scan => self.lock_rows::<true>(tree, txn, span, end, &mut restarts),
            };
            if !matches!(step, Ok(Step::Done(_) | Step::Free(_))) {
                self.give_up(txn);
            }
            match step? {
                Step::Done(rest) => break rest,
                Step::Changed => tree.restart(&mut restarts),
                Step::Fewer => self.steps.take_one(),
                Step::Held(key, holder) => {
                    // Locks only this row, so that later writers queue behind this reader.
                    txn.share(Target::row(tree.table(), &key))?;
                    txn.wait_row(tree.table(), &key, holder)?;
                }
                Step::Busy(key) => txn.share(Target::row(tree.table(), &key))?,
                Step::Behind(interval) => txn.wait_to_cover(tree.table(), &interval)?,
                Step::Free(key) => {
                    let taken = self.take_row(tree, txn, key, locking, span.bound(end));
                    if !matches!(taken, Ok(true)) {
                        self.give_up(txn);
                    }
                    taken?;
                    // The interval up to the row is locked for good.
                    self.entered.clear();
                }
            }
        };
        self.entered.clear();
        if end == End::Back {
            self.copied.back.reverse();
        }
        self.steps.grow();
        Ok(rest)
    }

    /// Releases the locks that the running step has entered.
    fn give_up(&mut self, txn: &mut Txn) {
        let (locks, owner) = txn.locks();
        for entered in self.entered.drain(..).rev() {
            match entered {
                Entered::Row(share) => locks.unshare(owner, share),
                Entered::Range(range) => locks.uncover(owner, range),
            }
        }
    }

    /// Locks for update a row that was free when it was met, and returns whether that succeeded. A scan that locks only
    /// rows then begins its next search at this row. Otherwise it might return an earlier row that has become free, and
    /// keep this lock for nothing.
    fn take_row(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        key: Vec<u8>,
        locking: Locking,
        from: &mut Bound<Vec<u8>>,
    ) -> Result<bool> {
        match tree.lock_row(txn, &key, Intent::Take, locking.lock.on_conflict(), &mut Vec::new()) {
            Ok(Locked::Row(_)) => {
                if !locking.ranges && !mutant("btree: a scan looks for another row than it has locked") {
                    *from = Bound::Included(key);
                }
                Ok(true)
            }
            Ok(Locked::Skipped) => {
                *from = Bound::Excluded(key);
                Ok(false)
            }
            Ok(Locked::Absent) => Ok(false),
            // The row may have been deleted since it was met. The next read shows that.
            Err(Error::Conflict { .. }) if locking.takes() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tries one step: reads the leaf, locks the rows that it takes, and validates the leaf.
    fn lock_rows<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        span: &Span,
        end: End,
        restarts: &mut Restarts,
    ) -> Result<Step> {
        assert!(self.entered.is_empty(), "a step begins with locks of another one");
        let copied = self.resume.copy.enter(tree.pool(), end);
        let mut bytes = mem::take(&mut self.resume.copy.bytes);
        let leaf: ReadGuard<'_, ONCE> = match copied {
            Some(leaf) => leaf,
            None => {
                let leaf: ReadGuard<'_, ONCE> =
                    tree.find_again(&mut Structure::of(txn), span.goal(end), 0, 0, restarts)?;
                bytes.resize(PAGE_SIZE, 0);
                leaf.page().copy_to(0..PAGE_SIZE, &mut bytes);
                if !leaf.holds() {
                    self.resume.copy.bytes = bytes;
                    return Ok(Step::Changed);
                }
                leaf
            }
        };
        let step = self.lock_page(tree, txn, (span, end), &leaf, &bytes);
        // Keys before the low fence are in the previous leaf, which only a descent finds.
        let stays = match &step {
            Ok(Step::Done(Rest::Row(key))) => {
                let is_above = |node: Node<'_>| node.compare_low(key).is_ok_and(Ordering::is_lt);
                end == End::Front || tree.parse(leaf.pid(), &bytes).is_ok_and(is_above)
            }
            Ok(Step::Fewer) => true,
            _ => false,
        };
        self.resume.copy.bytes = bytes;
        if stays {
            self.resume.copy.resume_at = Some((leaf.position(), end));
        }
        step
    }

    /// Tries one step in a leaf. `page` is a copy of the leaf.
    fn lock_page<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        (span, end): (&Span, End),
        leaf: &ReadGuard<'_, ONCE>,
        page: &[u8],
    ) -> Result<Step> {
        let node = tree.parse(leaf.pid(), page)?;
        tree.note_if_empty(leaf.pid(), &node);
        let inside = span.entries(&node, end).map_err(|why| tree.corrupted(leaf.pid(), why))?;
        let copy = LeafCopy { leaf, node: &node, inside };
        let stale_counts = mutant("btree: a stale copy is a conflict");
        if stale_counts {
            // The writer needs the time of a whole rollback.
            thread::yield_now();
        }
        let step = self.lock_copy(tree, txn, (span, end), &copy);
        // The holders were checked before this. If the version still holds, no writer has rolled these rows back
        // meanwhile, so a writer that has ended has committed. A stale copy is discarded.
        let counts = leaf.holds()
            || match &step {
                Ok(Step::Done(_)) => mutant("range: no validation after the lock"),
                Err(_) => stale_counts,
                Ok(_) => false,
            };
        if counts { step } else { Ok(Step::Changed) }
    }

    /// Locks the rows that a step takes of a leaf.
    fn lock_copy<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        (span, end): (&Span, End),
        copy: &LeafCopy<'_, '_, ONCE>,
    ) -> Result<Step> {
        let ranges = self.locking.ranges;
        let met = match self.lock_entries(tree, txn, end, copy)? {
            Ok(met) => met,
            Err(Step::Free(key)) if ranges && self.locking.lock.on_conflict() == LockWait::NoWait => {
                // The interval comes first, because a row lock cannot be released if the interval is refused.
                let refused = self.cover(tree, txn, span.passed(end, &Rest::Row(key.clone())))?;
                return Ok(refused.unwrap_or(Step::Free(key)));
            }
            Err(step) => return Ok(step),
        };
        let last = if met > 0 { Some(copy.key(tree, copy.entry_index(met - 1, end))?) } else { None };
        // The keys after the last row count as one more row.
        let has_room = !ranges || self.has_room(end);
        let is_full = |last: &[u8]| !has_room && !span.ends_with(end, last);
        let rest = match last {
            Some(last) if met < copy.inside.len() || is_full(last) => {
                let leads = copy.node.must_lead_to(last, copy.entry_index(met - 1, end));
                leads.map_err(|why| tree.corrupted(copy.leaf.pid(), why))?;
                Rest::Row(self.keys.spare_copy(last))
            }
            _ => {
                let rest = span.rest_of(copy.node, &copy.inside, end, self.keys.spare());
                rest.map_err(|why| tree.corrupted(copy.leaf.pid(), why))?
            }
        };
        if !ranges {
            return Ok(Step::Done(rest));
        }
        let interval = if mutant("range: a step covers its rows alone") {
            match last {
                Some(last) => Interval::of_key(last),
                None => return Ok(Step::Done(rest)),
            }
        } else {
            span.passed(end, &rest)
        };
        Ok(self.cover(tree, txn, interval)?.unwrap_or(Step::Done(rest)))
    }

    /// Covers the keys that a step passes. If that is refused, returns what has to come first.
    fn cover(&mut self, tree: &Tree, txn: &mut Txn, interval: Interval) -> Result<Option<Step>> {
        let waits = self.locking.lock.on_conflict() == LockWait::Wait;
        let (locks, owner) = txn.locks();
        let new = locks.try_cover(owner, tree.table(), &interval);
        let is_covered = new.is_some();
        self.entered.extend(new.map(Entered::Range));
        match is_covered {
            true => Ok(None),
            // Rows before the writer's key are returned first, by a smaller step.
            false if self.steps.size() > 1 => Ok(Some(Step::Fewer)),
            false if waits => Ok(Some(Step::Behind(interval))),
            false => Err(locks.range_refusal(owner, tree.table(), &interval)),
        }
    }

    /// Locks as many entries of a leaf as the step may take, and returns how many. If something has to come before the
    /// first row, returns that step.
    fn lock_entries<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        end: End,
        copy: &LeafCopy<'_, '_, ONCE>,
    ) -> Result<Result<usize, Step>> {
        let pid = copy.leaf.pid();
        let mut met = 0;
        while met < copy.inside.len() && self.has_room(end) {
            let damage = |why| tree.corrupted(pid, why);
            let at = copy.entry_index(met, end);
            let (row, place) = (copy.node.row(at).map_err(damage)?, copy.node.place(at).map_err(damage)?);
            match self.meet(tree, txn, &row, pid) {
                Ok(Met::Row) => {
                    self.rows(end).push(copy.node, place.key, place.value);
                    if row.header.flags & OVERFLOW != 0 {
                        self.rows(end).mark_large();
                    }
                }
                Ok(Met::Nothing) => {}
                // The next step does that. Rows at hand are returned before the scan waits or fails.
                Ok(Met::First(_)) | Err(_) if !self.rows(end).is_empty() => break,
                Ok(Met::First(step)) => {
                    if matches!(step, Step::Free(_)) {
                        // The row will be locked by its key.
                        copy.node.must_lead_to(row.key, at).map_err(damage)?;
                    }
                    return Ok(Err(step));
                }
                Err(error) => return Err(error),
            }
            met += 1;
        }
        Ok(Ok(met))
    }

    /// Returns whether the step takes one more row.
    fn has_room(&mut self, end: End) -> bool {
        let most = if self.locking.lock.strength() == Strength::Share { self.steps.size() } else { 1 };
        self.rows(end).len() < most
    }

    /// Locks a key of the range, unless something has to come first.
    fn meet(&mut self, tree: &Tree, txn: &mut Txn, row: &Row<'_>, pid: PageId) -> Result<Met> {
        let (lock, is_row) = (self.locking.lock, !row.header.is_ghost());
        let target = Target::row(tree.table(), row.key);
        let mine = match txn.row_holder(row.header.xid) {
            RowHolder::Unknown => return Err(tree.corrupted(pid, NO_WRITER)),
            RowHolder::Other(holder) if lock.on_conflict() != LockWait::Wait => {
                return tree.refuse(txn, target, Some(holder), lock.on_conflict()).map(|()| Met::Nothing);
            }
            RowHolder::Other(_) if lock.strength() == Strength::Update => {
                return Ok(Met::First(Step::Free(row.key.to_vec())));
            }
            RowHolder::Other(holder) => return Ok(Met::First(Step::Held(row.key.to_vec(), holder))),
            RowHolder::Me => true,
            RowHolder::None => false,
        };
        tree.note_if_ghost(pid, row);
        if !is_row && self.locking.takes() {
            return Ok(Met::Nothing);
        }
        txn.check_conflict(tree.table(), row.key, row.header.xid)?;
        if !is_row {
            return Ok(Met::Nothing);
        }
        if !mine && lock.strength() == Strength::Update {
            return Ok(Met::First(Step::Free(row.key.to_vec())));
        }
        // The transaction's own row is locked by its header, and a row in an interval by the interval.
        if mine || self.locking.ranges || self.share(txn, target)? {
            return Ok(Met::Row);
        }
        Ok(match lock.on_conflict() {
            LockWait::Wait => Met::First(Step::Busy(row.key.to_vec())),
            LockWait::NoWait | LockWait::SkipLocked => Met::Nothing,
        })
    }

    /// Enters a shared lock of a row if that needs no wait. Returns whether it did. For a `no_wait` scan a refusal is
    /// an error.
    fn share(&mut self, txn: &mut Txn, target: Target<'_>) -> Result<bool> {
        let (locks, owner) = txn.locks();
        let share = locks.try_share(owner, target);
        match self.locking.lock.on_conflict() {
            LockWait::NoWait if share.is_none() => return Err(locks.refusal(owner, target, None)),
            LockWait::NoWait | LockWait::SkipLocked => self.entered.extend(share.map(Entered::Row)),
            LockWait::Wait => {}
        }
        Ok(share.is_some())
    }
}
