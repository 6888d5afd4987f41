//! When the file grows, and how much is kept ready.

use crate::format::{MAP_IN_REGION, REGION_PAGES};
use crate::free::GRAIN;
use foreshore_sync::Nanos;
use foreshore_sync::primitive::MODEL;
use std::time::Duration;

/// Pages that the file grows by at least when the thread that needs one grows it.
pub(crate) const MIN_EXTENT: u64 = GRAIN;
/// Largest growth of the file, in pages: 32 MiB.
pub(crate) const MAX_EXTENT: u64 = 4096;
/// Free pages that a thread takes at once.
pub(crate) const MAGAZINE: usize = 16;

/// How the data file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// A background thread grows the file before a page is missing, by extents of 64 to 4096 pages.
    pub is_ahead: bool,
    /// Pages by which a thread grows the file when it needs a page and none is free.
    pub inline_pages: u64,
    /// Free pages that a thread takes at once.
    pub magazine_pages: u64,
}

impl Growth {
    /// Growth ahead of need.
    pub const AHEAD: Self = Self { is_ahead: true, inline_pages: MIN_EXTENT, magazine_pages: MAGAZINE as u64 };
}

impl Default for Growth {
    fn default() -> Self {
        Self::AHEAD
    }
}

/// Fewest pages that are kept ready.
const LEAST: u64 = if MODEL { 8 } else { 64 };
/// Most pages that are kept ready: 64 MiB.
const MOST: u64 = 8192;
/// Time of use, at least, that is kept ready: what a busy machine may take to run the background thread.
const HORIZON: Duration = Duration::from_millis(50);
/// Divisor: a part of the file, at most, that is kept ready. A small file that fills fast would else be a quarter
/// larger than what it holds. Writers that find no page in such a file grow it themselves.
const PART: u64 = 32;
/// Looks that follow each other faster are one.
const SHORTEST: Duration = Duration::from_millis(1);
/// How long a burst counts.
const FADE: Duration = Duration::from_millis(500);
/// Growths that the pages that are ready outlast.
const GROWTHS: u32 = 8;

/// How fast pages are used, and so how many are kept ready.
#[derive(Debug)]
pub(crate) struct Pace {
    looked: Nanos,
    /// Pages used since.
    used: u64,
    /// Pages a second, as of the last look.
    rate: u64,
    /// How long the last growth took.
    growth: Duration,
    want: u64,
}

impl Pace {
    pub(crate) const fn new(now: Nanos) -> Self {
        Self { looked: now, used: 0, rate: 0, growth: Duration::ZERO, want: LEAST }
    }

    /// Notes that pages are used.
    pub(crate) const fn count(&mut self, pages: u64) {
        self.used += pages;
    }

    /// Whether it is time to make more than `ready` pages.
    pub(crate) const fn is_low(&self, ready: u64) -> bool {
        ready < self.want / 2
    }

    /// Notes how long a growth took.
    pub(crate) const fn note_growth(&mut self, took: Duration) {
        self.growth = took;
    }

    /// Returns how many pages of a file of `file_pages` shall be ready, by the use since the last look. A burst counts
    /// in full at once, and fades over [`FADE`].
    pub(crate) fn look(&mut self, now: Nanos, file_pages: u64) -> u64 {
        let elapsed = now.since(self.looked);
        if elapsed >= SHORTEST {
            let rate = u128::from(self.used) * 1_000_000_000 / elapsed.as_nanos();
            let fading = self.rate as u128 * (FADE.saturating_sub(elapsed)).as_nanos() / FADE.as_nanos();
            self.rate = u64::try_from(rate.max(fading)).unwrap_or(u64::MAX);
            (self.used, self.looked) = (0, now);
        }
        let horizon = HORIZON.max(self.growth.saturating_mul(GROWTHS));
        let used = u128::from(self.rate) * horizon.as_nanos() / 1_000_000_000;
        let most = (file_pages / PART).clamp(LEAST, MOST);
        self.want = u64::try_from(used).unwrap_or(MOST).clamp(LEAST, most);
        self.want
    }
}

/// Returns by how many pages a file of `file_pages` grows ahead of need to make `missing` pages ready: by those, and
/// by at least a sixty-fourth of the file. So the number of growths of a large file is logarithmic, and a file is
/// little larger than its content. An extent is no larger than what is soon allocated.
pub(crate) fn extent(file_pages: u64, missing: u64) -> u64 {
    let least = file_pages / 64 / GRAIN * GRAIN;
    missing.next_multiple_of(GRAIN).max(least).clamp(MIN_EXTENT, MAX_EXTENT)
}

/// Pages to grow by for at least `pages`: the file does not end between the begin of a region and its map page.
pub(crate) const fn past_map(from: u64, pages: u64) -> u64 {
    let in_region = (from + pages) % REGION_PAGES;
    if in_region > 0 && in_region <= MAP_IN_REGION { pages + MAP_IN_REGION + 1 - in_region } else { pages }
}

/// Pages to grow by for one more: a region's first pages come with its map page.
pub(crate) const fn one_more(from: u64) -> u64 {
    let in_region = from % REGION_PAGES;
    if in_region <= MAP_IN_REGION { MAP_IN_REGION + 1 - in_region } else { 1 }
}

/// How space is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceOptions {
    /// When the file grows.
    pub growth: Growth,
    /// Whether a thread drives [`Space::extend_step`](crate::Space::extend_step). Without one nothing that is done
    /// depends on time.
    pub background: bool,
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self { growth: Growth::default(), background: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_follows_the_rate_of_use_and_the_time_of_a_growth() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        const LARGE: u64 = MOST * PART;
        let mut pace = Pace::new(ms(0));
        assert_eq!(pace.look(ms(1000), LARGE), LEAST);
        assert!(pace.is_low(LEAST / 2 - 1) && !pace.is_low(LEAST / 2));
        pace.count(100);
        assert_eq!(pace.look(ms(1010), LARGE), 500, "10,000 pages a second for 50 ms");
        assert!(pace.is_low(249));
        pace.count(200);
        pace.note_growth(Duration::from_millis(20));
        assert_eq!(pace.look(ms(1020), LARGE), 3200, "20,000 pages a second for 160 ms");
        assert_eq!(pace.look(ms(1270), LARGE), 1600, "half of the time");
        assert_eq!(pace.look(ms(1770), LARGE), LEAST);
        pace.count(1_000_000);
        assert_eq!(pace.look(ms(2010), LARGE), MOST);
    }

    #[test]
    fn what_is_ready_is_a_small_part_of_the_file() {
        let mut pace = Pace::new(Nanos(0));
        pace.count(1_000_000);
        for (file_pages, ready) in [(0, LEAST), (64 * PART, 64), (200 * PART, 200), (u64::MAX, MOST)] {
            assert_eq!(pace.look(Nanos(1_000_000), file_pages), ready, "of {file_pages} pages");
        }
    }
}
