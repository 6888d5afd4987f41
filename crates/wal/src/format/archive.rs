//! The header of a file of an archive.
//!
//! ```text
//! <first group>.arc   block 0, then groups from offset 4096 on, as they are in the log, without holes
//!   0  magic 8 | 8  version 4 | 12 zero 4 | 16 uuid 16 | 32 first group 8 | 40 last group 8 | 48 bytes of groups 8
//!   56 cut of the last group 8 | 64 its time 8 | 72 hdr_crc of the group before the first 4 | 76 that of the last 4
//!   80 zero | 4092 crc32c of bytes 0..4092
//! ```

use super::{BLOCK, STAMP_LIMIT, block_start, check_block, check_fields, finish_block, u32_at, u64_at};
use foreshore_base::codec::Put;
use foreshore_base::{GroupNo, Lsn, Result, Uuid};
use foreshore_sync::Nanos;
use std::path::Path;

const ARCHIVE_MAGIC: [u8; 8] = *b"FSHORARC";
/// How the names of files of an archive end.
pub(crate) const ARCHIVE_SUFFIX: &str = ".arc";

/// Block 0 of a file of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveHeader {
    pub(crate) uuid: Uuid,
    pub(crate) first: GroupNo,
    pub(crate) last: GroupNo,
    /// Bytes of the groups.
    pub(crate) bytes: u64,
    /// Cut and time of the last group.
    pub(crate) cut: Lsn,
    pub(crate) time: Nanos,
    /// Checksums of the header before the first group, and of the last one.
    pub(crate) prev_crc: u32,
    pub(crate) last_crc: u32,
}

impl ArchiveHeader {
    /// The block's bytes.
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut out = block_start(ARCHIVE_MAGIC, 0, self.uuid);
        for word in [self.first.0, self.last.0, self.bytes, self.cut.0, self.time.0] {
            out.put_u64(word);
        }
        out.put_u32(self.prev_crc);
        out.put_u32(self.last_crc);
        finish_block(out)
    }

    /// Decodes block 0 of the file at `path`, which belongs to `uuid`.
    pub(crate) fn decode(block: &[u8], path: &Path, uuid: Uuid) -> Result<Self> {
        check_block(block, ARCHIVE_MAGIC, uuid, path, 0)?;
        let header = Self {
            uuid,
            first: GroupNo(u64_at(block, 32)),
            last: GroupNo(u64_at(block, 40)),
            bytes: u64_at(block, 48),
            cut: Lsn(u64_at(block, 56)),
            time: Nanos(u64_at(block, 64)),
            prev_crc: u32_at(block, 72),
            last_crc: u32_at(block, 76),
        };
        let is_possible = GroupNo::ZERO < header.first
            && header.first <= header.last
            && header.last.0.max(header.cut.0).max(header.bytes) < STAMP_LIMIT
            && header.bytes.is_multiple_of(BLOCK as u64);
        check_fields(is_possible, path, 32, "the numbers of an archive header are impossible").map(|()| header)
    }
}

/// Name of the file of an archive that begins with group `first`.
pub(crate) fn archive_name(first: GroupNo) -> String {
    format!("{:020}{ARCHIVE_SUFFIX}", first.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_base::Error;

    const UUID: Uuid = Uuid([5; 16]);

    fn header() -> ArchiveHeader {
        ArchiveHeader {
            uuid: UUID,
            first: GroupNo(7),
            last: GroupNo(9),
            bytes: 12_288,
            cut: Lsn(77),
            time: Nanos(1_700_000_000_000_000_001),
            prev_crc: 3,
            last_crc: 4,
        }
    }

    #[test]
    fn a_header_has_these_bytes_and_any_flip_is_noticed() {
        let (bytes, path) = (header().encode(), Path::new("x"));
        assert_eq!(ArchiveHeader::decode(&bytes, path, UUID).unwrap(), header());
        assert_eq!((&bytes[..8], &bytes[8..12], &bytes[16..32]), (&b"FSHORARC"[..], &[1, 0, 0, 0][..], &UUID.0[..]));
        let words = [7, 9, 12_288, 77, 1_700_000_000_000_000_001];
        assert!((32..).step_by(8).zip(words).all(|(at, word)| u64_at(&bytes, at) == word));
        assert_eq!((u32_at(&bytes, 72), u32_at(&bytes, 76)), (3, 4));
        for bit in (0..96 * 8).chain([4000 * 8, 4095 * 8 + 7]) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ArchiveHeader::decode(&flipped, path, UUID).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_no_archiver_writes_is_refused() {
        let path = Path::new("x");
        let of_other = ArchiveHeader::decode(&header().encode(), path, Uuid([6; 16]));
        assert!(matches!(of_other, Err(Error::Foreign { .. })));
        for wrong in [
            ArchiveHeader { first: GroupNo(0), ..header() },
            ArchiveHeader { first: GroupNo(10), ..header() },
            ArchiveHeader { bytes: 100, ..header() },
            ArchiveHeader { cut: Lsn(u64::MAX), ..header() },
        ] {
            let refused = ArchiveHeader::decode(&wrong.encode(), path, UUID);
            assert!(matches!(refused, Err(Error::Corrupted { .. })), "{wrong:?}");
        }
        assert!(matches!(ArchiveHeader::decode(&[0; 100], path, UUID), Err(Error::Truncated { .. })));
    }
}
