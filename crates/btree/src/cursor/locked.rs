//! Scans that lock what they read.
//!
//! A serializable scan locks every key that it meets, dead or alive, together with the gap before it, and the gap in which it
//! ends as well, unless that is the gap behind its upper bound. One from the back has that gap from its first rows on, and those
//! of the keys that it meets keep new keys out to the right of where it stands. At other levels, and where it passes over rows that others
//! have, it locks rows alone. Shared locks are entered between reading a leaf and validating it, so that what is handed out is
//! what was locked. The first steps take few rows at a time: who wants one row locks one. Rows locked for update are
//! locked one by one, as by a write, and looked at again with that lock.
//!
//! **Who does not wait** leaves no lock of what it has not handed out: the shared ones that a step has entered go out again if
//! it comes to nothing, because the leaf has changed or a row is refused; and a row is locked for update when nothing before it
//! can be refused any more. What stays are the locks of keys without a row that a serializable scan has passed since the last row
//! that it handed out: they keep nobody from a row, and who inserts there waits as if the scan had gone on.
//!
//! **Who takes what there is**, for update and passing over what others have, does not ask for rows that are gone. By a
//! snapshot that still has such a row it is passed over, whether its remover has ended or not. A row that is there and has changed
//! since is a conflict as everywhere.
//!
//! **The holder first.** Whoever holds a row may be about to insert in front of it, or behind it if it is the last. So the gaps
//! are locked when the row is free, and not while its holder is waited for.

use super::Cursor;
use super::span::{End, Rest, Span};
use crate::descend::{Access, Halt, ReadGuard, Restarts};
use crate::node::{NO_WRITER, Node, Row};
use crate::tree::{Structure, Tree};
use crate::write::Intent;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::{Pinned, Wanted};
use foreshore_lock::{LockWait, Locked, Part, RowLock, Strength, Target};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, RowHolder, Txn};
use std::ops::{Bound, Range};

/// How a scan locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locking {
    lock: RowLock,
    /// Whether nothing may come where it has found nothing.
    gaps: bool,
}

impl Locking {
    pub(super) fn new(lock: RowLock, isolation: Isolation) -> Self {
        Self { lock, gaps: isolation == Isolation::Serializable && lock.on_conflict() != LockWait::SkipLocked }
    }

    /// Whether it is for rows to take, of which those that are gone are none.
    fn takes(self) -> bool {
        self.lock.strength() == Strength::Update && self.lock.on_conflict() == LockWait::SkipLocked
    }

    /// What is locked shared of a key that nobody else holds.
    fn part(self, is_row: bool) -> Option<Part> {
        let row = if is_row { self.lock.strength() == Strength::Share } else { self.gaps };
        match (row, self.gaps) {
            (true, true) => Some(Part::ROW_AND_GAP),
            (true, false) => Some(Part::ROW),
            (false, true) => Some(Part::GAP),
            (false, false) => None,
        }
    }
}

/// What a step has come to.
enum Step {
    /// The rows are at hand.
    Done(Rest),
    /// The leaf has changed while it was read.
    Changed,
    /// That page is not in memory.
    Missing(PageId),
    /// Another transaction holds the row.
    Held(Vec<u8>, Xid),
    /// A row that is to be locked for update.
    Free(Vec<u8>),
    /// A lock that is waited for: of a row, of the gap before that key, or of both.
    Busy(Option<Vec<u8>>, Part),
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
    /// What has been read to the right of it.
    further: Vec<ReadGuard<'p, ONCE>>,
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
        let mut patience = txn.patience();
        let mut pin: Option<Pinned<'_>> = None;
        let rest = loop {
            self.rows(end).clear();
            self.copied_at = txn.last_lsn();
            if span.is_empty() {
                break Rest::Nothing;
            }
            let step = match self.ahead.wanted() {
                Wanted::Again => self.lock_rows::<false>(&tree, txn, span, end, &mut restarts),
                Wanted::Once => self.lock_rows::<true>(&tree, txn, span, end, &mut restarts),
            };
            if !matches!(step, Ok(Step::Done(_) | Step::Free(_))) {
                self.give_up(txn);
            }
            match step? {
                Step::Done(rest) => break rest,
                Step::Changed => tree.restart(&mut restarts),
                Step::Missing(pid) => drop(pin.replace(tree.named(tree.pool().pin_as(pid, self.ahead.wanted()))?)),
                Step::Held(key, holder) => {
                    // Of the row alone: writers that come later stay behind this reader.
                    txn.share(Target::row(tree.table, &key))?;
                    txn.wait_row(tree.table, &key, holder, &mut patience)?;
                }
                Step::Busy(key, part) => txn.share(Target { table: tree.table, key: key.as_deref(), part })?,
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
        self.end_is_locked |= end == End::Back;
        if end == End::Back {
            self.back.reverse();
        }
        self.take_more();
        Ok(rest)
    }

    /// Takes out again what the step that runs has entered.
    fn give_up(&mut self, txn: &mut Txn) {
        for share in self.entered.drain(..) {
            txn.unshare(share);
        }
    }

    /// Locks for update a row that was free when it was met, and says whether that is done. From then on it is the first that a
    /// scan without gaps looks for: what has become free before it meanwhile would leave its lock behind for nothing.
    fn take_row(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        key: Vec<u8>,
        locking: Locking,
        from: &mut Bound<Vec<u8>>,
    ) -> Result<bool> {
        match tree.lock_row(txn, &key, Intent::Take, locking.lock.on_conflict()) {
            Ok(Locked::Row(_)) => {
                if !locking.gaps && !mutant("btree: a scan looks for another row than it has locked") {
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
        let inside = span.entries(&node).map_err(|why| tree.corrupted(leaf.pid(), why))?;
        let mut copy = LeafCopy { leaf: &leaf, node: &node, inside, further: Vec::new() };
        let stale_counts = mutant("btree: a stale copy is a conflict");
        if stale_counts {
            // The writer needs the time of a whole rollback.
            thread::yield_now();
        }
        let step = self.lock_copy(tree, txn, (span, end), &mut copy, restarts);
        // The holders were asked before this: a version that still holds then says that nobody has rolled these rows back
        // meanwhile, so a writer that has ended has committed. Of a copy that is stale nothing counts.
        let counts = leaf.holds() && copy.further.iter().all(Access::holds)
            || match &step {
                Ok(Step::Done(_)) => mutant("gap: no validation after the locks"),
                Err(_) => stale_counts,
                Ok(_) => false,
            };
        if counts { step } else { Ok(Step::Changed) }
    }

    /// Locks what a step takes of a leaf.
    fn lock_copy<'p, const ONCE: bool>(
        &mut self,
        tree: &'p Tree,
        txn: &mut Txn,
        (span, end): (&Span, End),
        copy: &mut LeafCopy<'_, 'p, ONCE>,
        restarts: &Restarts,
    ) -> Result<Step> {
        // A scan from the back has the gap in which the range ends from its first rows on. Who waits asks for it after them. Who
        // does not wait asks before, as the lock of a row for update cannot be given up.
        let begins = end == End::Back && self.locking.gaps && !self.end_is_locked;
        let begins = begins && !mutant("gap: a scan from the back does not lock the gap behind it");
        let waits = self.locking.lock.on_conflict() == LockWait::Wait;
        if begins
            && !waits
            && let Err(step) = self.lock_end(tree, txn, span, copy, restarts)?
        {
            return Ok(step);
        }
        let met = match self.lock_entries(tree, txn, end, copy)? {
            Ok(met) => met,
            Err(step) => return Ok(step),
        };
        if begins
            && waits
            && let Err(step) = self.lock_end(tree, txn, span, copy, restarts)?
        {
            return Ok(step);
        }
        let last = if met > 0 { Some(copy.key(tree, copy.place(met - 1, end))?) } else { None };
        // A scan from the front comes last to the gap in which the range ends. It takes room as a row does.
        let ends = end == End::Front && self.locking.gaps;
        let is_full = ends && !self.has_room(met, end) && last.is_some_and(|last| !span.ends_with(last));
        let row = |last: &[u8]| Rest::Row(last.to_vec());
        if let Some(last) = last.filter(|_| met < copy.inside.len() || is_full) {
            return Ok(Step::Done(row(last)));
        }
        if !ends {
            let rest = span.rest_of(copy.node, &copy.inside, end);
            return Ok(Step::Done(rest.map_err(|why| tree.corrupted(copy.leaf.pid(), why))?));
        }
        match (self.lock_end(tree, txn, span, copy, restarts), last) {
            (Ok(Ok(next)), _) => Ok(Step::Done(next.map_or(Rest::Nothing, Rest::Leaf))),
            (Ok(Err(_)) | Err(_), Some(last)) if !self.rows(end).is_empty() => Ok(Step::Done(row(last))),
            (Ok(Err(step)), _) => Ok(step),
            (Err(error), _) => Err(error),
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
        while met < copy.inside.len() && self.has_room(met, end) {
            let row = copy.node.row(copy.place(met, end)).map_err(|why| tree.corrupted(pid, why))?;
            match self.meet(tree, txn, &row, pid) {
                Ok(Met::Row) => self.rows(end).push(row.key, row.value),
                Ok(Met::Nothing) => {}
                // That is for the next step: what is at hand is handed out before anything is waited for or refused.
                Ok(Met::First(_)) | Err(_) if !self.rows(end).is_empty() => break,
                Ok(Met::First(step)) => return Ok(Err(step)),
                Err(error) => return Err(error),
            }
            met += 1;
        }
        Ok(Ok(met))
    }

    /// Locks the gap behind the entries of the range in a leaf, unless they end with its last key, and says with which key the
    /// range goes on, if it does; or what comes first.
    fn lock_end<'p, const ONCE: bool>(
        &mut self,
        tree: &'p Tree,
        txn: &mut Txn,
        span: &Span,
        copy: &mut LeafCopy<'_, 'p, ONCE>,
        restarts: &Restarts,
    ) -> Result<Result<Option<Vec<u8>>, Step>> {
        let behind = copy.inside.end;
        if !copy.inside.is_empty() && span.ends_with(copy.key(tree, behind - 1)?) {
            return Ok(Ok(None));
        }
        let next = if behind < copy.node.len() {
            Some(copy.key(tree, behind)?.to_vec())
        } else {
            match tree.key_beyond(copy.leaf, restarts, &mut copy.further) {
                Ok(next) => next,
                Err(Halt::Changed | Halt::Open(_)) => return Ok(Err(Step::Changed)),
                Err(Halt::Missing(pid, _)) => return Ok(Err(Step::Missing(pid))),
                Err(Halt::Failed(error)) => return Err(error.in_table(tree.table)),
            }
        };
        if !self.share(txn, Target::gap(tree.table, next.as_deref()))? {
            return Ok(Err(Step::Busy(next, Part::GAP)));
        }
        Ok(Ok(next.filter(|next| !span.ends_before(next))))
    }

    /// Whether a step that has met so many keys takes one more.
    fn has_room(&mut self, met: usize, end: End) -> bool {
        match self.locking.lock.strength() {
            Strength::Share => met < self.step,
            Strength::Update => self.rows(end).is_empty(),
        }
    }

    /// Locks a key of the range, unless something else comes first.
    fn meet(&mut self, tree: &Tree, txn: &mut Txn, row: &Row<'_>, pid: PageId) -> Result<Met> {
        let (lock, gaps, is_row) = (self.locking.lock, self.locking.gaps, !row.header.is_ghost());
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
            RowHolder::Nobody => false,
        };
        if !is_row && self.locking.takes() {
            return Ok(Met::Nothing);
        }
        txn.check_conflict(tree.table, row.key, row.header.xid)?;
        if is_row && !mine && lock.strength() == Strength::Update {
            if lock.on_conflict() == LockWait::NoWait && gaps {
                // The gap first: the lock of a row cannot be given up if the gap is refused.
                self.share(txn, Target::gap(tree.table, Some(row.key)))?;
            }
            return Ok(Met::First(Step::Free(row.key.to_vec())));
        }
        // A row of one's own is locked in its header.
        let part = if mine { gaps.then_some(Part::GAP) } else { self.locking.part(is_row) };
        if let Some(part) = part
            && !self.share(txn, Target { part, ..target })?
        {
            let busy = Step::Busy(Some(row.key.to_vec()), part);
            return Ok(if lock.on_conflict() == LockWait::Wait { Met::First(busy) } else { Met::Nothing });
        }
        Ok(if is_row { Met::Row } else { Met::Nothing })
    }

    /// Enters a shared lock if that needs no wait. False is an error for a scan that refuses to wait.
    fn share(&mut self, txn: &mut Txn, target: Target<'_>) -> Result<bool> {
        let share = txn.try_share_anew(target)?;
        match self.locking.lock.on_conflict() {
            LockWait::NoWait if share.is_none() => return Err(txn.refusal(target, None)),
            LockWait::NoWait | LockWait::SkipLocked => self.entered.extend(share),
            LockWait::Wait => {}
        }
        Ok(share.is_some())
    }
}
