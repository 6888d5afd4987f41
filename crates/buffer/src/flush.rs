//! Which dirty pages go home, and in what order: for checkpoints, and ahead of them.

use crate::format::AREA_PAGES;
use crate::frame::FrameNo;
use crate::pool::{Core, Pool};
use crate::write_back::Batch;
use foreshore_base::{GroupNo, PageId, Result};
use foreshore_sync::NextWake;
use foreshore_sync::primitive::MODEL;
use std::collections::HashMap;

/// Pages side by side that get one age: a write of 128 KiB costs hardly more than one of 8.
const EXTENT: u64 = 16;

/// Told, after each batch, of the oldest group that a dirty page needs. An error ends the flush.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(GroupNo) -> Result<()>;

/// Pages of a batch of a pass.
const BATCH: usize = if MODEL { 1 } else { AREA_PAGES };

/// A dirty page, by its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dirty {
    /// The first group that the page needs.
    group: GroupNo,
    pid: PageId,
    no: FrameNo,
}

impl Pool {
    /// Writes every page home that is dirty at the time of the call, and syncs.
    pub fn flush_all(&self) -> Result<()> {
        self.core.flush(None, &mut |_| Ok(()))
    }

    /// Writes every page home that may hold a change from a group before `group`, and syncs: the log before `group` is
    /// then not needed by any page. For checkpoints, which load [`Log::next_group`] first. The oldest pages go first, and
    /// `progress` is told after each batch which group the oldest page needs that is left; an error of it ends the call.
    pub fn flush_older_than(&self, group: GroupNo, mut progress: impl FnMut(GroupNo) -> Result<()>) -> Result<()> {
        self.core.flush(Some(group), &mut progress)
    }

    /// [`Pool::flush_older_than`] that also writes at least one in `share` of all dirty pages: those of the extents with the oldest
    /// ones. Called again and again as the log grows it keeps pages from getting old all at the same time.
    pub fn flush_some(
        &self,
        group: GroupNo,
        share: usize,
        mut progress: impl FnMut(GroupNo) -> Result<()>,
    ) -> Result<()> {
        self.core.flush_some(group, share, &mut progress)
    }

    /// Writes one batch of the oldest dirty pages home and returns how many were written.
    pub fn clean_step(&self) -> Result<usize> {
        self.core.clean_oldest()
    }

    /// The oldest group that a dirty page needs; `None` if none does.
    #[must_use]
    pub fn min_rec_group(&self) -> Option<GroupNo> {
        self.core.memory.frames().iter().filter_map(|frame| frame.rec_group()).min()
    }

    /// Writes a batch of the pages home that another thread writes just now, if one waits. For owners without background threads.
    pub fn help_step(&self) -> NextWake {
        self.core.help()
    }
}

impl Core {
    /// The dirty pages, the oldest first.
    fn dirty_pages(&self) -> Vec<Dirty> {
        let mut dirty: Vec<_> = (0..)
            .zip(self.memory.frames())
            .filter_map(|(no, frame)| frame.rec_group().map(|group| Dirty { group, pid: frame.pid(), no }))
            .collect();
        dirty.sort_unstable();
        dirty
    }

    /// Writes every page home that is dirty now (with a first change before `limit`), the oldest first, and tells `progress`
    /// meanwhile which group the oldest page needs that is left.
    pub(crate) fn flush(&self, limit: Option<GroupNo>, progress: Progress<'_>) -> Result<()> {
        let since = self.log.next_group();
        let dirty = self.dirty_pages();
        let old = limit.map_or(dirty.len(), |limit| dirty.partition_point(|page| page.group < limit));
        let outside = dirty.get(old).map_or(since, |page| page.group.min(since));
        self.write_back(batches(&dirty, by_extent(&dirty[..old])), outside, progress)
    }

    /// Writes the dirty pages home whose first change is before `limit`, and at least one in `share` of all: those of the extents
    /// with the oldest pages. A page that is not old goes along only if half of the dirty pages are younger, so its turn comes no
    /// more than twice as often. From then on its extent has one age, and its pages go home in one write. To keep it so an
    /// extent is cut only where a share is less than one. Tells `progress` as [`Core::flush`] does.
    pub(crate) fn flush_some(&self, limit: GroupNo, share: usize, progress: Progress<'_>) -> Result<()> {
        let since = self.log.next_group();
        let dirty = self.dirty_pages();
        let (all, portion) = (dirty.len(), dirty.len().div_ceil(share));
        let old = dirty.partition_point(|page| page.group < limit);
        let mut ranks = by_extent(&dirty[..all.div_ceil(2).max(portion).max(old)]);
        let last = ranks[..portion].last().map(|&(extent, _)| extent).filter(|_| portion >= EXTENT as usize);
        let in_portion = |at, extent| at < portion || Some(extent) == last;
        let mut at = 0;
        ranks.retain(|&(extent, rank)| {
            at += 1;
            in_portion(at - 1, extent) || rank < old
        });
        let mut is_chosen = vec![false; all];
        ranks.iter().for_each(|&(_, rank)| is_chosen[rank] = true);
        let outside = is_chosen.iter().position(|&chosen| !chosen).map_or(since, |rank| dirty[rank].group.min(since));
        self.write_back(batches(&dirty, ranks), outside, progress)
    }

    /// Writes the oldest dirty pages home, one batch of them.
    pub(crate) fn clean_oldest(&self) -> Result<usize> {
        let mut dirty: Vec<_> = self.dirty_pages().iter().take(AREA_PAGES).map(|page| page.no).collect();
        let mut round = self.cleaner.round();
        self.clean(&mut round, &mut dirty, false)?;
        Ok(round.pages())
    }
}

/// The ranks of pages, which are in the order of their ages, each behind the rank of the oldest page of its extent, in the order
/// of those.
fn by_extent(dirty: &[Dirty]) -> Vec<(usize, usize)> {
    let mut oldest = HashMap::new();
    let extent_of = |rank: usize| dirty[rank].pid.0 / EXTENT;
    let mut ranks: Vec<_> =
        (0..dirty.len()).map(|rank| (*oldest.entry(extent_of(rank)).or_insert(rank), rank)).collect();
    ranks.sort_unstable();
    ranks
}

/// Cuts pages, by their ranks behind those of their extents, into batches for the cleaner.
fn batches(dirty: &[Dirty], ranks: Vec<(usize, usize)>) -> Vec<Batch> {
    let batch = |ranks: &[(usize, usize)]| Batch {
        group: dirty[ranks[0].0].group,
        frames: ranks.iter().map(|&(_, rank)| dirty[rank].no).collect(),
    };
    ranks.chunks(BATCH).map(batch).collect()
}
