//! A reader of groups, one after the other, that checks that they continue the chain.

use super::parts::check_table;
use crate::format::{Decoded, GROUP_HEADER, GroupHeader, MAX_GROUP, VERSION};
use crate::pace::REQUEST;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Place, Result, Uuid, crc32c};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;

/// The values that the next group of the chain must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) uuid: Uuid,
    pub(crate) group: GroupNo,
    pub(crate) prev_crc: u32,
    /// The incarnation of the group before. Incarnations never fall.
    pub(crate) incarnation: Incarnation,
}

/// Reads groups through a window.
#[derive(Debug)]
pub(crate) struct GroupReader {
    window: AlignedBuf,
    /// How many bytes are read at once, except for a larger group.
    ahead: usize,
    /// The path and the range of the file in the window.
    shown: Option<(std::path::PathBuf, u64, u64)>,
    /// The start in the window of the last group read.
    group: usize,
    /// Whether only the requested bytes are read.
    narrow: bool,
}

impl GroupReader {
    /// Creates a reader, mainly of segments of `size` bytes. It reads at most 1 MiB at once.
    pub(crate) fn new(size: u64) -> Self {
        let bytes = usize::try_from(size).unwrap_or(MAX_GROUP).clamp(BLOCK, MAX_GROUP);
        Self::reading(bytes.next_multiple_of(BLOCK))
    }

    /// Creates a reader for work beside commits ([`crate::pace`]).
    pub(crate) fn paced() -> Self {
        Self::reading(REQUEST)
    }

    fn reading(ahead: usize) -> Self {
        Self { window: AlignedBuf::new(ahead), ahead, shown: None, group: 0, narrow: false }
    }

    /// Drops the window, since the file may have changed, and then reads only requested bytes.
    pub(crate) fn forget(&mut self) {
        self.shown = None;
        self.narrow = true;
    }

    /// Reads whole windows again.
    pub(crate) fn widen(&mut self) {
        self.narrow = false;
    }

    /// Returns `len` bytes of `file` at `at`, both multiples of a block. Bytes behind the end of the file are zeros.
    pub(crate) fn view(&mut self, file: &dyn File, at: u64, len: usize) -> Result<&[u8]> {
        assert!(len <= MAX_GROUP, "a view is at most a group");
        let hit = |(path, start, end): &(_, u64, u64)| path == file.path() && *start <= at && at + len as u64 <= *end;
        if !self.shown.as_ref().is_some_and(hit) {
            self.shown = None;
            if len > self.window.len() {
                self.window = AlignedBuf::new(MAX_GROUP);
            }
            let wanted = if self.narrow { len } else { len.max(self.ahead) };
            let read = file.read_at(&mut self.window[..wanted], at)?;
            let shown = read.max(len);
            self.window[read..shown].fill(0);
            self.shown = Some((file.path().to_owned(), at, at + shown as u64));
        }
        let start = self.shown.as_ref().map_or(0, |&(_, start, _)| start);
        self.group = (at - start) as usize;
        Ok(&self.window[self.group..self.group + len])
    }

    /// Returns the group at `at` of a segment of `size` bytes and its checksum, if it is whole and continues `chain`.
    ///
    /// # Errors
    /// - `Newer` if it continues the chain in a version that this build does not read;
    /// - `Corrupted` if its checksum covers an impossible table of extents;
    /// - the error of the disk.
    pub(crate) fn group(
        &mut self,
        file: &dyn File,
        size: u64,
        at: u64,
        chain: &Chain,
    ) -> Result<Option<(GroupHeader, u32)>> {
        if at + BLOCK as u64 > size {
            return Ok(None);
        }
        let (header, crc) = match GroupHeader::decode(self.view(file, at, BLOCK)?) {
            Decoded::Header(header, crc) => (header, crc),
            Decoded::Newer(found) => {
                return Err(Error::Newer { path: file.path().into(), found, supported: VERSION });
            }
            Decoded::Nothing => return Ok(None),
        };
        let fits = header.uuid == chain.uuid
            && header.group == chain.group
            && (header.prev_crc == chain.prev_crc && header.incarnation >= chain.incarnation
                || mutant("sabotage: a group need not follow the one before"))
            && at + u64::from(header.total_len) <= size;
        if !fits {
            return Ok(None);
        }
        let bytes = self.view(file, at, header.total_len as usize)?;
        let is_checked = !mutant("sabotage: the checksum of a group is not checked");
        if is_checked && crc32c(&bytes[GROUP_HEADER..]) != header.data_crc {
            return Ok(None);
        }
        check_table(bytes, &header).map_err(|why| Error::corrupted(file.path(), Place::Offset(at), why))?;
        Ok(Some((header, crc)))
    }

    /// Returns all bytes of the group that [`Self::group`] returned last.
    pub(crate) fn bytes(&self, header: &GroupHeader) -> &[u8] {
        &self.window[self.group..self.group + header.total_len as usize]
    }
}
