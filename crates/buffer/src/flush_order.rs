//! The choice and the order of the pages that a flush writes home: pure functions of the dirty pages, sorted by age.
//!
//! The age of a page is that of the first log group that it needs. The pages of an extent go home together, when the
//! oldest of them is due.

use crate::frame::FrameNo;
use foreshore_base::{GroupNo, PageId};
use std::collections::HashMap;

/// Pages of an extent: a write of 128 KiB costs hardly more than one of 8.
const EXTENT: u64 = 16;

/// A dirty page. Dirty pages sort by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dirty {
    /// The first group that the page needs.
    pub(crate) group: GroupNo,
    pub(crate) pid: PageId,
    pub(crate) no: FrameNo,
}

/// A page to write: the index of the oldest dirty page of its extent, then its own index among the dirty pages.
pub(crate) type Place = (usize, usize);

/// Returns the pages that are older than `limit`, or all without a limit.
pub(crate) fn older_than(dirty: &[Dirty], limit: Option<GroupNo>) -> Vec<Place> {
    by_extent(&dirty[..limit.map_or(dirty.len(), |limit| dirty.partition_point(|page| page.group < limit))])
}

/// Returns the pages that are older than `limit`, but at least one in `share` of all. They are from the extents with
/// the oldest pages.
///
/// A younger page is written with its extent only if half of the dirty pages are younger than it. So it is written at
/// most twice as often. From then on the pages of the extent have one age, and go home in one write. To keep it so, an
/// extent is split only if it is larger than the share.
pub(crate) fn share_of(dirty: &[Dirty], limit: GroupNo, share: usize) -> Vec<Place> {
    let portion = dirty.len().div_ceil(share);
    let old = dirty.partition_point(|page| page.group < limit);
    let order = by_extent(&dirty[..dirty.len().div_ceil(2).max(portion).max(old)]);
    let last = order[..portion].last().map(|&(extent, _)| extent).filter(|_| portion >= EXTENT as usize);
    let is_due = |&(at, (extent, index)): &(usize, Place)| at < portion || Some(extent) == last || index < old;
    order.into_iter().enumerate().filter(is_due).map(|(_, place)| place).collect()
}

/// Returns the pages in the order of the oldest pages of their extents.
fn by_extent(dirty: &[Dirty]) -> Vec<Place> {
    let mut oldest = HashMap::new();
    let extents = dirty.iter().map(|page| page.pid.0 / EXTENT).enumerate();
    let mut order: Vec<_> = extents.map(|(index, extent)| (*oldest.entry(extent).or_insert(index), index)).collect();
    order.sort_unstable();
    order
}
