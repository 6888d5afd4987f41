//! Nodes that splits and growth build from parts of others, and the images of nodes in log records.
//!
//! ```text
//!  image:  | level u8 | flags u16 | front length u16 | bytes 32 .. end of slots | heap .. 8192 |
//! ```
//!
//! The gap between slots and heap is not logged; in a node that was just built it is zeros.

use super::edit::{copy_entries, init, insert_inner, replace_high, set_fences, set_flags, set_leftmost, set_right};
use super::{Damage, Node, common};
use crate::format::{AT_LOW, AT_SLOTS, HAS_HIGH, INCOMPLETE, LEAF_HEADER, MAX_SHARED, SLOT, SLOTS};
use foreshore_base::codec::{Decoder, Put, Short, u16_at};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, TableId};
use foreshore_buffer::format::{PAGE_HEADER, page_flags};
use foreshore_buffer::{PageMut, PageType};
use std::ops::Range;

const CUT_SHORT: Damage = "the image of a node is cut short";

/// Builds a node from entries `range` of `from`, within new fences.
pub(crate) fn build_part(
    from: &Node<'_>,
    range: Range<usize>,
    (low, high): (&[u8], Option<&[u8]>),
    right: PageId,
    leftmost: Option<PageId>,
) -> Result<[u8; PAGE_SIZE], Damage> {
    assert!(range.start <= range.end && range.end <= from.len(), "entries {range:?} of a node with {}", from.len());
    let mut page = [0; PAGE_SIZE];
    init(&mut page, from.level(), from.table());
    set_right(&mut page, right);
    if let Some(child) = leftmost {
        set_leftmost(&mut page, child);
    }
    set_fences(&mut page, low, high)?;
    copy_entries(&mut page, from, range, |_| true)?;
    debug_assert_eq!(Node::parse(&page).map(|node| node.garbage()), Ok(0), "bytes of garbage in a node that was built");
    Ok(page)
}

/// Appends the image of a node without garbage.
pub(crate) fn encode_image(out: &mut Vec<u8>, page: &[u8]) -> Result<(), Damage> {
    let node = Node::parse(page)?;
    let front = SLOTS + node.len() * SLOT;
    out.put_u8(node.level());
    out.put_u16(page_flags(page));
    out.put_short_bytes(&page[PAGE_HEADER..front]);
    out.put(&page[node.heap()..]);
    Ok(())
}

/// Adds the content of the right sibling from its image, and takes over its high fence and sibling.
pub(crate) fn absorb(page: &mut impl PageMut, right: PageId, image: &[u8]) -> Result<(), Damage> {
    let left = Node::parse(page.bytes())?;
    let mut copy = [0; PAGE_SIZE];
    apply_image(&mut copy, left.table(), image)?;
    let from = Node::parse(&copy)?;
    if left.right() != right || left.level() != from.level() || left.high()? != Some(from.low()?) {
        return Err("a node absorbs one that is not its sibling");
    }
    if from.is_incomplete() {
        return Err("a node absorbs one whose split is open");
    }
    if left.is_leaf() && from.len() == 0 && has_room_for_fence(&left, &from)? {
        return replace_high(page, from.high()?, from.right());
    }
    let leftmost = if left.is_leaf() { None } else { Some(left.leftmost()?) };
    let mut fresh = build_part(&left, 0..left.len(), (left.low()?, from.high()?), from.right(), leftmost)?;
    if !from.is_leaf() {
        insert_inner(&mut fresh, left.len(), from.low()?, from.leftmost()?)?;
    }
    copy_entries(&mut fresh, &from, 0..from.len(), |_| true)?;
    let has_high = if from.has_high() { HAS_HIGH } else { 0 };
    page.write(PAGE_HEADER, &fresh[PAGE_HEADER..]);
    set_flags(page, has_high, (HAS_HIGH | INCOMPLETE) & !has_high);
    Ok(())
}

/// Returns whether a leaf can take the high fence of its right sibling and keep its entries where they are.
fn has_room_for_fence(left: &Node<'_>, right: &Node<'_>) -> Result<bool, Damage> {
    let high = right.high()?;
    let shared = high.map_or(0, |high| common(left.low().unwrap_or_default(), high)).min(MAX_SHARED);
    Ok(shared == left.shared() && high.map_or(0, <[u8]>::len) <= left.contiguous())
}

/// Removes the rows of an image, which are the first rows of the leaf. The leaf then begins where they end.
pub(crate) fn give_away(page: &mut impl PageMut, image: &[u8]) -> Result<(), Damage> {
    let leaf = Node::parse(page.bytes())?;
    let mut copy = [0; PAGE_SIZE];
    apply_image(&mut copy, leaf.table(), image)?;
    let gone = Node::parse(&copy)?;
    let low = gone.high()?.ok_or("what a leaf gives away has no end")?;
    if !leaf.is_leaf() || !gone.is_leaf() || leaf.is_incomplete() || leaf.low()? != gone.low()? {
        return Err("a leaf gives away what it does not have");
    }
    if gone.len() >= leaf.len() || leaf.key(gone.len())? < low {
        return Err("a leaf gives away what does not end between two rows");
    }
    let fresh = build_part(&leaf, gone.len()..leaf.len(), (low, leaf.high()?), leaf.right(), None)?;
    page.write(PAGE_HEADER, &fresh[PAGE_HEADER..]);
    Ok(())
}

/// The part of an image that lies on the heap, and the front before it, which begins with the node header.
fn image_parts(image: &[u8]) -> Result<(u8, &[u8], &[u8]), Damage> {
    let fields = || -> Result<_, Short> {
        let mut from = Decoder::new(image);
        let (level, _) = (from.u8()?, from.u16()?);
        Ok((level, from.short_bytes()?, from.rest()))
    };
    let (level, front, heap) = fields().map_err(|Short| CUT_SHORT)?;
    if front.len() < SLOTS - PAGE_HEADER || PAGE_HEADER + front.len() + heap.len() > PAGE_SIZE {
        return Err(CUT_SHORT);
    }
    Ok((level, front, heap))
}

/// Returns `len` bytes at offset `at` of the node of an image.
fn on_heap(heap: &[u8], at: usize, len: usize) -> Result<&[u8], Damage> {
    let from = at.checked_sub(PAGE_SIZE - heap.len()).ok_or("an entry lies outside the heap")?;
    heap.get(from..from + len).ok_or("an entry reaches beyond the node")
}

fn u16_in(front: &[u8], at: usize) -> usize {
    usize::from(u16_at(front, at - PAGE_HEADER))
}

/// Returns the low fence of the node of an image.
pub(crate) fn image_low(image: &[u8]) -> Result<&[u8], Damage> {
    let (_, front, heap) = image_parts(image)?;
    match u16_in(front, AT_LOW + 2) {
        0 => Ok(&[]),
        len => on_heap(heap, u16_in(front, AT_LOW), len),
    }
}

/// Returns the first and the last key of the leaf of an image.
pub(crate) fn image_ends(image: &[u8]) -> Result<(&[u8], &[u8]), Damage> {
    let (level, front, heap) = image_parts(image)?;
    let (slots, _) = front[SLOTS - PAGE_HEADER..].as_chunks::<SLOT>();
    let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return Err("the image of a leaf has no row") };
    if level > 0 || slots.len() != u16_in(front, AT_SLOTS) {
        return Err("the image of a leaf has slots of another node");
    }
    let key =
        |slot: &[u8; SLOT]| on_heap(heap, usize::from(u16_at(slot, 0)) + LEAF_HEADER, usize::from(u16_at(slot, 2)));
    Ok((key(first)?, key(last)?))
}

/// Replaces a page by the node of an image.
pub(crate) fn apply_image(page: &mut impl PageMut, table: TableId, image: &[u8]) -> Result<(), Damage> {
    let mut fresh = [0; PAGE_SIZE];
    let mut fields = || -> Result<(u8, u16), Short> {
        let mut from = Decoder::new(image);
        let (level, flags) = (from.u8()?, from.u16()?);
        let (front, heap) = (from.short_bytes()?, from.rest());
        if PAGE_HEADER + front.len() + heap.len() > PAGE_SIZE {
            return Err(Short);
        }
        fresh[PAGE_HEADER..PAGE_HEADER + front.len()].copy_from_slice(front);
        fresh[PAGE_SIZE - heap.len()..].copy_from_slice(heap);
        Ok((level, flags))
    };
    let (level, flags) = fields().map_err(|Short| CUT_SHORT)?;
    fresh.set_page_type(PageType::Tree);
    fresh.set_page_level(level);
    Node::parse(&fresh)?;
    page.set_page_type(PageType::Tree);
    page.set_page_level(level);
    page.set_page_flags(flags);
    page.set_page_table(table);
    page.write(PAGE_HEADER, &fresh[PAGE_HEADER..]);
    Ok(())
}
