//! Operations on map pages. They are the redo actions, too: what was done at first is repeated by the same code.

use crate::format::{MAP_HAS_NEXT, MAP_IN_REGION, MAP_REBUILT, REGION_PAGES};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, TableId};
use foreshore_buffer::format::{PAGE_HEADER, page_flags, page_id, page_type};
use foreshore_buffer::{PageMut, PageType};

/// The region that a page lies in.
pub(crate) const fn region_of(pid: PageId) -> u64 {
    pid.0 / REGION_PAGES
}

/// The map page of a region.
pub(crate) const fn map_of_region(region: u64) -> PageId {
    PageId(region * REGION_PAGES + MAP_IN_REGION)
}

/// The map page that says whether `pid` is allocated.
pub const fn map_of(pid: PageId) -> PageId {
    map_of_region(region_of(pid))
}

/// Offset in the map page of the byte that holds the bit of `pid`, and the bit in it.
const fn bit_of(pid: PageId) -> (usize, u8) {
    let bit = (pid.0 % REGION_PAGES) as usize;
    (PAGE_HEADER + bit / 8, 1 << (bit % 8))
}

/// Checks that the page can hold the bit of `pid`.
fn check(page: &[u8], pid: PageId) -> Result<(), &'static str> {
    if page.len() != PAGE_SIZE || page_type(page) != Some(PageType::Map) {
        return Err("not a map page");
    }
    if page_id(page) != map_of_region(region_of(pid)) {
        return Err("the map page of another region");
    }
    Ok(())
}

/// Returns the first bits of the map of `region`, for pages that are never handed out: superblock slots and map in the
/// first region, the map in every other.
pub(crate) const fn reserved(region: u64) -> u8 {
    if region == 0 { 0b111 } else { 1 << MAP_IN_REGION }
}

/// Makes a blank page the map page of `region`, with the pages that are never handed out marked as allocated.
pub(crate) fn init(page: &mut impl PageMut, region: u64) {
    page.fill(PAGE_HEADER..PAGE_SIZE, 0);
    page.set_page_type(PageType::Map);
    page.set_page_level(0);
    page.set_page_flags(0);
    page.set_page_table(TableId::ZERO);
    page.write(PAGE_HEADER, &[reserved(region)]);
}

/// Makes a page the map page of `region` with each page before `end` marked as allocated, for a region whose map was
/// lost. The next region has a map page if it begins before the end.
pub(crate) fn rebuild(page: &mut impl PageMut, region: u64, end: PageId) {
    init(page, region);
    let used = end.0.saturating_sub(region * REGION_PAGES).min(REGION_PAGES);
    let (bytes, bits) = ((used / 8) as usize, used % 8);
    page.fill(PAGE_HEADER..PAGE_HEADER + bytes, 0xff);
    if bits > 0 {
        let first = if bytes == 0 { reserved(region) } else { 0 };
        page.write(PAGE_HEADER + bytes, &[first | ((1 << bits) - 1)]);
    }
    page.set_page_flags(MAP_REBUILT);
    set_has_next(page, end > map_of_region(region + 1));
}

/// Whether the map was damaged once, so that unused pages may be marked as allocated.
pub(crate) fn is_rebuilt(page: &[u8]) -> bool {
    page_flags(page) & MAP_REBUILT != 0
}

/// Notes whether the map page of the following region exists.
pub(crate) fn set_has_next(page: &mut impl PageMut, exists: bool) {
    let flags = page_flags(page.bytes()) & !MAP_HAS_NEXT;
    page.set_page_flags(if exists { flags | MAP_HAS_NEXT } else { flags });
}

/// Whether the map page of the following region exists.
pub(crate) fn has_next(page: &[u8]) -> bool {
    page_flags(page) & MAP_HAS_NEXT != 0
}

/// Whether `pid` is allocated, according to its map page.
///
/// # Errors
/// What is wrong if `page` is not the map page of `pid`.
pub fn is_allocated(page: &[u8], pid: PageId) -> Result<bool, &'static str> {
    check(page, pid)?;
    let (at, bit) = bit_of(pid);
    Ok(page[at] & bit != 0)
}

/// Marks `pid` as allocated. Part of the record that links the page: the caller holds the map page, latched last, and
/// names it in the record.
///
/// The record so draws an LSN above that of every earlier free of `pid`, which touched the same map page. Redo in the
/// order of LSNs therefore never lets an earlier life of a page overwrite a later one.
///
/// # Errors
/// What is wrong if `page` is not the map page of `pid`, or the page is allocated already. Nothing is changed then.
pub fn mark_allocated(page: &mut impl PageMut, pid: PageId) -> Result<(), &'static str> {
    if is_allocated(page.bytes(), pid)? {
        return Err("a page is allocated twice");
    }
    flip(page, pid);
    Ok(())
}

/// Marks `pid` as free. Part of the record that unlinks the page, whose `Dep` takes the freed page's LSN. The caller
/// passes the page to [`crate::Space::give_back`] after the record is appended and the latches are gone.
///
/// # Errors
/// What is wrong if `page` is not the map page of `pid`, or the page is free already. Nothing is changed then.
pub fn mark_free(page: &mut impl PageMut, pid: PageId) -> Result<(), &'static str> {
    if !is_allocated(page.bytes(), pid)? {
        return Err("a page is freed twice");
    }
    flip(page, pid);
    Ok(())
}

fn flip(page: &mut impl PageMut, pid: PageId) {
    let (at, bit) = bit_of(pid);
    let byte = page.bytes()[at] ^ bit;
    page.write(at, &[byte]);
}

/// The bits of a map page as words, lowest page first.
pub(crate) fn words(page: &[u8]) -> Vec<u64> {
    page[PAGE_HEADER..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
}

#[cfg(test)]
mod tests;
