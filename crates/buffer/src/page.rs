//! Traits for reading and writing a page, in a frame or in a buffer.

use crate::format::{AT_FLAGS, AT_LEVEL, AT_TABLE, AT_TYPE, PageType};
use foreshore_base::TableId;
use foreshore_base::codec::u64_at;
use foreshore_base::limits::PAGE_SIZE;
use std::cmp::Ordering;
use std::ops::Range;

/// A page that can be read: a whole page of plain bytes, or one that is read optimistically. Code that reads nodes is
/// written once, against this trait. It checks every offset before use, since any optimistically read value may be
/// inconsistent until [`OptimisticGuard::validate`](crate::OptimisticGuard::validate) succeeds.
pub trait PageRead: Copy {
    /// Returns the eight bytes at `offset`, little-endian.
    fn word(self, offset: usize) -> u64;

    /// Compares the bytes of `range` with `bytes`.
    fn compare(self, range: Range<usize>, bytes: &[u8]) -> Ordering;

    /// Copies the bytes of `range` to `out`, which has its length.
    fn copy_to(self, range: Range<usize>, out: &mut [u8]);

    /// Appends the bytes of `range` to `out`.
    fn append_to(self, range: Range<usize>, out: &mut Vec<u8>);

    /// Returns type, level and flags of the page header.
    #[inline]
    fn kind(self) -> PageKind {
        PageKind(self.word(0))
    }

    /// Returns the table of the page header.
    #[inline]
    fn table(self) -> TableId {
        TableId(self.word(AT_TABLE) as u32)
    }
}

/// Type, level and flags in a page header, as they were read: one word, so that a copy of it is one as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKind(u64);

const _: () = assert!(AT_TYPE == 4 && AT_LEVEL == 5 && AT_FLAGS == 6);

impl PageKind {
    /// Returns the type; `None` if the number is that of none.
    #[inline]
    #[must_use]
    pub fn page_type(self) -> Option<PageType> {
        PageType::from_number((self.0 >> (8 * AT_TYPE)) as u8)
    }

    /// Returns the level.
    #[inline]
    #[must_use]
    pub const fn level(self) -> u8 {
        (self.0 >> (8 * AT_LEVEL)) as u8
    }

    /// Returns the flags.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> u16 {
        (self.0 >> (8 * AT_FLAGS)) as u16
    }
}

impl PageRead for &[u8] {
    #[inline]
    fn word(self, offset: usize) -> u64 {
        u64_at(self, offset)
    }

    #[inline]
    fn compare(self, range: Range<usize>, bytes: &[u8]) -> Ordering {
        // Most keys are short: a call takes longer than their comparison.
        let mine = &self[range];
        let (Some((first, mine)), Some((second, bytes))) =
            (mine.split_first_chunk::<8>(), bytes.split_first_chunk::<8>())
        else {
            return mine.cmp(bytes);
        };
        let order = u64::from_be_bytes(*first).cmp(&u64::from_be_bytes(*second));
        if order.is_ne() || mine.is_empty() && bytes.is_empty() { order } else { mine.cmp(bytes) }
    }

    fn copy_to(self, range: Range<usize>, out: &mut [u8]) {
        out.copy_from_slice(&self[range]);
    }

    fn append_to(self, range: Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[range]);
    }
}

/// A page that can be changed: a latched frame ([`crate::ExclusiveGuard`]) or a plain buffer.
///
/// There is no `&mut [u8]`: the bytes of a frame may be read optimistically at any time, so they change only through
/// atomic stores. Code that writes nodes is written once, against this trait.
///
/// All offsets count from the start of the page; a range outside the page is a defect of the caller and panics.
pub trait PageMut {
    /// Returns the whole page.
    fn bytes(&self) -> &[u8];

    /// Writes `bytes` at `offset`.
    fn write(&mut self, offset: usize, bytes: &[u8]);

    /// Moves the bytes of `src` to `dst`; the two may overlap.
    fn copy_within(&mut self, src: Range<usize>, dst: usize);

    /// Sets every byte of `range`.
    fn fill(&mut self, range: Range<usize>, byte: u8);

    /// Sets the type in the page header.
    fn set_page_type(&mut self, page_type: PageType) {
        self.write(AT_TYPE, &[page_type as u8]);
    }

    /// Sets the level in the page header.
    fn set_page_level(&mut self, level: u8) {
        self.write(AT_LEVEL, &[level]);
    }

    /// Sets the flags in the page header.
    fn set_page_flags(&mut self, flags: u16) {
        self.write(AT_FLAGS, &flags.to_le_bytes());
    }

    /// Sets the table in the page header.
    fn set_page_table(&mut self, table: TableId) {
        self.write(AT_TABLE, &table.0.to_le_bytes());
    }
}

impl PageMut for [u8; PAGE_SIZE] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_within(&mut self, src: Range<usize>, dst: usize) {
        self.as_mut_slice().copy_within(src, dst);
    }

    fn fill(&mut self, range: Range<usize>, byte: u8) {
        self[range].fill(byte);
    }
}
