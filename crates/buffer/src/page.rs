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

    /// Appends the bytes of `range` to `out`.
    fn append_to(self, range: Range<usize>, out: &mut Vec<u8>);

    /// Returns type, level and flags of the page header.
    #[inline]
    fn kind(self) -> (Option<PageType>, u8, u16) {
        let [.., page_type, level, low, high] = self.word(0).to_le_bytes();
        (PageType::from_number(page_type), level, u16::from_le_bytes([low, high]))
    }

    /// Returns the table of the page header.
    #[inline]
    fn table(self) -> TableId {
        TableId(self.word(AT_TABLE) as u32)
    }
}

const _: () = assert!(AT_TYPE == 4 && AT_LEVEL == 5 && AT_FLAGS == 6);

impl PageRead for &[u8] {
    #[inline]
    fn word(self, offset: usize) -> u64 {
        u64_at(self, offset)
    }

    #[inline]
    fn compare(self, range: Range<usize>, bytes: &[u8]) -> Ordering {
        self[range].cmp(bytes)
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
