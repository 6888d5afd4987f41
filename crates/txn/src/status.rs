//! The status window: what became of each recent xid, readable without a wait.

use foreshore_base::{Csn, Error, Lsn, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LazyArray, LockRank, Mutex, rmw};

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It runs.
    Live,
    /// It was rolled back; nothing of it is left.
    Aborted,
    /// It has committed, perhaps not durably yet.
    Committed(Csn),
    /// It ended so long ago that its number is forgotten: committed and durable, or rolled back.
    Frozen,
}

// A word of the window.
//
//   bits 0..2   0 live | 1 aborted | 2 reserved (committing) | 3 committed
//   bits 2..64  CSN, if committed
//
// Xid x has word x mod capacity while lo <= x < cleared, with cleared <= lo + capacity.
//
// 1. A word is zero when its xid is handed out. Only the transaction with that xid writes it, once: 0 -> 1 or 0 -> 3.
// 2. lo passes x only when its word is final and, if committed, the CSN is durable. So "below lo" tells a reader all it
//    needs, and no owner of a word that was passed writes it again.
// 3. The slider raises lo first, then stores zero into the words passed, then raises cleared. An xid is handed out only
//    below cleared.
// 4. A reader loads the word, then looks at lo again. If the word was reset or belongs to a later xid, the reader has
//    synchronised with a store that came after lo was raised, and finds its xid frozen.
const ABORTED: u64 = 1;
const COMMITTED: u64 = 3;

/// Status words of the xids from the oldest that matters to the newest handed out.
pub(crate) struct StatusWindow {
    words: LazyArray<AtomicU64>,
    /// Contract above.
    lo: CachePadded<AtomicU64>,
    /// Contract above.
    cleared: AtomicU64,
    /// Held by who slides.
    sliding: Mutex<()>,
}

impl StatusWindow {
    /// A window of `capacity` words, a power of two, that starts at `first`: everything below is frozen.
    pub(crate) fn new(capacity: usize, first: Xid) -> Result<Self> {
        assert!(capacity.is_power_of_two(), "words are found by a mask");
        let words = LazyArray::new(capacity).map_err(|source| Error::io("map", "the status window", source))?;
        Ok(Self {
            words,
            lo: CachePadded::new(AtomicU64::new(first.0)),
            cleared: AtomicU64::new(first.0 + capacity as u64),
            sliding: Mutex::new(LockRank::Leaf, ()),
        })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.words.len()
    }

    /// The oldest xid that has a word.
    pub(crate) fn lo(&self) -> Xid {
        // ORDERING: Acquire, pairs with the raise in `slide`: what froze the xids below is visible.
        Xid(self.lo.load(Ordering::Acquire))
    }

    /// The first xid that has no word yet.
    pub(crate) fn cleared(&self) -> Xid {
        // ORDERING: publish, pairs with the raise in `slide`: the word of an xid that is handed out reads as zero.
        Xid(self.cleared.load(Ordering::Acquire))
    }

    /// The status of an xid that was handed out, now or earlier.
    pub(crate) fn get(&self, xid: Xid) -> Status {
        if xid < self.lo() {
            return Status::Frozen;
        }
        // ORDERING: Acquire, pairs with `set`, so that a commit's effects are visible, and with the reset in `slide`.
        let word = self.word(xid).load(Ordering::Acquire);
        if !mutant("status: no second look at the window") && xid < self.lo() {
            return Status::Frozen;
        }
        match word {
            0 => Status::Live,
            ABORTED => Status::Aborted,
            _ => {
                debug_assert_eq!(word & 3, COMMITTED, "status word of {xid} is {word:#x}");
                Status::Committed(Csn(word >> 2))
            }
        }
    }

    /// Ends the transaction with `xid`. Its own doing, once.
    pub(crate) fn commit(&self, xid: Xid, csn: Csn) {
        assert!(csn.0 < 1 << 62, "a commit number has 62 bits");
        self.set(xid, csn.0 << 2 | COMMITTED);
    }

    /// Ends the transaction with `xid` as rolled back.
    pub(crate) fn abort(&self, xid: Xid) {
        self.set(xid, ABORTED);
    }

    fn set(&self, xid: Xid, status: u64) {
        debug_assert!(self.lo() <= xid && xid < self.cleared(), "{xid} has a word");
        rmw::contended(1);
        // ORDERING: publish, pairs with `get`; wakers of those who wait for the status fence after it (park table).
        let before = self.word(xid).swap(status, Ordering::AcqRel);
        assert_eq!(before, 0, "the status of {xid} is set once");
    }

    /// Moves the window's start up, over at most `most` xids below `next`, the first not handed out. Returns how many.
    pub(crate) fn slide(&self, next: Xid, durable: Lsn, most: u64) -> u64 {
        let _sliding = self.sliding.lock();
        let lo = self.lo().0;
        let mut end = lo;
        while end < next.0.min(lo.saturating_add(most)) && self.is_past(Xid(end), durable) {
            end += 1;
        }
        if end == lo {
            return 0;
        }
        if !mutant("status: words reset before the window moves") {
            // ORDERING: Release, pairs with `lo`.
            self.lo.store(end, Ordering::Release);
        }
        for xid in lo..end {
            // ORDERING: Release, after lo: a reader that finds the reset finds lo raised (rule 4). Pairs with `get`.
            self.word(Xid(xid)).store(0, Ordering::Release);
        }
        // ORDERING: as above; a no-op unless the line above was switched off.
        self.lo.store(end, Ordering::Release);
        // ORDERING: publish, pairs with `cleared`.
        self.cleared.store(end + self.words.len() as u64, Ordering::Release);
        end - lo
    }

    /// Whether an xid that was handed out needs its word no longer.
    fn is_past(&self, xid: Xid, durable: Lsn) -> bool {
        // ORDERING: Acquire, pairs with `set`: the slider's raise carries the commit on to readers of lo.
        match self.word(xid).load(Ordering::Acquire) {
            0 => false,
            ABORTED => true,
            word => Lsn(word >> 2) <= durable,
        }
    }

    fn word(&self, xid: Xid) -> &AtomicU64 {
        &self.words[xid.0 as usize & (self.words.len() - 1)]
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    fn window(capacity: usize) -> StatusWindow {
        StatusWindow::new(capacity, Xid(1)).expect("memory")
    }

    #[test]
    fn a_status_goes_from_live_to_its_end() {
        let window = window(16);
        assert_eq!(window.get(Xid(1)), Status::Live);
        window.commit(Xid(1), Csn(70));
        window.abort(Xid(2));
        window.commit(Xid(3), Csn::ZERO);
        assert_eq!(
            [1, 2, 3, 4].map(|xid| window.get(Xid(xid))),
            [Status::Committed(Csn(70)), Status::Aborted, Status::Committed(Csn::ZERO), Status::Live]
        );
    }

    #[test]
    #[should_panic(expected = "set once")]
    fn a_status_is_set_once() {
        let window = window(16);
        window.commit(Xid(1), Csn(70));
        window.abort(Xid(1));
    }

    #[test]
    fn the_window_passes_only_what_is_final_and_durable() {
        let window = window(16);
        window.commit(Xid(1), Csn(10));
        window.abort(Xid(2));
        window.commit(Xid(3), Csn(30));
        window.commit(Xid(5), Csn(20));
        assert_eq!(window.slide(Xid(6), Lsn(9), 100), 0, "the first is not durable");
        assert_eq!(window.slide(Xid(6), Lsn(25), 1), 1, "no more than asked for");
        assert_eq!(window.slide(Xid(6), Lsn(25), 100), 1, "the third is not durable");
        assert_eq!((window.lo(), window.cleared()), (Xid(3), Xid(19)));
        assert_eq!(window.slide(Xid(6), Lsn(30), 100), 1, "the fourth runs");
        assert_eq!(window.get(Xid(3)), Status::Frozen);
        window.abort(Xid(4));
        assert_eq!(window.slide(Xid(6), Lsn(30), 100), 2);
        assert_eq!(window.slide(Xid(6), Lsn(30), 100), 0, "the sixth was not handed out");
        assert_eq!((window.lo(), window.cleared()), (Xid(6), Xid(22)));
    }

    #[test]
    fn a_word_is_used_again_as_new() {
        let window = window(16);
        for xid in (1..200).map(Xid) {
            assert!(xid < window.cleared());
            assert_eq!(window.get(xid), Status::Live, "{xid}");
            window.commit(xid, Csn(xid.0 * 10));
            assert_eq!(window.get(xid), Status::Committed(Csn(xid.0 * 10)));
            window.slide(Xid(xid.0 + 1), Lsn(xid.0 * 10), 100);
            assert_eq!(window.get(xid), Status::Frozen);
        }
    }
}
