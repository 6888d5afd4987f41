//! Damaged pages at a restart: map pages are rebuilt, others are quarantined.
//!
//! **A map** says which pages of its region are free, and so do the trees. But a tree may be damaged too, so they are
//! not consulted: every page that the file has at the restart counts as allocated. So no page in use is allocated
//! again. Pages that were free are lost until the database is rebuilt. Pages beyond them come with the growth of the
//! file.
//!
//! **The pages that the file has** are those within its length, and those that redo has brought into memory and that
//! are not home yet.

use crate::Space;
use crate::format::CATALOGUE_ROOT;
use crate::kinds::SpaceKind;
use crate::map;
use foreshore_base::limits::{MAX_PAGES, PAGE_SIZE};
use foreshore_base::{PageId, Result, TableId};
use foreshore_buffer::format::{Flaw, page_flags};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, SharedGuard, change, change_cost};
use foreshore_wal::{Dep, Session};

/// Log space for the record of a damaged page.
const DAMAGE_COST: usize = change_cost(1, 8);

impl Space {
    /// The map page of a region, made anew if it is damaged. At a restart, after redo.
    pub(crate) fn map_or_rebuilt(&self, region: u64) -> Result<SharedGuard<'_>> {
        let pid = map::map_of_region(region);
        let page = self.pool().exclusive_or_quarantined(pid)?;
        if map::is_allocated(&page, pid).is_ok() {
            return Ok(page.downgrade());
        }
        drop(page);
        let mut session = self.pool().log().session()?;
        session.reserve_rollback(DAMAGE_COST)?;
        // First: a page beyond the file may be redone and go home meanwhile.
        let last_page = self.pool().last_page();
        let in_file = (self.file().len()? / PAGE_SIZE as u64).min(MAX_PAGES);
        let end = PageId(in_file.max(last_page.0 + 1));
        let mut page = self.pool().exclusive_or_quarantined(pid)?;
        map::rebuild(&mut page, region, end);
        let body = end.0.to_le_bytes();
        let kind = SpaceKind::MapRebuild as u8;
        let record = Change { kind, flags: 0, init_mask: 0b1, table: TableId::ZERO, body: &[&body] };
        change(&mut session, Dep::none(), 0, &record, &mut [&mut page]);
        Ok(page.downgrade())
    }

    /// Whether page `pid` may be allocated without being used, since its map was damaged once.
    ///
    /// # Errors
    /// What a read of its map page can fail with.
    pub fn may_be_unused(&self, pid: PageId) -> Result<bool> {
        Ok(map::is_rebuilt(&self.pool().shared(map::map_of(pid))?))
    }

    /// Quarantines a page of `table` that recovery has found damaged, by a log record.
    ///
    /// # Errors
    /// `Io` for a page that cannot be read, which may be whole; `Corrupted` for a page that [cannot be
    /// lost](can_be_lost), or is ahead of the log; `DiskFull`, `OutOfFrames`, `Poisoned`.
    pub fn quarantine(&self, pid: PageId, table: TableId, session: &mut Session) -> Result<()> {
        if !can_be_lost(pid) || pid == map::map_of(pid) {
            return Err(self.corrupted(pid, "a page that the database needs is damaged"));
        }
        session.reserve_rollback(DAMAGE_COST)?;
        let mut page = self.pool().exclusive_or_quarantined(pid)?;
        page.quarantine(Flaw::Content, table);
        let body = page_flags(&page).to_le_bytes();
        let record = Change { kind: SpaceKind::Quarantine as u8, flags: 0, init_mask: 0, table, body: &[&body] };
        change(session, Dep::none(), 0, &record, &mut [&mut page]);
        drop(page);
        self.add_quarantined(pid);
        Ok(())
    }

    /// Redo of the records that this file logs.
    pub(crate) fn redo_damage(&self, record: &ChangeRecord<'_>, page: &mut ExclusiveGuard) -> Result<()> {
        let malformed = |pid| self.corrupted(pid, "a log record of a damaged page is malformed");
        if record.kind == SpaceKind::Quarantine as u8 {
            page.quarantine(Flaw::Content, record.table);
            return Ok(());
        }
        let end = record.body.try_into().map(u64::from_le_bytes).map_err(|_| malformed(page.pid()))?;
        if end > MAX_PAGES {
            return Err(malformed(page.pid()));
        }
        map::rebuild(page, map::region_of(page.pid()), PageId(end));
        Ok(())
    }
}

/// Whether a database can be opened without page `pid`: it is neither a superblock nor the root of the catalogue.
#[must_use]
pub fn can_be_lost(pid: PageId) -> bool {
    pid > CATALOGUE_ROOT || pid == map::map_of(pid)
}
