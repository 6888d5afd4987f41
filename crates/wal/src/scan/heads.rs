//! The first groups of the segments, and what follows from them: segments whose groups all count.
//!
//! A run numbers each group once, and puts the groups of a segment one behind the other. Let `H` be the first group of
//! a segment, `N` that of the next one, and `A` that of a later one, all of the same run. Let the chain read so far go
//! on with `H`. If `A.acked_upto >= N.group`, the run has acknowledged all groups up to `N`. So these are durable, and
//! the segment of `H` has all of them from `H` to `N`, without a repeated group or a hole between them.
//!
//! `A` itself may be a group that was never acknowledged, and that a later start has dropped. Then that start may have
//! repeated groups before `N`, and the scan has to know these. So `A` must be in the chain: `acked_upto` of a first
//! group of the same run reaches `A`. Then all later headers of the run confirm what `A` does, and no start repeats it.
//!
//! Of records in such a segment the scan knows no LSN. One above the last cut of its run does not count. No page and no
//! commit has its LSN, so it may be given again.

use crate::format::{Decoded, FIRST_GROUP, GroupHeader};
use crate::segment::Home;
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Result};
use foreshore_io::AlignedBuf;

/// The headers of the first groups of all segments from some number on, as far as they are readable.
pub(super) struct Heads {
    /// Number of the first segment.
    first: u64,
    headers: Vec<Option<GroupHeader>>,
}

impl Heads {
    /// Reads them past the page cache, for the segments among `numbers` from `first` on, up to a gap.
    pub(super) fn read(home: &Home, first: u64, numbers: &[u64]) -> Result<Self> {
        let from = numbers.partition_point(|&number| number < first);
        let mut block = AlignedBuf::new(BLOCK);
        let mut headers = Vec::new();
        for (&number, expected) in numbers[from..].iter().zip(first..) {
            if number != expected {
                break;
            }
            let read = home.open_past_cache(number)?.read_at(&mut block, FIRST_GROUP)?;
            block[read..].fill(0);
            headers.push(match GroupHeader::decode(&block) {
                Decoded::Header(header, _) if header.uuid == home.uuid => Some(header),
                _ => None,
            });
        }
        Ok(Self { first, headers })
    }

    /// Returns the first group behind segment `number`, and the checksum that its header repeats, if all groups of the
    /// segment count for sure. The chain goes on with `group`, which repeats `prev_crc`.
    pub(super) fn behind(&self, number: u64, (group, prev_crc): (GroupNo, u32)) -> Option<(GroupNo, u32)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let &[Some(head), Some(next), ref later @ ..] = self.headers.get(at..)? else { return None };
        if head.group != group || head.prev_crc != prev_crc || next.incarnation != head.incarnation {
            return None;
        }
        let own = || later.iter().flatten().filter(|header| header.incarnation == head.incarnation);
        let acked = own().map(|header| header.acked_upto).max()?;
        let confirmed = own().filter(|header| header.group <= acked).map(|header| header.acked_upto).max()?;
        (head.group < next.group && next.group <= confirmed).then_some((next.group, next.prev_crc))
    }
}
