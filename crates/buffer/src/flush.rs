//! Which dirty pages go home, and in what order: for checkpoints, and ahead of them.

use crate::format::AREA_PAGES;
use crate::frame::FrameNo;
use crate::pool::Core;
use foreshore_base::{GroupNo, PageId, Result};
use std::collections::HashMap;

/// Pages side by side that get one age: a write of 128 KiB costs hardly more than one of 8.
const EXTENT: u64 = 16;

/// A dirty page, by its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dirty {
    /// The first group that the page needs.
    group: GroupNo,
    pid: PageId,
    no: FrameNo,
}

impl Core {
    /// The dirty pages, the oldest first.
    fn dirty_pages(&self) -> Vec<Dirty> {
        let mut dirty: Vec<_> = (0..)
            .zip(&self.frames)
            .filter_map(|(no, frame)| frame.rec_group().map(|group| Dirty { group, pid: frame.pid(), no }))
            .collect();
        dirty.sort_unstable();
        dirty
    }

    /// Writes every page home that is dirty now (with a first change before `limit`).
    pub(crate) fn flush(&self, limit: Option<GroupNo>) -> Result<()> {
        let mut dirty = self.dirty_pages();
        dirty.retain(|page| limit.is_none_or(|limit| page.group < limit));
        self.write_back(dirty)
    }

    /// Writes the dirty pages home whose first change is before `limit`, and at least one in `share` of all: those of the extents
    /// with the oldest pages. A page that is not old goes along only if half of the dirty pages are younger, so its turn comes no
    /// more than twice as often. From then on its extent has one age, and its pages go home in one write. To keep it so an
    /// extent is cut only where a share is less than one.
    pub(crate) fn flush_some(&self, limit: GroupNo, share: usize) -> Result<()> {
        let dirty = self.dirty_pages();
        let (all, portion) = (dirty.len(), dirty.len().div_ceil(share));
        let old = dirty.partition_point(|page| page.group < limit);
        // The page of each rank, behind the rank of the oldest page of its extent.
        let mut oldest = HashMap::new();
        let mut ranks: Vec<_> = (0..all.div_ceil(2).max(portion).max(old))
            .map(|rank| (*oldest.entry(dirty[rank].pid.0 / EXTENT).or_insert(rank), rank))
            .collect();
        ranks.sort_unstable();
        let last = ranks[..portion].last().map(|&(extent, _)| extent).filter(|_| portion >= EXTENT as usize);
        let in_portion = |at, extent| at < portion || Some(extent) == last;
        let chosen = ranks.iter().enumerate().filter(|&(at, &(extent, rank))| in_portion(at, extent) || rank < old);
        self.write_back(chosen.map(|(_, &(_, rank))| dirty[rank]).collect())
    }

    /// Writes pages home, those that are neighbours on disk in one piece.
    fn write_back(&self, mut pages: Vec<Dirty>) -> Result<()> {
        pages.sort_unstable_by_key(|page| page.pid);
        let mut left: Vec<_> = pages.iter().map(|page| page.no).collect();
        while !left.is_empty() {
            let mut busy = Vec::new();
            for batch in left.chunks_mut(AREA_PAGES) {
                let mut round = self.cleaner.round();
                busy.append(&mut self.clean(&mut round, batch, false)?);
                // Who looks for a frame finds pages now that can go.
                self.freed.notify_one();
            }
            for &no in &busy {
                self.cleaner.wait_for(no);
                let latch = &self.frames[no as usize].latch;
                // WAIT: park - until the page is free for a moment, with no round in hand, then try again.
                latch.lock_shared(&self.parks);
                latch.unlock_shared(&self.parks);
            }
            left = busy;
        }
        Ok(())
    }

    /// Writes the oldest dirty pages home, one batch of them.
    pub(crate) fn clean_oldest(&self) -> Result<usize> {
        let mut dirty: Vec<_> = self.dirty_pages().iter().take(AREA_PAGES).map(|page| page.no).collect();
        let mut round = self.cleaner.round();
        self.clean(&mut round, &mut dirty, false)?;
        Ok(round.pages())
    }
}
