//! Quarantine: a damaged page that recovery cannot rebuild is set aside, so that the rest of the database opens.
//!
//! Redo skips the records of such a page, and the log that holds them is truncated later. If the page could be read
//! again one day, its missing changes would go unnoticed. So a page that misses a change is overwritten. It becomes a
//! page of type [`PageType::Quarantined`], with a sound checksum and an LSN, which is neither a map page nor a node.
//! Every access to it is refused.
//!
//! 1. Redo reads the page ([`Pool::exclusive_or_quarantined`]) and marks it dirty for the record that it skips. The
//!    page gets the LSN of each skipped record. A record that initialises the page ends the quarantine.
//! 2. These pages are written home before recovery logs anything.
//! 3. A page whose damage is found when recovery rolls a transaction back is quarantined by a log record.
//!
//! **Invariant:** a page that misses a change is quarantined before the log with that change is truncated.
//!
//! **Invariant:** a failed read quarantines no page: the page may be whole, and its changes would be lost.
//!
//! [`Pool::exclusive_or_quarantined`]: crate::Pool::exclusive_or_quarantined

use crate::format::{
    AT_FLAGS, AT_KEPT, AT_PID, AT_TABLE, AT_TYPE, Flaw, PAGE_HEADER, PageType, page_flags, page_table, page_type,
};
use crate::guard::ExclusiveGuard;
use crate::page::PageMut;
use foreshore_base::{PageId, TableId};

/// Turns the damaged `page` into a quarantined one of LSN 0. The body stays as it was read, for salvage. So does all
/// else that tells what a stale page was, since its older state is whole.
pub(crate) fn quarantine(page: &mut [u8], pid: PageId, flaw: Flaw) {
    let (mut table, mut kept) = ([0; 4], [0; 4]);
    if flaw == Flaw::Stale {
        table.copy_from_slice(&page[AT_TABLE..AT_TABLE + 4]);
        kept.copy_from_slice(&page[AT_TYPE..AT_TYPE + 4]);
    }
    page[..PAGE_HEADER].fill(0);
    page[AT_TABLE..AT_TABLE + 4].copy_from_slice(&table);
    page[AT_KEPT..PAGE_HEADER].copy_from_slice(&kept);
    page[AT_TYPE] = PageType::Quarantined as u8;
    page[AT_FLAGS..AT_FLAGS + 2].copy_from_slice(&(flaw as u16).to_le_bytes());
    page[AT_PID..AT_PID + 8].copy_from_slice(&pid.0.to_le_bytes());
}

/// Returns the reason why a page of type [`PageType::Quarantined`] with these page flags cannot be used.
#[must_use]
pub const fn why_quarantined(flags: u16) -> &'static str {
    match flags {
        1 => "quarantined at a restart: the file ends before the page",
        2 => "quarantined at a restart: the page was never written",
        3 => "quarantined at a restart: the checksum of the page does not fit",
        4 => "quarantined at a restart: the page carries the id of another",
        6 => "quarantined at a restart: the page does not fit the log, or the pages that lead to it",
        7 => "quarantined at a restart: stale, a later write of the page was lost",
        _ => "quarantined at a restart",
    }
}

/// Returns the table of a page and why it cannot be used, if it is quarantined.
pub(crate) fn quarantined(page: &[u8]) -> Option<(TableId, &'static str)> {
    let is_quarantined = page_type(page) == Some(PageType::Quarantined);
    is_quarantined.then(|| (page_table(page), why_quarantined(page_flags(page))))
}

impl ExclusiveGuard<'_> {
    /// Whether the page is quarantined.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        page_type(self) == Some(PageType::Quarantined)
    }

    /// Quarantines the page, unless it is quarantined already. Its LSN and its body stay.
    pub fn quarantine(&mut self, flaw: Flaw, table: TableId) {
        let flags = if self.is_quarantined() { page_flags(self) } else { flaw as u16 };
        self.set_page_type(PageType::Quarantined);
        self.set_page_level(0);
        self.set_page_flags(flags);
        self.set_page_table(table);
    }
}
