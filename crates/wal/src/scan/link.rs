//! The link of a group to the chain read so far: it is the next group, or a repeated one.

use crate::format::{Decoded, GroupHeader, MAX_GROUP};
use crate::reader::{Chain, GroupReader};
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Incarnation, Result};
use foreshore_io::File;

/// The distance behind a break in which the look-ahead and the search behind a hole read every block.
pub(super) const LOOK_AHEAD: u64 = 8 << 20;

const _: () = assert!(MAX_GROUP as u64 <= LOOK_AHEAD);

/// A group that was accepted, and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) group: GroupNo,
    /// Index of its segment among those read.
    pub(crate) segment: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The checksum of its header, and that of the header before it.
    pub(crate) crc: u32,
    pub(crate) prev_crc: u32,
}

/// The link of a group to the chain read so far.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// The next group, with the checksum of its header.
    Next(GroupHeader, u32),
    /// A repeated group, with the checksum of the header before the accepted one.
    Again(GroupHeader, u32),
}

/// Returns the group at `at` of a segment of `size` bytes, if it continues `chain` or repeats one of `tail`, the last
/// groups.
///
/// # Errors
/// Those of [`GroupReader::group`].
pub(crate) fn link(
    reader: &mut GroupReader,
    (file, size): (&dyn File, u64),
    at: u64,
    chain: &Chain,
    tail: &[Accepted],
) -> Result<Option<Link>> {
    if at + BLOCK as u64 > size {
        return Ok(None);
    }
    // The checksum of the header determines every byte of a repeated group.
    let again = match GroupHeader::decode(reader.view(file, at, BLOCK)?) {
        Decoded::Header(_, crc) => tail.iter().find(|again| again.crc == crc),
        Decoded::Newer(_) => None,
        Decoded::Nothing => return Ok(None),
    };
    let Some(&Accepted { group, prev_crc, .. }) = again else {
        let next = reader.group(file, size, at, chain)?;
        return Ok(next.map(|(header, crc)| Link::Next(header, crc)));
    };
    let chain = Chain { group, prev_crc, incarnation: Incarnation(0), ..*chain };
    let found = reader.group(file, size, at, &chain)?;
    Ok(found.map(|(header, _)| Link::Again(header, prev_crc)))
}

/// Searches for a link from `from` on, block by block, and returns its offset.
///
/// # Errors
/// Those of [`link`].
pub(crate) fn find(
    reader: &mut GroupReader,
    (file, size): (&dyn File, u64),
    from: u64,
    chain: &Chain,
    tail: &[Accepted],
) -> Result<Option<(u64, Link)>> {
    for at in (from..size.min(from + LOOK_AHEAD)).step_by(BLOCK) {
        if let Some(link) = link(reader, (file, size), at, chain, tail)? {
            return Ok(Some((at, link)));
        }
    }
    Ok(None)
}
