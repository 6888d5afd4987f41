//! The log record of a page change. Its payload:
//!
//! ```text
//!  0      1       2           3       4       8                  8 + 8n
//!  | kind | pages | init mask | flags | table | page id x n      | body ...
//!  | u8   | u8 n  | u8        | u8    | u32   | u64 each         |
//! ```

use foreshore_base::codec::{Decoder, Short};
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{Lsn, PageId, TableId};
use std::ops::RangeInclusive;

/// Kinds of record that belong to the space manager.
pub const SPACE_KINDS: RangeInclusive<u8> = 1..=31;
/// Kinds of record that belong to trees.
pub const TREE_KINDS: RangeInclusive<u8> = 32..=95;
/// Kinds of record that belong to transactions and checkpoints. They change no pages.
pub const TRANSACTION_KINDS: RangeInclusive<u8> = 96..=127;

/// Flag of a change that a rollback takes back.
pub const UNDOABLE: u8 = 1;
/// Flag of a compensation: the change takes back another and is itself never undone.
pub const CLR: u8 = 2;

/// Flag of an [`UNDOABLE`] record of several changes, which a rollback takes back one by one. Its body begins with
/// their number, u16.
///
/// Each change has an LSN of its own, by which compensations name it. The last one has that of the record, and each
/// other the one before that of the next. No other record of the transaction has one of these LSNs.
pub const SEVERAL: u8 = 4;

/// All flags that records have. A record with another one is refused: whatever uses it is announced by a feature of the
/// file, and by the version of the record's group.
const FLAGS: u8 = UNDOABLE | CLR | SEVERAL;

/// Most pages that one record changes.
pub const MAX_CHANGE_PAGES: usize = 8;
/// Bytes of a page-change record in front of its body, for as many pages.
#[must_use]
pub const fn change_header_len(pages: usize) -> usize {
    8 + 8 * pages
}

/// A decoded page-change record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRecord<'a> {
    /// What the change is; see [`SPACE_KINDS`], [`TREE_KINDS`], [`TRANSACTION_KINDS`].
    pub kind: u8,
    /// [`UNDOABLE`], [`CLR`] and [`SEVERAL`].
    pub flags: u8,
    /// Bit `i` is set if the record initialises page `i` wholly, so that redo needs no earlier state of it.
    pub init_mask: u8,
    /// The table that the pages belong to.
    pub table: TableId,
    /// The rest; its layout belongs to the kind.
    pub body: &'a [u8],
    pages: [PageId; MAX_CHANGE_PAGES],
    page_count: usize,
}

impl<'a> ChangeRecord<'a> {
    /// Describes a change of `pages`, at most [`MAX_CHANGE_PAGES`], without a body.
    #[must_use]
    pub fn new(kind: u8, flags: u8, init_mask: u8, table: TableId, pages: &[PageId]) -> Self {
        assert!(pages.len() <= MAX_CHANGE_PAGES, "a record changes {} pages", pages.len());
        let mut list = [PageId::ZERO; MAX_CHANGE_PAGES];
        list[..pages.len()].copy_from_slice(pages);
        Self { kind, flags, init_mask, table, body: &[], pages: list, page_count: pages.len() }
    }

    /// The pages that the record changes, in the order of the bits of `init_mask`.
    #[must_use]
    pub fn pages(&self) -> &[PageId] {
        &self.pages[..self.page_count]
    }

    /// Whether the record initialises page `index` wholly.
    #[must_use]
    pub const fn initialises(&self, index: usize) -> bool {
        index < MAX_CHANGE_PAGES && self.init_mask & (1 << index) != 0
    }

    /// Returns the LSNs of the changes that a rollback takes back, if the record has the LSN `lsn`. The range is empty
    /// if there are none. The error says what does not fit.
    pub fn undoable(&self, lsn: Lsn) -> Result<RangeInclusive<u64>, &'static str> {
        let count = match self.flags & (UNDOABLE | CLR | SEVERAL) {
            UNDOABLE => 1,
            flags if flags == UNDOABLE | SEVERAL => {
                let count =
                    Decoder::new(self.body).u16().map_err(|Short| "a record of several changes is too short")?;
                u64::from(count)
            }
            flags if flags & SEVERAL != 0 => return Err("a record of several changes is not undoable"),
            _ => 0,
        };
        if (count == 0 && self.flags & SEVERAL != 0) || count > lsn.0 {
            return Err("a record of several changes has an impossible number of them");
        }
        Ok(lsn.0 + 1 - count..=lsn.0)
    }

    /// Encodes everything but the body. Returns the bytes used, [`change_header_len`] of them.
    pub fn encode_header(&self, out: &mut [u8; change_header_len(MAX_CHANGE_PAGES)]) -> usize {
        assert!(self.kind != 0, "kind 0 is no kind");
        assert!(usize::from(self.init_mask) < 1 << self.page_count, "init mask {:#b} of {self:?}", self.init_mask);
        out[0] = self.kind;
        out[1] = self.page_count as u8;
        out[2] = self.init_mask;
        out[3] = self.flags;
        out[4..8].copy_from_slice(&self.table.0.to_le_bytes());
        for (slot, pid) in out[8..].chunks_exact_mut(8).zip(self.pages()) {
            slot.copy_from_slice(&pid.0.to_le_bytes());
        }
        change_header_len(self.page_count)
    }

    /// Decodes the payload of a log record. The error says what does not fit.
    pub fn decode(payload: &'a [u8]) -> Result<Self, &'static str> {
        Self::decode_fields(payload).unwrap_or(Err("a page-change record is too short"))
    }

    fn decode_fields(payload: &'a [u8]) -> Result<Result<Self, &'static str>, Short> {
        let mut from = Decoder::new(payload);
        let (kind, count, init_mask, flags) = (from.u8()?, usize::from(from.u8()?), from.u8()?, from.u8()?);
        let table = TableId(from.u32()?);
        if kind == 0 || kind > *TRANSACTION_KINDS.end() {
            return Ok(Err("a page-change record has an unknown kind"));
        }
        if flags & !FLAGS != 0 {
            return Ok(Err("a page-change record has an unknown flag"));
        }
        if count > MAX_CHANGE_PAGES || (TRANSACTION_KINDS.contains(&kind) && count != 0) {
            return Ok(Err("a page-change record names too many pages"));
        }
        if usize::from(init_mask) >= 1 << count {
            return Ok(Err("a page-change record initialises a page that it does not name"));
        }
        let mut pages = [PageId::ZERO; MAX_CHANGE_PAGES];
        for index in 0..count {
            let pid = PageId(from.u64()?);
            if pid == PageId::ZERO || pid.0 >= MAX_PAGES || pages[..index].contains(&pid) {
                return Ok(Err("a page-change record names a page out of range or twice"));
            }
            pages[index] = pid;
        }
        Ok(Ok(Self { kind, flags, init_mask, table, body: from.rest(), pages, page_count: count }))
    }
}
