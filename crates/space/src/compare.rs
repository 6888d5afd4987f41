//! What the maps say, compared with what the trees have.

use crate::Space;
use crate::format::{MAP_IN_REGION, REGION_PAGES};
use crate::map;
use foreshore_base::{PageId, Result};
use foreshore_buffer::SharedGuard;
use std::collections::HashSet;

/// Why an allocated page is damage that no tree has.
pub const UNREACHED: &str = "allocated, but no tree reaches the page";
const FREE_BY_MAP: &str = "in use, but free by the map";

/// What [`Space::verify`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapReport {
    /// Map pages.
    pub regions: u64,
    /// Pages marked as allocated, superblocks and maps among them.
    pub allocated: u64,
}

impl Space {
    /// Compares the maps with the pages in use by all trees. No thread allocates or frees a page meanwhile; the end of
    /// the file may be truncated.
    ///
    /// # Errors
    /// `Corrupted` with the first page that is allocated and not reached, or reached and not allocated; errors of
    /// reading a map page.
    pub fn verify(&self, reachable: &HashSet<PageId>) -> Result<MapReport> {
        for &pid in reachable {
            self.verify_in_use(pid)?;
        }
        self.each_allocated(&mut |pid| match reachable.contains(&pid) {
            true => Ok(()),
            false => Err(self.corrupted(pid, UNREACHED)),
        })
    }

    /// Calls `visit` for each page that is allocated, with nothing latched, but for those that no tree has. Others may
    /// allocate and free meanwhile: the map page of a region is read once, before its pages are visited.
    ///
    /// # Errors
    /// What `visit` returns, and what a read of a map page can fail with.
    pub fn each_allocated(&self, visit: &mut dyn FnMut(PageId) -> Result<()>) -> Result<MapReport> {
        let mut report = MapReport::default();
        while let Some(words) = self.map_words(report.regions)? {
            let first = report.regions * REGION_PAGES;
            let mut reserved = u64::from(map::reserved(report.regions));
            for (index, mut word) in (0..).zip(words) {
                report.allocated += u64::from(word.count_ones());
                word &= !reserved;
                reserved = 0;
                while word != 0 {
                    visit(PageId(first + index * 64 + u64::from(word.trailing_zeros())))?;
                    word &= word - 1;
                }
            }
            report.regions += 1;
        }
        Ok(report)
    }

    /// The bits of the map page of a region, `None` beyond the last one.
    fn map_words(&self, region: u64) -> Result<Option<Vec<u64>>> {
        let Some(page) = self.shared_map(region)? else { return Ok(None) };
        // Refuses what is not the map page of the region.
        map::is_allocated(&page, page.pid()).map_err(|why| self.corrupted(page.pid(), why))?;
        let words = map::words(&page);
        let missing = u64::from(map::reserved(region)) & !words[0];
        match missing {
            0 => Ok(Some(words)),
            _ => {
                let pid = PageId(region * REGION_PAGES + u64::from(missing.trailing_zeros()));
                Err(self.corrupted(pid, FREE_BY_MAP))
            }
        }
    }

    /// The map page of a region; `None` if there is none, which may change any time.
    fn shared_map(&self, region: u64) -> Result<Option<SharedGuard<'_>>> {
        let mut failed = false;
        while region < self.mapped() {
            match self.pool().shared(map::map_of_region(region)) {
                Ok(page) => return Ok(Some(page)),
                // A truncation may have dropped the map meanwhile, and its page; growth may have brought it back since.
                Err(_) if !failed => failed = true,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Checks that a page which a tree has is allocated.
    ///
    /// # Errors
    /// `Corrupted` if it is not; what a read of its map page can fail with.
    pub fn verify_in_use(&self, pid: PageId) -> Result<()> {
        if pid.0 < MAP_IN_REGION || pid == map::map_of_region(map::region_of(pid)) || !self.is_in_use(pid)? {
            return Err(self.corrupted(pid, FREE_BY_MAP));
        }
        Ok(())
    }

    /// Whether a page is allocated now.
    ///
    /// # Errors
    /// What a read of its map page can fail with.
    pub fn is_in_use(&self, pid: PageId) -> Result<bool> {
        let Some(page) = self.shared_map(map::region_of(pid))? else { return Ok(false) };
        map::is_allocated(&page, pid).map_err(|why| self.corrupted(page.pid(), why))
    }
}
