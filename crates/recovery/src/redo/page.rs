//! Redo of one record on one page, and quarantine of damaged pages.
//!
//! A page is damaged if its checksum or its id is wrong, if it was never written, or if a record contradicts its
//! content. The doublewrite file has been consulted by then. A record that initialises the page rebuilds it. No other
//! record can be applied, and the page is quarantined (`crates/buffer/src/quarantine.rs`): it misses that change for
//! good.
//!
//! **A page that cannot be read** does not count as damaged, and the restart is refused. The page may be whole at the
//! next one, and the log that it needs will still be there.

use foreshore_base::{Error, GroupNo, Lsn, PageId, Result, TableId};
use foreshore_buffer::format::{CLR, Flaw};
use foreshore_buffer::{ChangeRecord, ExclusiveGuard, Pool, Stamps};
use foreshore_space::{can_be_lost, map_of};
use foreshore_sync::model::mutant;
use foreshore_txn::ResourceManager;
use foreshore_txn::format::split_clr;
use std::io;
use std::path::PathBuf;

/// Returns a change as redo needs it: only the analysis needs what a compensation compensates.
///
/// # Errors
/// Says what is wrong.
pub(crate) fn without_clr<'r>(change: &ChangeRecord<'r>) -> std::result::Result<ChangeRecord<'r>, &'static str> {
    let mut change = *change;
    if change.flags & CLR != 0 {
        change.body = split_clr(change.body).ok_or("a compensation record is too short")?.1;
    }
    Ok(change)
}

/// Applies a change in `group` to one of its pages, unless the page has it. Returns whether it lacked it.
///
/// # Errors
/// Those of `decode`; `Corrupted` for a record that does not fit a page that the database cannot do without.
pub(super) fn redo_on<'r>(
    page: &mut ExclusiveGuard<'_>,
    stamps: &Stamps,
    manager: &dyn ResourceManager,
    (lsn, group): (Lsn, GroupNo),
    decode: impl FnOnce() -> Result<(ChangeRecord<'r>, usize)>,
) -> Result<bool> {
    let pid = page.pid();
    // The LSN of a page only grows, so this one comparison makes redo idempotent.
    let lacks = page.lsn() < lsn || mutant("sabotage: redo applies what a page holds");
    if lacks {
        let (change, index) = decode()?;
        page.set_rec_group_for_redo(group);
        apply(manager, &change, index, page)?;
        assert_eq!(page.pid(), pid, "the page that a change was applied to, and the one that it names");
        page.set_lsn(lsn);
    } else {
        stamps.note_found(page, group);
    }
    assert!(lsn <= page.lsn(), "page {pid} is at {} after the redo of {lsn}", page.lsn());
    assert!(!lacks || page.is_dirty(), "page {pid} got the change at {lsn} and is clean");
    Ok(lacks)
}

fn apply(
    manager: &dyn ResourceManager,
    change: &ChangeRecord<'_>,
    index: usize,
    page: &mut ExclusiveGuard<'_>,
) -> Result<()> {
    let pid = page.pid();
    let table = if pid == map_of(pid) { TableId::ZERO } else { change.table };
    if page.is_quarantined() && !change.initialises(index) {
        page.quarantine(Flaw::Content, table);
        return Ok(());
    }
    match manager.redo(change, index, page) {
        Err(error) if error.damaged_page() == Some(pid) && can_be_lost(pid) => {
            page.quarantine(Flaw::Content, table);
            Ok(())
        }
        done => done,
    }
}

/// Applies records to pages, one record after the other, in a pool of its own.
pub(crate) struct Redoer<'a> {
    pool: &'a Pool,
    manager: &'a dyn ResourceManager,
    changes: u64,
}

/// Stops the log if a change ends early, in an error or a panic. Part of it may then be on the page, whose LSN does not
/// say so: at home it would get the change once more. A stopped log keeps every page from its home.
struct HalfChanged<'a> {
    pool: &'a Pool,
    pid: PageId,
}

impl Drop for HalfChanged<'_> {
    fn drop(&mut self) {
        let why = io::Error::other("a change of it ended early");
        self.pool.log().poison(&Error::io("redo", PathBuf::from(format!("page {}", self.pid)), why));
    }
}

impl<'a> Redoer<'a> {
    pub(crate) fn new(pool: &'a Pool, manager: &'a dyn ResourceManager) -> Self {
        Self { pool, manager, changes: 0 }
    }

    /// Returns how many changes pages lacked so far.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Applies the change of a record at `lsn` in `group` to one of its pages, unless the page has it.
    pub(crate) fn redo_page(
        &mut self,
        (lsn, group): (Lsn, GroupNo),
        change: &ChangeRecord<'_>,
        index: usize,
    ) -> Result<()> {
        let pid = change.pages()[index];
        let mut page = match change.initialises(index) {
            true => self.pool.exclusive_or_blank(pid)?,
            false if can_be_lost(pid) => self.pool.exclusive_or_quarantined(pid)?,
            false => self.pool.exclusive(pid)?,
        };
        // Declared behind the page, so that its drop comes before the end of the latch.
        let half_changed = HalfChanged { pool: self.pool, pid };
        let stamps = self.pool.stamps();
        let lacked = redo_on(&mut page, stamps, self.manager, (lsn, group), || Ok((*change, index)))?;
        std::mem::forget(half_changed);
        if lacked && change.initialises(index) {
            stamps.note_rebuilt(pid, lsn);
        }
        self.changes += u64::from(lacked);
        Ok(())
    }
}
