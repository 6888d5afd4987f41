//! The file of stamps: a header of one block, then an entry for each page id.
//!
//! ```text
//!  header:  0 magic u64 | 8 crc32c u32 | 12 version u32 | 16 uuid [u8; 16] | 32 seq u64 | zeros to 4096
//!  entry:   0 lsn u64   | 8 page id u32 | 12 crc32c u32
//! ```
//!
//! `seq` is that of the superblock for which entries were written last. The entry of page `p` begins at byte
//! 4096 + 16 p, so none straddles two sectors. The checksum of the header covers bytes 12..4096, that of an entry its
//! bytes 0..12. An entry that is not sound, or that the file ends before, is none.

use super::{HeaderFlaw, check_header, encode_header, seal_block};
use foreshore_base::codec::{u32_at, u64_at};
use foreshore_base::limits::{BLOCK, MAX_PAGES};
use foreshore_base::{Lsn, PageId, Uuid, crc32c};

/// Version of the file of stamps that this build writes and the newest that it reads.
pub(crate) const STAMPS_VERSION: u32 = 1;

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"FSHOREST");
const AT_SEQ: usize = 32;
const ENTRY: usize = 16;
const AT_CRC: usize = 12;
/// Pages whose entries are in one block.
const ENTRIES: u64 = (BLOCK / ENTRY) as u64;

const _: () = assert!(BLOCK.is_multiple_of(ENTRY) && MAX_PAGES <= 1 << 32);

pub(crate) fn encode_stamps_header(block: &mut [u8], uuid: Uuid, seq: u64) {
    encode_header(block, FILE_MAGIC, STAMPS_VERSION, uuid);
    block[AT_SEQ..AT_SEQ + 8].copy_from_slice(&seq.to_le_bytes());
    seal_block(block);
}

/// Checks a header, and returns its `seq`.
pub(crate) fn check_stamps_header(block: &[u8], uuid: Uuid) -> Result<u64, HeaderFlaw> {
    check_header(block, FILE_MAGIC, STAMPS_VERSION, uuid).map(|()| u64_at(block, AT_SEQ))
}

/// The number of the block with the entry of a page.
pub(crate) const fn block_of(pid: PageId) -> u64 {
    pid.0 / ENTRIES
}

/// Byte offset of a block of entries in the file.
pub(crate) const fn block_offset(number: u64) -> u64 {
    (1 + number) * BLOCK as u64
}

fn entry_of(pid: PageId) -> std::ops::Range<usize> {
    let at = (pid.0 % ENTRIES) as usize * ENTRY;
    at..at + ENTRY
}

/// Returns the stamp of a page in its block; zero if there is none.
pub(crate) fn stamp_in(block: &[u8], pid: PageId) -> Lsn {
    let entry = &block[entry_of(pid)];
    let is_sound = u32_at(entry, AT_CRC) == crc32c(&entry[..AT_CRC]) && u64::from(u32_at(entry, 8)) == pid.0;
    if is_sound { Lsn(u64_at(entry, 0)) } else { Lsn::ZERO }
}

/// Puts the stamp of a page into its block.
pub(crate) fn put_stamp(block: &mut [u8], pid: PageId, stamp: Lsn) {
    let entry = &mut block[entry_of(pid)];
    entry[..8].copy_from_slice(&stamp.0.to_le_bytes());
    entry[8..AT_CRC].copy_from_slice(&(pid.0 as u32).to_le_bytes());
    let crc = crc32c(&entry[..AT_CRC]);
    entry[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_not_sound_is_none() {
        assert_eq!((block_of(PageId(255)), block_of(PageId(256)), block_offset(1)), (0, 1, 8192));
        let pid = PageId(256 + 7);
        let mut block = vec![0; BLOCK];
        assert_eq!(stamp_in(&block, pid), Lsn::ZERO);
        put_stamp(&mut block, pid, Lsn(99));
        assert_eq!(stamp_in(&block, pid), Lsn(99));
        assert_eq!(&block[7 * 16..7 * 16 + 12], [99, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0]);
        assert_eq!([6, 7, 8].map(|page| stamp_in(&block, PageId(page))), [Lsn::ZERO; 3], "of another page");
        for bit in 0..8 * ENTRY {
            let mut damaged = block.clone();
            damaged[7 * ENTRY + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(stamp_in(&damaged, pid), Lsn::ZERO, "bit {bit}");
        }
    }
}
