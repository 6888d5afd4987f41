//! Scans that lock what they read.
//!
//! A serializable scan locks every key that it meets, dead or alive, together with the gap before it, and the gap in which it
//! ends as well, unless that is the gap behind its upper bound. One from the back begins with that gap, and those of the keys
//! that it meets keep new keys out to the right of where it stands. At other levels, and where it passes over rows that others
//! have, it locks rows alone. Shared locks are entered between reading a leaf and validating it, so that what is handed out is
//! what was locked. The first steps take few rows at a time: who wants one row locks one. Rows locked for update are
//! locked one by one, as by a write, and looked at again with that lock.
//!
//! **Who does not wait** leaves no lock of what it has not handed out: the shared ones that a step has entered go out again if
//! it comes to nothing, because the leaf has changed or a row is refused; and a row is locked for update when nothing before it
//! can be refused any more.
//!
//! **Who takes what there is**, for update and passing over what others have, does not ask for rows that are gone. By a
//! snapshot that still has such a row it is passed over, whether its remover has ended or not. A row that is there and has changed
//! since is a conflict as everywhere.
//!
//! **The holder first.** Whoever holds a row may be about to insert in front of it. So the gap is locked when the row is free,
//! and not while its holder is waited for.

use super::Cursor;
use super::span::{End, Rest, Span};
use crate::descend::{Access, Halt, ReadGuard, Restarts};
use crate::format::SLOT;
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
                Step::Missing(pid) => drop(pin.replace(tree.pool().pin_as(pid, self.ahead.wanted())?)),
                Step::Held(key, holder) => txn.wait_row(tree.table, &key, holder, &mut patience)?,
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
        self.step = (2 * self.step).min(PAGE_SIZE / SLOT);
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
        let locking = self.locking;
        let leaf: ReadGuard<'_, ONCE> = tree.find_again(&mut Structure::of(txn), span.goal(end), 0, 0, restarts)?;
        let mut page = [0; PAGE_SIZE];
        leaf.page().copy_to(0..PAGE_SIZE, &mut page);
        if !leaf.holds() {
            return Ok(Step::Changed);
        }
        let damage = |why| tree.corrupted(leaf.pid(), why);
        let node = tree.parse(leaf.pid(), &page)?;
        let inside = span.entries(&node).map_err(damage)?;
        // Holds what is read to the right of the leaf.
        let mut further = Vec::new();
        // A scan from the back begins with the gap in which the range ends, one from the front comes there last.
        let begins = end == End::Back && locking.gaps && !self.end_is_locked;
        if begins && !mutant("gap: a scan from the back does not lock the gap behind it") {
            match self.lock_end(tree, txn, span, (&leaf, &node, &inside), restarts, &mut further)? {
                Ok(_) => {}
                Err(step) => return Ok(step),
            }
        }
        let stale_counts = mutant("btree: a stale copy is a conflict");
        if stale_counts {
            // The writer needs the time of a whole rollback.
            thread::yield_now();
        }
        let place = |met: usize| if end == End::Front { inside.start + met } else { inside.end - 1 - met };
        let mut met = 0;
        while met < inside.len() && self.has_room(met, end) {
            let row = node.row(place(met)).map_err(damage)?;
            met += 1;
            match self.meet(tree, txn, locking, &row, leaf.pid()) {
                Ok(Met::Row) => self.rows(end).push(row.key, row.value),
                Ok(Met::Nothing) => {}
                // With the gaps before it locked nothing comes before a free row, if nothing has.
                Ok(Met::First(Step::Free(_))) if !leaf.holds() => return Ok(Step::Changed),
                Ok(Met::First(step)) => return Ok(step),
                // Of a copy that is stale nothing counts: the writer that it shows has taken its change back, perhaps.
                Err(_) if !leaf.holds() && !stale_counts => return Ok(Step::Changed),
                Err(error) => return Err(error),
            }
        }
        let last = if met > 0 { Some(node.key(place(met - 1)).map_err(damage)?) } else { None };
        // The gap in which the range ends, too, takes room, if it is in this leaf.
        let is_full = end == End::Front && !self.has_room(met, end) && inside.end < node.len();
        let rest = match last.filter(|last| met < inside.len() || is_full && !span.ends_with(last)) {
            Some(last) => Rest::Row(last.to_vec()),
            None if end == End::Front && locking.gaps => {
                match self.lock_end(tree, txn, span, (&leaf, &node, &inside), restarts, &mut further)? {
                    Ok(true) => span.rest_of(&node, &inside, end).map_err(damage)?,
                    Ok(false) => Rest::Nothing,
                    Err(step) => return Ok(step),
                }
            }
            None => span.rest_of(&node, &inside, end).map_err(damage)?,
        };
        // The holders were asked before this: a version that still holds then says that nobody has rolled these rows back
        // meanwhile, so a writer that has ended has committed.
        let holds = leaf.holds() && further.iter().all(Access::holds);
        Ok(if holds || mutant("gap: no validation after the locks") { Step::Done(rest) } else { Step::Changed })
    }

    /// Locks the gap behind the entries `inside` of a leaf, unless they end with the last key of the range, and says whether the
    /// range goes on behind it; or what comes first.
    fn lock_end<'p, const ONCE: bool>(
        &mut self,
        tree: &'p Tree,
        txn: &mut Txn,
        span: &Span,
        (leaf, node, inside): (&ReadGuard<'p, ONCE>, &Node<'_>, &Range<usize>),
        restarts: &Restarts,
        further: &mut Vec<ReadGuard<'p, ONCE>>,
    ) -> Result<Result<bool, Step>> {
        let key = |at: usize| node.key(at).map_err(|why| tree.corrupted(leaf.pid(), why));
        if !inside.is_empty() && span.ends_with(key(inside.end - 1)?) {
            return Ok(Ok(false));
        }
        let next = if inside.end < node.len() {
            Some(key(inside.end)?.to_vec())
        } else {
            match tree.key_beyond(leaf, restarts, further) {
                Ok(next) => next,
                Err(Halt::Changed | Halt::Open(_)) => return Ok(Err(Step::Changed)),
                Err(Halt::Missing(pid, _)) => return Ok(Err(Step::Missing(pid))),
                Err(Halt::Failed(error)) => return Err(error),
            }
        };
        if !self.share(txn, Target::gap(tree.table, next.as_deref()), self.locking)? {
            return Ok(Err(Step::Busy(next, Part::GAP)));
        }
        Ok(Ok(next.is_some_and(|next| !span.ends_before(&next))))
    }

    /// Whether a step that has met so many keys takes one more.
    fn has_room(&mut self, met: usize, end: End) -> bool {
        match self.locking.lock.strength() {
            Strength::Share => met < self.step,
            Strength::Update => self.rows(end).is_empty(),
        }
    }

    /// Locks a key of the range, unless something else comes first.
    fn meet(&mut self, tree: &Tree, txn: &mut Txn, locking: Locking, row: &Row<'_>, pid: PageId) -> Result<Met> {
        let (lock, is_row) = (locking.lock, !row.header.is_ghost());
        let target = Target::row(tree.table, row.key);
        let mine = match txn.row_holder(row.header.xid) {
            RowHolder::Unknown => return Err(tree.corrupted(pid, NO_WRITER)),
            RowHolder::Other(holder) if lock.on_conflict() != LockWait::Wait => {
                return tree.refuse(txn, target, Some(holder), lock.on_conflict()).map(|()| Met::Nothing);
            }
            RowHolder::Other(_) if lock.strength() == Strength::Update => {
                return Ok(Met::First(Step::Free(row.key.to_vec())));
            }
            RowHolder::Other(holder) => {
                // Of the row alone: writers that come later stay behind this reader.
                let (entered, key) = (self.share(txn, target, locking)?, row.key.to_vec());
                return Ok(Met::First(if entered {
                    Step::Held(key, holder)
                } else {
                    Step::Busy(Some(key), Part::ROW)
                }));
            }
            RowHolder::Me => true,
            RowHolder::Nobody => false,
        };
        if !is_row && locking.takes() {
            return Ok(Met::Nothing);
        }
        txn.check_conflict(tree.table, row.key, row.header.xid)?;
        let free = is_row && !mine && lock.strength() == Strength::Update;
        if free && lock.on_conflict() == LockWait::NoWait && locking.gaps {
            // The gap first: the lock of a row cannot be given up if the gap is refused.
            self.share(txn, Target::gap(tree.table, Some(row.key)), locking)?;
        }
        if free {
            return Ok(Met::First(Step::Free(row.key.to_vec())));
        }
        if let Some(part) = locking.part(is_row)
            && !self.share(txn, Target { part, ..target }, locking)?
        {
            let busy = Step::Busy(Some(row.key.to_vec()), part);
            return Ok(if lock.on_conflict() == LockWait::Wait { Met::First(busy) } else { Met::Nothing });
        }
        Ok(if is_row { Met::Row } else { Met::Nothing })
    }

    /// Enters a shared lock if that needs no wait. False is an error for a scan that refuses to wait.
    fn share(&mut self, txn: &mut Txn, target: Target<'_>, locking: Locking) -> Result<bool> {
        let share = txn.try_share_anew(target)?;
        match locking.lock.on_conflict() {
            LockWait::NoWait if share.is_none() => return Err(txn.refusal(target, None)),
            LockWait::NoWait | LockWait::SkipLocked => self.entered.extend(share),
            LockWait::Wait => {}
        }
        Ok(share.is_some())
    }
}
