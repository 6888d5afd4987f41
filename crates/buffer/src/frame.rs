//! A frame: the place of one page in memory, and the words that say what is in it.

use foreshore_base::{GroupNo, PageId};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use foreshore_sync::{HybridLatch, ParkTable, rmw};

/// Index of a frame.
pub type FrameNo = u32;

// The meta word.
//
//   31      30     29       28        27        26  25     24 23    20 19            0
//  +-------+------+--------+---------+---------+---+----------+--------+---------------+
//  | DIRTY | MAIN | REDONE | LOADING | PASSING | 0 | recently |  uses  |     pins      |
//  +-------+------+--------+---------+---------+---+----------+--------+---------------+
//
// pins:       holders of `Pinned`. From 0 to 1 only under a latch of the frame, so that the holder of the exclusive latch
//             who sees 0 may evict. Further pins and the release of one need no latch: who meets a pin shares it, and with it
//             the page that is pinned.
// uses:       uses of the page up to the cap of the policy, less what its hand took away. Raised by any fix, set by the
//             policy as the page comes in. A hint: losing one costs a read at most.
// MAIN:       for the policy `s3c`, under the lock of the frame's shard; else zero.
// recently:   two if the page has been used, though not by a scan; less as scans go on, see `passing.rs`. Zero as the page comes
//             in. A hint.
// PASSING:    the page has come in for a scan, and the policy does not know it. Set and cleared under the exclusive latch, cleared
//             by who evicts too; see `passing.rs`.
// LOADING:    the page is being read. Set and cleared under the exclusive latch; a hint for threads that do not
//             want to wait.
// DIRTY:      the page differs from its home on disk, or may. Set under the exclusive latch, before the record of the
//             change is appended. Cleared by the cleaner, one at a time, under a shared latch, once the page as it is then
//             has been written and synced.
// REDONE:     redo changed the page since the cleaner copied it last. Set under the exclusive latch, cleared by the cleaner
//             under a shared latch.
//
// 1. `rec_group` is stored before DIRTY is set, by the holder of the exclusive latch. While DIRTY is set, redo lowers it
//    under the exclusive latch, and the cleaner raises it under a shared latch, unless REDONE.
// 2. Only a clean frame without pins whose exclusive latch is held gives up its page.
pub(crate) const PINS: u32 = (1 << 20) - 1;
pub(crate) const USE: u32 = 1 << 20;
pub(crate) const USES: u32 = 15 * USE;
pub(crate) const RECENTLY: u32 = 3 << 24;
/// The page has been used just now.
pub(crate) const USED: u32 = 2 << 24;
/// By so much that gets less.
const A_WHILE: u32 = 1 << 24;
pub(crate) const PASSING: u32 = 1 << 27;
pub(crate) const LOADING: u32 = 1 << 28;
pub(crate) const REDONE: u32 = 1 << 29;
pub(crate) const MAIN: u32 = 1 << 30;
pub(crate) const DIRTY: u32 = 1 << 31;
const _: () =
    assert!(PINS | USES | RECENTLY == (1 << 26) - 1 && PASSING | LOADING | REDONE | MAIN | DIRTY == u32::MAX << 27);

/// Most uses that a frame counts.
pub const MAX_USES: u8 = (USES / USE) as u8;

/// [`Frame::use_bits`] from which on one more use makes no difference where `cap` uses count.
pub(crate) const fn enough(cap: u8) -> u32 {
    USED | (cap as u32 * USE)
}

/// The word after a use.
pub(crate) const fn used(meta: u32, cap: u8) -> u32 {
    let counts = meta & USES < cap as u32 * USE;
    (meta & !RECENTLY | USED) + if counts { USE } else { 0 }
}

/// Latch and state of a frame, one cache line; its bytes are in the arena of the pool.
///
/// The memory of a frame lives as long as the pool, so a stale frame number is harmless: whoever uses one compares the
/// page id under the latch.
#[derive(Debug)]
#[repr(align(64))]
pub struct Frame {
    latch: HybridLatch,
    /// Stored under the exclusive latch. [`PageId::ZERO`]: no page.
    pid: AtomicU64,
    meta: AtomicU32,
    rec_group: AtomicU64,
    link: AtomicU64,
}

/// Why a page stays in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It must be written first.
    Dirty,
    /// Latched, pinned or used just now, or there is no page.
    Busy,
}

impl Frame {
    pub fn new() -> Self {
        Self {
            latch: HybridLatch::new(),
            pid: AtomicU64::new(0),
            meta: AtomicU32::new(0),
            rec_group: AtomicU64::new(0),
            link: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn latch(&self) -> &HybridLatch {
        &self.latch
    }

    /// Returns the word of the free list, see `free.rs`.
    pub(crate) fn link(&self) -> &AtomicU64 {
        &self.link
    }

    /// The page in this frame. Stable under a latch; else a hint.
    #[inline]
    pub fn pid(&self) -> PageId {
        // ORDERING: Acquire, pairs with `set_pid`: who finds the frame given up also finds the page table entry gone.
        PageId(self.pid.load(Ordering::Acquire))
    }

    /// Changes the page. The caller holds the exclusive latch and raises its version on release.
    pub fn set_pid(&self, pid: PageId) {
        debug_assert!(self.latch.is_exclusive(), "the page of a frame changes under its exclusive latch");
        // ORDERING: Release, pairs with `pid`.
        self.pid.store(pid.0, Ordering::Release);
    }

    fn meta(&self) -> u32 {
        // ORDERING: Acquire, pairs with the RMWs below: DIRTY seen means `rec_group` seen.
        self.meta.load(Ordering::Acquire)
    }

    /// Whether the page is being read.
    pub fn is_loading(&self) -> bool {
        self.meta() & LOADING != 0
    }

    /// Says whether the page is being read. The caller holds the exclusive latch.
    pub fn set_loading(&self, loading: bool) {
        // ORDERING: Relaxed, a hint that the page table entry publishes; who is misled waits for the latch.
        if loading {
            self.meta.fetch_or(LOADING, Ordering::Relaxed);
        } else {
            self.meta.fetch_and(!LOADING, Ordering::Relaxed);
        }
    }

    /// Adds a pin. The caller holds a latch of the frame.
    pub fn pin(&self) {
        rmw::contended_at(&self.meta);
        // ORDERING: Release, pairs with `pin_again`: who shares the pin sees the id of the page that is pinned. The latch orders
        // the first pin against eviction.
        let order = if mutant("frame: relaxed pin") { Ordering::Relaxed } else { Ordering::Release };
        let before = self.meta.fetch_add(1, order);
        assert!(before & PINS < PINS, "too many pins on page {}", self.pid());
    }

    /// Adds a pin if there is one already. It keeps whatever page is pinned, which may have come into the frame a moment ago.
    pub fn pin_again(&self) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut meta = self.meta.load(Ordering::Relaxed);
        while meta & PINS != 0 || mutant("frame: pin without a latch") {
            assert!(meta & PINS < PINS, "too many pins on page {}", self.pid());
            rmw::contended_at(&self.meta);
            // ORDERING: Acquire, pairs with `pin`.
            match self.meta.compare_exchange_weak(meta, meta + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => meta = now,
            }
        }
        false
    }

    /// Takes a pin away.
    pub fn unpin(&self) {
        rmw::contended_at(&self.meta);
        // ORDERING: Release, pairs with `meta`: what was done under the pin comes before the eviction.
        let before = self.meta.fetch_sub(1, Ordering::Release);
        assert!(before & PINS != 0, "page {} was not pinned", self.pid());
    }

    /// Takes the exclusive latch of a frame whose page may go, and returns the page.
    pub fn try_vacate(&self, parks: &ParkTable) -> Result<PageId, Kept> {
        if self.is_dirty() {
            return Err(Kept::Dirty);
        }
        if self.is_pinned() || !self.latch.try_lock_exclusive() {
            return Err(Kept::Busy);
        }
        // All of it again: under the latch it holds.
        let pid = self.pid();
        let pinned = self.is_pinned() && !mutant("frame: pins are not asked for under the latch");
        let dirty = self.is_dirty() && !mutant("frame: dirt is not asked for under the latch");
        if pid == PageId::ZERO || pinned || dirty {
            self.latch.unlock_exclusive_unchanged(parks);
            return Err(if dirty { Kept::Dirty } else { Kept::Busy });
        }
        Ok(pid)
    }

    /// Whether somebody keeps the page in its frame.
    pub fn is_pinned(&self) -> bool {
        self.meta() & PINS != 0
    }

    /// Counts a use up to `cap`. Costs one load at the cap, else one read-modify-write, which is not repeated: a use that
    /// meets another change of the word goes uncounted.
    #[inline]
    pub fn count_use(&self, cap: u8) {
        // ORDERING: Relaxed, a hint for the policy, which orders nothing; here and below.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & (RECENTLY | USES) < enough(cap) {
            rmw::contended_at(&self.meta);
            let _ = self.meta.compare_exchange(meta, used(meta, cap), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether the page was used recently.
    pub(crate) fn is_recent(&self) -> bool {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & RECENTLY != 0
    }

    /// Has the last use of the page be a while ago; none at all if `long`.
    pub(crate) fn grow_old(&self, long: bool) {
        // ORDERING: as in `count_use`.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & RECENTLY != 0 {
            let to = if long { meta & !RECENTLY } else { meta - A_WHILE };
            let _ = self.meta.compare_exchange(meta, to, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Uses counted and how recent they are, to compare with [`enough`].
    #[inline]
    pub(crate) fn use_bits(&self) -> u32 {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & (RECENTLY | USES)
    }

    /// Uses counted.
    pub fn uses(&self) -> u8 {
        (self.use_bits() % A_WHILE / USE) as u8
    }

    /// Takes one use away; true if the page is to be spared, because there was one, or the word changed just now.
    pub fn age(&self) -> bool {
        // ORDERING: as in `count_use`.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & USES == 0 {
            return false;
        }
        let _ = self.meta.compare_exchange(meta, meta - USE, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    /// Sets what the policy keeps in the word: the uses, and whether the page is in the main part.
    pub fn place(&self, uses: u8, main: bool) {
        debug_assert!(uses <= MAX_USES, "{uses} uses");
        let own = (u32::from(uses) * USE) | if main { MAIN } else { 0 };
        // ORDERING: as in `count_use`.
        let _ =
            self.meta.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |meta| Some((meta & !(USES | MAIN)) | own));
    }

    /// Whether the policy has the page in the main part.
    pub fn is_main(&self) -> bool {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & MAIN != 0
    }

    /// Makes a page that has just come in one that passes through. The caller holds the exclusive latch.
    pub fn set_passing(&self) {
        // ORDERING: as in `count_use`; the latch orders it for who decides by it.
        let _ = self.meta.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |meta| {
            Some(meta & !(RECENTLY | USES | MAIN) | PASSING)
        });
    }

    /// Takes that back. The caller holds the exclusive latch.
    pub fn end_passing(&self) {
        // ORDERING: as in `set_passing`.
        self.meta.fetch_and(!PASSING, Ordering::Relaxed);
    }

    /// Whether the page passes through. Stable under a latch.
    pub fn is_passing(&self) -> bool {
        // ORDERING: as in `set_passing`.
        self.meta.load(Ordering::Relaxed) & PASSING != 0
    }

    /// Whether the page differs from its home on disk. Exact under a latch.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.meta() & DIRTY != 0
    }

    /// The first log group that may hold a change that is not yet home; `None` if the page is clean.
    pub fn rec_group(&self) -> Option<GroupNo> {
        // ORDERING: Relaxed, ordered after the Acquire in `is_dirty`. A page that was cleaned and made dirty again in
        // between shows its newer group, which is right: the older changes are home.
        self.is_dirty().then(|| GroupNo(self.rec_group.load(Ordering::Relaxed)))
    }

    /// Makes a clean page dirty. The caller holds the exclusive latch and has loaded `group` before it appends.
    pub fn set_dirty(&self, group: GroupNo) {
        debug_assert!(self.latch.is_exclusive() && !self.is_dirty(), "dirty twice or unlatched: {self:?}");
        // ORDERING: Relaxed, published by the next line.
        self.rec_group.store(group.0, Ordering::Relaxed);
        rmw::contended_at(&self.meta);
        // ORDERING: Release publishes `rec_group`, pairs with `meta`. A checkpoint that loads the next group number first
        // and then finds this page clean misses nothing: had the record gone into an older group, the cut of that group
        // would have acquired it, and this store with it.
        self.meta.fetch_or(DIRTY, Ordering::Release);
    }

    /// Notes a change by redo of a record in `group`. The caller holds the exclusive latch. True if the page was clean.
    pub fn set_redone(&self, group: GroupNo) -> bool {
        let first = self.rec_group();
        match first {
            None => self.set_dirty(group),
            // ORDERING: Relaxed, the latch orders it against the cleaner; other readers run after redo.
            Some(first) => self.rec_group.store(first.min(group).0, Ordering::Relaxed),
        }
        // ORDERING: Relaxed, read under the latch only.
        self.meta.fetch_or(REDONE, Ordering::Relaxed);
        first.is_none()
    }

    /// Begins a copy: from here on only later changes by redo count. The caller is the cleaner, with a shared latch.
    pub fn forget_redo(&self) {
        // ORDERING: Relaxed, both sides hold the latch.
        self.meta.fetch_and(!REDONE, Ordering::Relaxed);
    }

    /// Raises the first group of a page that has changed since it was copied. The caller is the cleaner, with a shared
    /// latch, and has loaded `group` before the copy.
    pub fn advance_rec_group(&self, group: GroupNo) {
        if self.meta() & REDONE == 0 {
            // ORDERING: Relaxed, both the old and the new value are right for a concurrent reader.
            self.rec_group.store(group.0, Ordering::Relaxed);
        }
    }

    /// Ends the dirty state. The caller is the cleaner and holds a shared latch.
    pub fn set_clean(&self) {
        // ORDERING: Release, pairs with `meta`: who sees the page clean may drop it, its home being synced.
        let before = self.meta.fetch_and(!DIRTY, Ordering::Release);
        assert!(before & DIRTY != 0, "page {} was clean", self.pid());
    }
}
