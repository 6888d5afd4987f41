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
const ENTRIES: usize = BLOCK / ENTRY;

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
    pid.0 / ENTRIES as u64
}

/// Byte offset of a block of entries in the file.
pub(crate) const fn block_offset(number: u64) -> u64 {
    (1 + number) * BLOCK as u64
}

/// The stamps of the pages of block `number`, zero where there is none. In memory they take half of the block.
#[derive(Clone, Debug)]
pub(crate) struct StampBlock {
    pub(crate) number: u64,
    stamps: Box<[Lsn; ENTRIES]>,
}

impl StampBlock {
    /// Returns the stamps in the bytes of the block, of which the file may not have all.
    pub(crate) fn decode(number: u64, block: &[u8]) -> Self {
        let first = number * ENTRIES as u64;
        let mut stamps = Box::new([Lsn::ZERO; ENTRIES]);
        for ((entry, stamp), pid) in block.chunks_exact(ENTRY).zip(&mut stamps[..]).zip(first..) {
            let is_sound = u32_at(entry, AT_CRC) == crc32c(&entry[..AT_CRC]) && u64::from(u32_at(entry, 8)) == pid;
            if is_sound {
                *stamp = Lsn(u64_at(entry, 0));
            }
        }
        Self { number, stamps }
    }

    /// Writes the bytes of the block.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        let first = self.number * ENTRIES as u64;
        for ((entry, stamp), pid) in block.chunks_exact_mut(ENTRY).zip(&self.stamps[..]).zip(first..) {
            entry.fill(0);
            if *stamp > Lsn::ZERO {
                entry[..8].copy_from_slice(&stamp.0.to_le_bytes());
                entry[8..AT_CRC].copy_from_slice(&(pid as u32).to_le_bytes());
                let crc = crc32c(&entry[..AT_CRC]);
                entry[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }

    /// Returns the stamp of a page of the block; zero if there is none.
    pub(crate) fn get(&self, pid: PageId) -> Lsn {
        assert_eq!(block_of(pid), self.number, "page {pid} has its stamp there");
        self.stamps[pid.0 as usize % ENTRIES]
    }

    /// Raises the stamp of a page of the block. Returns whether it was below.
    pub(crate) fn raise(&mut self, pid: PageId, stamp: Lsn) -> bool {
        let is_below = self.get(pid) < stamp;
        if is_below {
            self.stamps[pid.0 as usize % ENTRIES] = stamp;
        }
        is_below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_not_sound_is_none() {
        assert_eq!((block_of(PageId(255)), block_of(PageId(256)), block_offset(1)), (0, 1, 8192));
        let pid = PageId(256 + 7);
        let mut block = vec![0; BLOCK];
        let mut stamps = StampBlock::decode(1, &block);
        assert_eq!(stamps.get(pid), Lsn::ZERO);
        assert!(stamps.raise(pid, Lsn(99)) && !stamps.raise(pid, Lsn(98)) && !stamps.raise(pid, Lsn(99)));
        stamps.encode(&mut block);
        assert_eq!(StampBlock::decode(1, &block).get(pid), Lsn(99));
        assert_eq!(&block[7 * 16..7 * 16 + 12], [99, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0]);
        assert!(block[..7 * 16].iter().chain(&block[8 * 16..]).all(|&byte| byte == 0));
        assert_eq!(StampBlock::decode(0, &block).get(PageId(7)), Lsn::ZERO, "of another page");
        assert_eq!(StampBlock::decode(1, &block[..7 * 16 + 8]).get(pid), Lsn::ZERO, "the file ends before");
        for bit in 0..8 * ENTRY {
            let mut damaged = block.clone();
            damaged[7 * ENTRY + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(StampBlock::decode(1, &damaged).get(pid), Lsn::ZERO, "bit {bit}");
        }
    }
}
