//! Bytes on disk: the page header, the doublewrite file and the log record of a page change (see [`ChangeRecord`]).
//!
//! All integers are little-endian.
//!
//! **Page** (8192 bytes):
//!
//! ```text
//!  0        4      5       6       8        16       24        28         32
//!  | crc32c | type | level | flags | page id | lsn    | table   | reserved | body ...
//!  | u32    | u8   | u8    | u16   | u64     | u64    | u32     | u32 = 0  |
//! ```
//!
//! In a page that was quarantined as stale, bytes 28..32 have the type, level and flags that it had.
//!
//! The checksum covers bytes 4..8192 and is set on the copy that is written, so it is stale while the page is in
//! memory.
//!
//! **Doublewrite file**: a file header of one block, then two areas of one header block and [`AREA_PAGES`] page images.
//!
//! ```text
//!  file header:   0 magic u64 | 8 crc32c u32 | 12 version u32 | 16 uuid [u8; 16] | zeros to 4096
//!  batch header:  0 magic u64 | 8 crc32c u32 | 12 count u32   | 16 uuid [u8; 16] | 32 sequence u64
//!                 40 count x { page id u64 | lsn u64 | crc32c u32 | reserved u32 } | zeros to 4096
//! ```
//!
//! Both checksums cover bytes 12..4096 of their block.
//!
//! The file of stamps is in `stamps`.

mod record;
pub(crate) mod stamps;

use foreshore_base::codec::{Decoder, Put, Short, u16_at, u32_at, u64_at};
use foreshore_base::limits::{BLOCK, MAX_PAGES, PAGE_SIZE};
use foreshore_base::{Lsn, PageId, TableId, Uuid, crc32c};

pub use record::{
    CLR, ChangeRecord, MAX_CHANGE_PAGES, SEVERAL, SPACE_KINDS, TRANSACTION_KINDS, TREE_KINDS, UNDOABLE,
    change_header_len,
};

/// Bytes of the common page header; the body of a page starts here.
pub const PAGE_HEADER: usize = 32;

pub(crate) const AT_CRC: usize = 0;
pub(crate) const AT_TYPE: usize = 4;
pub(crate) const AT_LEVEL: usize = 5;
pub(crate) const AT_FLAGS: usize = 6;
pub(crate) const AT_PID: usize = 8;
pub(crate) const AT_LSN: usize = 16;
pub(crate) const AT_TABLE: usize = 24;
/// Type, level and flags that a stale page had before its quarantine.
pub(crate) const AT_KEPT: usize = 28;

const _: () = assert!(AT_KEPT + 4 == PAGE_HEADER && AT_KEPT == AT_TABLE + 4);

/// What a page holds. The numbers are on disk; 0 is a page without content, 1 is retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageType {
    /// A map page of the space manager.
    Map = 2,
    /// A node of a B+-tree.
    Tree = 3,
    /// A page that recovery found damaged. Its flags are the number of the [`Flaw`], its body is what was found there.
    Quarantined = 4,
    /// A page of a large value, or of the index of one.
    Chain = 5,
}

impl PageType {
    /// The type with that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Map),
            3 => Some(Self::Tree),
            4 => Some(Self::Quarantined),
            5 => Some(Self::Chain),
            _ => None,
        }
    }
}

/// Type of the page, `None` if the number means nothing to this build (0 on a page that has no content yet).
#[must_use]
pub fn page_type(page: &[u8]) -> Option<PageType> {
    PageType::from_number(page[AT_TYPE])
}

/// Level of the page in its tree; 0 for a leaf.
#[must_use]
pub fn page_level(page: &[u8]) -> u8 {
    page[AT_LEVEL]
}

/// Flags of the page; their meaning belongs to its type.
#[must_use]
pub fn page_flags(page: &[u8]) -> u16 {
    u16_at(page, AT_FLAGS)
}

/// The id that the page says it has.
#[must_use]
pub fn page_id(page: &[u8]) -> PageId {
    PageId(u64_at(page, AT_PID))
}

/// Stamp of the last logged change; zero before the first.
#[must_use]
pub fn page_lsn(page: &[u8]) -> Lsn {
    Lsn(u64_at(page, AT_LSN))
}

/// The table that the page belongs to.
#[must_use]
pub fn page_table(page: &[u8]) -> TableId {
    TableId(u32_at(page, AT_TABLE))
}

/// The checksum that the page ought to carry.
#[must_use]
pub fn page_checksum(page: &[u8]) -> u32 {
    crc32c(&page[AT_TYPE..])
}

/// Sets the checksum of a copy that is about to be written.
pub(crate) fn seal_page(page: &mut [u8]) -> u32 {
    let crc = page_checksum(page);
    page[AT_CRC..AT_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// A page of zeros that carries its id.
#[must_use]
pub fn blank_page(pid: PageId) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    page[AT_PID..AT_PID + 8].copy_from_slice(&pid.0.to_le_bytes());
    page
}

/// Why a page as read from disk is refused. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Flaw {
    /// The file ends before the page does.
    Short = 1,
    /// Nothing but zeros.
    NeverWritten = 2,
    /// The checksum does not fit: torn or rotten.
    Checksum = 3,
    /// A sound page of another id: a misdirected write or read.
    WrongPage = 4,
    /// A change on it is not in the durable log.
    AheadOfLog = 5,
    /// A sound page that is not what its log records, or the pages that lead to it, say.
    Content = 6,
    /// A sound page that is older than its stamp: a later write of it was lost.
    Stale = 7,
}

impl Flaw {
    /// The flaw in words, for [`foreshore_base::Error::Corrupted`].
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Short => "the file ends before the page",
            Self::NeverWritten => "the page was never written",
            Self::Checksum => "the checksum of the page does not fit",
            Self::WrongPage => "the page carries the id of another",
            Self::AheadOfLog => "the page holds a change that the log has lost",
            Self::Content => "the page is not what the log says",
            Self::Stale => "stale: an older state of the page is in its place, a later write of it was lost",
        }
    }
}

/// Checks a page as read from disk: length, checksum, id, and that the log holds every change on it.
pub fn verify_page(page: &[u8], pid: PageId, durable: Lsn) -> Result<(), Flaw> {
    if page.len() != PAGE_SIZE {
        return Err(Flaw::Short);
    }
    if u32_at(page, AT_CRC) != page_checksum(page) {
        // The checksum of a zero page is not zero, so one that was never written always comes here.
        let blank = page.iter().all(|&byte| byte == 0);
        return Err(if blank { Flaw::NeverWritten } else { Flaw::Checksum });
    }
    if page_id(page) != pid {
        return Err(Flaw::WrongPage);
    }
    if page_lsn(page) > durable {
        return Err(Flaw::AheadOfLog);
    }
    Ok(())
}

/// Version of the doublewrite file that this build writes and the newest that it reads.
pub const DOUBLEWRITE_VERSION: u32 = 1;
/// Most page images in one doublewrite batch.
pub const AREA_PAGES: usize = 64;

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"FSHOREDW");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"FSHOREDB");
const AT_BLOCK_CRC: usize = 8;
const AT_UUID: usize = 16;
const AT_SEQUENCE: usize = 32;
const AT_ENTRIES: usize = 40;
const ENTRY: usize = 24;
/// Bytes of an area: header block and images.
pub(crate) const AREA_BYTES: usize = BLOCK + AREA_PAGES * PAGE_SIZE;
/// Bytes of the doublewrite file.
pub(crate) const DOUBLEWRITE_BYTES: u64 = (BLOCK + 2 * AREA_BYTES) as u64;

const _: () = assert!(AT_ENTRIES + AREA_PAGES * ENTRY <= BLOCK);
const _: () = assert!(AREA_BYTES.is_multiple_of(BLOCK));

/// Byte offset of area 0 or 1 in the doublewrite file.
pub(crate) const fn area_offset(area: usize) -> u64 {
    (BLOCK + area * AREA_BYTES) as u64
}

pub(crate) fn seal_block(block: &mut [u8]) {
    let crc = crc32c(&block[AT_BLOCK_CRC + 4..BLOCK]);
    block[AT_BLOCK_CRC..AT_BLOCK_CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

fn block_is_sound(block: &[u8]) -> bool {
    block.len() >= BLOCK && u32_at(block, AT_BLOCK_CRC) == crc32c(&block[AT_BLOCK_CRC + 4..BLOCK])
}

/// Why the header of a doublewrite file, or of a file of stamps, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFlaw {
    Magic,
    Checksum,
    Uuid,
    Newer(u32),
}

/// Fills the header block of the doublewrite file.
pub(crate) fn encode_file_header(block: &mut [u8], uuid: Uuid) {
    encode_header(block, FILE_MAGIC, DOUBLEWRITE_VERSION, uuid);
}

fn encode_header(block: &mut [u8], magic: u64, version: u32, uuid: Uuid) {
    block[..BLOCK].fill(0);
    block[..8].copy_from_slice(&magic.to_le_bytes());
    block[12..16].copy_from_slice(&version.to_le_bytes());
    block[AT_UUID..AT_UUID + 16].copy_from_slice(&uuid.0);
    seal_block(block);
}

/// Checks the header block of a doublewrite file.
pub(crate) fn check_file_header(block: &[u8], uuid: Uuid) -> Result<(), HeaderFlaw> {
    check_header(block, FILE_MAGIC, DOUBLEWRITE_VERSION, uuid)
}

fn check_header(block: &[u8], magic: u64, newest: u32, uuid: Uuid) -> Result<(), HeaderFlaw> {
    if block.len() < BLOCK || u64_at(block, 0) != magic {
        return Err(HeaderFlaw::Magic);
    }
    if !block_is_sound(block) {
        return Err(HeaderFlaw::Checksum);
    }
    let version = u32_at(block, 12);
    if version > newest {
        return Err(HeaderFlaw::Newer(version));
    }
    if block[AT_UUID..AT_UUID + 16] != uuid.0 {
        return Err(HeaderFlaw::Uuid);
    }
    Ok(())
}

/// One page image of a doublewrite batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: PageId,
    pub(crate) lsn: Lsn,
    pub(crate) crc: u32,
}

/// Header of a doublewrite batch. Of two areas the one with the larger sequence is newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) sequence: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Batch {
    /// Fills the header block in front of the images.
    pub(crate) fn encode(&self, block: &mut [u8], uuid: Uuid) {
        assert!(self.entries.len() <= AREA_PAGES, "a batch of {} pages", self.entries.len());
        let mut bytes = Vec::with_capacity(BLOCK);
        bytes.put_u64(BATCH_MAGIC);
        bytes.put_u32(0);
        bytes.put_u32(self.entries.len() as u32);
        bytes.put(&uuid.0);
        debug_assert_eq!(bytes.len(), AT_SEQUENCE);
        bytes.put_u64(self.sequence);
        for entry in &self.entries {
            bytes.put_u64(entry.pid.0);
            bytes.put_u64(entry.lsn.0);
            bytes.put_u32(entry.crc);
            bytes.put_u32(0);
        }
        bytes.resize(BLOCK, 0);
        block[..BLOCK].copy_from_slice(&bytes);
        seal_block(block);
    }

    /// Reads a header block. `None` for anything but a whole header of this database: such a batch never reached the
    /// point where its pages were written home.
    pub(crate) fn decode(block: &[u8], uuid: Uuid) -> Option<Self> {
        if !block_is_sound(block) {
            return None;
        }
        let mut from = Decoder::new(&block[..BLOCK]);
        let mut fields = || -> Result<Option<Self>, Short> {
            if from.u64()? != BATCH_MAGIC {
                return Ok(None);
            }
            from.u32()?;
            let count = from.u32()? as usize;
            if from.array::<16>()? != uuid.0 || count > AREA_PAGES {
                return Ok(None);
            }
            let sequence = from.u64()?;
            let mut entries = Vec::with_capacity(count);
            for _ in 0..count {
                let entry = Entry { pid: PageId(from.u64()?), lsn: Lsn(from.u64()?), crc: from.u32()? };
                from.u32()?;
                if entry.pid == PageId::ZERO || entry.pid.0 >= MAX_PAGES {
                    return Ok(None);
                }
                entries.push(entry);
            }
            Ok(Some(Self { sequence, entries }))
        };
        fields().ok().flatten()
    }
}

#[cfg(test)]
mod tests;
