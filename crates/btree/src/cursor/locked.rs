//! Scans that lock what they read.
//!
//! A serializable scan covers what it passes by an interval of keys, which grows with each step to exactly the last key
//! that the step hands out; a step that comes to the end of a leaf covers up to the leaf's fence, and one that comes to
//! the end of the range up to the bound that was asked for. A scan from the back does the same downwards. The rest is
//! as [`foreshore_lock`] has it (`range.rs`): the interval grows between reading a leaf and validating it, so that what
//! is handed out is what was locked. Rows need no locks of their own then. At other levels, and where the scan passes
//! over rows that others have, it locks rows alone. The first steps take few rows at a time: a caller that wants one
//! row locks one. Rows locked for update are locked one by one, as by a write, and looked at again with that lock.
//!
//! **`no_wait` and `skip_locked`** leave no lock of what the scan has not handed out: what a step has entered goes out
//! again if it comes to nothing, because the leaf has changed or a row is refused. A row is locked for update when
//! nothing before it can be refused any more: its interval comes first.
//!
//! **`skip_locked` for update** does not ask for rows that are gone. By a snapshot that still has such a row it is
//! passed over, whether its remover has ended or not. A row that is there and has changed since is a conflict as
//! everywhere.
//!
//! **The holder first.** The holder of a row may be about to insert in front of it, or behind it if it is the last. So
//! the interval grows over a row when it is free, and not while its holder is waited for.

use super::Cursor;
use super::span::{End, Rest, Span};
use crate::descend::{Access, ReadGuard, Restarts};
use crate::node::{NO_WRITER, Node, Row};
use crate::tree::{Structure, Tree};
use crate::write::Intent;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::AccessPattern;
use foreshore_lock::{Interval, LockWait, Locked, NewRange, NewShare, RowLock, Strength, Target};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, RowHolder, Txn};
use std::ops::{Bound, Range};

/// How a scan locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locking {
    lock: RowLock,
    /// Whether what it passes stays as it is, and not only the rows.
    ranges: bool,
}

impl Locking {
    pub(super) fn new(lock: RowLock, isolation: Isolation) -> Self {
        Self { lock, ranges: isolation == Isolation::Serializable && lock.on_conflict() != LockWait::SkipLocked }
    }

    /// Whether it is for rows to take, of which those that are gone are none.
    fn takes(self) -> bool {
        self.lock.strength() == Strength::Update && self.lock.on_conflict() == LockWait::SkipLocked
    }
}

/// A lock that a step has entered.
#[derive(Debug)]
pub(super) enum Entered {
    Row(NewShare),
    Range(NewRange),
}

/// What a step has come to.
enum Step {
    /// The rows are at hand.
    Done(Rest),
    /// The leaf has changed while it was read.
    Changed,
    /// A writer is queued on a key that the step would cover. With fewer rows it may come before that key.
    Fewer,
    /// Another transaction holds the row.
    Held(Vec<u8>, Xid),
    /// A row that is to be locked for update.
    Free(Vec<u8>),
    /// A writer has its turn at the row, or waits for it.
    Busy(Vec<u8>),
    /// A writer is queued on a key of the interval.
    Behind(Interval),
}

/// What becomes of one key.
enum Met {
    /// It is locked, and there is a row.
    Row,
    /// There is none, or it is passed over.
    Nothing,
    /// Something else comes first.
    First(Step),
}

/// A leaf that a step reads.
struct LeafCopy<'a, 'p, const ONCE: bool> {
    leaf: &'a ReadGuard<'p, ONCE>,
    /// What it was when it was read.
    node: &'a Node<'a>,
    /// The entries that lie in the range.
    inside: Range<usize>,
}

impl<'a, const ONCE: bool> LeafCopy<'a, '_, ONCE> {
    /// The entry of the range that is met after so many others.
    const fn place(&self, met: usize, end: End) -> usize {
        match end {
            End::Front => self.inside.start + met,
            End::Back => self.inside.end - 1 - met,
        }
    }

    fn key(&self, tree: &Tree, at: usize) -> Result<&'a [u8]> {
        self.node.key(at).map_err(|why| tree.corrupted(self.leaf.pid(), why))
    }
}

impl Cursor {
    /// Takes the next rows of one leaf from one end of a span. What is passed over at that end is cut off.
    pub(super) fn lock_leaf(&mut self, txn: &mut Txn, span: &mut Span, end: End) -> Result<Rest> {
        let (tree, locking) = (self.tree.clone(), self.locking);
        let mut restarts = Restarts::default();
        let rest = loop {
            self.rows(end).clear();
            self.copied_at = txn.last_lsn();
            if span.is_empty() {
                break Rest::Nothing;
            }
            let step = match self.ahead.pattern() {
                AccessPattern::Random => self.lock_rows::<false>(&tree, txn, span, end, &mut restarts),
                AccessPattern::Scan => self.lock_rows::<true>(&tree, txn, span, end, &mut restarts),
            };
            if !matches!(step, Ok(Step::Done(_) | Step::Free(_))) {
                self.give_up(txn);
            }
            match step? {
                Step::Done(rest) => break rest,
                Step::Changed => tree.restart(&mut restarts),
                Step::Fewer => self.step = 1,
                Step::Held(key, holder) => {
                    // Of the row alone: writers that come later stay behind this reader.
                    txn.share(Target::row(tree.table, &key))?;
                    txn.wait_row(tree.table, &key, holder)?;
                }
                Step::Busy(key) => txn.share(Target::row(tree.table, &key))?,
                Step::Behind(interval) => txn.wait_to_cover(tree.table, &interval)?,
                Step::Free(key) => {
                    let taken = self.take_row(&tree, txn, key, locking, span.bound(end));
                    if !matches!(taken, Ok(true)) {
                        self.give_up(txn);
                    }
                    taken?;
                    // What comes before it stays as it is, and is locked for good.
                    self.entered.clear();
                }
            }
        };
        self.entered.clear();
        if end == End::Back {
            self.back.reverse();
        }
        self.take_more();
        Ok(rest)
    }

    /// Takes out again what the step that runs has entered.
    fn give_up(&mut self, txn: &mut Txn) {
        let (locks, owner) = txn.locks();
        for entered in self.entered.drain(..).rev() {
            match entered {
                Entered::Row(share) => locks.unshare(owner, share),
                Entered::Range(range) => locks.uncover(owner, range),
            }
        }
    }

    /// Locks for update a row that was free when it was met, and says whether that is done. From then on it is the first that a
    /// scan of rows alone looks for: what has become free before it meanwhile would leave its lock behind for nothing.
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
            // The row may have gone since it was met: the next look tells.
            Err(Error::Conflict { .. }) if locking.takes() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// One try at a step: reads the leaf, locks what it takes of it, and validates.
    fn lock_rows<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        span: &Span,
        end: End,
        restarts: &mut Restarts,
    ) -> Result<Step> {
        let leaf: ReadGuard<'_, ONCE> = tree.find_again(&mut Structure::of(txn), span.goal(end), 0, 0, restarts)?;
        let mut page = [0; PAGE_SIZE];
        leaf.page().copy_to(0..PAGE_SIZE, &mut page);
        if !leaf.holds() {
            return Ok(Step::Changed);
        }
        let node = tree.parse(leaf.pid(), &page)?;
        tree.note_if_empty(leaf.pid(), &node);
        let inside = span.entries(&node).map_err(|why| tree.corrupted(leaf.pid(), why))?;
        let copy = LeafCopy { leaf: &leaf, node: &node, inside };
        let stale_counts = mutant("btree: a stale copy is a conflict");
        if stale_counts {
            // The writer needs the time of a whole rollback.
            thread::yield_now();
        }
        let step = self.lock_copy(tree, txn, (span, end), &copy);
        // The holders were asked before this: a version that still holds then says that nobody has rolled these rows back
        // meanwhile, so a writer that has ended has committed. Of a copy that is stale nothing counts.
        let counts = leaf.holds()
            || match &step {
                Ok(Step::Done(_)) => mutant("range: no validation after the lock"),
                Err(_) => stale_counts,
                Ok(_) => false,
            };
        if counts { step } else { Ok(Step::Changed) }
    }

    /// Locks what a step takes of a leaf.
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
                // The interval first: the lock of a row cannot be given up if the interval is refused.
                let refused = self.cover(tree, txn, span.passed(end, &Rest::Row(key.clone())))?;
                return Ok(refused.unwrap_or(Step::Free(key)));
            }
            Err(step) => return Ok(step),
        };
        let last = if met > 0 { Some(copy.key(tree, copy.place(met - 1, end))?) } else { None };
        // What lies behind the last row takes room as a row does.
        let has_room = !ranges || self.has_room(end);
        let is_full = |last: &[u8]| !has_room && !span.ends_with(end, last);
        let rest = match last {
            Some(last) if met < copy.inside.len() || is_full(last) => {
                let leads = copy.node.must_lead_to(last, copy.place(met - 1, end));
                leads.map_err(|why| tree.corrupted(copy.leaf.pid(), why))?;
                Rest::Row(last.to_vec())
            }
            _ => {
                let rest = span.rest_of(copy.node, &copy.inside, end);
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

    /// Covers the keys that a step passes; or says what comes first.
    fn cover(&mut self, tree: &Tree, txn: &mut Txn, interval: Interval) -> Result<Option<Step>> {
        let waits = self.locking.lock.on_conflict() == LockWait::Wait;
        let (locks, owner) = txn.locks();
        let new = locks.try_cover(owner, tree.table, &interval);
        let is_covered = new.is_some();
        self.entered.extend(new.map(Entered::Range));
        match is_covered {
            true => Ok(None),
            // What comes before the writer's key is handed out first.
            false if self.step > 1 => Ok(Some(Step::Fewer)),
            false if waits => Ok(Some(Step::Behind(interval))),
            false => Err(locks.range_refusal(owner, tree.table, &interval)),
        }
    }

    /// Locks entries of a leaf as far as there is room for them, and says how many; or what comes before the first row.
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
            let at = copy.place(met, end);
            let (row, place) = (copy.node.row(at).map_err(damage)?, copy.node.place(at).map_err(damage)?);
            match self.meet(tree, txn, &row, pid) {
                Ok(Met::Row) => self.rows(end).push(copy.node, place.key, place.value),
                Ok(Met::Nothing) => {}
                // That is for the next step: what is at hand is handed out before anything is waited for or refused.
                Ok(Met::First(_)) | Err(_) if !self.rows(end).is_empty() => break,
                Ok(Met::First(step)) => {
                    if matches!(step, Step::Free(_)) {
                        // It is locked by its key.
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

    /// Whether a step takes one more row than are at hand.
    fn has_room(&mut self, end: End) -> bool {
        let most = if self.locking.lock.strength() == Strength::Share { self.step } else { 1 };
        self.rows(end).len() < most
    }

    /// Locks a key of the range, unless something else comes first.
    fn meet(&mut self, tree: &Tree, txn: &mut Txn, row: &Row<'_>, pid: PageId) -> Result<Met> {
        let (lock, is_row) = (self.locking.lock, !row.header.is_ghost());
        let target = Target::row(tree.table, row.key);
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
        txn.check_conflict(tree.table, row.key, row.header.xid)?;
        if !is_row {
            return Ok(Met::Nothing);
        }
        if !mine && lock.strength() == Strength::Update {
            return Ok(Met::First(Step::Free(row.key.to_vec())));
        }
        // A row of one's own is locked in its header, and one in an interval by that.
        if mine || self.locking.ranges || self.share(txn, target)? {
            return Ok(Met::Row);
        }
        Ok(match lock.on_conflict() {
            LockWait::Wait => Met::First(Step::Busy(row.key.to_vec())),
            LockWait::NoWait | LockWait::SkipLocked => Met::Nothing,
        })
    }

    /// Enters a shared lock of a row if that needs no wait. False is an error for a scan that refuses to wait.
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
