//! A write-back pass: dirty pages go home in batches, the oldest first, by both rounds of the cleaner.
//!
//! The caller of [`Core::write_back`] works through the batches, and a background thread helps it, so that one batch is at the
//! doublewrite file while the other goes home. After each batch the caller learns the oldest group that a page of the pass
//! still needs: the redo start moves with the work and not when it ends.
//!
//! **Invariant:** a batch is done when all its pages are home. Until then its group bounds what the caller is told.

use crate::frame::FrameNo;
use crate::pool::Core;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::{Condvar, LockRank, Mutex, NextWake, Signal, Step};
use std::sync::Arc;

/// Pages of one round.
#[derive(Debug)]
pub(crate) struct Batch {
    /// At or below the group of each page.
    pub(crate) group: GroupNo,
    pub(crate) frames: Vec<FrameNo>,
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    UnderWay,
    Home,
}

#[derive(Debug)]
struct Batches {
    /// In the order of their groups.
    all: Vec<(Batch, Stage)>,
    /// The first that waits.
    next: usize,
    failed: Option<Error>,
}

/// See the head of the module.
#[derive(Debug)]
pub(crate) struct Pass {
    batches: Mutex<Batches>,
    /// Notified when a batch has ended.
    ended: Condvar,
    /// The oldest group that a dirty page outside of the pass needed when it began.
    outside: GroupNo,
}

/// The pass that the background thread helps with.
#[derive(Debug)]
pub(crate) struct Helped {
    pass: Mutex<Option<Arc<Pass>>>,
    /// Rung when there is one.
    pub(crate) signal: Signal,
}

impl Default for Helped {
    fn default() -> Self {
        Self { pass: Mutex::new(LockRank::Leaf, None), signal: Signal::new() }
    }
}

impl Pass {
    fn new(batches: Vec<Batch>, outside: GroupNo) -> Self {
        let all = batches.into_iter().map(|batch| (batch, Stage::Waiting)).collect();
        let batches = Mutex::new(LockRank::Leaf, Batches { all, next: 0, failed: None });
        Self { batches, ended: Condvar::new(), outside }
    }

    /// The oldest group that a page needs: of the pass and not yet home, or outside of it.
    fn oldest(&self) -> GroupNo {
        let batches = self.batches.lock();
        let is_left = |&stage: &Stage| match mutant("write-back: a batch under way counts as home") {
            true => stage == Stage::Waiting,
            false => stage != Stage::Home,
        };
        let left = batches.all.iter().find(|(_, stage)| is_left(stage));
        left.map_or(self.outside, |(batch, _)| batch.group.min(self.outside))
    }

    fn take(&self) -> Option<(Taken<'_>, Vec<FrameNo>)> {
        let mut batches = self.batches.lock();
        let index = batches.next;
        if batches.failed.is_some() || index == batches.all.len() {
            return None;
        }
        batches.next += 1;
        let (batch, stage) = &mut batches.all[index];
        assert_eq!(*stage, Stage::Waiting, "batch {index} is taken twice");
        *stage = Stage::UnderWay;
        Some((Taken { pass: self, index, outcome: Err(Error::Closed) }, std::mem::take(&mut batch.frames)))
    }

    /// Waits for the batches under way. All have been taken, or one has failed.
    fn join(&self) -> Result<()> {
        let mut batches = self.batches.lock();
        while batches.all.iter().any(|&(_, stage)| stage == Stage::UnderWay) {
            // WAIT: park - until the batch that the other thread writes has ended.
            batches = self.ended.wait(batches);
        }
        batches.failed.take().map_or(Ok(()), Err)
    }
}

/// A batch under way. Ends when it is dropped, as failed unless it is said to have succeeded.
struct Taken<'s> {
    pass: &'s Pass,
    index: usize,
    outcome: Result<()>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut batches = self.pass.batches.lock();
        let before = std::mem::replace(&mut batches.all[self.index].1, Stage::Home);
        assert_eq!(before, Stage::UnderWay, "batch {} ends and was not under way", self.index);
        if let Err(error) = &self.outcome {
            batches.failed.get_or_insert_with(|| error.clone());
        }
        drop(batches);
        self.pass.ended.notify_all();
    }
}

impl Core {
    /// Writes `batches` home, which are in the order of their groups, and tells `progress` after each what the oldest group is
    /// that a page needs. `outside`: that of the dirty pages in no batch.
    pub(crate) fn write_back(
        &self,
        batches: Vec<Batch>,
        outside: GroupNo,
        progress: &mut dyn FnMut(GroupNo) -> Result<()>,
    ) -> Result<()> {
        let helps = batches.len() > 1;
        let pass = Arc::new(Pass::new(batches, outside));
        if helps {
            self.helped.pass.lock().get_or_insert_with(|| pass.clone());
            self.helped.signal.notify();
        }
        let mut told = Ok(());
        while told.is_ok() && self.write_one(&pass) {
            told = progress(pass.oldest());
        }
        let joined = pass.join();
        if helps {
            let mut helped = self.helped.pass.lock();
            if helped.as_ref().is_some_and(|helped| Arc::ptr_eq(helped, &pass)) {
                *helped = None;
            }
        }
        joined.and(told)?;
        progress(pass.oldest())
    }

    /// Helps with a pass, if one goes on and a batch of it waits.
    pub(crate) fn help(&self) -> NextWake {
        let pass = self.helped.pass.lock().clone();
        // An error is for the caller that began the pass.
        if pass.is_some_and(|pass| self.write_one(&pass)) { NextWake::Now } else { NextWake::OnSignal }
    }

    /// Writes one batch home. False if none waits.
    fn write_one(&self, pass: &Pass) -> bool {
        let Some((mut taken, frames)) = pass.take() else { return false };
        taken.outcome = self.write_batch_home(frames);
        taken.outcome.is_ok()
    }

    /// Writes a batch of pages home, also those whose latch is not free at first.
    fn write_batch_home(&self, mut left: Vec<FrameNo>) -> Result<()> {
        while !left.is_empty() {
            let busy = {
                let mut round = self.cleaner.round();
                self.clean(&mut round, &mut left, false)?
            };
            // A thread that looks for a frame now finds pages to evict.
            self.freed.notify_one();
            for &no in &busy {
                self.cleaner.wait_for(no);
                let latch = self.memory.frames()[no as usize].latch();
                // WAIT: park - until the page is free for a moment, with no round in hand, then try again.
                latch.lock_shared(self.memory.parks());
                latch.unlock_shared(self.memory.parks());
            }
            left = busy;
        }
        Ok(())
    }
}

/// The background step that helps with a pass.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) core: Arc<Core>,
}

impl Step for Helper {
    fn step(&self) -> NextWake {
        self.core.help()
    }
}
