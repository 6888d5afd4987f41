//! A frame: the memory of one page, and the words with its state.

use foreshore_base::{GroupNo, PageId};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use foreshore_sync::{HybridLatch, ParkTable};

/// Index of a frame.
pub type FrameNo = u32;

// The meta word.
//
//   31      30     29       28        27     26  25    24 23    20 19            0
//  +-------+------+--------+---------+------+---+---------+--------+---------------+
//  | DIRTY | MAIN | REDONE | LOADING | RING | 0 | recency |  uses  |     pins      |
//  +-------+------+--------+---------+------+---+---------+--------+---------------+
//
// pins:    count of `Pinned`. It goes from 0 to 1 only under a latch of the frame, so the holder of the exclusive latch
//          that sees 0 may evict. Further pins, and the release of one, need no latch: an existing pin keeps the page.
// uses:    uses of the page up to the cap of the policy, less those that its hand took away. Raised by any fix, set by
//          the policy when the page is loaded. A hint: a lost use costs a read at most.
// recency: 2 after a use that is no scan; lowered as scans go on (`scan_ring.rs`). Zero when the page is loaded. A
//          hint.
// RING:    the page is in the scan ring, unknown to the policy. Set and cleared under the exclusive latch.
// LOADING: the page is being read. Set and cleared under the exclusive latch. A hint for threads that must not wait.
// REDONE:  redo has changed the page since the cleaner's last copy. Set under the exclusive latch, cleared by the
//          cleaner under a shared latch.
// MAIN:    for the policy `s3c`, under the lock of the frame's shard; else zero.
// DIRTY:   the page differs, or may differ, from its home on disk. Set under the exclusive latch, before the record of
//          the change is appended. Cleared under a shared latch by the one round of the cleaner that has the page, once
//          its bytes are written and synced.
//
// 1. `rec_group` is stored before DIRTY is set, by the holder of the exclusive latch. While DIRTY is set, redo lowers
//    it under the exclusive latch, and the cleaner raises it under a shared latch, unless REDONE.
// 2. Only a clean frame without pins whose exclusive latch is held gives up its page.
const PINS: u32 = (1 << 20) - 1;
const USE: u32 = 1 << 20;
const USES: u32 = 15 * USE;
const RECENCY: u32 = 3 << 24;
/// The recency of a page that has been used just now.
const RECENT: u32 = 2 << 24;
/// Subtracted from the recency as scans go on.
const RECENCY_STEP: u32 = 1 << 24;
const RING: u32 = 1 << 27;
const LOADING: u32 = 1 << 28;
const REDONE: u32 = 1 << 29;
const MAIN: u32 = 1 << 30;
const DIRTY: u32 = 1 << 31;
const _: () =
    assert!(PINS | USES | RECENCY == (1 << 26) - 1 && RING | LOADING | REDONE | MAIN | DIRTY == u32::MAX << 27);

/// The most uses that a frame counts.
pub const MAX_USES: u8 = (USES / USE) as u8;

/// Returns the least [`Frame::use_bits`] that one more use does not change if `cap` uses count.
pub(crate) const fn enough(cap: u8) -> u32 {
    RECENT | (cap as u32 * USE)
}

/// Returns the word after a use.
const fn used(meta: u32, cap: u8) -> u32 {
    let counts = meta & USES < cap as u32 * USE;
    (meta & !RECENCY | RECENT) + if counts { USE } else { 0 }
}

/// The latch and the state of a frame, in one cache line. Its page is in the arena of the pool.
///
/// The memory of a frame lives as long as the pool, so a stale frame number is harmless: its user compares the page id
/// under the latch.
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

/// The reason why a page stays in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It must be written home first.
    Dirty,
    /// Latched, pinned or used just now, or there is no page.
    Busy,
}

impl Frame {
    /// Returns a frame without a page.
    pub fn new() -> Self {
        Self {
            latch: HybridLatch::new(),
            pid: AtomicU64::new(0),
            meta: AtomicU32::new(0),
            rec_group: AtomicU64::new(0),
            link: AtomicU64::new(0),
        }
    }

    /// Returns the latch of the page and of the frame.
    #[inline]
    pub fn latch(&self) -> &HybridLatch {
        &self.latch
    }

    /// Returns the word of the free list (`free.rs`).
    pub(crate) fn link(&self) -> &AtomicU64 {
        &self.link
    }

    /// Returns the page in this frame. Stable under a latch; else a hint.
    #[inline]
    pub fn pid(&self) -> PageId {
        // ORDERING: Acquire, pairs with `set_pid`: a thread that finds the page gone from the frame finds its page
        // table entry gone, too.
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

    /// Returns whether the page is being read.
    pub fn is_loading(&self) -> bool {
        self.meta() & LOADING != 0
    }

    /// Sets whether the page is being read. The caller holds the exclusive latch.
    pub fn set_loading(&self, loading: bool) {
        // ORDERING: Relaxed, a hint that the page table entry publishes; a misled thread waits for the latch.
        if loading {
            self.meta.fetch_or(LOADING, Ordering::Relaxed);
        } else {
            self.meta.fetch_and(!LOADING, Ordering::Relaxed);
        }
    }

    /// Adds a pin. The caller holds a latch of the frame.
    pub fn pin(&self) {
        // ORDERING: Release, pairs with `pin_again`: a thread that shares the pin sees the id of the page that is
        // pinned. The latch orders the first pin against eviction.
        let order = if mutant("frame: relaxed pin") { Ordering::Relaxed } else { Ordering::Release };
        let before = self.meta.fetch_add(1, order);
        assert!(before & PINS < PINS, "too many pins on page {}", self.pid());
    }

    /// Adds a pin if there is one already. The page that it keeps may have been loaded into the frame a moment ago.
    pub fn pin_again(&self) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut meta = self.meta.load(Ordering::Relaxed);
        while meta & PINS != 0 || mutant("frame: pin without a latch") {
            assert!(meta & PINS < PINS, "too many pins on page {}", self.pid());
            // ORDERING: Acquire, pairs with `pin`.
            match self.meta.compare_exchange_weak(meta, meta + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => meta = now,
            }
        }
        false
    }

    /// Removes a pin.
    pub fn unpin(&self) {
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
        // Checks all again, because the answers are stable only under the latch.
        let pid = self.pid();
        let pinned = self.is_pinned() && !mutant("frame: pins are not asked for under the latch");
        let dirty = self.is_dirty() && !mutant("frame: dirt is not asked for under the latch");
        if pid == PageId::ZERO || pinned || dirty {
            self.latch.unlock_exclusive_unchanged(parks);
            return Err(if dirty { Kept::Dirty } else { Kept::Busy });
        }
        Ok(pid)
    }

    /// Returns whether the page is kept in its frame.
    pub fn is_pinned(&self) -> bool {
        self.meta() & PINS != 0
    }

    /// Counts a use up to `cap`. Costs one load at the cap, else one attempt of a read-modify-write. A use is not
    /// counted if the attempt meets another change of the word.
    #[inline]
    pub fn count_use(&self, cap: u8) {
        // ORDERING: Relaxed, a hint for the policy, which orders nothing; here and below.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & (RECENCY | USES) < enough(cap) {
            let _ = self.meta.compare_exchange(meta, used(meta, cap), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns whether the page was used recently.
    pub(crate) fn is_recent(&self) -> bool {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & RECENCY != 0
    }

    /// Lowers the recency by one step.
    pub(crate) fn decay_recency(&self) {
        // ORDERING: as in `count_use`.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & RECENCY != 0 {
            let _ = self.meta.compare_exchange(meta, meta - RECENCY_STEP, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Sets the recency to zero.
    pub(crate) fn clear_recency(&self) {
        // ORDERING: as in `count_use`.
        self.meta.fetch_and(!RECENCY, Ordering::Relaxed);
    }

    /// Returns the uses counted and their recency, to compare with [`enough`].
    #[inline]
    pub(crate) fn use_bits(&self) -> u32 {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & (RECENCY | USES)
    }

    /// Returns the uses counted.
    pub fn uses(&self) -> u8 {
        (self.use_bits() % RECENCY_STEP / USE) as u8
    }

    /// Takes one use away. Returns true if the page is spared: it had a use left, or the word has changed just now.
    pub fn take_use(&self) -> bool {
        // ORDERING: as in `count_use`.
        let meta = self.meta.load(Ordering::Relaxed);
        if meta & USES == 0 {
            return false;
        }
        let _ = self.meta.compare_exchange(meta, meta - USE, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    /// Sets what the policy keeps in the word: the uses, and whether the page is in the main part.
    pub fn set_policy_bits(&self, uses: u8, main: bool) {
        debug_assert!(uses <= MAX_USES, "{uses} uses");
        let own = (u32::from(uses) * USE) | if main { MAIN } else { 0 };
        // ORDERING: as in `count_use`.
        let _ =
            self.meta.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |meta| Some((meta & !(USES | MAIN)) | own));
    }

    /// Returns whether the policy has the page in the main part.
    pub fn is_main(&self) -> bool {
        // ORDERING: as in `count_use`.
        self.meta.load(Ordering::Relaxed) & MAIN != 0
    }

    /// Puts a page that was just loaded into the scan ring. The caller holds the exclusive latch.
    pub fn enter_ring(&self) {
        // ORDERING: as in `count_use`; the latch orders it for those that decide by it.
        let _ = self
            .meta
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |meta| Some(meta & !(RECENCY | USES | MAIN) | RING));
    }

    /// Takes the page out of the scan ring. The caller holds the exclusive latch.
    pub fn leave_ring(&self) {
        // ORDERING: as in `enter_ring`.
        self.meta.fetch_and(!RING, Ordering::Relaxed);
    }

    /// Returns whether the page is in the scan ring. Stable under a latch.
    pub fn is_in_ring(&self) -> bool {
        // ORDERING: as in `enter_ring`.
        self.meta.load(Ordering::Relaxed) & RING != 0
    }

    /// Returns whether the page differs from its home on disk. Exact under a latch.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.meta() & DIRTY != 0
    }

    /// Returns the first log group that may hold a change that is not yet home; `None` if the page is clean.
    pub fn rec_group(&self) -> Option<GroupNo> {
        // ORDERING: Relaxed, ordered after the Acquire in `is_dirty`. If the page was cleaned and made dirty again in
        // between, this reads its newer group, which is right: the older changes are home.
        self.is_dirty().then(|| GroupNo(self.rec_group.load(Ordering::Relaxed)))
    }

    /// Makes a clean page dirty. The caller holds the exclusive latch and has loaded `group` before it appends.
    pub fn set_dirty(&self, group: GroupNo) {
        debug_assert!(self.latch.is_exclusive() && !self.is_dirty(), "dirty twice or unlatched: {self:?}");
        // ORDERING: Relaxed, published by the next line.
        self.rec_group.store(group.0, Ordering::Relaxed);
        // ORDERING: Release publishes `rec_group`, pairs with `meta`. A checkpoint that loads the next group number
        // first and then finds this page clean misses nothing: had the record gone into an older group, the cut of that
        // group would have acquired it, and this store with it.
        self.meta.fetch_or(DIRTY, Ordering::Release);
    }

    /// Notes a change by redo of a record in `group`. Returns true if the page was clean. The caller holds the
    /// exclusive latch.
    pub fn set_redone(&self, group: GroupNo) -> bool {
        let first = self.rec_group();
        match first {
            None => self.set_dirty(group),
            // ORDERING: Relaxed, the latch orders it against the cleaner. A checkpoint that reads the old value has
            // found that redo of the page had not ended, and goes by that.
            Some(first) => self.rec_group.store(first.min(group).0, Ordering::Relaxed),
        }
        // ORDERING: Relaxed, read under the latch only.
        self.meta.fetch_or(REDONE, Ordering::Relaxed);
        first.is_none()
    }

    /// Begins a copy: from here on only later changes by redo count. The caller is the cleaner and holds a shared
    /// latch.
    pub fn forget_redo(&self) {
        // ORDERING: Relaxed, both sides hold the latch.
        self.meta.fetch_and(!REDONE, Ordering::Relaxed);
    }

    /// Raises the first group of a page that has changed since it was copied. The caller is the cleaner, holds a shared
    /// latch, and has loaded `group` before the copy.
    pub fn advance_rec_group(&self, group: GroupNo) {
        if self.meta() & REDONE == 0 {
            // ORDERING: Relaxed, both the old and the new value are right for a concurrent reader.
            self.rec_group.store(group.0, Ordering::Relaxed);
        }
    }

    /// Ends the dirty state. The caller is the cleaner and holds a shared latch, or holds the exclusive one and has
    /// written the page or drops it.
    pub fn set_clean(&self) {
        // ORDERING: Release, pairs with `meta`: a thread that sees the page clean may evict it, its home being synced.
        let before = self.meta.fetch_and(!DIRTY, Ordering::Release);
        assert!(before & DIRTY != 0, "page {} was clean", self.pid());
    }
}
