//! Fixing without locks: what `nbgclock` does otherwise than the rest of the pool.
//!
//! Every guard, an optimistic one too, pins its page, and pin and use are counted by one compare-and-swap of the word of
//! the frame. A page that nobody pins and that the hand has counted down leaves by another, without a latch. Several
//! threads may read the same missing page, and the first to be done wins. From Yui, Miyazaki, Uemura and Yamana, "Nb-GCLOCK: A
//! Non-blocking Buffer Management based on the Generalized CLOCK" (ICDE 2010); uses are capped in the same exchange and the
//! hand is shared, which its authors' code does not do.
//!
//! # The state machine
//!
//! Fields of the word in [`crate::frame`]. A step changes what its row names and nothing else; debug builds check each one
//! ([`transition_allowed`]).
//!
//! | step | by | from | to |
//! |---|---|---|---|
//! | enter | who has taken the free frame and put it into the page table | EVICTED | LOADING, `uses` initial, or 0 for a scan |
//! | fix | anyone who comes from the page table | not EVICTED | `pins` + 1, `uses` + 1 up to the cap, but not by a scan |
//! | unfix | who fixed | `pins` > 0 | `pins` - 1 |
//! | load | the first who has read the page | LOADING, `pins` > 0 | not LOADING |
//! | age | the hand | `pins` = 0, `uses` > 0 | `uses` - 1 |
//! | evict | who looks for a frame | `pins` = 0, `uses` = 0, not DIRTY | EVICTED, nothing else |
//!
//! DIRTY and REDONE change beside them, as in every other mode: set with a pin held, so no page with a lost change is evicted. So
//! does PASSING, which is set before a page enters and says nothing about who may evict, and `recently`, but that the
//! fix that reads a page is no use of one that was there.
//!
//! 1. Only who evicts takes the page out of the table, clears the page id and passes the frame on, with one exception: who
//!    finds the entry of an evicted page, and the thread that evicts it out of step, takes the entry out. It holds the latch
//!    shared meanwhile, and a free frame gets a page under the exclusive latch only, so the entry is the one it saw.
//! 2. A page is read with its frame pinned and in the table. So nobody can bring in an image from before a change that was
//!    made, written home and evicted meanwhile: the frame would have had to go in between.

use crate::format::blank_page;
use crate::frame::{
    DIRTY, EVICTED, Frame, FrameNo, Kept, LOADING, MAIN, PASSING, PINS, RECENTLY, REDONE, USE, USES, used,
};
use crate::guard::{ExclusiveGuard, Slot};
use crate::load::Fill;
use crate::passing::Wanted;
use crate::pool::Core;
use crate::table::PageTable;
use foreshore_base::PageId;
use foreshore_sync::ParkTable;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;

/// Whether the state machine has a step from the word `from` to the word `to`.
pub fn transition_allowed(from: u32, to: u32) -> bool {
    // What changes beside the machine is left out, and so is a field that only others use.
    let [from, to] = [from, to].map(|word| word & !(REDONE | MAIN | PASSING | RECENTLY));
    let (pins, uses) = (from & PINS, from & USES);
    if from & EVICTED != 0 {
        return from == EVICTED && to & !USES == LOADING;
    }
    let fixed = to == from + 1 && pins < PINS || to == from + 1 + USE && pins < PINS && uses < USES;
    let unfixed = pins > 0 && to == from - 1;
    let loaded = pins > 0 && from & LOADING != 0 && to == from & !LOADING;
    let aged = pins == 0 && uses > 0 && to == from - USE;
    let evicted = from & !LOADING == 0 && to == EVICTED;
    fixed || unfixed || loaded || aged || evicted
}

#[track_caller]
fn check(from: u32, to: u32) {
    debug_assert!(transition_allowed(from, to), "no step leads from {from:#010x} to {to:#010x}");
}

impl Frame {
    /// Makes a new frame a free one.
    pub fn start_evicted(&self) {
        // ORDERING: Relaxed, nobody knows the frame yet.
        self.meta.store(EVICTED, Ordering::Relaxed);
    }

    /// enter. The caller holds the exclusive latch of the frame and has put it into the page table.
    pub fn enter(&self, uses: u8) {
        let change = EVICTED | LOADING | (u32::from(uses) * USE);
        // ORDERING: Release, pairs with `fix`: the page id is seen by who fixes.
        let from = self.meta.fetch_xor(change, Ordering::Release);
        check(from, from ^ change);
    }

    /// fix. False if the page has left.
    #[inline]
    pub fn fix(&self, cap: u8) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut from = self.meta.load(Ordering::Relaxed);
        while from & EVICTED == 0 || mutant("nbgclock: fix an evicted page") {
            assert!(from & PINS < PINS, "too many pins on page {}", self.pid());
            let to = if cap > 0 { used(from, cap) + 1 } else { from + 1 };
            // ORDERING: Acquire, pairs with `enter` (the page id) and `loaded` (the bytes).
            match self.meta.compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    check(from, to);
                    return true;
                }
                Err(now) => from = now,
            }
        }
        false
    }

    /// load. The caller holds the exclusive latch and a pin, and has put the page into the frame.
    pub fn loaded(&self) {
        // ORDERING: Release, pairs with `fix` and `is_loading`: the bytes are seen by who reads on.
        let from = self.meta.fetch_and(!(LOADING | RECENTLY), Ordering::Release);
        check(from, from & !(LOADING | RECENTLY));
    }

    /// age. True if the page is to be spared: it is fixed, or passing, or has a use left, or its word changes just now.
    pub fn cool(&self) -> bool {
        // ORDERING: Relaxed, a count that orders nothing.
        let from = self.meta.load(Ordering::Relaxed);
        if from & (EVICTED | PASSING | PINS) != 0 {
            return true;
        }
        if from & USES == 0 {
            return false;
        }
        // ORDERING: as above.
        if self.meta.compare_exchange(from, from - USE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            check(from, from - USE);
        }
        true
    }

    /// evict. After it the frame is the caller's, and with it the page.
    pub fn try_evict(&self) -> Result<PageId, Kept> {
        // ORDERING: Relaxed, the exchange below decides.
        let from = self.meta.load(Ordering::Relaxed);
        if from & DIRTY != 0 {
            return Err(Kept::Dirty);
        }
        let kept = if mutant("nbgclock: evict a fixed page") { EVICTED } else { EVICTED | USES | PINS };
        if from & kept != 0 {
            return Err(Kept::Busy);
        }
        let to = EVICTED | from & PINS;
        // ORDERING: Acquire, pairs with `unpin`: what was done under pins comes before the frame changes hands. Release: who
        // finds the page evicted finds its id as it was.
        let evicted = self.meta.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if evicted {
            check(from, to);
        }
        if evicted { Ok(self.pid()) } else { Err(Kept::Busy) }
    }

    /// Takes the entry of the page `pid`, evicted from this frame by a thread that has yet to do so, out of the table.
    pub fn help_evict(&self, table: &PageTable, parks: &ParkTable, pid: PageId, no: FrameNo) {
        // WAIT: help - does what the thread that evicts has yet to do; parks for one that puts a page into the frame, who has
        // the latch for a few instructions.
        self.latch.lock_shared(parks);
        if self.is_evicted() && self.pid() == pid || mutant("nbgclock: help without a look") {
            table.remove_if(pid, no);
        }
        self.latch.unlock_shared(parks);
    }

    /// Whether the frame is on its way from one page to the next.
    pub fn is_evicted(&self) -> bool {
        // ORDERING: Acquire, pairs with `try_evict`.
        self.meta.load(Ordering::Acquire) & EVICTED != 0
    }
}

/// Uses that a fix counts up to, and that a page comes in with.
#[inline]
fn counted(uses: u8, wanted: Wanted) -> u8 {
    match wanted {
        Wanted::Again => uses,
        Wanted::Once => 0,
    }
}

/// A pin that a guard holds in this mode; nothing in the others.
#[derive(Debug, Default)]
pub(crate) struct Hold<'a>(Option<&'a Frame>);

impl<'a> Hold<'a> {
    /// Another pin of a page that is pinned, if guards pin.
    pub(crate) fn again(slot: Slot<'a>) -> Self {
        if slot.core.uses.with_pin().is_none() {
            return Self(None);
        }
        slot.frame().pin();
        Self(Some(slot.frame()))
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(frame) = self.0 {
            frame.unpin();
        }
    }
}

impl Core {
    /// What a guard must hold before it looks at the latch of the frame in which the table has `pid`; `None` if the page has
    /// left the frame since. The page is in the frame then, in this mode; in the others it is so once the latch is held.
    #[inline]
    pub(crate) fn hold<'a>(
        &'a self,
        slot: Slot<'a>,
        pid: PageId,
        fill: Fill,
        wanted: Wanted,
    ) -> foreshore_base::Result<Option<Hold<'a>>> {
        match self.uses.with_pin() {
            None => Ok((slot.frame().pid() == pid).then(Hold::default)),
            Some(cap) => self.fix(slot, pid, counted(cap, wanted), fill),
        }
    }

    /// As [`Core::hold`], but does nothing about a page that has left or that nobody has read yet.
    #[inline]
    pub(crate) fn hold_found<'a>(&'a self, slot: Slot<'a>, pid: PageId, wanted: Wanted) -> Option<Hold<'a>> {
        let Some(cap) = self.uses.with_pin() else { return Some(Hold::default()) };
        let frame = slot.frame();
        if !frame.fix(counted(cap, wanted)) {
            return None;
        }
        let hold = Hold(Some(frame));
        (frame.pid() == pid && !frame.is_loading()).then_some(hold)
    }

    fn fix<'a>(&'a self, slot: Slot<'a>, pid: PageId, cap: u8, fill: Fill) -> foreshore_base::Result<Option<Hold<'a>>> {
        let frame = slot.frame();
        if !frame.fix(cap) {
            frame.help_evict(&self.table, &self.parks, pid, slot.no());
            return Ok(None);
        }
        let hold = Hold(Some(frame));
        if frame.pid() != pid {
            return Ok(None);
        }
        if frame.is_loading() {
            self.read_fixed(slot, pid, fill)?;
        }
        Ok(Some(hold))
    }

    /// Reads the page into a frame that the caller has fixed, unless somebody else is done before.
    #[cold]
    fn read_fixed(&self, slot: Slot<'_>, pid: PageId, fill: Fill) -> foreshore_base::Result<()> {
        self.counters.misses.add(1);
        let page = self.fetch(pid, fill)?;
        let frame = slot.frame();
        // WAIT: park - for another who has read the page too, while it copies.
        frame.latch.lock_exclusive(&self.parks);
        let mut guard = ExclusiveGuard::adopt(slot, false);
        if frame.is_loading() {
            match page {
                Some(page) => guard.put(&page),
                None => guard.put(&blank_page(pid)),
            }
            frame.loaded();
            if !frame.is_passing() {
                self.replacer.on_load(&self.frames, slot.no(), pid);
            }
        } else if matches!(fill, Fill::Read | Fill::ReadOrQuarantined) {
            self.counters.reads_redundant.add(1);
        }
        Ok(())
    }

    /// Gives `pid` a frame, if nobody else does first; what is in it comes later.
    pub(crate) fn claim(&self, pid: PageId, uses: u8, wanted: Wanted) -> foreshore_base::Result<()> {
        let no = self.take_frame()?;
        let frame = &self.frames[no as usize];
        frame.set_pid(pid);
        if !self.table.insert(pid, no) {
            self.give_back(no);
            return Ok(());
        }
        self.on_arrival(no, pid, wanted);
        frame.enter(counted(uses, wanted));
        // The version moves, as whenever a frame changes hands.
        frame.latch.unlock_exclusive(&self.parks);
        Ok(())
    }

    /// Evicts the page of a frame, if it may go.
    pub(crate) fn try_evict_unlatched(&self, no: FrameNo) -> Result<(), Kept> {
        let frame = &self.frames[no as usize];
        let pid = frame.try_evict()?;
        self.replacer.on_evict(&self.frames, no, pid);
        self.table.remove_if(pid, no);
        frame.set_pid(PageId::ZERO);
        self.counters.evictions.add(1);
        self.push_free(no);
        Ok(())
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    const TWO: u32 = 2 * USE;
    const THREE: u32 = 3 * USE;
    const FIVE: u32 = 5 * USE;

    #[test]
    fn steps_that_the_table_does_not_name_are_refused() {
        let allowed = [
            (EVICTED, LOADING | USE),
            (LOADING | USE, LOADING | TWO | 1),
            (FIVE | 2, FIVE | 3),
            (THREE | DIRTY | 2, THREE | DIRTY | 1),
            (LOADING | USE | 1, USE | 1),
            (DIRTY | TWO, DIRTY | USE),
            (0, EVICTED),
            (LOADING, EVICTED),
        ];
        let refused = [
            (EVICTED, EVICTED | 1),
            (EVICTED, USE),
            (1, EVICTED),
            (USE, EVICTED),
            (DIRTY, EVICTED),
            (0, 0),
            (0, 2),
            (USE, u32::MAX),
            (LOADING | USE, USE),
            (USE | 1, 1),
            (PINS, PINS + 1),
            (TWO, 0),
        ];
        assert!(allowed.iter().all(|&(from, to)| transition_allowed(from, to)));
        for (from, to) in refused {
            assert!(!transition_allowed(from, to), "{from:#x} to {to:#x}");
        }
    }

    #[test]
    fn a_page_leaves_once_it_is_neither_fixed_nor_used_nor_dirty() {
        let frame = Frame::new();
        frame.start_evicted();
        assert!(!frame.fix(5) && frame.try_evict().is_err() && frame.cool());
        frame.enter(1);
        for _ in 0..9 {
            assert!(frame.fix(5));
        }
        assert_eq!(frame.uses(), 5);
        frame.loaded();
        assert!(frame.cool() && frame.uses() == 5, "fixed pages do not age");
        (0..9).for_each(|_| frame.unpin());
        assert_eq!(frame.try_evict(), Err(Kept::Busy), "used");
        assert!((0..5).all(|_| frame.cool()) && !frame.cool());
        assert!(frame.fix(5) && frame.try_evict().is_err(), "fixed");
        frame.unpin();
        assert!(
            frame.cool() && !frame.cool() && frame.try_evict().is_ok() && frame.try_evict().is_err() && !frame.fix(5)
        );
    }
}
