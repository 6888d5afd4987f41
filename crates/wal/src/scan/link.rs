//! Whether a group belongs to the chain read so far: as the next one, or as a repetition.

use crate::format::{Decoded, GroupHeader, MAX_GROUP};
use crate::reader::{Chain, GroupReader};
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Incarnation, Result};
use foreshore_io::File;

/// How far behind the break the look-ahead and the search for what is behind a hole read every block.
pub(super) const LOOK_AHEAD: u64 = 8 << 20;

const _: () = assert!(MAX_GROUP as u64 <= LOOK_AHEAD);

/// A group that was accepted, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) group: GroupNo,
    /// Index of its segment among those read.
    pub(crate) segment: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Checksum of its header, and of the header before it.
    pub(crate) crc: u32,
    pub(crate) prev_crc: u32,
}

/// How a group belongs to the chain read so far.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// It is the next one; with the checksum of its header.
    Next(GroupHeader, u32),
    /// It repeats one that was accepted; with the checksum of the header before that one.
    Again(GroupHeader, u32),
}

/// What lies at `at` of a segment of `size` bytes, if it goes on with `chain` or repeats one of `tail`, the last
/// groups.
///
/// # Errors
/// As [`GroupReader::group`].
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
    // Of a repeated group each byte is known by the checksum of its header.
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

/// Looks for a link from `from` on, block by block, and returns where it is.
///
/// # Errors
/// As [`link`].
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
