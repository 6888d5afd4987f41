//! Scans that lock what they read.
//!
//! A serializable scan locks every key that it meets, dead or alive, together with the gap before it, and the gap in which it
//! ends as well, unless that is the gap behind its upper bound. At other levels, and where it passes over rows that others
//! have, it locks rows alone. Shared locks are entered between reading a leaf and validating it, so that what is handed out is
//! what was locked. The first steps take few rows at a time: who wants one row locks one. Rows locked for update are
//! locked one by one, as by a write, and looked at again with that lock.
//!
//! **Who does not wait** leaves no shared lock of what it has not handed out: those that a step has entered go out again if it
//! comes to nothing, because the leaf has changed or a row is refused.
//!
//! **Who takes what there is**, for update and passing over what others have, does not ask for rows that are gone. By a
//! snapshot that still has such a row it is passed over, whether its remover has ended or not. A row that is there and has changed
//! since is a conflict as everywhere.
//!
//! **The holder first.** Whoever holds a row may be about to insert in front of it. So the gap is locked when the row is free,
//! and not while its holder is waited for.

use super::Cursor;
use crate::descend::{Access, Halt, ReadGuard, Restarts};
use crate::format::SLOT;
use crate::node::{Damage, NO_WRITER, Node, Row};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::Pinned;
use foreshore_lock::{LockWait, Locked, Part, RowLock, Strength, Target};
use foreshore_sync::model::mutant;
use foreshore_txn::{Isolation, RowHolder, Txn};
use std::ops::Bound;

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
    Done,
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
    /// Takes the next rows of one leaf that lie between `start` and the upper bound.
    pub(super) fn take_step(&mut self, txn: &mut Txn, locking: Locking) -> Result<()> {
        let tree = self.tree.clone();
        let mut restarts = Restarts::default();
        let mut patience = txn.patience();
        let mut pin: Option<Pinned<'_>> = None;
        loop {
            self.rows.clear();
            self.bytes.clear();
            self.at = 0;
            self.copied_at = txn.last_lsn();
            if self.is_over() {
                self.from = None;
                break;
            }
            let step = self.lock_rows(&tree, txn, locking, &mut restarts);
            for share in self.entered.drain(..) {
                if !matches!(step, Ok(Step::Done)) {
                    txn.unshare(share);
                }
            }
            match step? {
                Step::Done => break,
                Step::Changed => tree.restart(&mut restarts),
                Step::Missing(pid) => drop(pin.replace(tree.pool().pin(pid)?)),
                Step::Held(key, holder) => txn.wait_row(tree.table, &key, holder, &mut patience)?,
                Step::Busy(key, part) => txn.share(Target { table: tree.table, key: key.as_deref(), part })?,
                Step::Free(key) => {
                    let mut out = Vec::new();
                    match tree.get_exclusive(txn, &key, locking.lock.on_conflict(), &mut out) {
                        Ok(Locked::Skipped) => self.start = Bound::Excluded(key),
                        // The row may have gone since it was met: the next look tells.
                        Err(Error::Conflict { .. }) if locking.takes() => {}
                        outcome => drop(outcome?),
                    }
                }
            }
        }
        self.step = (2 * self.step).min(PAGE_SIZE / SLOT);
        Ok(())
    }

    /// Whether nothing lies between `start` and the upper bound.
    fn is_over(&self) -> bool {
        match (&self.start, &self.upper) {
            (Bound::Included(start), Bound::Included(upper)) => start > upper,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(upper) | Bound::Excluded(upper)) => {
                start >= upper
            }
            _ => false,
        }
    }

    /// One try at a step: reads the leaf, locks what it takes of it, and validates.
    fn lock_rows<'p>(
        &mut self,
        tree: &'p Tree,
        txn: &mut Txn,
        locking: Locking,
        restarts: &mut Restarts,
    ) -> Result<Step> {
        let start = self.first_key();
        let leaf: ReadGuard<'p> = tree.find_again(&mut Structure::of(txn), start, 0, 0, restarts)?;
        let mut page = [0; PAGE_SIZE];
        leaf.page().copy_to(0..PAGE_SIZE, &mut page);
        if !leaf.holds() {
            return Ok(Step::Changed);
        }
        let damage = |why| tree.corrupted(leaf.pid(), why);
        let node = tree.parse(leaf.pid(), &page)?;
        let first = match node.search(start).map_err(damage)? {
            Ok(at) => at + usize::from(matches!(self.start, Bound::Excluded(_))),
            Err(at) => at,
        };
        // Holds what is read to the right of the leaf.
        let mut further = Vec::new();
        let mut at = first;
        let mut ended = false;
        while at < node.len() && !ended && self.has_room(at - first, locking) {
            let row = node.row(at).map_err(damage)?;
            at += 1;
            // The gap in which it ends.
            ended = self.ends_before(row.key);
            let target = Target::gap(tree.table, Some(row.key));
            if ended && locking.gaps && !self.share(txn, target, locking)? {
                return Ok(Step::Busy(Some(row.key.to_vec()), Part::GAP));
            }
            if ended {
                break;
            }
            match self.meet(tree, txn, locking, &row, leaf.pid())? {
                Met::Row => self.push(row.key, row.value),
                Met::Nothing => {}
                Met::First(step) => return Ok(step),
            }
            // Behind the last key that it may find a scan looks for nothing.
            ended = matches!(&self.upper, Bound::Included(upper) if row.key == &upper[..]);
        }
        self.from = None;
        if ended {
            // The gap in which it ends is locked.
        } else if at < node.len() {
            self.from = Some(Bound::Excluded(node.key(at - 1).map_err(damage)?.to_vec()));
        } else if !locking.gaps {
            self.from = high_of(&node).map_err(damage)?;
        } else {
            let next = match tree.key_beyond(&leaf, restarts, &mut further) {
                Ok(next) => next,
                Err(Halt::Changed | Halt::Open(_)) => return Ok(Step::Changed),
                Err(Halt::Missing(pid, _)) => return Ok(Step::Missing(pid)),
                Err(Halt::Failed(error)) => return Err(error),
            };
            if !self.share(txn, Target::gap(tree.table, next.as_deref()), locking)? {
                return Ok(Step::Busy(next, Part::GAP));
            }
            if next.is_some_and(|next| !self.ends_before(&next)) {
                self.from = high_of(&node).map_err(damage)?;
            }
        }
        // The holders were asked before this: a version that still holds then says that nobody has rolled these rows back
        // meanwhile, so a writer that has ended has committed.
        let holds = leaf.holds() && further.iter().all(Access::holds);
        Ok(if holds || mutant("gap: no validation after the locks") { Step::Done } else { Step::Changed })
    }

    /// Whether a step that has met so many keys takes one more.
    fn has_room(&self, met: usize, locking: Locking) -> bool {
        match locking.lock.strength() {
            Strength::Share => met < self.step,
            Strength::Update => self.rows.is_empty(),
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
        if is_row && !mine && lock.strength() == Strength::Update {
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

/// Where the next leaf begins.
fn high_of(node: &Node<'_>) -> Result<Option<Bound<Vec<u8>>>, Damage> {
    Ok(node.high()?.map(|high| Bound::Included(high.to_vec())))
}
