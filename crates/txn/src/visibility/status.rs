//! The status window: what became of each recent xid, readable without a wait.

use super::pinned::PinnedXids;
use super::readers::{FrozenXids, LateXids};
use foreshore_base::{Csn, Error, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LazyArray, LockRank, Mutex, rmw};
use std::collections::BTreeMap;
use std::ops::Range;

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It runs, or it has begun to commit and its number is not settled.
    Live,
    /// No transaction has the xid, or had it.
    Spare,
    /// It was rolled back; nothing of it is left.
    Aborted,
    /// It has committed, perhaps not durably yet.
    Committed(Csn),
    /// It ended so long ago that its number is forgotten: committed and durable, or rolled back.
    Frozen,
}

/// What a snapshot sees of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Invisible,
    /// It committed with this number, or was rolled back: zero.
    Visible(Csn),
    /// It was passed by the window: visible, unless it is among [`StatusWindow::late`] with a number above the
    /// snapshot.
    Frozen,
}

// A word of the window.
//
//   bits 0..2   0 open | 1 aborted | 2 committing | 3 committed
//   bits 2..64  if open: 0 free, 1 spare, 2 live; if committing: the least number that the commit may have;
//               if committed: its CSN
//
// Xid x has word x mod capacity while lo <= x < cleared, with cleared <= lo + capacity, and while it is pinned.
//
// 1. A word is free until its xid is drawn. Under the lock of its slot a session makes what it draws spare. There it
//    takes an xid for a transaction, spare -> live, or another thread takes the xid away from the session for ever,
//    spare -> aborted. The transaction with the xid alone stores what follows: live -> aborted, or live -> committing
//    -> committed. One that logs its commit stores "committing" before it appends the record, whose LSN is its least
//    number. A reader that takes a snapshot at or above that LSN from the log's clock, or from what is durable, finds
//    "committing" or "committed".
// 2. Any reader may *push* a committing word: raise the number in it. A reader that has raised it above a snapshot may
//    call the transaction invisible to that snapshot, for its number will be at or above the one in the word. The clock
//    of commits is raised to a number that was pushed before the word becomes committed: a thread that is told of the
//    commit is at or above it in all later snapshots.
// 3. lo passes x when its word is final and, if committed, the CSN is durable. An xid below lo that is not pinned is
//    *frozen*, which is all that a reader needs but for the snapshots that are older than the commit: for those it is
//    put among the late ones first. The owner of a frozen xid never writes its word again.
// 4. lo passes x also when it is live or committing and half a window of xids was drawn after it. It is *pinned* first
//    (see [`PinnedXids`]). Its word stays where it is and changes as before; readers push it as before. The slider
//    unpins x when rule 3 allows it: it notes the late commit, then removes x from the list. It leaves the word as it
//    is.
// 5. An xid whose word was a pinned xid's when cleared was raised over it is *void*: no transaction ever has it. A
//    session that draws it finds a word that is not free, or finds lo above the xid. A word that belongs to no void xid
//    is free until it is spare, and holds lo until it is final. So a session knows what it has drawn by the word and
//    lo, whenever it looks.
// 6. The slider pins, raises lo, then stores "free" into the words passed, but for those of pinned xids, then raises
//    cleared. An xid is drawn only below cleared.
// 7. A reader loads the word, then looks again at what gave the xid that word: lo, or the list for a pinned one. If the
//    word was reset or belongs to a later xid, the reader has synchronised with a store that came after lo was raised,
//    or after x was unpinned, and finds its xid frozen. A reader that has pushed looks again, too: it may have pushed a
//    later xid in vain.
const FREE: u64 = 0;
const SPARE: u64 = 1 << 2;
const LIVE: u64 = 2 << 2;
const ABORTED: u64 = 1;
const COMMITTING: u64 = 2;
const COMMITTED: u64 = 3;

/// How an xid has its word.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// It is not below the start of the window.
    Recent,
    /// It is pinned, in this slot of the list.
    Pinned(usize),
}

/// Status words of the xids from the oldest that matters to the newest handed out.
pub(crate) struct StatusWindow {
    words: LazyArray<AtomicU64>,
    /// Contract above.
    lo: CachePadded<AtomicU64>,
    /// Contract above.
    cleared: AtomicU64,
    /// Xids below `lo` that still have their words. Changed under the mutex of `late`.
    pinned: PinnedXids,
    /// Commits that the window has passed and that are above the snapshot of some reader, which cannot tell by the xid.
    /// Held by the slider.
    late: Mutex<BTreeMap<Xid, Csn>>,
}

impl StatusWindow {
    /// A window of `capacity` words, a power of two, that starts at `first`: everything below is frozen. So many xids
    /// may be pinned as there are `sessions`, but half of the words stay for others.
    pub(crate) fn new(capacity: usize, sessions: usize, first: Xid) -> Result<Self> {
        assert!(capacity.is_power_of_two(), "words are found by a mask");
        let words =
            LazyArray::new(capacity).map_err(|source| Error::io("map memory for", "the status window", source))?;
        Ok(Self {
            words,
            lo: CachePadded::new(AtomicU64::new(first.0)),
            cleared: AtomicU64::new(first.0 + capacity as u64),
            pinned: PinnedXids::new(sessions.min(capacity / 2)),
            late: Mutex::new(LockRank::Leaf, BTreeMap::new()),
        })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.words.len()
    }

    /// The start of the window: older xids are frozen or pinned.
    pub(crate) fn lo(&self) -> Xid {
        // ORDERING: Acquire, pairs with the raise in `slide`: what froze or pinned the xids below is visible.
        Xid(self.lo.load(Ordering::Acquire))
    }

    /// Returns how many xids are pinned.
    pub(crate) fn pinned(&self) -> usize {
        self.pinned.all().count()
    }

    /// Returns which xids are frozen.
    pub(crate) fn frozen(&self) -> FrozenXids {
        // The start first: what is pinned below it is in the list, or was removed, and then it is frozen.
        let lo = self.lo();
        if mutant("status: pinned xids count as frozen") {
            return FrozenXids::from(lo);
        }
        FrozenXids { below: self.pinned.oldest().min(lo), above: self.pinned.newest(), lo }
    }

    /// The first xid that has no word yet.
    pub(crate) fn cleared(&self) -> Xid {
        // ORDERING: publish, pairs with the raise in `slide`: the word of an xid that is handed out reads as zero.
        Xid(self.cleared.load(Ordering::Acquire))
    }

    /// The status of an xid that was handed out, now or earlier.
    pub(crate) fn get(&self, xid: Xid) -> Status {
        loop {
            let Some(claim) = self.claim(xid) else { return Status::Frozen };
            // ORDERING: Acquire, pairs with `set`, so that a commit's effects are visible, and with the reset in
            // `slide`.
            let word = self.word(xid).load(Ordering::Acquire);
            if !mutant("status: no second look at the window") && !self.is_still(claim, xid) {
                continue;
            }
            match word & 3 {
                ABORTED => return Status::Aborted,
                COMMITTED => return Status::Committed(Csn(word >> 2)),
                _ if word == FREE || word == SPARE => return Status::Spare,
                // The word of a void xid is that of the pinned one. Only damaged rows name void xids.
                _ if matches!(claim, Claim::Recent) && self.is_void(xid) => return Status::Aborted,
                // ORDERING: Acquire, as above. A pinned xid that has just gone from the list left a final word.
                _ if self.word(xid).load(Ordering::Acquire) == word => return Status::Live,
                _ => {}
            }
        }
    }

    /// Returns what a snapshot at `csn` sees of `xid`, which was handed out. The same each time it is asked.
    pub(crate) fn see(&self, xid: Xid, csn: Csn) -> Sight {
        loop {
            let Some(claim) = self.claim(xid) else { return Sight::Frozen };
            let word = self.word(xid);
            // ORDERING: Acquire, as in `get`.
            let seen = word.load(Ordering::Acquire);
            if !self.is_still(claim, xid) {
                continue;
            }
            let number = Csn(seen >> 2);
            match seen & 3 {
                // What is left of it is what was there before.
                ABORTED => return Sight::Visible(Csn::ZERO),
                COMMITTED if number <= csn => return Sight::Visible(number),
                COMMITTING if number <= csn => {}
                _ => return Sight::Invisible,
            }
            if mutant("status: a commit is not pushed") {
                return Sight::Invisible;
            }
            let pushed = (csn.0 + 1) << 2 | COMMITTING;
            // ORDERING: AcqRel. Release, pairs with `commit`; Acquire, if the word is that of a later xid, its owner
            // was handed it after lo was raised. Failure: it was pushed higher or has committed, by which this loop
            // ends.
            if word.compare_exchange(seen, pushed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                && (mutant("status: no look at the window after a push") || self.is_still(claim, xid))
            {
                return Sight::Invisible;
            }
        }
    }

    /// How `xid` has its word; `None` if it is frozen.
    fn claim(&self, xid: Xid) -> Option<Claim> {
        if xid >= self.lo() {
            return Some(Claim::Recent);
        }
        self.pinned.find(xid).map(Claim::Pinned)
    }

    /// Returns whether a word that was loaded, or pushed, after `xid` had a claim to it was the word of `xid`.
    fn is_still(&self, claim: Claim, xid: Xid) -> bool {
        match claim {
            Claim::Recent => xid >= self.lo(),
            Claim::Pinned(slot) => mutant("status: no second look at the pin") || self.pinned.is_in(slot, xid),
        }
    }

    /// Returns whether the word of `xid`, which is not below the start, is that of a pinned one.
    fn is_void(&self, xid: Xid) -> bool {
        let has_its_word = |pinned| pinned != xid && self.index(pinned) == self.index(xid);
        !self.pinned.is_empty() && self.pinned.all().any(has_its_word)
    }

    /// A session has drawn `xids`, which no transaction has yet. Under the lock of its slot. Void ones stay as they
    /// are.
    pub(crate) fn set_aside(&self, xids: Range<u64>) {
        for xid in xids.map(Xid) {
            if self.is_own(xid, FREE) || mutant("status: void xids are drawn") {
                // ORDERING: Release, after lo, as the reset (rule 7): the draw came after that. Pairs with `get`.
                self.word(xid).store(SPARE, spare_order());
            }
        }
    }

    /// A transaction takes `xid` of those that its session has drawn. `false`, and nothing has changed, if it is void.
    #[must_use]
    pub(crate) fn begin(&self, xid: Xid) -> bool {
        let is_own = self.is_own(xid, SPARE);
        if is_own {
            // ORDERING: Release, as in `set_aside`. A thread that finds the xid in a header synchronises by the latch.
            self.word(xid).store(LIVE, spare_order());
        }
        is_own
    }

    /// A transaction has `xid`, which no session has set aside.
    pub(crate) fn enter(&self, xid: Xid) {
        assert!(self.is_own(xid, FREE), "{xid} is new");
        // ORDERING: Release, as in `set_aside`.
        self.word(xid).store(LIVE, spare_order());
    }

    /// No transaction will have `xid`, one of those drawn that the caller has taken away from their session.
    pub(crate) fn void(&self, xid: Xid) {
        if self.is_own(xid, SPARE) {
            self.set(xid, SPARE, ABORTED);
        }
    }

    /// Returns whether `xid`, which the caller's session has drawn, has its word, and that is `state`: rule 5.
    fn is_own(&self, xid: Xid, state: u64) -> bool {
        debug_assert!(xid < self.cleared(), "{xid} has a word");
        // ORDERING: Acquire, as in `get`: if the word was reset for a later xid, lo is above this one.
        let is_state = self.word(xid).load(Ordering::Acquire) == state;
        is_state && (mutant("status: no look at the window at a draw") || xid >= self.lo())
    }

    /// The transaction with `xid` is about to append its commit record: from here on readers push it out of their way.
    /// Its own doing, once.
    pub(crate) fn begin_commit(&self, xid: Xid) {
        debug_assert!(self.claim(xid).is_some(), "{xid} has a word");
        // ORDERING: Relaxed load, the word is the owner's while it is live.
        assert_eq!(self.word(xid).load(Ordering::Relaxed), LIVE, "{xid} runs");
        // ORDERING: Release, pairs with `see`; comes before the draw of the commit's LSN, which orders it for rule 1.
        self.word(xid).store(COMMITTING, Ordering::Release);
    }

    /// Ends the transaction with `xid`, whose commit record has the LSN `csn`. If it was pushed above that, `push`
    /// returns a number at or above the one it is given, with the clock of commits raised to it. Returns the number it
    /// commits with.
    pub(crate) fn commit(&self, xid: Xid, mut csn: Csn, mut push: impl FnMut(Csn) -> Csn) -> Csn {
        let mut word = COMMITTING;
        loop {
            let least = Csn(word >> 2);
            if least > csn && !mutant("status: a pushed commit keeps its number") {
                csn = push(least);
                assert!(csn >= least, "a commit pushed to {least} has the number {csn}");
            }
            assert!(csn.0 < 1 << 62, "a commit number has 62 bits");
            rmw::contended_at(self.word(xid));
            // ORDERING: publish, pairs with `get` and `see`; wakers of the threads that wait for the status fence after
            // it (park table). Failure: it was pushed, and the number read is all that matters.
            let set = (csn.0 << 2) | COMMITTED;
            match self.word(xid).compare_exchange(word, set, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return csn,
                Err(now) => word = now,
            }
            assert_eq!(word & 3, COMMITTING, "{xid} has begun to commit");
        }
    }

    /// Ends the transaction with `xid` as rolled back.
    pub(crate) fn abort(&self, xid: Xid) {
        self.set(xid, LIVE, ABORTED);
    }

    fn set(&self, xid: Xid, from: u64, status: u64) {
        debug_assert!(self.claim(xid).is_some(), "{xid} has a word");
        rmw::contended_at(self.word(xid));
        // ORDERING: publish, as in `commit`.
        let before = self.word(xid).swap(status, Ordering::AcqRel);
        assert_eq!(before, from, "the status of {xid} is set once");
    }

    /// Returns what a reader with a snapshot at `csn` has to know of the xids below the start of the window. That is
    /// the start, the late ones with commits above `csn`, ascending, and the pinned ones. Late ones that every reader
    /// with that snapshot knows by their size are missing.
    pub(crate) fn late_for(&self, csn: Csn) -> (Xid, Vec<Xid>, Vec<Xid>) {
        let late = self.late.lock();
        let above = late.iter().filter(|&(_, &number)| number > csn).map(|(&xid, _)| xid).collect();
        (self.lo(), above, self.pinned.all().collect())
    }

    /// The start of the window, and below it, ascending, all late commits that some reader may ask for, and the pinned
    /// xids, which have no number yet.
    pub(crate) fn late(&self) -> (Xid, LateXids) {
        let late = self.late.lock();
        let pinned = self.pinned.all().map(|xid| (xid, None));
        let mut all: Vec<_> = late.iter().map(|(&xid, &csn)| (xid, Some(csn))).chain(pinned).collect();
        all.sort_unstable();
        (self.lo(), all.into())
    }

    fn word(&self, xid: Xid) -> &AtomicU64 {
        &self.words[self.index(xid)]
    }

    fn index(&self, xid: Xid) -> usize {
        xid.0 as usize & (self.words.len() - 1)
    }
}

/// The order of the stores that come before a transaction has its xid.
fn spare_order() -> Ordering {
    // ORDERING: see its users.
    if mutant("status: relaxed spare xids") { Ordering::Relaxed } else { Ordering::Release }
}

mod slide;
#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
