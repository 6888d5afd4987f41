//! The status window: the outcome of each recent transaction, readable without a wait.
//!
//! The window has one word per recent xid. Older xids are *frozen* or *pinned*. The contract of the words is below.

use super::earlier::Earlier;
use super::pinned::PinnedXids;
use super::readers::{FrozenXids, LateXids};
use foreshore_base::{Csn, Error, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LazyArray, LockRank, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It runs, or it has begun to commit and its number is not final.
    Live,
    /// No transaction has had the xid so far.
    Spare,
    /// It was rolled back, and nothing of it is left.
    Aborted,
    /// It has committed, perhaps not durably yet.
    Committed(Csn),
    /// It ended so long ago that its number is forgotten. It has committed durably, or was rolled back.
    Frozen,
}

/// The answer whether a snapshot sees a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Invisible,
    /// It has committed with this number. Zero if it was rolled back.
    Visible(Csn),
    /// The window has passed its xid. It is visible, unless [`StatusWindow::late`] has it with a number above the
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
// 1. A word is free until its xid is drawn. A session that draws xids makes their words spare, under the lock of its
//    slot. Under that lock the session later takes an xid for a transaction, spare -> live. Or another thread takes the
//    xid away from the session for good, spare -> aborted. Only the transaction with the xid stores what follows: live
//    -> aborted, or live -> committing -> committed. A transaction that logs its commit stores "committing" before it
//    appends the record. The record's LSN is the least number of the commit. So a snapshot at or above that LSN, from
//    the log's clock or from what is durable, finds "committing" or "committed".
// 2. Any reader may *push* a committing word: raise the number in it. The number of the commit will be at or above the
//    one in the word. So a reader that has raised it above a snapshot may call the transaction invisible to that
//    snapshot. Before a pushed word becomes committed, the clock of commits is raised to the number pushed. So later
//    snapshots of a thread that was told of the commit are at or above it.
// 3. lo passes x when its word is final and, if committed, the CSN is durable. An xid below lo that is not pinned is
//    *frozen*. Only snapshots older than the commit need more than that, and for them x is put among the late commits
//    first. The owner of a frozen xid never writes its word again.
// 4. lo also passes a live or committing x, once half a window of later xids was drawn. x is *pinned* first (see
//    [`PinnedXids`]). Its word stays in place and changes as before, and readers push it as before. The slider unpins x
//    when rule 3 allows it: it notes the late commit, then removes x from the list. It leaves the word as it is.
// 5. If cleared is raised over an xid whose word belongs to a pinned xid, the first is *void*: no transaction ever has
//    it. A session that draws it finds that the word is not free, or that lo is above the xid. The word of an xid that
//    is not void is free until it is spare. lo does not pass such an xid before its word is final or it is pinned. So
//    the word and lo tell a session at any time whether an xid that it has drawn is void.
// 6. The slider pins, raises lo, then stores "free" into the words passed, except those of pinned xids. Then it raises
//    cleared. An xid is drawn only below cleared.
// 7. A reader loads the word, and then checks again what gave the xid that word: lo, or the list for a pinned xid. The
//    word may have been reset, or belong to a later xid. Then the reader has synchronised with a store after lo was
//    raised or x was unpinned, so it finds its xid frozen. A reader that has pushed checks again, too: it may have
//    pushed the word of a later xid.
const FREE: u64 = 0;
const SPARE: u64 = 1 << 2;
const LIVE: u64 = 2 << 2;
const ABORTED: u64 = 1;
const COMMITTING: u64 = 2;
const COMMITTED: u64 = 3;

/// The reason why an xid is not frozen: mostly that it has a word.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// It is at or above the start of the window.
    Recent,
    /// It is pinned, and this is its slot in the list.
    Pinned(usize),
    /// It has none. It belongs to the previous run, and may still be undone.
    Earlier,
}

/// The status words of all recent xids, up to the newest that was handed out.
pub(crate) struct StatusWindow {
    words: LazyArray<AtomicU64>,
    /// The first xid of this run.
    first: Xid,
    /// Contract above.
    lo: CachePadded<AtomicU64>,
    /// Contract above.
    cleared: AtomicU64,
    /// Xids below `lo` that still have their words. Changed under the mutex of `late`.
    pinned: PinnedXids,
    /// The commits that the window has passed and that are above the snapshot of some reader. The xid alone does not
    /// tell such a reader that it does not see them. The slider holds the lock.
    late: Mutex<BTreeMap<Xid, Csn>>,
}

impl StatusWindow {
    /// Returns a window of `capacity` words, a power of two, that starts at `first`. All older xids are frozen. At most
    /// `sessions` xids may be pinned, but half of the words stay for others.
    pub(crate) fn new(capacity: usize, sessions: usize, first: Xid) -> Result<Self> {
        assert!(capacity.is_power_of_two(), "words are found by a mask");
        let words =
            LazyArray::new(capacity).map_err(|source| Error::io("map memory for", "the status window", source))?;
        Ok(Self {
            words,
            first,
            lo: CachePadded::new(AtomicU64::new(first.0)),
            cleared: AtomicU64::new(first.0 + capacity as u64),
            pinned: PinnedXids::new(sessions.min(capacity / 2)),
            late: Mutex::new(LockRank::Leaf, BTreeMap::new()),
        })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.words.len()
    }

    /// Returns the start of the window. Older xids are frozen or pinned.
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
        // The start first: an xid pinned below it is in the list, or was removed from it and is frozen.
        let lo = self.lo();
        if mutant("status: pinned xids count as frozen") {
            return FrozenXids::from(lo);
        }
        FrozenXids { below: self.pinned.oldest().min(lo), above: self.pinned.newest(), lo }
    }

    /// Returns the first xid that has no word yet.
    pub(crate) fn cleared(&self) -> Xid {
        // ORDERING: publish, pairs with the raise in `slide`: the word of an xid that is handed out reads as zero.
        Xid(self.cleared.load(Ordering::Acquire))
    }

    /// Returns the status of an xid that was handed out at some time.
    pub(crate) fn get(&self, xid: Xid) -> Status {
        loop {
            let Some(claim) = self.claim(xid) else { return Status::Frozen };
            if matches!(claim, Claim::Earlier) {
                return Status::Live;
            }
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
                // The word of a void xid belongs to the pinned one. Only damaged rows contain void xids.
                _ if matches!(claim, Claim::Recent) && self.is_void(xid) => return Status::Aborted,
                // ORDERING: Acquire, as above. A pinned xid that has just gone from the list left a final word.
                _ if self.word(xid).load(Ordering::Acquire) == word => return Status::Live,
                _ => {}
            }
        }
    }

    /// Returns whether a snapshot at `csn` sees `xid`, which was handed out. The answer is the same each time.
    pub(crate) fn see(&self, xid: Xid, csn: Csn) -> Sight {
        loop {
            let claim = match self.claim(xid) {
                Some(Claim::Earlier) => return Sight::Invisible,
                Some(claim) => claim,
                // No commit of the previous run is above a snapshot of this one.
                None if xid < self.first => return Sight::Visible(Csn::ZERO),
                None => return Sight::Frozen,
            };
            let word = self.word(xid);
            // ORDERING: Acquire, as in `get`.
            let seen = word.load(Ordering::Acquire);
            if !self.is_still(claim, xid) {
                continue;
            }
            let number = Csn(seen >> 2);
            match seen & 3 {
                // Rows with its xid contain what was there before.
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

    /// Returns the reason why `xid` is not frozen; `None` if it is.
    fn claim(&self, xid: Xid) -> Option<Claim> {
        if xid >= self.lo() {
            return Some(Claim::Recent);
        }
        if xid < self.first {
            return self.pinned.has_earlier(xid).then_some(Claim::Earlier);
        }
        self.pinned.find(xid).map(Claim::Pinned)
    }

    /// Returns whether a word belonged to `xid` when the caller loaded or pushed it. The caller has got `claim` before
    /// that.
    fn is_still(&self, claim: Claim, xid: Xid) -> bool {
        match claim {
            Claim::Recent => xid >= self.lo(),
            Claim::Pinned(slot) => mutant("status: no second look at the pin") || self.pinned.still_has(slot, xid),
            Claim::Earlier => unreachable!("it has no word"),
        }
    }

    /// Returns whether the word of `xid`, which is not below the start, belongs to a pinned xid.
    fn is_void(&self, xid: Xid) -> bool {
        let has_its_word = |pinned| pinned != xid && self.index(pinned) == self.index(xid);
        !self.pinned.is_empty() && self.pinned.all().any(has_its_word)
    }

    /// Makes the words of `xids` spare, which a session has drawn. Void ones stay as they are. Called under the lock of
    /// the session's slot.
    pub(crate) fn set_aside(&self, xids: Range<u64>) {
        for xid in xids.map(Xid) {
            if self.is_own(xid, FREE) || mutant("status: void xids are drawn") {
                // ORDERING: Release, after lo, as the reset (rule 7): the draw came after that. Pairs with `get`.
                self.word(xid).store(SPARE, spare_order());
            }
        }
    }

    /// Takes `xid`, which the session has drawn, for a transaction. Returns `false` and changes nothing if it is void.
    #[must_use]
    pub(crate) fn begin(&self, xid: Xid) -> bool {
        let is_own = self.is_own(xid, SPARE);
        if is_own {
            // ORDERING: Release, as in `set_aside`. A thread that finds the xid in a header synchronises by the latch.
            self.word(xid).store(LIVE, spare_order());
        }
        is_own
    }

    /// Takes `xid` for a transaction. No session has set it aside.
    pub(crate) fn enter(&self, xid: Xid) {
        assert!(self.is_own(xid, FREE), "{xid} is new");
        // ORDERING: Release, as in `set_aside`.
        self.word(xid).store(LIVE, spare_order());
    }

    /// Ends the use of `xid`, which the caller has taken away from the session that drew it. No transaction will have
    /// it.
    pub(crate) fn void(&self, xid: Xid) {
        if self.is_own(xid, SPARE) {
            self.set(xid, SPARE, ABORTED);
        }
    }

    /// Returns whether `xid`, which the caller's session has drawn, has its own word and that word is `state` (rule 5).
    fn is_own(&self, xid: Xid, state: u64) -> bool {
        debug_assert!(xid < self.cleared(), "{xid} has a word");
        // ORDERING: Acquire, as in `get`: if the word was reset for a later xid, lo is above this one.
        let is_state = self.word(xid).load(Ordering::Acquire) == state;
        is_state && (mutant("status: no look at the window at a draw") || xid >= self.lo())
    }

    /// Marks the transaction with `xid` as committing. It is about to append its commit record, and readers may push it
    /// from now on. Called once, by the transaction itself.
    pub(crate) fn begin_commit(&self, xid: Xid) {
        debug_assert!(self.claim(xid).is_some(), "{xid} has a word");
        // ORDERING: Relaxed load, the word is the owner's while it is live.
        assert_eq!(self.word(xid).load(Ordering::Relaxed), LIVE, "{xid} runs");
        // ORDERING: Release, pairs with `see`; comes before the draw of the commit's LSN, which orders it for rule 1.
        self.word(xid).store(COMMITTING, Ordering::Release);
    }

    /// Ends the transaction with `xid`, whose commit record has the LSN `csn`. Returns the number that it commits with.
    ///
    /// If readers pushed it above `csn`, `push` is called with the number pushed. It returns that number or a higher
    /// one, and has raised the clock of commits to the result.
    pub(crate) fn commit(&self, xid: Xid, mut csn: Csn, mut push: impl FnMut(Csn) -> Csn) -> Csn {
        let mut word = COMMITTING;
        loop {
            let least = Csn(word >> 2);
            if least > csn && !mutant("status: a pushed commit keeps its number") {
                csn = push(least);
                assert!(csn >= least, "a commit pushed to {least} has the number {csn}");
            }
            assert!(csn.0 < 1 << 62, "a commit number has 62 bits");
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
        // ORDERING: publish, as in `commit`.
        let before = self.word(xid).swap(status, Ordering::AcqRel);
        assert_eq!(before, from, "the status of {xid} is set once");
    }

    /// Returns the start of the window, the late commits above `csn` in ascending order, and the pinned xids. For those
    /// of the previous run the first one stands.
    ///
    /// A reader with a snapshot at `csn` has to know no more of the xids below the start. Late commits that each reader
    /// with that snapshot recognises by their xid are left out.
    pub(crate) fn late_for(&self, csn: Csn) -> (Xid, Vec<Xid>, Vec<Xid>) {
        let late = self.late.lock();
        let above = late.iter().filter(|&(_, &number)| number > csn).map(|(&xid, _)| xid).collect();
        let earlier = self.pinned.earlier().map(Earlier::first);
        (self.lo(), above, self.pinned.all().chain(earlier).collect())
    }

    /// Returns the start of the window and the late and pinned xids below it, ascending. These are all late commits for
    /// which some reader may ask, and the pinned xids, which have no number yet.
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

/// Returns the ordering of the stores that come before a transaction has its xid.
fn spare_order() -> Ordering {
    // ORDERING: see its users.
    if mutant("status: relaxed spare xids") { Ordering::Relaxed } else { Ordering::Release }
}

mod previous;
mod slide;
#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
