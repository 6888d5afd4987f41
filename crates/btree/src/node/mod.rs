//! Reading a node.
//!
//! Bytes of a page may come from anywhere: every offset is checked before it is used, and what does not fit is a
//! [`Damage`], never a panic.

mod edit;
mod image;

pub(crate) use edit::{
    fits, init, insert_inner, insert_leaf, remove, replace_value, retain, set_flags, set_header, set_leftmost,
};
pub(crate) use image::{apply_image, build_part, encode_image};

use crate::format::{
    AT_GARBAGE, AT_HEAP, AT_HIGH, AT_LEFTMOST, AT_LOW, AT_RIGHT, AT_SLOTS, GHOST, HAS_HIGH, INCOMPLETE, INNER_HEADER,
    LEAF_HEADER, MAX_LEVEL, OVERFLOW, RowHeader, SLOT, SLOTS, key_head,
};
use foreshore_base::codec::{u16_at, u32_at, u64_at};
use foreshore_base::limits::{MAX_KEY, MAX_PAGES, MAX_VALUE, PAGE_SIZE};
use foreshore_base::{PageId, TableId};
use foreshore_buffer::PageType;
use foreshore_buffer::format::{page_flags, page_level, page_table, page_type};

/// What is wrong with a node or with a record that is applied to it.
pub(crate) type Damage = &'static str;

/// A row whose header names an xid that was not handed out.
pub(crate) const NO_WRITER: Damage = "a row names a transaction that never began";

/// A row in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) header: RowHeader,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// A view of a node whose header has been checked. Slots and tuples are checked as they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    page: &'a [u8],
    len: usize,
    heap: usize,
    garbage: usize,
}

impl<'a> Node<'a> {
    /// Checks the headers of a page.
    pub(crate) fn parse(page: &'a [u8]) -> Result<Self, Damage> {
        if page.len() != PAGE_SIZE || page_type(page) != Some(PageType::Tree) {
            return Err("not a node of a tree");
        }
        let len = usize::from(u16_at(page, AT_SLOTS));
        let heap = usize::from(u16_at(page, AT_HEAP));
        let garbage = usize::from(u16_at(page, AT_GARBAGE));
        if heap > PAGE_SIZE || SLOTS + len * SLOT > heap || garbage > PAGE_SIZE - heap {
            return Err("the bounds of the node do not fit");
        }
        if page_level(page) > MAX_LEVEL {
            return Err("the level of the node is out of range");
        }
        Ok(Self { page, len, heap, garbage })
    }

    /// Distance from the leaves.
    pub(crate) fn level(&self) -> u8 {
        page_level(self.page)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    pub(crate) fn table(&self) -> TableId {
        page_table(self.page)
    }

    /// Number of entries, ghosts included.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes that new entries can use after compaction.
    pub(crate) const fn free(&self) -> usize {
        self.heap - (SLOTS + self.len * SLOT) + self.garbage
    }

    /// Bytes that new entries can use without compaction.
    pub(crate) const fn contiguous(&self) -> usize {
        self.heap - (SLOTS + self.len * SLOT)
    }

    pub(crate) fn is_incomplete(&self) -> bool {
        page_flags(self.page) & INCOMPLETE != 0
    }

    /// The sibling that holds the keys from the high fence on; [`PageId::ZERO`] at the right end of the level.
    pub(crate) fn right(&self) -> PageId {
        PageId(u64_at(self.page, AT_RIGHT))
    }

    fn bytes(&self, at: usize, len: usize) -> Result<&'a [u8], Damage> {
        if at < self.heap {
            return Err("an entry lies outside the heap");
        }
        self.page.get(at..at + len).ok_or("an entry reaches beyond the node")
    }

    fn fence(&self, at: usize) -> Result<&'a [u8], Damage> {
        let (at, len) = (usize::from(u16_at(self.page, at)), usize::from(u16_at(self.page, at + 2)));
        if len > MAX_KEY {
            return Err("a fence is longer than a key");
        }
        if len == 0 { Ok(&[]) } else { self.bytes(at, len) }
    }

    /// The smallest key that may be here.
    pub(crate) fn low(&self) -> Result<&'a [u8], Damage> {
        self.fence(AT_LOW)
    }

    /// The smallest key that may not be here any more; `None` at the right end of the level.
    pub(crate) fn high(&self) -> Result<Option<&'a [u8]>, Damage> {
        if page_flags(self.page) & HAS_HIGH == 0 { Ok(None) } else { self.fence(AT_HIGH).map(Some) }
    }

    /// Offset of the tuple and length of the key of slot `index`.
    fn slot(&self, index: usize) -> Result<(usize, usize), Damage> {
        if index >= self.len {
            return Err("an entry that does not exist");
        }
        let at = SLOTS + index * SLOT;
        let key_len = usize::from(u16_at(self.page, at + 2));
        if key_len > MAX_KEY {
            return Err("a key is over the limit");
        }
        Ok((usize::from(u16_at(self.page, at)), key_len))
    }

    const fn header_len(leaf: bool) -> usize {
        if leaf { LEAF_HEADER } else { INNER_HEADER }
    }

    /// The key of entry `index`.
    pub(crate) fn key(&self, index: usize) -> Result<&'a [u8], Damage> {
        let (at, len) = self.slot(index)?;
        let header = Self::header_len(self.is_leaf());
        Ok(&self.bytes(at, header + len)?[header..])
    }

    /// Offset of the tuple of entry `index`, and the whole tuple.
    pub(crate) fn tuple(&self, index: usize) -> Result<(usize, &'a [u8]), Damage> {
        let (at, key_len) = self.slot(index)?;
        if !self.is_leaf() {
            return Ok((at, self.bytes(at, INNER_HEADER + key_len)?));
        }
        let (_, value_len) = RowHeader::decode(self.bytes(at, LEAF_HEADER)?);
        if value_len > MAX_VALUE {
            return Err("a value is over the limit");
        }
        Ok((at, self.bytes(at, LEAF_HEADER + key_len + value_len)?))
    }

    /// The row of entry `index` of a leaf.
    pub(crate) fn row(&self, index: usize) -> Result<Row<'a>, Damage> {
        debug_assert!(self.is_leaf());
        let (_, key_len) = self.slot(index)?;
        let (_, tuple) = self.tuple(index)?;
        let (header, _) = RowHeader::decode(tuple);
        if header.flags & !(GHOST | OVERFLOW) != 0 {
            return Err("a row has unknown flags");
        }
        Ok(Row { header, key: &tuple[LEAF_HEADER..LEAF_HEADER + key_len], value: &tuple[LEAF_HEADER + key_len..] })
    }

    /// The leftmost child of an inner node.
    pub(crate) fn leftmost(&self) -> Result<PageId, Damage> {
        checked_page(u64_at(self.page, AT_LEFTMOST))
    }

    /// The child of entry `index` of an inner node.
    pub(crate) fn child(&self, index: usize) -> Result<PageId, Damage> {
        debug_assert!(!self.is_leaf());
        let (at, _) = self.slot(index)?;
        checked_page(u64_at(self.bytes(at, INNER_HEADER)?, 0))
    }

    /// The entry with that key, or the place where it belongs.
    pub(crate) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Damage> {
        let head = key_head(key);
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = from.midpoint(to);
            let order = match u32_at(self.page, SLOTS + middle * SLOT + 4).cmp(&head) {
                std::cmp::Ordering::Equal => self.key(middle)?.cmp(key),
                order => order,
            };
            match order {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
                std::cmp::Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(from))
    }

    /// The child of an inner node that leads to `key`.
    pub(crate) fn child_for(&self, key: &[u8]) -> Result<PageId, Damage> {
        match self.search(key)? {
            Ok(index) => self.child(index),
            Err(0) => self.leftmost(),
            Err(index) => self.child(index - 1),
        }
    }

    /// Checks everything that one node can tell: bounds, order, fences, and that no byte of the heap is used twice.
    pub(crate) fn validate(&self) -> Result<(), Damage> {
        let (low, high) = (self.low()?, self.high()?);
        if high.is_some_and(|high| low >= high) {
            return Err("the fences are out of order");
        }
        if high.is_none() && (self.right() != PageId::ZERO || self.is_incomplete()) {
            return Err("the last node of a level has a sibling");
        }
        if high.is_some() {
            checked_page(self.right().0)?;
        }
        let mut used = low.len() + high.map_or(0, <[u8]>::len);
        let mut previous: Option<&[u8]> = None;
        for index in 0..self.len {
            let key = self.key(index)?;
            if previous.is_some_and(|previous| previous >= key) {
                return Err("keys are out of order");
            }
            if key < low || high.is_some_and(|high| key >= high) {
                return Err("a key lies outside the fences");
            }
            if u32_at(self.page, SLOTS + index * SLOT + 4) != key_head(key) {
                return Err("the head of a slot does not fit its key");
            }
            used += self.tuple(index)?.1.len();
            if self.is_leaf() {
                self.row(index)?;
            } else {
                self.child(index)?;
            }
            previous = Some(key);
        }
        if !self.is_leaf() {
            self.leftmost()?;
        }
        if used + self.garbage != PAGE_SIZE - self.heap {
            return Err("the heap of the node does not add up");
        }
        Ok(())
    }
}

/// A page id as read from a node.
fn checked_page(number: u64) -> Result<PageId, Damage> {
    if number == 0 || number >= MAX_PAGES { Err("a page id is out of range") } else { Ok(PageId(number)) }
}

/// The shortest key `s` with `a < s <= b`.
pub(crate) fn separator<'k>(a: &[u8], b: &'k [u8]) -> Result<&'k [u8], Damage> {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    if a >= b {
        return Err("keys are out of order");
    }
    Ok(&b[..common + 1])
}

#[cfg(test)]
mod tests;
