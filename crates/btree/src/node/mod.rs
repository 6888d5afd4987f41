//! Reads of a node.
//!
//! The bytes of a page may be arbitrary. So every offset is checked before it is used, and a wrong one is a [`Damage`],
//! never a panic.

mod edit;
mod fill;
mod goal;
mod image;
mod pack;
mod search;
mod validate;

pub(crate) use edit::{
    init, insert_inner, insert_leaf, put_header, put_undo, remove, replace_child, replace_sibling, retain, set_flags,
    set_header, set_leftmost, splice_in_place, splice_value,
};
pub(crate) use fill::CAPACITY;
pub(crate) use goal::Goal;
pub(crate) use image::{absorb, apply_image, build_part, encode_image, give_away, image_ends, image_low};
pub(crate) use pack::Packed;
pub(crate) use validate::is_sound;

use crate::format::{
    AT_LEFTMOST, AT_LOW, AT_RIGHT, AT_SLOTS, GHOST, HAS_HIGH, INCOMPLETE, INNER_HEADER, LEAF_HEADER, MAX_LEVEL,
    OVERFLOW, RUN_END_BITS, RowHeader, SLOT, SLOTS,
};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY, MAX_PAGES, PAGE_SIZE};
use foreshore_base::{PageId, TableId};
use foreshore_buffer::{PageKind, PageRead, PageType, why_quarantined};
use std::cmp::Ordering;
use std::ops::Range;

/// The description of damage to a node, or to a record that is applied to it.
pub(crate) type Damage = &'static str;

/// The damage of a row whose header names an xid that was not handed out.
pub(crate) const NO_WRITER: Damage = "a row names a transaction that never began";

/// The damage of a row that is not visible and leads to no older version that is.
pub(crate) const NO_VERSION: Damage = "a row leads to no older version";

/// A row in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) header: RowHeader,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// A view of a node whose header has been checked. Slots and tuples are checked as they are read.
///
/// If the page is read optimistically, all results, including damage, may be inconsistent until the page validates. The
/// checks still hold: each value is read once, and the checked value is the one that is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<P> {
    page: P,
    kind: PageKind,
    /// The first four numbers of the node header, 16 bits each: slots, heap, garbage, run. Kept as one word, like the
    /// kind. Results with views are copied, and loads of other widths than the stores would defeat store forwarding.
    bounds: u64,
}

/// A view of plain bytes.
pub(crate) type Node<'a> = NodeView<&'a [u8]>;

/// A slot: the position of a tuple, and the length and the head of its key.
#[derive(Clone, Copy)]
struct Slot {
    at: usize,
    key_len: usize,
    head: u32,
}

/// The header of a row, and the positions of its parts.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) header: RowHeader,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl Place {
    /// Returns the offset of the row's tuple.
    #[inline]
    pub(crate) const fn tuple(&self) -> usize {
        self.key.start - LEAF_HEADER
    }
}

/// Returns the damage of a page of an unexpected type: why it is quarantined, or `otherwise`.
#[cold]
pub(crate) fn why_unlike(page_type: Option<PageType>, flags: u16, otherwise: Damage) -> Damage {
    if page_type == Some(PageType::Quarantined) { why_quarantined(flags) } else { otherwise }
}

impl<P: PageRead> NodeView<P> {
    /// Checks the headers of a page.
    #[inline]
    pub(crate) fn view(page: P) -> Result<Self, Damage> {
        let (kind, bounds) = (page.kind(), page.word(AT_SLOTS));
        if kind.page_type() != Some(PageType::Tree) {
            return Err(why_unlike(kind.page_type(), kind.flags(), "not a node of a tree"));
        }
        let node = Self { page, kind, bounds };
        if node.heap() > PAGE_SIZE || node.slots_end() > node.heap() || node.garbage() > PAGE_SIZE - node.heap() {
            return Err("the bounds of the node do not fit");
        }
        if kind.level() > MAX_LEVEL {
            return Err("the level of the node is out of range");
        }
        Ok(node)
    }

    /// Returns the offset of the heap.
    pub(crate) const fn heap(&self) -> usize {
        (self.bounds >> 16) as u16 as usize
    }

    /// Returns the number of unused bytes in the heap.
    pub(crate) const fn garbage(&self) -> usize {
        (self.bounds >> 32) as u16 as usize
    }

    /// Returns the length of the common prefix of all keys that may be here. The heads leave that prefix out.
    pub(crate) const fn shared(&self) -> usize {
        self.run() >> RUN_END_BITS
    }

    /// Returns the header field `run`: the run end and the length of that prefix, as `format.rs` describes.
    const fn run(&self) -> usize {
        (self.bounds >> 48) as usize
    }

    /// Returns the offset of the first byte after the slots.
    const fn slots_end(&self) -> usize {
        SLOTS + self.len() * SLOT
    }

    /// Returns the node's distance from the leaves.
    pub(crate) const fn level(&self) -> u8 {
        self.kind.level()
    }

    pub(crate) const fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    pub(crate) fn table(&self) -> TableId {
        self.page.table()
    }

    /// Returns the number of entries, ghosts included.
    pub(crate) const fn len(&self) -> usize {
        self.bounds as u16 as usize
    }

    /// Returns the bytes that new entries can use after compaction.
    pub(crate) const fn free(&self) -> usize {
        self.contiguous() + self.garbage()
    }

    /// Returns the bytes that new entries can use without compaction.
    pub(crate) const fn contiguous(&self) -> usize {
        self.heap() - self.slots_end()
    }

    /// Returns whether a value of `len` bytes fits in place of that of the row at `place`.
    pub(crate) const fn fits(&self, place: &Place, len: usize) -> bool {
        len <= self.free() + (place.value.end - place.value.start)
    }

    /// Returns whether an entry at `at` would follow the entry that was inserted last. This is only a hint.
    pub(crate) const fn is_run_end(&self, at: usize) -> bool {
        at > 0 && self.run() % (1 << RUN_END_BITS) == at
    }

    pub(crate) const fn is_incomplete(&self) -> bool {
        self.kind.flags() & INCOMPLETE != 0
    }

    /// Returns the sibling that holds the keys from the high fence on; [`PageId::ZERO`] at the right end of the level.
    pub(crate) fn right(&self) -> PageId {
        PageId(self.page.word(AT_RIGHT))
    }

    /// Returns [`NodeView::right`] of a node that must have one.
    pub(crate) fn sibling(&self) -> Result<PageId, Damage> {
        checked_page(self.right().0)
    }

    /// Returns whether the node has a high fence, and so a node to its right.
    pub(crate) const fn has_high(&self) -> bool {
        self.kind.flags() & HAS_HIGH != 0
    }

    fn range(&self, at: usize, len: usize) -> Result<Range<usize>, Damage> {
        if at < self.heap() {
            return Err("an entry lies outside the heap");
        }
        if at + len > PAGE_SIZE { Err("an entry reaches beyond the node") } else { Ok(at..at + len) }
    }

    fn fence(&self, at: usize, len: usize) -> Result<Range<usize>, Damage> {
        if len > MAX_KEY {
            return Err("a fence is longer than a key");
        }
        if len == 0 { Ok(0..0) } else { self.range(at, len) }
    }

    fn low_range(&self) -> Result<Range<usize>, Damage> {
        let [at, len, ..] = quarters(self.page.word(AT_LOW));
        self.fence(at, len)
    }

    fn high_range(&self) -> Result<Option<Range<usize>>, Damage> {
        if !self.has_high() {
            return Ok(None);
        }
        let [.., at, len] = quarters(self.page.word(AT_LOW));
        self.fence(at, len).map(Some)
    }

    /// Returns the high fence and the sibling of this node, page `pid`; it is damage if the node has no open split. The
    /// high fence is checked, so each step to a sibling leads to larger keys.
    pub(crate) fn open_split(&self, pid: PageId) -> Result<(Vec<u8>, PageId), Damage> {
        if !self.is_incomplete() {
            return Err("a node does not cover the keys that lead to it");
        }
        let (high, right) = (self.copy_high(Vec::new())?, self.sibling()?);
        if right == pid || self.compare_low(&high)? != Ordering::Less {
            return Err("the fences are out of order");
        }
        Ok((high, right))
    }

    /// Compares the smallest key that may be here with `key`.
    pub(crate) fn compare_low(&self, key: &[u8]) -> Result<Ordering, Damage> {
        Ok(self.page.compare(self.low_range()?, key))
    }

    /// Compares the key of entry `at` with `key`.
    #[inline]
    pub(crate) fn compare_key(&self, at: usize, key: &[u8]) -> Result<Ordering, Damage> {
        Ok(self.page.compare(self.key_range(self.slot(at)?)?, key))
    }

    /// Returns whether `key` belongs to the right of this node.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> Result<bool, Damage> {
        Ok(self.high_range()?.is_some_and(|high| self.page.compare(high, key).is_le()))
    }

    /// Returns a copy of the low fence, in `memory`.
    pub(crate) fn copy_low(&self, memory: Vec<u8>) -> Result<Vec<u8>, Damage> {
        Ok(self.copy(self.low_range()?, memory))
    }

    /// Returns a copy of the high fence, in `memory`; empty if there is none.
    pub(crate) fn copy_high(&self, memory: Vec<u8>) -> Result<Vec<u8>, Damage> {
        Ok(self.copy(self.high_range()?.unwrap_or_default(), memory))
    }

    /// Returns a copy of the key of entry `index`, in `memory`.
    pub(crate) fn copy_key(&self, index: usize, memory: Vec<u8>) -> Result<Vec<u8>, Damage> {
        Ok(self.copy(self.key_range(self.slot(index)?)?, memory))
    }

    fn copy(&self, range: Range<usize>, mut memory: Vec<u8>) -> Vec<u8> {
        memory.clear();
        self.page.append_to(range, &mut memory);
        memory
    }

    #[inline]
    fn slot(&self, index: usize) -> Result<Slot, Damage> {
        if index >= self.len() {
            return Err("an entry that does not exist");
        }
        let word = self.page.word(SLOTS + index * SLOT);
        let [at, key_len, ..] = quarters(word);
        if key_len > MAX_KEY {
            return Err("a key is over the limit");
        }
        Ok(Slot { at, key_len, head: (word >> 32) as u32 })
    }

    #[inline]
    fn key_range(&self, slot: Slot) -> Result<Range<usize>, Damage> {
        let header = if self.is_leaf() { LEAF_HEADER } else { INNER_HEADER };
        let tuple = self.range(slot.at, header + slot.key_len)?;
        Ok(tuple.start + header..tuple.end)
    }

    /// Returns the positions of the parts of entry `index` of a leaf.
    #[inline]
    pub(crate) fn place(&self, index: usize) -> Result<Place, Damage> {
        let Slot { at, key_len, .. } = self.slot(index)?;
        self.range(at, LEAF_HEADER)?;
        let (header, value_len) = RowHeader::from_words(self.page.word(at), self.page.word(at + 8));
        if value_len > MAX_INLINE_VALUE {
            return Err("a value is over the limit");
        }
        if header.flags & !(GHOST | OVERFLOW) != 0 {
            return Err("a row has unknown flags");
        }
        let tuple = self.range(at, LEAF_HEADER + key_len + value_len)?;
        let value = at + LEAF_HEADER + key_len;
        Ok(Place { header, key: at + LEAF_HEADER..value, value: value..tuple.end })
    }

    /// Appends bytes of the node, such as those of a [`Place`], to `out`.
    pub(crate) fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) {
        self.page.append_to(range, out);
    }

    /// Returns the leftmost child of an inner node.
    pub(crate) fn leftmost(&self) -> Result<PageId, Damage> {
        checked_page(self.page.word(AT_LEFTMOST))
    }

    /// Returns the child of entry `index` of an inner node.
    pub(crate) fn child(&self, index: usize) -> Result<PageId, Damage> {
        let at = self.range(self.slot(index)?.at, INNER_HEADER)?.start;
        checked_page(self.page.word(at))
    }
}

impl<'a> Node<'a> {
    /// Checks that the bytes are a page, and its headers.
    #[inline]
    pub(crate) fn parse(page: &'a [u8]) -> Result<Self, Damage> {
        if page.len() == PAGE_SIZE { Self::view(page) } else { Err("not a page") }
    }

    /// Returns the smallest key that may be here.
    pub(crate) fn low(&self) -> Result<&'a [u8], Damage> {
        Ok(&self.page[self.low_range()?])
    }

    /// Returns the first key beyond the node; `None` at the right end of the level.
    pub(crate) fn high(&self) -> Result<Option<&'a [u8]>, Damage> {
        Ok(self.high_range()?.map(|high| &self.page[high]))
    }

    /// Returns the key of entry `index`.
    pub(crate) fn key(&self, index: usize) -> Result<&'a [u8], Damage> {
        Ok(&self.page[self.key_range(self.slot(index)?)?])
    }

    /// Returns the offset of the tuple of entry `index`, and the whole tuple.
    pub(crate) fn tuple(&self, index: usize) -> Result<(usize, &'a [u8]), Damage> {
        let range = if self.is_leaf() {
            let place = self.place(index)?;
            place.key.start - LEAF_HEADER..place.value.end
        } else {
            let key = self.key_range(self.slot(index)?)?;
            key.start - INNER_HEADER..key.end
        };
        Ok((range.start, &self.page[range]))
    }

    /// Returns the row of entry `index` of a leaf.
    pub(crate) fn row(&self, index: usize) -> Result<Row<'a>, Damage> {
        debug_assert!(self.is_leaf());
        let Place { header, key, value } = self.place(index)?;
        Ok(Row { header, key: &self.page[key], value: &self.page[value] })
    }
}

/// Splits a word into four numbers, the lowest first.
#[inline]
fn quarters(word: u64) -> [usize; 4] {
    // Not by `map` of arrays, which is a call for each row where it is not inlined.
    let part = |shift: u32| usize::from((word >> shift) as u16);
    [part(0), part(16), part(32), part(48)]
}

/// Returns the page id that was read from a node, if it is valid.
fn checked_page(number: u64) -> Result<PageId, Damage> {
    if number == 0 || number >= MAX_PAGES { Err("a page id is out of range") } else { Ok(PageId(number)) }
}

/// Returns the shortest key `s` with `a < s <= b`.
pub(crate) fn separator<'k>(a: &[u8], b: &'k [u8]) -> Result<&'k [u8], Damage> {
    if a >= b {
        return Err("keys are out of order");
    }
    Ok(&b[..common(a, b) + 1])
}

/// Returns the length of the common prefix of two keys.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
