//! A pass of the cleaner: two threads write dirty pages home in batches.
//!
//! The caller works through the batches, and a background thread helps. So one batch is written to the doublewrite file
//! while the other goes home. After each batch the caller gets the oldest group that a page still needs. So the redo
//! start moves during the pass and not only at its end.
//!
//! **Invariant:** a batch is done when all its pages are home. Until then the caller gets no group newer than the
//! batch's.

use crate::flush_order::{Dirty, Place};
use crate::format::AREA_PAGES;
use crate::frame::FrameNo;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{Condvar, LockRank, Mutex};
use std::collections::VecDeque;

/// Pages of a batch.
const BATCH: usize = if MODEL { 1 } else { AREA_PAGES };

#[derive(Debug)]
pub(crate) struct Pass {
    batches: Mutex<Batches>,
    /// Notified when a batch has ended.
    ended: Condvar,
    /// The oldest group that a dirty page outside of the pass needed when it began.
    outside: GroupNo,
}

/// The batches of a pass. A batch has a group: neither its pages nor those of a later batch need an older one.
#[derive(Debug)]
struct Batches {
    /// In the order of their groups.
    waiting: VecDeque<(GroupNo, Vec<FrameNo>)>,
    /// The groups of those that are being written.
    under_way: Vec<GroupNo>,
    failed: Option<Error>,
}

impl Pass {
    /// Returns a pass over the pages of `dirty` that are in `order`. Pages that become dirty later need no group before
    /// `since`.
    pub(crate) fn new(dirty: &[Dirty], order: &[Place], since: GroupNo) -> Self {
        let mut is_outside = vec![true; dirty.len()];
        order.iter().for_each(|&(_, index)| is_outside[index] = false);
        let outside = is_outside.iter().position(|&is_outside| is_outside);
        // The oldest page of an extent may be in the batch before, but none of the pages that follow is older.
        let batch =
            |order: &[Place]| (dirty[order[0].0].group, order.iter().map(|&(_, index)| dirty[index].no).collect());
        let waiting = order.chunks(BATCH).map(batch).collect();
        Self {
            batches: Mutex::new(LockRank::Leaf, Batches { waiting, under_way: Vec::new(), failed: None }),
            ended: Condvar::new(),
            outside: outside.map_or(since, |index| dirty[index].group.min(since)),
        }
    }

    /// Returns whether a second thread has something to do.
    pub(crate) fn is_long(&self) -> bool {
        self.batches.lock().waiting.len() > 1
    }

    /// Returns the oldest group that a page needs: one of the pass that is not home, or one outside of the pass.
    pub(crate) fn oldest(&self) -> GroupNo {
        let batches = self.batches.lock();
        let mutated = mutant("write-back: a batch under way counts as home");
        let under_way = batches.under_way.iter().filter(|_| !mutated);
        let waiting = batches.waiting.front().map(|(group, _)| group);
        under_way.chain(waiting).copied().fold(self.outside, GroupNo::min)
    }

    /// Writes the next waiting batch by `write`. Returns false if no batch waits, or one has failed.
    pub(crate) fn write_next(&self, write: impl FnOnce(Vec<FrameNo>) -> Result<()>) -> bool {
        let mut batches = self.batches.lock();
        let next = if batches.failed.is_none() { batches.waiting.pop_front() } else { None };
        let Some((group, frames)) = next else { return false };
        batches.under_way.push(group);
        drop(batches);
        let mut batch = UnderWay { pass: self, group, outcome: Err(Error::Closed) };
        batch.outcome = write(frames);
        batch.outcome.is_ok()
    }

    /// Waits for the batches under way. Called when no batch waits, or one has failed.
    pub(crate) fn join(&self) -> Result<()> {
        let mut batches = self.batches.lock();
        while !batches.under_way.is_empty() {
            // WAIT: park - until the batch that the other thread writes has ended.
            batches = self.ended.wait(batches);
        }
        batches.failed.take().map_or(Ok(()), Err)
    }
}

/// A batch under way. It ends on drop; in a panic it ends as failed.
struct UnderWay<'a> {
    pass: &'a Pass,
    group: GroupNo,
    outcome: Result<()>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut batches = self.pass.batches.lock();
        let at = batches.under_way.iter().position(|&group| group == self.group).expect("the batch is under way");
        batches.under_way.swap_remove(at);
        if let Err(error) = &self.outcome {
            batches.failed.get_or_insert_with(|| error.clone());
        }
        drop(batches);
        self.pass.ended.notify_all();
    }
}
