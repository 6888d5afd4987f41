//! Bytes on disk: superblock and map pages.
//!
//! All integers are little-endian.
//!
//! **Superblock slot** (the first 4096 bytes of page 0 and of page 1). Magic, version and checksum have the same
//! offsets in every version, so that a newer file can be told from a damaged one.
//!
//! ```text
//!  0       8         12          16     32    40               48                 56           64           72
//!  | magic | version | page size | uuid | seq | checkpoint lsn | checkpoint group | scan start | data pages | xid ceiling
//!  | u64   | u32     | u32       | 16 B | u64 | u64            | u64              | u64        | u64        | u64
//!
//!  80      84         88        96           104       108        112                             4092
//!  | flags | features | created | redo start | count n | speed    | page id x n      | zeros      | crc32c of bytes 0..4092 |
//!  | u32   | u32      | u64     | u64        | u32     | u32      | u64 each         |            | u32                     |
//!
//!  4056             4060          4076
//!  | write features | last backup | run  |
//!  | u32            | 16 B        | 16 B |
//! ```
//!
//! The list names quarantined pages, at most [`MAX_LISTED`]. The speed is that of a restart.
//!
//! **Map page** `k` is page `2 + k * REGION_PAGES`. After the common page header it has one bit for each page of the
//! region `k * REGION_PAGES ..`, lowest bit first, set while the page is allocated. Page flag [`MAP_HAS_NEXT`]: the
//! map page of the following region exists. Regions exist without gaps, so the chain says how many there are, whatever
//! the length of the file. Page flag [`MAP_REBUILT`]: the map was damaged once, and pages that no tree has may be
//! marked as allocated.

use foreshore_base::codec::{u32_at, u64_at};
use foreshore_base::limits::{BLOCK, MAX_XID, PAGE_SIZE};
use foreshore_base::{GroupNo, Lsn, PageId, Uuid, Xid, crc32c};
use foreshore_buffer::format::PAGE_HEADER;

/// Pages that one map page has bits for.
pub const REGION_PAGES: u64 = ((PAGE_SIZE - PAGE_HEADER) * 8) as u64;
/// Place of the map page in its region: behind the superblock slots of the first one.
pub const MAP_IN_REGION: u64 = 2;
/// Root of the catalogue tree, created with the database.
pub const CATALOGUE_ROOT: PageId = PageId(3);
/// Root of the table of chains, created next.
pub const CHAINS_ROOT: PageId = PageId(4);
/// Flag of a map page: the map page of the following region exists.
pub const MAP_HAS_NEXT: u16 = 1;
/// Flag of a map page: the map was damaged, and what was allocated then is a guess that no page in use is left out of.
pub const MAP_REBUILT: u16 = 2;
/// Most quarantined pages that a superblock lists.
pub const MAX_LISTED: usize = 480;

/// Version of the superblock that this build writes and the newest that it reads.
pub const SUPERBLOCK_VERSION: u32 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"FORESHOR");
const AT_VERSION: usize = 8;
const AT_PAGE_SIZE: usize = 12;
const AT_UUID: usize = 16;
const AT_SEQ: usize = 32;
const AT_CHECKPOINT_LSN: usize = 40;
const AT_CHECKPOINT_GROUP: usize = 48;
const AT_SCAN_START: usize = 56;
const AT_DATA_PAGES: usize = 64;
const AT_XID_CEILING: usize = 72;
const AT_FLAGS: usize = 80;
const AT_FEATURES: usize = 84;
const AT_CREATED: usize = 88;
const AT_REDO_START: usize = 96;
const AT_LISTED: usize = 104;
const AT_SPEED: usize = 108;
const AT_LIST: usize = 112;
const AT_WRITE_FEATURES: usize = AT_LAST_BACKUP - 4;
const AT_LAST_BACKUP: usize = AT_RUN - 16;
const AT_RUN: usize = AT_CRC - 16;
const AT_CRC: usize = BLOCK - 4;

const FLAG_CLEAN: u32 = 1;
/// Sequence numbers stay below, so that one can be counted on from there.
const MAX_SEQ: u64 = 1 << 62;

const _: () = assert!(AT_REDO_START + 8 == AT_LISTED && AT_LISTED + 4 == AT_SPEED && AT_SPEED + 4 == AT_LIST);
const _: () = assert!(AT_LIST + MAX_LISTED * 8 <= AT_WRITE_FEATURES && BLOCK <= PAGE_SIZE);
const _: () = assert!(REGION_PAGES.is_multiple_of(64));

/// What recovery starts from. Everything else is in the log or reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperBlock {
    /// Identity of the database, equal in every file.
    pub uuid: Uuid,
    /// Counts the superblocks written; the larger of two slots is the newer.
    pub seq: u64,
    /// LSN of the checkpoint record, zero before the first checkpoint.
    pub checkpoint_lsn: Lsn,
    /// A group at or before the one that holds the checkpoint record.
    pub checkpoint_group: GroupNo,
    /// First group that restart reads: that of the oldest transaction, or the redo start.
    pub scan_start: GroupNo,
    /// First group that restart applies to pages. Every page holds the changes of the groups before it.
    pub redo_start: GroupNo,
    /// Pages that the data file must at least have. A shorter file has lost data.
    pub data_pages: u64,
    /// First xid that no transaction has been given yet.
    pub xid_ceiling: Xid,
    /// Whether the database was closed: restart has nothing to redo or undo.
    pub clean: bool,
    /// Bits of features that the file uses; one unknown to the build makes the file newer than the build.
    pub features: u32,
    /// Bits of features that writers of the file have to know; readers need not.
    pub write_features: u32,
    /// Time of creation in seconds since 1970, as the creator says.
    pub created: u64,
    /// KiB of log a second that a restart redoes, as measured; 0: it never was.
    pub restart_speed: u32,
    /// Pages that were found to be quarantined, [`MAX_LISTED`] at most are kept.
    pub quarantined: Vec<PageId>,
    /// Shows which backups are of the history of the database.
    pub backups: BackupMark,
}

/// What a superblock says of the backups of its database. Both are random; zero stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupMark {
    /// Token of the newest backup that was known when the checkpoint was taken.
    pub last: [u8; 16],
    /// Of the run that took the checkpoint: from an open to the close or crash.
    pub run: [u8; 16],
}

/// What a slot turned out to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Sound(SuperBlock),
    /// Ours by its magic, but the checksum does not fit.
    Damaged,
    /// No superblock at all, a slot that was never written among them.
    Foreign,
    Newer(u32),
    PageSize,
}

impl SuperBlock {
    /// Fills one slot of [`BLOCK`] bytes.
    pub(crate) fn encode(&self, slot: &mut [u8]) {
        slot[..BLOCK].fill(0);
        let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(AT_VERSION, &SUPERBLOCK_VERSION.to_le_bytes());
        put(AT_PAGE_SIZE, &(PAGE_SIZE as u32).to_le_bytes());
        put(AT_UUID, &self.uuid.0);
        put(AT_SEQ, &self.seq.to_le_bytes());
        put(AT_CHECKPOINT_LSN, &self.checkpoint_lsn.0.to_le_bytes());
        put(AT_CHECKPOINT_GROUP, &self.checkpoint_group.0.to_le_bytes());
        put(AT_SCAN_START, &self.scan_start.0.to_le_bytes());
        put(AT_DATA_PAGES, &self.data_pages.to_le_bytes());
        put(AT_XID_CEILING, &self.xid_ceiling.0.to_le_bytes());
        put(AT_FLAGS, &if self.clean { FLAG_CLEAN } else { 0 }.to_le_bytes());
        put(AT_FEATURES, &self.features.to_le_bytes());
        put(AT_CREATED, &self.created.to_le_bytes());
        put(AT_REDO_START, &self.redo_start.0.to_le_bytes());
        put(AT_SPEED, &self.restart_speed.to_le_bytes());
        let listed = self.quarantined.iter().take(MAX_LISTED);
        put(AT_LISTED, &(listed.len() as u32).to_le_bytes());
        listed.enumerate().for_each(|(n, pid)| put(AT_LIST + 8 * n, &pid.0.to_le_bytes()));
        put(AT_WRITE_FEATURES, &self.write_features.to_le_bytes());
        put(AT_LAST_BACKUP, &self.backups.last);
        put(AT_RUN, &self.backups.run);
        let crc = crc32c(&slot[..AT_CRC]);
        slot[AT_CRC..BLOCK].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads one slot of [`BLOCK`] bytes.
    pub(crate) fn decode(slot: &[u8]) -> Slot {
        if slot.len() < BLOCK || u64_at(slot, 0) != MAGIC {
            return Slot::Foreign;
        }
        if u32_at(slot, AT_CRC) != crc32c(&slot[..AT_CRC]) {
            return Slot::Damaged;
        }
        let version = u32_at(slot, AT_VERSION);
        let (flags, features) = (u32_at(slot, AT_FLAGS), u32_at(slot, AT_FEATURES));
        if version > SUPERBLOCK_VERSION || features != 0 || flags & !FLAG_CLEAN != 0 {
            return Slot::Newer(version.max(SUPERBLOCK_VERSION + 1));
        }
        if u32_at(slot, AT_PAGE_SIZE) as usize != PAGE_SIZE {
            return Slot::PageSize;
        }
        let (scan_start, redo_start) = (GroupNo(u64_at(slot, AT_SCAN_START)), GroupNo(u64_at(slot, AT_REDO_START)));
        if redo_start < scan_start {
            // The checksum fits by chance, or the writer erred: changes that no page may lack would not be read.
            return Slot::Damaged;
        }
        let (seq, xid_ceiling) = (u64_at(slot, AT_SEQ), u64_at(slot, AT_XID_CEILING));
        if seq >= MAX_SEQ || !(1..=MAX_XID).contains(&xid_ceiling) {
            // Numbers that no writer comes to: there would be none after them.
            return Slot::Damaged;
        }
        let id = |at: usize| slot[at..at + 16].try_into().expect("16 bytes");
        Slot::Sound(Self {
            uuid: Uuid(id(AT_UUID)),
            seq,
            checkpoint_lsn: Lsn(u64_at(slot, AT_CHECKPOINT_LSN)),
            checkpoint_group: GroupNo(u64_at(slot, AT_CHECKPOINT_GROUP)),
            scan_start,
            redo_start,
            data_pages: u64_at(slot, AT_DATA_PAGES),
            xid_ceiling: Xid(xid_ceiling),
            clean: flags & FLAG_CLEAN != 0,
            features,
            write_features: u32_at(slot, AT_WRITE_FEATURES),
            created: u64_at(slot, AT_CREATED),
            restart_speed: u32_at(slot, AT_SPEED),
            quarantined: (0..(u32_at(slot, AT_LISTED) as usize).min(MAX_LISTED))
                .map(|n| PageId(u64_at(slot, AT_LIST + 8 * n)))
                .collect(),
            backups: BackupMark { last: id(AT_LAST_BACKUP), run: id(AT_RUN) },
        })
    }
}
