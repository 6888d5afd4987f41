//! A frame and the steps of its word.
//!
//! | step | by | from | to |
//! |---|---|---|---|
//! | fix | a thread that comes from the page table | not EVICTED | `pins` + 1, `uses` + 1 up to the cap |
//! | unfix | a thread that has fixed | `pins` > 0 | `pins` - 1 |
//! | load | a thread that has read the page | `pins` > 0 | not LOADING |
//! | age | the hand | `pins` = 0, `uses` > 0 | `uses` - 1 |
//! | evict | a thread that needs a frame | `pins` = 0, `uses` = 0 | EVICTED, nothing else |
//! | enter | the thread that evicted | EVICTED | LOADING, one pin, the first uses |
//! | withdraw | the thread that entered, if another has entered the page elsewhere | `pins` > 0 | `uses` = 0 |
//!
//! A step changes what its row names and nothing else.

use super::table::Entry;
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

// The word.
//
//   31       30        29  24 23    20 19            0
//  +---------+---------+-----+--------+---------------+
//  | EVICTED | LOADING |  0  |  uses  |     pins      |
//  +---------+---------+-----+--------+---------------+
//
// EVICTED: the frame belongs to the thread that evicted its page, until it enters another.
// LOADING: the page has not been read yet.
//
// 1. `page` and `turn` are stored by the thread to which an EVICTED frame belongs, and published as the page enters.
//    They do not change under a pin.
// 2. `turn` is raised each time a page enters. An entry of the page table carries it, so that a thread with a stale
//    entry neither takes the page for another nor removes a new entry. It wraps after 2^32 pages in one frame.
const PINS: u32 = (1 << 20) - 1;
const USE: u32 = 1 << 20;
const USES: u32 = 15 * USE;
const LOADING: u32 = 1 << 30;
const EVICTED: u32 = 1 << 31;

/// State of one frame; its bytes are in the arena of the pool.
#[derive(Debug)]
#[repr(align(64))]
pub struct Frame {
    word: AtomicU32,
    turn: AtomicU32,
    page: AtomicU64,
}

#[track_caller]
fn check(from: u32, to: u32) {
    debug_assert!(is_step(from, to), "no step leads from {from:#010x} to {to:#010x}");
}

/// Returns whether the table above has a step from the word `from` to the word `to`.
fn is_step(from: u32, to: u32) -> bool {
    let (pins, uses) = (from & PINS, from & USES);
    if from & EVICTED != 0 {
        return from == EVICTED && to & !USES == LOADING | 1;
    }
    let fixed = to == from + 1 && pins < PINS || to == from + 1 + USE && pins < PINS && uses < USES;
    let unfixed = pins > 0 && to == from - 1;
    let loaded = pins > 0 && to == from & !LOADING;
    let withdrawn = pins > 0 && to == from & !USES;
    let aged = pins == 0 && uses > 0 && to == from - USE;
    let evicted = from & !LOADING == 0 && to == EVICTED;
    fixed || unfixed || loaded || withdrawn || aged || evicted
}

impl Frame {
    /// Makes a frame that has never had a page; the hand may evict it.
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0), turn: AtomicU32::new(0), page: AtomicU64::new(0) }
    }

    /// Step *fix*. Returns false if the frame no longer holds the page of the entry.
    #[inline]
    pub fn fix(&self, entry: Entry, cap: u8) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let mut from = self.word.load(Ordering::Relaxed);
        while from & EVICTED == 0 || mutant("nbgclock: fix an evicted page") {
            assert!(from & PINS < PINS, "too many pins");
            let counts = from & USES < u32::from(cap) * USE;
            let to = from + 1 + if counts { USE } else { 0 };
            // ORDERING: Acquire, pairs with `enter` (page and turn) and `loaded` (the bytes).
            match self.word.compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    check(from, to);
                    if self.turn() == entry.turn {
                        return true;
                    }
                    self.unfix();
                    return false;
                }
                Err(now) => from = now,
            }
        }
        false
    }

    /// Step *unfix*.
    #[inline]
    pub fn unfix(&self) {
        // ORDERING: Release, pairs with `try_evict`: uses under the pin come before the frame changes hands.
        let from = self.word.fetch_sub(1, Ordering::Release);
        assert!(from & PINS != 0, "page {} was not fixed", self.page());
    }

    /// Returns whether no thread has loaded the page. The caller has it fixed.
    #[inline]
    pub fn is_loading(&self) -> bool {
        // ORDERING: Acquire, pairs with `loaded`.
        self.word.load(Ordering::Acquire) & LOADING != 0
    }

    /// Step *load*. The caller has the page fixed and has put its bytes into the frame. Returns false if another
    /// thread was first.
    pub fn loaded(&self) -> bool {
        // ORDERING: Release, pairs with `fix` and `is_loading`: a thread that continues sees the bytes.
        let from = self.word.fetch_and(!LOADING, Ordering::Release);
        assert!(from & PINS != 0, "page {} was loaded by a thread that had not fixed it", self.page());
        from & LOADING != 0
    }

    /// Step *age*. Returns true if the page is spared: it is fixed, has a use left, or its word is changing.
    pub fn age(&self) -> bool {
        // ORDERING: Relaxed, a count that orders nothing.
        let from = self.word.load(Ordering::Relaxed);
        if from & (EVICTED | PINS) != 0 {
            return true;
        }
        if from & USES == 0 {
            return false;
        }
        // ORDERING: as above.
        if self.word.compare_exchange(from, from - USE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            check(from, from - USE);
        }
        true
    }

    /// Step *evict*. Returns true if the frame now belongs to the caller.
    pub fn try_evict(&self) -> bool {
        // ORDERING: Relaxed, the exchange below decides.
        let from = self.word.load(Ordering::Relaxed);
        let kept = if mutant("nbgclock: evict a fixed page") { EVICTED } else { EVICTED | USES | PINS };
        if from & kept != 0 {
            return false;
        }
        let to = EVICTED | from & PINS;
        // ORDERING: Acquire, pairs with `unfix`: uses under pins come before the frame changes hands.
        let evicted = self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if evicted {
            check(from, to);
        }
        evicted
    }

    /// Step *enter*. The frame belongs to the caller, which has the page fixed afterwards. Returns the turn for the
    /// page's entry.
    pub fn enter(&self, page: PageId, uses: u8) -> u32 {
        let turn = self.turn().wrapping_add(u32::from(!mutant("nbgclock: pages without turns")));
        // ORDERING: Relaxed, published by the last store.
        self.turn.store(turn, Ordering::Relaxed);
        // ORDERING: as above.
        self.page.store(page.0, Ordering::Relaxed);
        let to = LOADING | 1 | (u32::from(uses) * USE);
        // ORDERING: Release, pairs with `fix`.
        let from = self.word.swap(to, Ordering::Release);
        assert_eq!(from, EVICTED, "the frame belongs to the thread that enters page {page}");
        turn
    }

    /// Step *withdraw*. The frame keeps the page, without an entry, until the hand passes.
    pub fn withdraw(&self) {
        // ORDERING: Relaxed, a count that orders nothing.
        let from = self.word.fetch_and(!USES, Ordering::Relaxed);
        check(from, from & !USES);
    }

    /// Returns the page in the frame. The caller has it fixed, or the frame belongs to the caller.
    pub fn page(&self) -> PageId {
        // ORDERING: Relaxed, see rule 1 above.
        PageId(self.page.load(Ordering::Relaxed))
    }

    /// Returns the turn of the frame: the number of the page among those that it has had. As [`Frame::page`].
    pub fn turn(&self) -> u32 {
        // ORDERING: Relaxed, see rule 1 above.
        self.turn.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    const TWO: u32 = 2 * USE;

    #[test]
    fn steps_that_the_table_does_not_name_are_refused() {
        let allowed = [
            (EVICTED, LOADING | USE | 1),
            (LOADING | USE, LOADING | TWO | 1),
            (TWO | 2, TWO | 3),
            (LOADING | USE | 1, USE | 1),
            (TWO | 1, 1),
            (TWO, USE),
            (0, EVICTED),
            (LOADING, EVICTED),
        ];
        let refused = [
            (EVICTED, EVICTED | 1),
            (EVICTED, USE),
            (EVICTED, LOADING),
            (1, EVICTED),
            (USE, EVICTED),
            (0, 2),
            (USE, u32::MAX),
            (LOADING | USE, USE),
            (PINS, PINS + 1),
            (TWO, 0),
        ];
        assert!(allowed.iter().all(|&(from, to)| is_step(from, to)));
        for (from, to) in refused {
            assert!(!is_step(from, to), "{from:#x} to {to:#x}");
        }
    }

    #[test]
    fn a_page_leaves_once_it_is_neither_fixed_nor_used() {
        let frame = Frame::new();
        assert!(!frame.age() && frame.try_evict() && !frame.try_evict() && frame.age());
        let entry = Entry { no: 0, turn: frame.enter(PageId(7), 1) };
        frame.loaded();
        assert!((0..9).all(|_| frame.fix(entry, 5)));
        assert!(frame.age() && !frame.try_evict(), "fixed");
        (0..10).for_each(|_| frame.unfix());
        assert!(!frame.try_evict(), "used");
        assert!((0..5).all(|_| frame.age()) && !frame.age(), "fixed pages do not age, and five uses count");
        assert!(frame.fix(entry, 5) && !frame.try_evict());
        frame.unfix();
        assert!(frame.age() && frame.try_evict() && !frame.fix(entry, 5));
        frame.enter(PageId(7), 1);
        assert!(!frame.fix(entry, 5), "an entry of the turn before");
    }
}
