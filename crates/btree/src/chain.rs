//! Pages of a chain: their content, and what the records of chains do to them.

use crate::chain_record::ChainPageImage;
use crate::format::{
    AT_BIRTH, AT_COUNT, AT_HEAD, AT_PLACE, CHAIN_BODY, CHAIN_BYTES, CHAIN_DATA, CHAIN_ID, CHAIN_IDS, CHAIN_ROOT,
    ChainId,
};
use crate::node::{Damage, why_unlike};
use foreshore_base::codec::{u32_at, u64_at};
use foreshore_base::limits::{MAX_PAGES, PAGE_SIZE};
use foreshore_base::{PageId, TableId, Xid};
use foreshore_buffer::{PageMut, PageRead, PageType};
use foreshore_space::{is_allocated, mark_free};

/// A view of a page of a chain whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainPage<'a> {
    page: &'a [u8],
    pub(crate) level: u8,
    pub(crate) place: u32,
    count: usize,
}

impl<'a> ChainPage<'a> {
    /// Checks the header of a page.
    pub(crate) fn view(page: &'a [u8]) -> Result<Self, Damage> {
        if page.len() != PAGE_SIZE {
            return Err("not a page");
        }
        let (kind, level) = (page.kind(), page.kind().level());
        if kind.page_type() != Some(PageType::Chain) {
            return Err(why_unlike(kind.page_type(), kind.flags(), "not a page of a large value"));
        }
        let count = u32_at(page, AT_COUNT) as usize;
        let most = if level == CHAIN_DATA { CHAIN_BYTES } else { CHAIN_IDS };
        if level > CHAIN_ROOT || count > most {
            return Err("the header of a page of a large value is malformed");
        }
        Ok(Self { page, level, place: u32_at(page, AT_PLACE), count })
    }

    /// Checks that a page belongs to a chain.
    pub(crate) fn parse(page: &'a [u8], chain: ChainId) -> Result<Self, Damage> {
        let view = Self::view(page)?;
        if view.chain() == chain { Ok(view) } else { Err("a page of another large value") }
    }

    /// Returns the chain that the page says it belongs to.
    pub(crate) fn chain(&self) -> ChainId {
        ChainId { head: PageId(u64_at(self.page, AT_HEAD)), birth: Xid(u64_at(self.page, AT_BIRTH)) }
    }

    /// Returns whether the page has bytes of the value, and not page ids.
    pub(crate) const fn is_data(&self) -> bool {
        self.level == CHAIN_DATA
    }

    /// Returns the bytes of a data page.
    pub(crate) fn data(&self) -> &'a [u8] {
        debug_assert!(self.is_data(), "bytes of a page of level {} that has ids", self.level);
        &self.page[CHAIN_BODY..CHAIN_BODY + self.count]
    }

    /// Returns how many ids the page has.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns id `index`.
    pub(crate) fn id(&self, index: usize) -> Result<PageId, Damage> {
        if self.level == CHAIN_DATA || index >= self.count {
            return Err("a page of a large value is missing");
        }
        in_range(PageId(u64::from(u32_at(self.page, CHAIN_BODY + index * CHAIN_ID))))
    }

    /// Returns all ids.
    pub(crate) fn ids(&self) -> Result<Vec<PageId>, Damage> {
        (0..self.count).map(|index| self.id(index)).collect()
    }
}

/// Returns the chain that a page belongs to; `None` if it is a page of another type, or damaged.
pub(crate) fn chain_of(page: &[u8]) -> Option<ChainId> {
    ChainPage::view(page).ok().and_then(|view| view.chain().checked().ok())
}

fn in_range(id: PageId) -> Result<PageId, Damage> {
    if (1..MAX_PAGES).contains(&id.0) { Ok(id) } else { Err("a page id is out of range") }
}

fn put_count(page: &mut impl PageMut, count: usize) {
    page.write(AT_COUNT, &u32::try_from(count).expect("bytes and ids of a page are few").to_le_bytes());
}

/// Makes a page one of a chain.
pub(crate) fn init(page: &mut impl PageMut, table: TableId, image: &ChainPageImage<'_>) -> Result<(), Damage> {
    if image.level > CHAIN_ROOT || image.data.len() > CHAIN_BYTES || image.level != CHAIN_DATA && !image.data.is_empty()
    {
        return Err("a record of a large value is malformed");
    }
    page.set_page_type(PageType::Chain);
    page.set_page_level(image.level);
    page.set_page_flags(0);
    page.set_page_table(table);
    page.write(AT_HEAD, &image.chain.head.0.to_le_bytes());
    page.write(AT_BIRTH, &image.chain.birth.0.to_le_bytes());
    page.write(AT_PLACE, &image.place.to_le_bytes());
    put_count(page, image.data.len());
    page.write(CHAIN_BODY, image.data);
    page.fill(CHAIN_BODY + image.data.len()..PAGE_SIZE, 0);
    Ok(())
}

/// Adds an id behind those of an index page.
pub(crate) fn push_id(page: &mut impl PageMut, id: PageId) -> Result<(), Damage> {
    let view = ChainPage::view(page.bytes())?;
    let count = view.count;
    if view.level == CHAIN_DATA || count == CHAIN_IDS {
        return Err("a large value grows below a page that is full");
    }
    let id = u32::try_from(in_range(id)?.0).expect("page ids have 31 bits");
    page.write(CHAIN_BODY + count * CHAIN_ID, &id.to_le_bytes());
    put_count(page, count + 1);
    Ok(())
}

/// Removes the last ids of an index page, which are these.
pub(crate) fn cut_ids(page: &mut impl PageMut, ids: &[PageId]) -> Result<(), Damage> {
    let view = ChainPage::view(page.bytes())?;
    let left = view.count.checked_sub(ids.len()).ok_or("more pages of a large value are freed than it has")?;
    if (left..view.count).zip(ids).any(|(index, &id)| view.id(index) != Ok(id)) {
        return Err("other pages of a large value are freed than its last ones");
    }
    put_count(page, left);
    page.fill(CHAIN_BODY + left * CHAIN_ID..CHAIN_BODY + (left + ids.len()) * CHAIN_ID, 0);
    Ok(())
}

/// Marks pages of one map page as free, or none of them.
pub(crate) fn mark_all_free(map: &mut impl PageMut, ids: &[PageId]) -> Result<(), Damage> {
    for &id in ids {
        if !is_allocated(map.bytes(), in_range(id)?)? {
            return Err("a page is freed twice");
        }
    }
    ids.iter().try_for_each(|&id| mark_free(map, id))
}
