//! Changes of a node. Every function first checks, then changes.
//!
//! The result depends only on the bytes of the node, so redo builds exactly the same node.

use super::{Damage, Node, Place, common};
use crate::format::{
    AT_GARBAGE, AT_HEAP, AT_HIGH, AT_LEFTMOST, AT_RIGHT, AT_RUN, AT_SLOTS, HAS_HIGH, INCOMPLETE, LEAF_HEADER,
    MAX_SHARED, RUN_END_BITS, RowHeader, SLOT, SLOTS, key_head,
};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY, PAGE_SIZE};
use foreshore_base::{PageId, TableId};
use foreshore_buffer::format::{PAGE_HEADER, page_flags, page_level, page_table};
use foreshore_buffer::{PageMut, PageType};
use std::ops::Range;

fn put_u16(page: &mut impl PageMut, at: usize, value: usize) {
    page.write(at, &sixteen_bits(value));
}

fn sixteen_bits(value: usize) -> [u8; 2] {
    u16::try_from(value).expect("offsets in a page have 16 bits").to_le_bytes()
}

/// Makes a page an empty node without fences.
pub(crate) fn init(page: &mut impl PageMut, level: u8, table: TableId) {
    page.fill(PAGE_HEADER..PAGE_SIZE, 0);
    page.set_page_type(PageType::Tree);
    page.set_page_level(level);
    page.set_page_flags(0);
    page.set_page_table(table);
    put_u16(page, AT_HEAP, PAGE_SIZE);
}

/// Puts bytes on the heap and returns their offset. The caller has checked that they fit.
fn push_heap(page: &mut impl PageMut, heap: usize, parts: &[&[u8]]) -> usize {
    let at = write_below(page, heap, parts);
    put_u16(page, AT_HEAP, at);
    at
}

/// Writes bytes below the heap and returns their offset. The header of the node stays as it is.
pub(super) fn write_below(page: &mut impl PageMut, heap: usize, parts: &[&[u8]]) -> usize {
    let size = parts.iter().map(|part| part.len()).sum::<usize>();
    assert!(SLOTS + size <= heap, "{size} bytes reach from the heap at {heap} into the slots");
    let at = heap - size;
    let mut to = at;
    for part in parts {
        page.write(to, part);
        to += part.len();
    }
    at
}

/// Notes which entry was inserted last, as [`run`] describes it, and the length of the shared prefix.
fn put_run(page: &mut impl PageMut, run_end: usize, shared: usize) {
    put_u16(page, AT_RUN, run(run_end, shared));
}

/// Returns the header word of the run. `run_end` is one more than the index of the entry that was inserted last, or 0
/// if unknown. `shared` is the length of the common prefix of the fences.
pub(super) fn run(run_end: usize, shared: usize) -> usize {
    assert!(run_end < 1 << RUN_END_BITS && shared <= MAX_SHARED, "a run of {run_end} entries, {shared} bytes shared");
    run_end | shared << RUN_END_BITS
}

/// Writes the first four numbers of the node header: slots, heap, garbage, run.
pub(super) fn put_bounds(page: &mut impl PageMut, numbers: [usize; 4]) {
    let mut bytes = [0; 8];
    for (to, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *to = sixteen_bits(number);
    }
    page.write(AT_SLOTS, &bytes);
}

/// Writes slot `index`: the tuple is at `at`, and the first `shared` bytes of its key are left out of the head.
pub(super) fn write_slot(page: &mut impl PageMut, index: usize, at: usize, key: &[u8], shared: usize) {
    assert!(SLOTS + (index + 1) * SLOT <= at, "slot {index} reaches into its own tuple at {at}");
    assert!(at + key.len() <= PAGE_SIZE, "slot {index} leads to {at}, and {} bytes there leave the node", key.len());
    let mut slot = [0; SLOT];
    slot[..2].copy_from_slice(&(at as u16).to_le_bytes());
    slot[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    slot[4..].copy_from_slice(&key_head(key, shared).to_le_bytes());
    page.write(SLOTS + index * SLOT, &slot);
}

/// Inserts an entry before entry `index`, and returns the offset of its tuple.
fn insert(page: &mut impl PageMut, index: usize, parts: &[&[u8]], key: &[u8]) -> Result<usize, Damage> {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let node = Node::parse(page.bytes())?;
    if index > node.len() || key.len() > MAX_KEY || size + SLOT > node.free() {
        return Err("an entry does not fit the node");
    }
    if size + SLOT > node.contiguous() {
        compact(page)?;
        if size + SLOT > Node::parse(page.bytes())?.contiguous() {
            return Err("the free space of the node does not add up");
        }
    }
    let node = Node::parse(page.bytes())?;
    let (len, heap, garbage, shared) = (node.len(), node.heap(), node.garbage(), node.shared());
    let at = write_below(page, heap, parts);
    page.copy_within(SLOTS + index * SLOT..SLOTS + len * SLOT, SLOTS + (index + 1) * SLOT);
    write_slot(page, index, at, key, shared);
    put_bounds(page, [len + 1, at, garbage, run(index + 1, shared)]);
    debug_assert_eq!(Node::parse(page.bytes()).map(|node| (node.len(), node.heap())), Ok((len + 1, at)), "inserted");
    Ok(at)
}

/// Inserts a row before entry `index` of a leaf, and returns the offset of its tuple.
pub(crate) fn insert_leaf(
    page: &mut impl PageMut,
    index: usize,
    header: RowHeader,
    key: &[u8],
    value: &[u8],
) -> Result<usize, Damage> {
    if value.len() > MAX_INLINE_VALUE {
        return Err("a value is over the limit");
    }
    insert(page, index, &[&header.encode(value.len()), key, value], key)
}

/// Inserts a separator, and the child to its right, before entry `index` of an inner node.
pub(crate) fn insert_inner(page: &mut impl PageMut, index: usize, key: &[u8], child: PageId) -> Result<(), Damage> {
    insert(page, index, &[&child.0.to_le_bytes(), key], key).map(drop)
}

/// Changes header and value of entry `index`.
pub(super) fn replace_value(
    page: &mut impl PageMut,
    index: usize,
    header: RowHeader,
    value: &[u8],
) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    let row = node.row(index)?;
    let (at, old) = node.tuple(index)?;
    let (key_len, old_len) = (row.key.len(), old.len());
    let new_len = LEAF_HEADER + key_len + value.len();
    if value.len() > MAX_INLINE_VALUE || new_len > node.free() + old_len {
        return Err("a value does not fit the node");
    }
    if new_len <= old_len {
        let garbage = node.garbage() + (old_len - new_len);
        page.write(at, &header.encode(value.len()));
        page.write(at + LEAF_HEADER + key_len, value);
        put_u16(page, AT_GARBAGE, garbage);
        return Ok(());
    }
    let mut key = [0; MAX_KEY];
    key[..key_len].copy_from_slice(row.key);
    let key = &key[..key_len];
    if new_len > node.contiguous() {
        // Without the old tuple there is space for the new one.
        rebuild(page, |position| position != index)?;
        return insert_leaf(page, index, header, key, value).map(drop);
    }
    let (heap, garbage, shared) = (node.heap(), node.garbage() + old_len, node.shared());
    let at = push_heap(page, heap, &[&header.encode(value.len()), key, value]);
    write_slot(page, index, at, key, shared);
    put_u16(page, AT_GARBAGE, garbage);
    Ok(())
}

/// Changes the header of entry `index`, and replaces the `cut` bytes of its value after the first `prefix` by `middle`.
pub(crate) fn splice_value(
    page: &mut impl PageMut,
    index: usize,
    header: RowHeader,
    (prefix, cut, middle): (usize, usize, &[u8]),
) -> Result<(), Damage> {
    let place = Node::parse(page.bytes())?.place(index)?;
    let value = place.value.clone();
    let suffix = prefix
        .checked_add(cut)
        .and_then(|end| value.len().checked_sub(end))
        .ok_or("a change reaches beyond the value")?;
    if cut == middle.len() {
        splice_in_place(page, &place, header, prefix, middle);
        return Ok(());
    }
    let len = prefix + middle.len() + suffix;
    if len > MAX_INLINE_VALUE {
        return Err("a value is over the limit");
    }
    let mut new = [0; MAX_INLINE_VALUE];
    let old = &page.bytes()[value];
    new[..prefix].copy_from_slice(&old[..prefix]);
    new[prefix..prefix + middle.len()].copy_from_slice(middle);
    new[len - suffix..len].copy_from_slice(&old[prefix + cut..]);
    replace_value(page, index, header, &new[..len])
}

/// Changes the header of the row at `place`, and as many bytes of its value as `middle` has, after the first `prefix`.
#[inline]
pub(crate) fn splice_in_place(page: &mut impl PageMut, place: &Place, header: RowHeader, prefix: usize, middle: &[u8]) {
    assert!(prefix + middle.len() <= place.value.len(), "{} bytes after {prefix} of {place:?}", middle.len());
    put_header(page, place, header);
    page.write(place.value.start + prefix, middle);
}

/// Changes the header of the row at `place` and leaves its value alone.
#[inline]
pub(crate) fn put_header(page: &mut impl PageMut, place: &Place, header: RowHeader) {
    page.write(place.tuple(), &header.encode(place.value.len()));
}

/// Changes the undo pointer of the row whose tuple is at `tuple` and whose value has `len` bytes.
#[inline]
pub(crate) fn put_undo(page: &mut impl PageMut, tuple: usize, undo: u64, len: usize) {
    debug_assert!(tuple + LEAF_HEADER + len <= PAGE_SIZE, "a row of {len} bytes at {tuple}");
    // The second word of the tuple: the undo pointer, and the length of the value.
    page.write(tuple + 8, &RowHeader::undo_word(undo, len).to_le_bytes());
}

/// Changes the header of entry `index` of a leaf and leaves its value alone.
pub(crate) fn set_header(page: &mut impl PageMut, index: usize, header: RowHeader) -> Result<(), Damage> {
    let place = Node::parse(page.bytes())?.place(index)?;
    put_header(page, &place, header);
    Ok(())
}

/// Removes entry `index`.
pub(crate) fn remove(page: &mut impl PageMut, index: usize) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    let (_, tuple) = node.tuple(index)?;
    let (len, garbage, shared) = (node.len(), node.garbage() + tuple.len(), node.shared());
    if garbage > PAGE_SIZE - node.heap() {
        return Err("the heap of the node does not add up");
    }
    page.copy_within(SLOTS + (index + 1) * SLOT..SLOTS + len * SLOT, SLOTS + index * SLOT);
    put_u16(page, AT_SLOTS, len - 1);
    // The indexes after the removed entry have changed, so the end of the run is unknown.
    put_run(page, 0, shared);
    put_u16(page, AT_GARBAGE, garbage);
    debug_assert_eq!(
        Node::parse(page.bytes()).map(|node| (node.len(), node.garbage())),
        Ok((len - 1, garbage)),
        "removed"
    );
    Ok(())
}

/// Sets and clears page flags.
pub(crate) fn set_flags(page: &mut impl PageMut, set: u16, clear: u16) {
    assert!(set & clear == 0, "flags {:#x} of a node are both set and cleared", set & clear);
    let flags = (page_flags(page.bytes()) | set) & !clear;
    page.set_page_flags(flags);
}

/// Sets the leftmost child.
pub(crate) fn set_leftmost(page: &mut impl PageMut, child: PageId) {
    page.write(AT_LEFTMOST, &child.0.to_le_bytes());
}

/// Makes the entry of an inner node that leads to `old` lead to `new`.
pub(crate) fn replace_child(page: &mut impl PageMut, old: PageId, new: PageId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    if node.is_leaf() {
        return Err("a leaf has no child to replace");
    }
    let mut found = (node.leftmost()? == old).then_some(AT_LEFTMOST);
    for index in 0..node.len() {
        if node.child(index)? == old && found.replace(node.tuple(index)?.0).is_some() {
            return Err("two entries lead to one node");
        }
    }
    page.write(found.ok_or("no entry leads to a node that moves")?, &new.0.to_le_bytes());
    Ok(())
}

/// Makes `new` the right sibling in place of `old`.
pub(crate) fn replace_sibling(page: &mut impl PageMut, old: PageId, new: PageId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    if node.right() != old || node.is_incomplete() {
        return Err("a node that moves is not the right sibling");
    }
    set_right(page, new);
    Ok(())
}

/// Sets the right sibling.
pub(super) fn set_right(page: &mut impl PageMut, right: PageId) {
    page.write(AT_RIGHT, &right.0.to_le_bytes());
}

/// Gives a node another high fence, which fits and leaves the shared prefix as it is, and another right sibling. The
/// node is then complete.
pub(super) fn replace_high(page: &mut impl PageMut, high: Option<&[u8]>, right: PageId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    let (heap, garbage) = (node.heap(), node.garbage() + node.high()?.map_or(0, <[u8]>::len));
    let at = high.map_or(0, |high| push_heap(page, heap, &[high]));
    put_u16(page, AT_HIGH, at);
    put_u16(page, AT_HIGH + 2, high.map_or(0, <[u8]>::len));
    put_u16(page, AT_GARBAGE, garbage);
    set_right(page, right);
    let has_high = if high.is_some() { HAS_HIGH } else { 0 };
    set_flags(page, has_high, (HAS_HIGH | INCOMPLETE) & !has_high);
    Ok(())
}

/// Writes the fences to the heap of a node that has neither fences nor entries so far.
pub(super) fn set_fences(page: &mut impl PageMut, low: &[u8], high: Option<&[u8]>) -> Result<(), Damage> {
    for (fence, field) in [(Some(low), crate::format::AT_LOW), (high, AT_HIGH)] {
        let Some(fence) = fence else { continue };
        let node = Node::parse(page.bytes())?;
        if fence.len() > node.contiguous() {
            return Err("a fence does not fit the node");
        }
        let at = push_heap(page, node.heap(), &[fence]);
        put_u16(page, field, at);
        put_u16(page, field + 2, fence.len());
    }
    set_flags(page, if high.is_some() { HAS_HIGH } else { 0 }, 0);
    put_run(page, 0, high.map_or(0, |high| common(low, high)).min(MAX_SHARED));
    Ok(())
}

/// Appends the entries of `from` in `range` that `keep` accepts to a node of the same kind.
pub(super) fn copy_entries(
    page: &mut impl PageMut,
    from: &Node<'_>,
    range: Range<usize>,
    keep: impl Fn(usize) -> bool,
) -> Result<(), Damage> {
    let level = page_level(page.bytes());
    assert_eq!(level, from.level(), "levels of a node and of the one whose entries it takes");
    for index in range.filter(|&index| keep(index)) {
        let (_, tuple) = from.tuple(index)?;
        let node = Node::parse(page.bytes())?;
        if tuple.len() + SLOT > node.contiguous() {
            return Err("the entries of a node do not fit it");
        }
        let (len, heap, shared) = (node.len(), node.heap(), node.shared());
        let at = push_heap(page, heap, &[tuple]);
        write_slot(page, len, at, from.key(index)?, shared);
        put_u16(page, AT_SLOTS, len + 1);
    }
    Ok(())
}

/// Rebuilds the node from the entries that `keep` accepts: the heap without garbage, in the order of the slots.
fn rebuild(page: &mut impl PageMut, keep: impl Fn(usize) -> bool) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    let mut fresh = [0; PAGE_SIZE];
    init(&mut fresh, page_level(page.bytes()), page_table(page.bytes()));
    set_right(&mut fresh, node.right());
    if !node.is_leaf() {
        set_leftmost(&mut fresh, node.leftmost()?);
    }
    set_fences(&mut fresh, node.low()?, node.high()?)?;
    copy_entries(&mut fresh, &node, 0..node.len(), keep)?;
    page.write(PAGE_HEADER, &fresh[PAGE_HEADER..]);
    Ok(())
}

/// Removes the garbage.
pub(crate) fn compact(page: &mut impl PageMut) -> Result<(), Damage> {
    rebuild(page, |_| true)
}

/// Removes all entries that `keep` refuses, and the garbage.
pub(crate) fn retain(page: &mut impl PageMut, keep: impl Fn(usize) -> bool) -> Result<(), Damage> {
    rebuild(page, keep)
}
