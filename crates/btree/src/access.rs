//! Access to the pages of a descent: without a latch, or with one.

use foreshore_base::{PageId, Result};
use foreshore_buffer::{
    AccessPattern, ExclusiveGuard, OptimisticGuard, PagePosition, PageRead, Pinned, Pool, SharedGuard,
};

/// The way in which nodes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Optimistic,
    Latched,
}

/// Access to a page during a descent.
pub(crate) trait Access<'p>: Sized {
    type Page<'a>: PageRead
    where
        Self: 'a;

    fn fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Self>;
    /// Fixes a page. Returns `None` if the caller must pin it first, with no latch held. The node above is held as
    /// `reading` says.
    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>>;
    /// Pins a page for which `try_fix` returned `None`.
    fn pin(pool: &'p Pool, pid: PageId) -> Result<Pinned<'p>> {
        pool.pin(pid)
    }
    /// Fixes the next page as [`Access::try_fix`] does, and keeps this access meanwhile.
    fn try_next(&self, pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>>;
    fn pid(&self) -> PageId;
    fn page(&self) -> Self::Page<'_>;
    /// Returns whether all reads so far saw one state of the page.
    fn holds(&self) -> bool;
}

/// The access of a reader. `ONCE` marks a scan that does not need the page again.
pub(crate) struct ReadGuard<'p, const ONCE: bool = false> {
    page: OptimisticGuard<'p>,
    /// The latch, held only if reading without it has failed too often.
    _latch: Option<Box<SharedGuard<'p>>>,
}

impl<'p, const ONCE: bool> From<OptimisticGuard<'p>> for ReadGuard<'p, ONCE> {
    #[inline(always)]
    fn from(page: OptimisticGuard<'p>) -> Self {
        // The search follows at once. These transfers overlap with that of the latch, which no load here waits for.
        page.prefetch_first();
        Self { page, _latch: None }
    }
}

impl<'p, const ONCE: bool> From<SharedGuard<'p>> for ReadGuard<'p, ONCE> {
    fn from(latch: SharedGuard<'p>) -> Self {
        Self { page: latch.as_optimistic(), _latch: Some(Box::new(latch)) }
    }
}

impl<'p, const ONCE: bool> ReadGuard<'p, ONCE> {
    const PATTERN: AccessPattern = if ONCE { AccessPattern::Scan } else { AccessPattern::Random };

    /// Reads the page at `position` again, if it has not changed since.
    pub(crate) fn at(pool: &'p Pool, position: PagePosition) -> Option<Self> {
        // The last leaf again, which is mostly in the cache of the processor.
        pool.optimistic_at(position).map(|page| Self { page, _latch: None })
    }

    /// Returns the frame and the version of the page.
    pub(crate) fn position(&self) -> PagePosition {
        self.page.position()
    }
}

impl<'p, const ONCE: bool> Access<'p> for ReadGuard<'p, ONCE> {
    type Page<'a>
        = &'a OptimisticGuard<'p>
    where
        Self: 'a;

    #[inline(always)]
    fn fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Self> {
        match reading {
            Reading::Optimistic => pool.optimistic(pid, Self::PATTERN).map(Self::from),
            Reading::Latched => pool.shared_as(pid, Self::PATTERN).map(Self::from),
        }
    }

    #[inline(always)]
    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        Ok(match reading {
            Reading::Optimistic => pool.try_optimistic(pid, Self::PATTERN)?.map(Self::from),
            Reading::Latched => pool.try_shared(pid, Self::PATTERN)?.map(Self::from),
        })
    }

    fn pin(pool: &'p Pool, pid: PageId) -> Result<Pinned<'p>> {
        pool.pin_as(pid, Self::PATTERN)
    }

    fn try_next(&self, pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        Self::try_fix(pool, pid, reading)
    }

    fn pid(&self) -> PageId {
        self.page.pid()
    }

    #[inline]
    fn page(&self) -> &OptimisticGuard<'p> {
        &self.page
    }

    #[inline]
    fn holds(&self) -> bool {
        self.page.validate()
    }
}

impl<'p> Access<'p> for ExclusiveGuard<'p> {
    type Page<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn fix(pool: &'p Pool, pid: PageId, _: Reading) -> Result<Self> {
        pool.exclusive(pid)
    }

    fn try_fix(pool: &'p Pool, pid: PageId, reading: Reading) -> Result<Option<Self>> {
        match reading {
            Reading::Optimistic => pool.exclusive_resident(pid),
            Reading::Latched => pool.try_exclusive(pid),
        }
    }

    fn try_next(&self, pool: &'p Pool, pid: PageId, _: Reading) -> Result<Option<Self>> {
        pool.try_exclusive(pid)
    }

    fn pid(&self) -> PageId {
        Self::pid(self)
    }

    fn page(&self) -> &[u8] {
        self
    }

    fn holds(&self) -> bool {
        true
    }
}
