//! The parts of a group: its extents, and the records in them.

use crate::format::{ENVELOPE, EXTENT, Extent, GROUP_HEADER, GroupHeader, STAMP_LIMIT, record_size};
use foreshore_base::Lsn;
use foreshore_base::codec::{u32_at, u64_at};
use std::collections::HashMap;

/// Returns the extents of a group that hold data, each with its data. The table has been checked.
fn extents<'a>(bytes: &'a [u8], header: &GroupHeader) -> impl Iterator<Item = (Extent, &'a [u8])> {
    let (entries, _) = bytes[GROUP_HEADER..header.data_start()].as_chunks::<EXTENT>();
    let mut at = header.data_start();
    entries.iter().map(Extent::decode).filter(|extent| extent.len > 0).map(move |extent| {
        let start = at;
        at += extent.len as usize;
        (extent, &bytes[start..at])
    })
}

/// Checks that the extents' lengths sum up to the data and that no two of a lane overlap. The error says what is wrong.
pub(super) fn check_table(bytes: &[u8], header: &GroupHeader) -> Result<(), &'static str> {
    let (entries, _) = bytes[GROUP_HEADER..header.data_start()].as_chunks::<EXTENT>();
    let mut sum = 0;
    // By lane: the offset where its next extent may begin. A single lane, the usual case, needs no map.
    let (mut ends, several) = (HashMap::new(), header.n_ext > 1);
    for extent in entries.iter().map(Extent::decode) {
        sum += u64::from(extent.len);
        let Some(end) = extent.at.checked_add(u64::from(extent.len)) else {
            return Err("an extent lies behind the end of all lanes");
        };
        if several && extent.len > 0 && ends.insert(extent.lane, end).is_some_and(|before| extent.at < before) {
            return Err("two extents of a lane overlap");
        }
    }
    if sum == u64::from(header.data_len) { Ok(()) } else { Err("the extents do not add up to the data") }
}

/// Calls `found` for every record of a group with its lane, its LSN and its range in the group's bytes. All LSNs must
/// be above `floor`, the largest cut of the groups before. The error says what is wrong.
pub(crate) fn visit(
    bytes: &[u8],
    header: &GroupHeader,
    floor: Lsn,
    mut found: impl FnMut(u16, Lsn, usize),
) -> Result<(), &'static str> {
    let mut at = header.data_start();
    for (extent, mut data) in extents(bytes, header) {
        let mut last = Lsn::ZERO;
        while !data.is_empty() {
            let size = data.get(..ENVELOPE).map(|head| record_size(u32_at(head, 0) as usize));
            let Some((size, next)) = size.and_then(|size| Some((size, data.get(size..)?))) else {
                return Err("a record crosses the end of its extent");
            };
            let lsn = Lsn(u64_at(data, 8));
            if lsn.0 >= STAMP_LIMIT {
                return Err("a record carries an impossible stamp");
            }
            if lsn <= last {
                return Err("the stamps of a lane do not rise");
            }
            if lsn <= floor {
                return Err("a record stands behind a cut that covers it");
            }
            found(extent.lane, lsn, at);
            (at, data, last) = (at + size, next, lsn);
        }
    }
    Ok(())
}
