//! Scans that lock what they read.
//!
//! Every key that is met, dead or alive, is locked together with the gap before it, and the gap in which the scan ends as well.
//! Locks are entered between reading a leaf and validating it, so that what is handed out is what was locked. The first steps
//! take few rows at a time: who wants one row locks one.

use super::Cursor;
use crate::descend::{Access, Halt, ReadGuard, Restarts};
use crate::format::SLOT;
use crate::node::NO_WRITER;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::Pinned;
use foreshore_lock::{Part, TableMode, Target};
use foreshore_sync::model::mutant;
use foreshore_txn::{RowHolder, Txn};
use std::ops::Bound;

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
    /// A lock that is waited for: of the gap before that key, or of both.
    Busy(Option<Vec<u8>>, Part),
}

impl Cursor {
    /// Takes the next rows of one leaf that lie between `start` and the upper bound.
    pub(super) fn take_step(&mut self, txn: &mut Txn) -> Result<()> {
        let tree = self.tree.clone();
        let mut restarts = Restarts::default();
        let mut pin: Option<Pinned<'_>> = None;
        loop {
            self.rows.clear();
            self.bytes.clear();
            self.at = 0;
            self.copied_at = txn.last_lsn();
            match self.lock_rows(&tree, txn, &mut restarts) {
                Ok(Step::Done) => break,
                Ok(Step::Changed) => tree.restart(&mut restarts),
                Ok(Step::Missing(pid)) => drop(pin.replace(tree.pool().pin(pid)?)),
                Ok(Step::Held(key, holder)) => txn.wait_row(tree.table, &key, holder)?,
                Ok(Step::Busy(key, part)) => {
                    tree.share(txn, Target { table: tree.table, key: key.as_deref(), part })?;
                }
                Err(Error::LockLimit { .. }) => tree.lock(txn, TableMode::Shared)?,
                Err(error) => return Err(error),
            }
        }
        self.step = (2 * self.step).min(PAGE_SIZE / SLOT);
        Ok(())
    }

    /// One try at a step: reads the leaf, locks what it takes of it, and validates.
    fn lock_rows<'p>(&mut self, tree: &'p Tree, txn: &mut Txn, restarts: &mut Restarts) -> Result<Step> {
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
        let end = node.len().min(first + self.step);
        // Holds what is read to the right of the leaf.
        let mut further = Vec::new();
        let mut ended = false;
        for at in first..end {
            let row = node.row(at).map_err(damage)?;
            let part = if self.ends_before(row.key) { Part::GAP } else { Part::ROW_AND_GAP };
            if !txn.try_share(Target { table: tree.table, key: Some(row.key), part })? {
                return Ok(Step::Busy(Some(row.key.to_vec()), part));
            }
            // Behind the last key that it may find a scan looks for nothing.
            ended = part == Part::GAP || matches!(&self.upper, Bound::Included(upper) if row.key == &upper[..]);
            if part == Part::GAP {
                break;
            }
            match txn.row_holder(row.header.xid) {
                RowHolder::Other(holder) => return Ok(Step::Held(row.key.to_vec(), holder)),
                RowHolder::Unknown => return Err(damage(NO_WRITER)),
                RowHolder::Nobody | RowHolder::Me if row.header.is_ghost() => {}
                RowHolder::Nobody | RowHolder::Me => self.push(row.key, row.value),
            }
        }
        self.from = None;
        if ended {
            // The gap in which it ends is locked.
        } else if end < node.len() {
            self.from = Some(Bound::Excluded(node.key(end - 1).map_err(damage)?.to_vec()));
        } else {
            let next = match tree.key_beyond(&leaf, restarts, &mut further) {
                Ok(next) => next,
                Err(Halt::Changed | Halt::Open(_)) => return Ok(Step::Changed),
                Err(Halt::Missing(pid, _)) => return Ok(Step::Missing(pid)),
                Err(Halt::Failed(error)) => return Err(error),
            };
            if !txn.try_share(Target::gap(tree.table, next.as_deref()))? {
                return Ok(Step::Busy(next, Part::GAP));
            }
            if next.is_some_and(|next| !self.ends_before(&next)) {
                self.from = node.high().map_err(damage)?.map(|high| Bound::Included(high.to_vec()));
            }
        }
        // The holders were asked before this: a version that still holds then says that nobody has rolled these rows back
        // meanwhile, so a writer that has ended has committed.
        let holds = leaf.holds() && further.iter().all(Access::holds);
        Ok(if holds || mutant("gap: no validation after the locks") { Step::Done } else { Step::Changed })
    }
}
