//! Which pages are free: a copy of the maps in memory, and how far the file reaches.

use crate::format::{MAP_IN_REGION, REGION_PAGES};
use crate::map;
use foreshore_base::PageId;

/// Growths and cuts end on multiples of so many pages, but for those page by page. Regions begin on such multiples.
pub(crate) const GRAIN: u64 = 64;

/// One region.
struct Region {
    /// A bit for each page: allocated, or handed out, or never to be handed out.
    used: Vec<u64>,
    /// Bits that are not set, beyond the end of the file too.
    unused: u64,
}

impl Region {
    fn new(used: Vec<u64>) -> Self {
        let unused = used.iter().map(|word| u64::from(word.count_zeros())).sum();
        Self { used, unused }
    }

    /// A region of which only the map page's own bit is used.
    fn unmapped() -> Self {
        let mut used = vec![0; (REGION_PAGES / 64) as usize];
        used[0] = 1 << MAP_IN_REGION;
        Self::new(used)
    }
}

/// The free pages of a file.
pub(crate) struct Free {
    regions: Vec<Region>,
    /// Pages of the file, with space behind each.
    file_pages: u64,
    /// The file may soon end here: pages from here on are all unused, and stay so.
    cut: Option<u64>,
    /// Unused pages below the end, or the truncation.
    count: u64,
    /// No page below is free.
    lowest: u64,
}

impl Free {
    /// An empty file.
    pub(crate) const fn new() -> Self {
        Self { regions: Vec::new(), file_pages: 0, cut: None, count: 0, lowest: 0 }
    }

    /// Whether nothing is known of the file yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Enters the next region, as its map has it.
    pub(crate) fn push_map(&mut self, used: Vec<u64>) {
        self.regions.push(Region::new(used));
    }

    /// Pages that may be relied on.
    pub(crate) const fn end(&self) -> u64 {
        match self.cut {
            Some(cut) => cut,
            None => self.file_pages,
        }
    }

    /// Pages of the file.
    pub(crate) const fn file_pages(&self) -> u64 {
        self.file_pages
    }

    /// Where the file may soon end.
    pub(crate) const fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// Unused pages that are kept back because the file may soon end before them.
    pub(crate) fn beyond_truncation(&self) -> u64 {
        self.cut.map_or(0, |cut| self.unused(cut, self.file_pages))
    }

    /// Free pages.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The end of the last region in which a page is used.
    pub(crate) fn used_end(&self) -> u64 {
        for (region, bits) in self.regions.iter().enumerate().rev() {
            let is_used = |(at, &word): (usize, &u64)| {
                // The map page is there for the others.
                let map = if at == 0 { 1 << MAP_IN_REGION } else { 0 };
                (word & !map).checked_ilog2().map(|bit| at as u64 * 64 + u64::from(bit) + 1)
            };
            if let Some(end) = bits.used.iter().enumerate().rev().find_map(is_used) {
                return region as u64 * REGION_PAGES + end.max(MAP_IN_REGION + 1);
            }
        }
        0
    }

    /// Hands out the lowest `want` free pages, as far as there are so many.
    pub(crate) fn take(&mut self, want: u64, mut out: impl FnMut(PageId)) {
        let end = self.end();
        let (mut left, mut at) = (want.min(self.count), self.lowest);
        while left > 0 && at < end {
            let (region, word, _) = place(PageId(at));
            let region = &mut self.regions[region];
            if region.unused == 0 {
                at = (at / REGION_PAGES + 1) * REGION_PAGES;
                continue;
            }
            // Bits below `at` count as used, as `lowest` says.
            let free = !region.used[word] & (u64::MAX << (at % 64));
            let pid = at - at % 64 + u64::from(free.trailing_zeros());
            if free == 0 || pid >= end {
                at = at - at % 64 + 64;
                continue;
            }
            region.used[word] |= free & free.wrapping_neg();
            region.unused -= 1;
            self.count -= 1;
            left -= 1;
            at = pid + 1;
            out(PageId(pid));
        }
        self.lowest = at;
    }

    /// Marks a page as used that stands in no map yet.
    pub(crate) fn set_used(&mut self, pid: PageId) {
        let (region, word, bit) = place(pid);
        let region = &mut self.regions[region];
        assert!(region.used[word] & bit == 0, "page {pid} is used already");
        region.used[word] |= bit;
        region.unused -= 1;
        self.count -= 1;
    }

    /// Takes a page back.
    pub(crate) fn give_back(&mut self, pid: PageId) {
        assert!(pid.0 < self.end(), "page {pid} was handed out beyond the end");
        let (region, word, bit) = place(pid);
        let region = &mut self.regions[region];
        assert!(region.used[word] & bit != 0, "page {pid} is given back twice");
        region.used[word] &= !bit;
        region.unused += 1;
        self.count += 1;
        self.lowest = self.lowest.min(pid.0);
    }

    /// Takes note that the file has `file_pages` pages, no fewer than before.
    pub(crate) fn extend(&mut self, file_pages: u64) {
        assert!(self.cut.is_none() && file_pages >= self.file_pages, "the file grows to {file_pages}");
        while (self.regions.len() as u64) < file_pages.div_ceil(REGION_PAGES) {
            self.regions.push(Region::unmapped());
        }
        self.count += self.unused(self.file_pages, file_pages);
        self.file_pages = file_pages;
        debug_assert!(self.is_counted(), "{} pages are counted as free, of {file_pages}", self.count);
    }

    /// Free pages below `limit`.
    pub(crate) fn count_below(&self, limit: PageId) -> u64 {
        self.unused(0, limit.0.min(self.end()))
    }

    /// Used pages from `limit` on.
    pub(crate) fn used_from(&self, limit: PageId) -> u64 {
        let end = self.file_pages;
        end.saturating_sub(limit.0) - self.unused(limit.0.min(end), end)
    }

    /// Unused pages from `from` up to `to`.
    fn unused(&self, from: u64, to: u64) -> u64 {
        let mut count = 0;
        let mut at = from;
        while at < to {
            let (region, word, _) = place(PageId(at));
            let next = to.min(at - at % 64 + 64);
            let mask = (u64::MAX >> (64 - (next - at))) << (at % 64);
            count += u64::from((!self.regions[region].used[word] & mask).count_ones());
            at = next;
        }
        count
    }

    /// Withholds the pages from the place of [`find_truncation`](Self::find_truncation) on, and returns it.
    pub(crate) fn start_truncation(&mut self, reserve: u64, least: u64, grain: u64) -> Option<u64> {
        assert!(self.cut.is_none(), "one cut at a time");
        let cut = self.find_truncation(reserve, least, grain)?;
        self.cut = Some(cut);
        self.count -= self.unused(cut, self.file_pages);
        Some(cut)
    }

    /// Finds where the file can end so that `reserve` free pages are left: at a multiple of `grain`, or behind it near
    /// the begin of a region. `None` if fewer than `least` pages would be truncated.
    pub(crate) fn find_truncation(&self, reserve: u64, least: u64, grain: u64) -> Option<u64> {
        let mut cut = self.used_end();
        loop {
            // The first pages of a region come with its map.
            cut = cut.next_multiple_of(if cut % REGION_PAGES < GRAIN { GRAIN } else { grain });
            if cut.saturating_add(least) > self.file_pages {
                return None;
            }
            let left = self.count - self.unused(cut, self.file_pages);
            if left >= reserve {
                return Some(cut);
            }
            cut += reserve - left;
        }
    }

    /// Releases the pages beyond the truncation to threads that need pages. Returns whether there was a truncation.
    pub(crate) fn cancel_truncation(&mut self) -> bool {
        let Some(cut) = self.cut.take() else { return false };
        self.count += self.unused(cut, self.file_pages);
        debug_assert!(
            self.is_counted(),
            "{} pages are counted as free when the truncation at {cut} is over",
            self.count
        );
        true
    }

    /// Whether the count of free pages is that of the bits.
    fn is_counted(&self) -> bool {
        self.count == self.unused(0, self.end())
    }

    /// Takes note that the file ends at the truncation, and returns by how many pages it is shorter.
    pub(crate) fn finish_truncation(&mut self) -> u64 {
        let cut = self.cut.take().expect("a truncation was started");
        assert!(cut <= self.file_pages, "a file of {} pages is cut at {cut}", self.file_pages);
        let gone = self.file_pages - cut;
        self.file_pages = cut;
        self.lowest = self.lowest.min(cut);
        self.regions.truncate(cut.div_ceil(REGION_PAGES) as usize);
        debug_assert!(self.is_counted(), "{} pages are counted as free behind a truncation at {cut}", self.count);
        gone
    }

    /// The first region whose map page lies beyond the truncation.
    pub(crate) fn first_region_beyond_truncation(&self) -> Option<u64> {
        Some(map::region_of(PageId((self.cut? + REGION_PAGES - 1 - MAP_IN_REGION).max(REGION_PAGES))))
    }
}

/// Region, word in it and bit in that of a page.
const fn place(pid: PageId) -> (usize, usize, u64) {
    let in_region = pid.0 % REGION_PAGES;
    ((pid.0 / REGION_PAGES) as usize, (in_region / 64) as usize, 1 << (in_region % 64))
}

#[cfg(test)]
mod tests;
