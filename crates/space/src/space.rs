//! Handing out pages, map pages.

use crate::format::{MAP_IN_REGION, REGION_PAGES};
use crate::growth::SpaceOptions;
use crate::kinds::SpaceKind;
use crate::map;
use crate::purpose::{KEPT_BACK, Purpose};
use crate::stock::{Stock, StockStats};
use foreshore_base::limits::{MAX_PAGES, PAGE_SIZE};
use foreshore_base::{Error, PageId, Place, Result, TableId};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, Pinned, Pool, change, change_cost};
use foreshore_io::File;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex, NextWake, Signal};
use foreshore_wal::{Dep, Session};
use std::{fmt, sync::Arc};

/// Log space for the record of a new map page.
const MAP_INIT_COST: usize = change_cost(2, 0);
/// Log space for the record that drops one.
pub(crate) const MAP_DROP_COST: usize = change_cost(1, 0);

/// Counters of the space manager, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Pages of the data file.
    pub file_pages: u64,
    /// Pages allocated or handed out, superblocks and maps among them.
    pub used_pages: u64,
    /// Pages of the file that are neither.
    pub free_pages: u64,
    /// Growths of the file since the start.
    pub growths: u64,
    /// Growths by a thread that needed a page.
    pub growths_inline: u64,
    /// Cuts of the end of the file since the start.
    pub cuts: u64,
}

/// Free space of the data file.
///
/// Which pages are allocated stands in the map pages and changes with the records that link and unlink pages. This type
/// keeps a copy of the maps in memory and hands out what is free in it; the hand-out itself leaves no trace on disk.
/// **No method is called by a thread that holds a page latch.**
pub struct Space {
    pool: Pool,
    file: Arc<dyn File>,
    stock: Stock,
    /// Regions that have a map page, the first ones. Written under `maps`.
    mapped: AtomicU64,
    /// Held to create and to drop map pages.
    maps: Mutex<()>,
    /// Pages that [`Space::quarantine`] was called for.
    quarantined: Mutex<Vec<PageId>>,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Space {
    /// A manager for the data file under `pool` that knows of no page yet: redo comes first, as map pages are recovered
    /// like any other, then [`Space::load`]. A new database calls [`Space::create`] instead.
    #[must_use]
    pub fn new(pool: Pool, file: Arc<dyn File>, options: SpaceOptions) -> Self {
        let stock = Stock::new(file.clone(), options);
        let (maps, quarantined) = (Mutex::new(LockRank::Space, ()), Mutex::new(LockRank::Leaf, Vec::new()));
        Self { pool, file, stock, mapped: AtomicU64::new(0), maps, quarantined }
    }

    /// Lays out a new database: the first extent and the first map page.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Poisoned`, `OutOfFrames`.
    pub fn create(&self, session: &mut Session) -> Result<()> {
        self.stock.create()?;
        self.create_maps(0, session, Purpose::Data)?;
        // The superblock slots.
        self.stock.with(|state| (0..MAP_IN_REGION).for_each(|slot| state.free.set_used(PageId(slot))));
        Ok(())
    }

    /// Reads all map pages, after redo and before the first [`Space::take`]. A damaged one is rebuilt.
    ///
    /// # Errors
    /// `Io`, `OutOfFrames`, `Poisoned`; `Corrupted` for a map page that is ahead of the log; `DiskFull` if redo needs
    /// pages that the file has lost and that cannot be allocated again.
    pub fn load(&self) -> Result<()> {
        let mut maps = Vec::new();
        loop {
            let region = maps.len() as u64;
            let page = self.map_or_rebuilt(region)?;
            maps.push(map::words(&page));
            if !map::has_next(&page) {
                break;
            }
        }
        let mapped = maps.len() as u64;
        let file_pages = (self.file.len()? / PAGE_SIZE as u64).min(MAX_PAGES);
        let end = self.stock.with(|state| {
            assert!(state.free.is_empty(), "the space is in use");
            maps.into_iter().for_each(|used| state.free.push_map(used));
            state.free.used_end().max(map::map_of_region(mapped - 1).0 + 1)
        });
        if file_pages < end {
            // A length that was not synced is lost in a crash, and the pages come back by redo.
            let (at, len) = (PageId(file_pages).offset(), (end - file_pages) * PAGE_SIZE as u64);
            self.file.allocate(at, len)?;
        }
        self.stock.with(|state| state.free.extend(whole_regions(file_pages.max(end))));
        // ORDERING: hint. No other thread has this yet.
        self.mapped.store(mapped, Ordering::Relaxed);
        Ok(())
    }

    /// Hands out a free page, one of the lowest, growing the file if none is left. The hand-out is volatile: a page
    /// that is not linked goes back with [`Space::give_back`]. Workers with other numbers do not disturb each other.
    ///
    /// # Errors
    /// `DiskFull` if the file cannot grow; `Io`.
    pub fn take(&self, worker: usize, purpose: Purpose) -> Result<PageId> {
        self.stock.take(worker, purpose)
    }

    /// Hands out the lowest free page if it is below `limit`. The file does not grow for it, and the reserve for
    /// [`Purpose::Rollback`] stays.
    #[must_use]
    pub fn take_below(&self, limit: PageId) -> Option<PageId> {
        self.stock.take_below(limit)
    }

    /// Makes pages that workers have taken ahead free for all. Returns how many pages are free, of those below `limit`.
    #[must_use]
    pub fn free_below(&self, limit: PageId) -> u64 {
        self.stock.recall();
        self.stock.with(|state| state.free.count_below(limit))
    }

    /// Returns how many pages from `limit` on are in use, or taken ahead by workers.
    #[must_use]
    pub fn used_from(&self, limit: PageId) -> u64 {
        self.stock.with(|state| state.free.used_from(limit))
    }

    /// Returns whether a truncation that leaves only [`Spare::Least`](crate::Spare::Least) would make the file shorter.
    #[must_use]
    pub fn has_free_end(&self) -> bool {
        self.stock.has_free_end()
    }

    /// Returns where the file could end if its pages in use were the first ones: behind them and the reserve for
    /// [`Purpose::Rollback`].
    #[must_use]
    pub fn dense_end(&self) -> PageId {
        PageId(self.stats().used_pages + KEPT_BACK)
    }

    /// Takes back a page that was handed out and not linked, or that a record has marked as free.
    pub fn give_back(&self, pid: PageId) {
        self.stock.give_back(pid);
    }

    /// Grows the file if it is time to. For one background thread, woken by [`Space::signal`].
    pub fn extend_step(&self) -> NextWake {
        self.stock.extend_step()
    }

    /// Returns the signal of the thread that drives [`Space::extend_step`].
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.stock.signal()
    }

    /// Makes the map page of `pid`, which the caller has been given, resident until the pin is dropped, creating it
    /// first if the region is new.
    ///
    /// # Errors
    /// `Corrupted`, `Io`, `OutOfFrames`; `DiskFull` or `Poisoned` from the log.
    pub fn map_page(&self, pid: PageId, session: &mut Session, purpose: Purpose) -> Result<Pinned<'_>> {
        let region = map::region_of(pid);
        // A map that is there stays for as long as a page of its region is used.
        if region >= self.mapped() {
            self.create_maps(region, session, purpose)?;
        }
        self.pool.pin(map::map_of_region(region))
    }

    /// Pages that the file has and keeps: what a superblock may promise once the file is synced.
    #[must_use]
    pub fn file_pages(&self) -> u64 {
        self.stock.with(|state| state.free.end())
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) const fn stock(&self) -> &Stock {
        &self.stock
    }

    /// The data file.
    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Notes a page that was quarantined.
    pub(crate) fn add_quarantined(&self, pid: PageId) {
        self.quarantined.lock().push(pid);
    }

    /// The pages that were quarantined by log records since the start.
    #[must_use]
    pub fn quarantined(&self) -> Vec<PageId> {
        self.quarantined.lock().clone()
    }

    /// Regions that have a map page.
    pub(crate) fn mapped(&self) -> u64 {
        // ORDERING: Acquire, pairs with the stores in `create_maps` and in `drop_maps`.
        self.mapped.load(Ordering::Acquire)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> SpaceStats {
        let StockStats { file_pages, free_pages, growths, growths_inline, cuts } = self.stock.stats();
        let used_pages = file_pages - free_pages;
        SpaceStats { file_pages, used_pages, free_pages, growths, growths_inline, cuts }
    }

    /// Applies page `index` of a record of the space manager. Called only if the page is older than the record.
    ///
    /// # Errors
    /// `Corrupted` if the record does not fit.
    pub fn redo(&self, record: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard) -> Result<()> {
        match SpaceKind::from_number(record.kind) {
            Some(SpaceKind::MapInit) if record.initialises(index) => map::init(page, map::region_of(page.pid())),
            Some(SpaceKind::MapInit) => map::set_has_next(page, true),
            Some(SpaceKind::MapDrop) => map::set_has_next(page, false),
            Some(SpaceKind::MapRebuild | SpaceKind::Quarantine) => return self.redo_damage(record, page),
            None => return Err(self.corrupted(page.pid(), "a log record of unknown kind")),
        }
        Ok(())
    }

    /// The error for a request that finds no free page where it needs one.
    #[must_use]
    pub fn no_page(&self) -> Error {
        Error::DiskFull { path: self.file.path().to_owned(), held_by: None }
    }

    /// The error for a page of the data file.
    #[must_use]
    pub fn corrupted(&self, pid: PageId, why: &'static str) -> Error {
        Error::corrupted(self.file.path(), Place::Page(pid), why)
    }

    /// Creates the map pages that are missing up to that of `region`, each linked to that of the preceding one.
    fn create_maps(&self, region: u64, session: &mut Session, purpose: Purpose) -> Result<()> {
        loop {
            // Before the lock: a thread that waits for it may hold the log space that this thread would wait for under
            // it.
            let missing = (region + 1).saturating_sub(self.mapped());
            reserve(session, purpose, missing as usize * MAP_INIT_COST)?;
            let _maps = self.maps.lock();
            let first = self.mapped();
            if region + 1 > first + missing {
                // Others have dropped some.
                continue;
            }
            for region in first..=region {
                self.create_map(region, session)?;
                // ORDERING: publish, pairs with `mapped`.
                self.mapped.store(region + 1, Ordering::Release);
            }
            return Ok(());
        }
    }

    /// Creates the map page of a region and links it to that of the preceding one. The session has [`MAP_INIT_COST`]
    /// reserved.
    fn create_map(&self, region: u64, session: &mut Session) -> Result<()> {
        let pid = map::map_of_region(region);
        let before = if region > 0 { Some(self.pool.pin(map::map_of_region(region - 1))?) } else { None };
        let mut page = self.pool.create(pid)?;
        map::init(&mut page, region);
        let record =
            |init_mask| Change { kind: SpaceKind::MapInit as u8, flags: 0, init_mask, table: TableId::ZERO, body: &[] };
        match &before {
            Some(before) => {
                let mut before = before.exclusive();
                map::set_has_next(&mut before, true);
                change(session, Dep::none(), 0, &record(0b10), &mut [&mut before, &mut page]);
            }
            None => {
                change(session, Dep::none(), 0, &record(0b1), &mut [&mut page]);
            }
        }
        Ok(())
    }

    /// Drops the map pages from that of region `first` on, whose pages are all free and kept back.
    pub(crate) fn drop_maps(&self, first: u64, session: &mut Session) -> Result<()> {
        while self.mapped() > first {
            // One at a time: a reservation has a limit, and the file has none. Before the lock, see `create_maps`.
            session.reserve_rollback(MAP_DROP_COST)?;
            let _maps = self.maps.lock();
            let mapped = self.mapped();
            if mapped <= first {
                return Ok(());
            }
            let region = mapped - 1;
            assert!(region > 0, "the first map is dropped: {mapped} regions, {first} stay");
            let before = self.pool.pin(map::map_of_region(region - 1))?;
            let page = self.pool.shared(map::map_of_region(region))?;
            let dep = Dep::none().freed(page.lsn());
            drop(page);
            let mut before = before.exclusive();
            map::set_has_next(&mut before, false);
            let kind = SpaceKind::MapDrop as u8;
            let record = Change { kind, flags: 0, init_mask: 0, table: TableId::ZERO, body: &[] };
            change(session, dep, 0, &record, &mut [&mut before]);
            // ORDERING: publish, pairs with `mapped`.
            self.mapped.store(region, Ordering::Release);
        }
        Ok(())
    }
}

/// Makes sure that records of `bytes` together can be appended.
fn reserve(session: &mut Session, purpose: Purpose, bytes: usize) -> Result<()> {
    match purpose {
        Purpose::Data => session.reserve(bytes),
        Purpose::Rollback => session.reserve_rollback(bytes),
    }
}

/// Returns the pages of a file without those before the map page of a last, incomplete region: that map page could not
/// be created.
const fn whole_regions(file_pages: u64) -> u64 {
    let in_region = file_pages % REGION_PAGES;
    if in_region <= MAP_IN_REGION { file_pages - in_region } else { file_pages }
}

#[cfg(test)]
mod tests;
