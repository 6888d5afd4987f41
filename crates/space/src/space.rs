//! Handing out pages, growth of the data file, map pages.

use crate::format::{MAP_IN_REGION, REGION_PAGES};
use crate::kinds::SpaceKind;
use crate::map;
use foreshore_base::limits::{MAX_PAGES, PAGE_SIZE};
use foreshore_base::{Error, PageId, Place, Result, TableId};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, Pinned, Pool, change, change_cost};
use foreshore_io::File;
use foreshore_sync::{LockRank, Mutex, MutexGuard};
use foreshore_wal::{Dep, Session};
use std::{collections::HashSet, fmt, sync::Arc};

/// Smallest growth of the file, in pages.
const MIN_EXTENT: u64 = 64;
/// Largest growth of the file, in pages: 32 MiB.
const MAX_EXTENT: u64 = 4096;
/// Pages kept back for [`Purpose::Rollback`]: an undo splits at most one node a level, and few run at once.
const KEPT_BACK: u64 = 32;
/// Log space for the record of a new map page.
const MAP_INIT_COST: usize = change_cost(2, 0);

/// What a page is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data. Leaves a reserve of free pages alone.
    Data,
    /// Undo of a transaction. May use the reserve, so that a full disk does not stop a rollback.
    Rollback,
}

/// Counters of the space manager, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Pages of the data file.
    pub file_pages: u64,
    /// Pages allocated or handed out, superblocks and maps among them.
    pub used_pages: u64,
    /// Pages of the file that are neither.
    pub free_pages: u64,
    /// Growths of the file since the start.
    pub growths: u64,
}

/// What [`Space::verify`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapReport {
    /// Map pages.
    pub regions: u64,
    /// Pages marked as allocated, superblocks and maps among them.
    pub allocated: u64,
}

/// One region in memory.
struct Region {
    /// A bit for each page: allocated, or handed out, or never to be handed out.
    used: Vec<u64>,
    /// Whether its map page exists.
    mapped: bool,
}

impl Region {
    /// A region of which only the map page's own bit is used.
    fn unmapped() -> Self {
        let mut used = vec![0; (REGION_PAGES / 64) as usize];
        used[0] = 1 << MAP_IN_REGION;
        Self { used, mapped: false }
    }
}

struct State {
    regions: Vec<Region>,
    /// Length of the file, with space behind every page.
    file_pages: u64,
    /// Unused pages below `file_pages`.
    free: u64,
    /// No page below is free.
    lowest_free: u64,
    /// Pages that the next growth adds.
    extent: u64,
    growths: u64,
}

/// Free space of the data file.
///
/// Which pages are allocated stands in the map pages and changes with the records that link and unlink pages. This type
/// keeps a copy of the maps in memory and hands out what is free in it; the hand-out itself leaves no trace on disk.
/// **No method is called by a thread that holds a page latch.**
pub struct Space {
    pool: Pool,
    file: Arc<dyn File>,
    state: Mutex<State>,
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
    pub fn new(pool: Pool, file: Arc<dyn File>) -> Self {
        let state =
            State { regions: Vec::new(), file_pages: 0, free: 0, lowest_free: 0, extent: MIN_EXTENT, growths: 0 };
        Self { pool, file, state: Mutex::new(LockRank::Space, state) }
    }

    /// Lays out a new database: the first extent and the first map page.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Poisoned`, `OutOfFrames`.
    pub fn create(&self, session: &mut Session) -> Result<()> {
        reserve(session, Purpose::Data, MAP_INIT_COST)?;
        let mut state = self.state.lock();
        assert!(state.regions.is_empty(), "the space is in use");
        self.grow(&mut state)?;
        self.create_map(&mut state, 0, session)?;
        // The superblock slots.
        state.regions[0].used[0] |= 0b11;
        state.free -= 2;
        Ok(())
    }

    /// Reads all map pages, after redo and before the first [`Space::take`].
    ///
    /// # Errors
    /// `Corrupted` for a map page that is none; `Io`, `OutOfFrames`; `DiskFull` where redo needs pages that the file has
    /// lost and that cannot be reserved again.
    pub fn load(&self) -> Result<()> {
        let mut state = self.state.lock();
        assert!(state.regions.is_empty(), "the space is in use");
        let mut end = 0;
        loop {
            let region = state.regions.len() as u64;
            let page = self.pool.shared(map::map_of_region(region))?;
            map::is_allocated(&page, map::map_of_region(region)).map_err(|why| self.corrupted(page.pid(), why))?;
            let used = map::words(&page);
            if let Some(last) = used.iter().rposition(|&word| word != 0) {
                end = region * REGION_PAGES + last as u64 * 64 + u64::from(u64::BITS - used[last].leading_zeros());
            }
            state.regions.push(Region { used, mapped: true });
            if !map::has_next(&page) {
                break;
            }
        }
        let mut file_pages = self.file.len()? / PAGE_SIZE as u64;
        if file_pages < end {
            // A length that was not synced is lost in a crash, and the pages come back by redo.
            let (at, len) = (PageId(file_pages).offset(), (end - file_pages) * PAGE_SIZE as u64);
            self.file.allocate(at, len)?;
            file_pages = end;
        }
        self.extend(&mut state, file_pages);
        Ok(())
    }

    /// Hands out the lowest free page, growing the file if none is left. The hand-out is volatile: a page that is not
    /// linked goes back with [`Space::give_back`].
    ///
    /// # Errors
    /// `DiskFull` if the file cannot grow; `Io`.
    pub fn take(&self, purpose: Purpose) -> Result<PageId> {
        let mut state = self.state.lock();
        let kept_back = if purpose == Purpose::Data { KEPT_BACK } else { 0 };
        if state.free <= kept_back {
            self.grow(&mut state)?;
        }
        let pid = lowest_free(&state).expect("a free page is counted");
        let (region, word, bit) = place(pid);
        assert!(state.regions[region].used[word] & bit == 0, "page {pid} is handed out twice");
        state.regions[region].used[word] |= bit;
        state.free -= 1;
        state.lowest_free = pid.0 + 1;
        Ok(pid)
    }

    /// Takes back a page that was handed out and not linked, or that a record has marked as free.
    pub fn give_back(&self, pid: PageId) {
        let mut state = self.state.lock();
        let (region, word, bit) = place(pid);
        assert!(state.regions[region].used[word] & bit != 0, "page {pid} is given back twice");
        state.regions[region].used[word] &= !bit;
        state.free += 1;
        state.lowest_free = state.lowest_free.min(pid.0);
    }

    /// Makes the map page of `pid` resident until the pin is dropped, creating it first if the region is new.
    ///
    /// # Errors
    /// `Corrupted`, `Io`, `OutOfFrames`; `DiskFull` or `Poisoned` from the log.
    pub fn map_page(&self, pid: PageId, session: &mut Session, purpose: Purpose) -> Result<Pinned<'_>> {
        let region = map::region_of(pid);
        // Before the lock: who waits for it may hold the log space that this thread would wait for under it. Pages go out
        // lowest first, so the preceding region may lack its map page too, while others are about to make it, but none
        // before that.
        reserve(session, purpose, 2 * MAP_INIT_COST)?;
        {
            let mut state = self.state.lock();
            if !state.regions[region as usize].mapped {
                self.create_map(&mut state, region, session)?;
            }
        }
        self.pool.pin(map::map_of_region(region))
    }

    /// Pages that the file has: what a superblock may promise once the file is synced.
    #[must_use]
    pub fn file_pages(&self) -> u64 {
        self.state.lock().file_pages
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> SpaceStats {
        let state = self.state.lock();
        SpaceStats {
            file_pages: state.file_pages,
            used_pages: state.file_pages - state.free,
            free_pages: state.free,
            growths: state.growths,
        }
    }

    /// Compares the maps with the pages that are in use by all trees. Nobody else uses the database.
    ///
    /// # Errors
    /// `Corrupted` with the first page that is allocated and not reached, or reached and not allocated; and what a read
    /// of a map page can fail with.
    pub fn verify(&self, reachable: &HashSet<PageId>) -> Result<MapReport> {
        let regions = self.state.lock().regions.iter().filter(|region| region.mapped).count() as u64;
        let mut report = MapReport { regions, allocated: 0 };
        for region in 0..regions {
            let page = self.pool.shared(map::map_of_region(region))?;
            for number in region * REGION_PAGES..(region + 1) * REGION_PAGES {
                let pid = PageId(number);
                let allocated = map::is_allocated(&page, pid).map_err(|why| self.corrupted(page.pid(), why))?;
                let fixed = number < MAP_IN_REGION || pid == map::map_of_region(region);
                let used = fixed || reachable.contains(&pid);
                if allocated && !used {
                    return Err(self.corrupted(pid, "allocated, but no tree reaches the page"));
                }
                if used && !allocated {
                    return Err(self.corrupted(pid, "in use, but free by the map"));
                }
                report.allocated += u64::from(allocated);
            }
        }
        let covered = regions * REGION_PAGES;
        if let Some(&pid) = reachable.iter().find(|pid| pid.0 >= covered) {
            return Err(self.corrupted(pid, "in use, but no map covers the page"));
        }
        Ok(report)
    }

    /// Applies page `index` of a record of the space manager. Called only if the page is older than the record.
    ///
    /// # Errors
    /// `Corrupted` if the record does not fit.
    pub fn redo(&self, record: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard) -> Result<()> {
        match SpaceKind::from_number(record.kind) {
            Some(SpaceKind::MapInit) if record.initialises(index) => map::init(page, map::region_of(page.pid())),
            Some(SpaceKind::MapInit) => map::set_has_next(page),
            None => return Err(self.corrupted(page.pid(), "a log record of unknown kind")),
        }
        Ok(())
    }

    /// The error for a page of the data file.
    #[must_use]
    pub fn corrupted(&self, pid: PageId, why: &'static str) -> Error {
        Error::corrupted(self.file.path(), Place::Page(pid), why)
    }

    /// Adds an extent to the file. Extents double, so that their number is logarithmic, up to a size whose allocation
    /// does not hold others up for long.
    fn grow(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        let from = state.file_pages;
        let full = || Error::DiskFull { path: self.file.path().to_owned() };
        let room = MAX_PAGES.saturating_sub(from);
        let mut pages = state.extent.min(room);
        if pages == 0 {
            return Err(full());
        }
        let allocate = |pages: u64| self.file.allocate(PageId(from).offset(), pages * PAGE_SIZE as u64);
        match allocate(pages) {
            Err(Error::DiskFull { .. }) if pages > MIN_EXTENT => {
                // The last room of a disk is used in small pieces.
                pages = MIN_EXTENT;
                allocate(pages)?;
            }
            other => other?,
        }
        state.extent = (pages * 2).min(MAX_EXTENT);
        state.growths += 1;
        self.extend(state, from + pages);
        Ok(())
    }

    /// Takes note that the file has `file_pages` pages.
    fn extend(&self, state: &mut State, file_pages: u64) {
        let regions = file_pages.div_ceil(REGION_PAGES) as usize;
        while state.regions.len() < regions {
            state.regions.push(Region::unmapped());
        }
        let words = (0..).take_while(|word| word * 64 < file_pages);
        let used: u64 = words
            .map(|word| {
                let (region, at, _) = place(PageId(word * 64));
                let within = (file_pages - word * 64).min(64);
                let mask = u64::MAX >> (64 - within);
                u64::from((state.regions[region].used[at] & mask).count_ones())
            })
            .sum();
        state.file_pages = file_pages;
        state.free = file_pages - used;
    }

    /// Creates the map page of a region and links it to that of the preceding one. The session has [`MAP_INIT_COST`]
    /// reserved for each.
    fn create_map(&self, state: &mut State, region: u64, session: &mut Session) -> Result<()> {
        if region > 0 && !state.regions[region as usize - 1].mapped {
            self.create_map(state, region - 1, session)?;
        }
        let pid = map::map_of_region(region);
        let before = if region > 0 { Some(self.pool.pin(map::map_of_region(region - 1))?) } else { None };
        let mut page = self.pool.create(pid)?;
        map::init(&mut page, region);
        let record =
            |init_mask| Change { kind: SpaceKind::MapInit as u8, flags: 0, init_mask, table: TableId::ZERO, body: &[] };
        match &before {
            Some(before) => {
                let mut before = before.exclusive();
                map::set_has_next(&mut before);
                change(session, Dep::none(), 0, &record(0b10), &mut [&mut before, &mut page]);
            }
            None => {
                change(session, Dep::none(), 0, &record(0b1), &mut [&mut page]);
            }
        }
        state.regions[region as usize].mapped = true;
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

/// Region, word in it and bit in that of a page.
const fn place(pid: PageId) -> (usize, usize, u64) {
    let in_region = pid.0 % REGION_PAGES;
    ((pid.0 / REGION_PAGES) as usize, (in_region / 64) as usize, 1 << (in_region % 64))
}

fn lowest_free(state: &State) -> Option<PageId> {
    let mut at = state.lowest_free;
    while at < state.file_pages {
        let (region, word, _) = place(PageId(at));
        // Bits below `at` count as used, as `lowest_free` says.
        let free = !state.regions[region].used[word] & (u64::MAX << (at % 64));
        if free != 0 {
            let pid = at - at % 64 + u64::from(free.trailing_zeros());
            return (pid < state.file_pages).then_some(PageId(pid));
        }
        at = at - at % 64 + 64;
    }
    None
}

#[cfg(test)]
mod tests;
