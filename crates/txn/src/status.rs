//! The status window: what became of each recent xid, readable without a wait.

use crate::readers::{Reader, Readers};
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
    /// A session has drawn the xid, and no transaction has it.
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
    /// It was passed by the window: visible, unless it is among [`StatusWindow::late`] with a number above the snapshot.
    Frozen,
}

// A word of the window.
//
//   bits 0..2   0 live | 1 aborted | 2 committing | 3 committed
//   bits 2..64  CSN, if committed; the least that it may be, if committing; 1 for a spare xid, which is live otherwise
//
// Xid x has word x mod capacity while lo <= x < cleared, with cleared <= lo + capacity.
//
// 1. A word is zero when its xid is drawn. Under the lock of its slot a session makes what it draws spare, and there it takes
//    an xid for a transaction, or somebody takes it away from the session for ever and stores 1 in place of spare. The
//    transaction with the xid alone stores 0 in place of spare, 1 or 2 in place of 0, and 3 in place of 2. One that logs its
//    commit stores 2 before it appends the record, whose LSN is its least number. So who reads a snapshot at or above that LSN
//    from the log's clock, or from what is durable, finds 2 or 3.
// 2. Anybody may *push* a committing one: raise the number in the word. Who has raised it above a snapshot may call the
//    transaction invisible to that snapshot, for its number will be at or above the one in the word. The clock of commits
//    is raised to a number that was pushed before the word becomes 3: who is told of the commit is at or above it in all
//    later snapshots.
// 3. lo passes x only when its word is final and, if committed, the CSN is durable. So "below lo" tells a reader all it
//    needs but for the snapshots that are older than the commit: for those it is put among the late ones first. No owner of a
//    word that was passed writes it again.
// 4. The slider raises lo first, then stores zero into the words passed, then raises cleared. An xid is handed out only
//    below cleared.
// 5. A reader loads the word, then looks at lo again. If the word was reset or belongs to a later xid, the reader has
//    synchronised with a store that came after lo was raised, and finds its xid frozen. The same goes for one that has
//    pushed: it may have pushed a later xid in vain.
const SPARE: u64 = 1 << 2;
const ABORTED: u64 = 1;
const COMMITTING: u64 = 2;
const COMMITTED: u64 = 3;

/// Status words of the xids from the oldest that matters to the newest handed out.
pub(crate) struct StatusWindow {
    words: LazyArray<AtomicU64>,
    /// Contract above.
    lo: CachePadded<AtomicU64>,
    /// Contract above.
    cleared: AtomicU64,
    /// Commits that the window has passed and that are above the snapshot of some reader, who cannot tell by the xid. Held by who
    /// slides.
    late: Mutex<BTreeMap<Xid, Csn>>,
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
            late: Mutex::new(LockRank::Leaf, BTreeMap::new()),
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
        match word & 3 {
            ABORTED => Status::Aborted,
            COMMITTED => Status::Committed(Csn(word >> 2)),
            _ if word == SPARE => Status::Spare,
            _ => Status::Live,
        }
    }

    /// What a snapshot at `csn` sees of `xid`, which was handed out. The same each time it is asked.
    pub(crate) fn see(&self, xid: Xid, csn: Csn) -> Sight {
        loop {
            if xid < self.lo() {
                return Sight::Frozen;
            }
            let word = self.word(xid);
            // ORDERING: Acquire, as in `get`.
            let seen = word.load(Ordering::Acquire);
            if xid < self.lo() {
                return Sight::Frozen;
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
            // ORDERING: AcqRel. Release, pairs with `commit`; Acquire, if the word is that of a later xid, its owner was handed it
            // after lo was raised. Failure: it was pushed higher or has committed, by which this loop ends.
            if word.compare_exchange(seen, pushed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                && (mutant("status: no look at the window after a push") || xid >= self.lo())
            {
                return Sight::Invisible;
            }
        }
    }

    /// A session has drawn `xids`, which no transaction has yet. Under the lock of its slot.
    pub(crate) fn set_aside(&self, xids: Range<u64>) {
        for xid in xids.map(Xid) {
            debug_assert!(self.lo() <= xid && xid < self.cleared(), "{xid} has a word");
            // ORDERING: Release, after lo, as the reset (rule 5): the draw came after that. Pairs with `get`.
            self.word(xid).store(SPARE, spare_order());
        }
    }

    /// A transaction has taken `xid` of those set aside.
    pub(crate) fn begin(&self, xid: Xid) {
        // ORDERING: Relaxed, stored by this session.
        debug_assert_eq!(self.word(xid).load(Ordering::Relaxed), SPARE, "{xid} was set aside");
        // ORDERING: Release, as in `set_aside`. Who finds the xid in a header synchronises by the latch.
        self.word(xid).store(0, spare_order());
    }

    /// No transaction will have `xid`, one of those set aside that the caller has taken away.
    pub(crate) fn void(&self, xid: Xid) {
        self.set(xid, SPARE, ABORTED);
    }

    /// The transaction with `xid` is about to append its commit record: from here on readers push it out of their way. Its
    /// own doing, once.
    pub(crate) fn begin_commit(&self, xid: Xid) {
        debug_assert!(self.lo() <= xid && xid < self.cleared(), "{xid} has a word");
        // ORDERING: Relaxed load, the word is the owner's while it is live.
        assert_eq!(self.word(xid).load(Ordering::Relaxed), 0, "{xid} runs");
        // ORDERING: Release, pairs with `see`; comes before the draw of the commit's LSN, which orders it for rule 1.
        self.word(xid).store(COMMITTING, Ordering::Release);
    }

    /// Ends the transaction with `xid`, whose commit record has the LSN `csn`. If it was pushed above that, `lift` returns a
    /// number at or above the one it is given, with the clock of commits raised to it. Returns the number it commits with.
    pub(crate) fn commit(&self, xid: Xid, mut csn: Csn, mut lift: impl FnMut(Csn) -> Csn) -> Csn {
        let mut word = COMMITTING;
        loop {
            let least = Csn(word >> 2);
            if least > csn && !mutant("status: a pushed commit keeps its number") {
                csn = lift(least);
                assert!(csn >= least, "a commit pushed to {least} has the number {csn}");
            }
            assert!(csn.0 < 1 << 62, "a commit number has 62 bits");
            rmw::contended_at(self.word(xid));
            // ORDERING: publish, pairs with `get` and `see`; wakers of those who wait for the status fence after it (park
            // table). Failure: it was pushed, and the number read is all that matters.
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
        self.set(xid, 0, ABORTED);
    }

    fn set(&self, xid: Xid, from: u64, status: u64) {
        debug_assert!(self.lo() <= xid && xid < self.cleared(), "{xid} has a word");
        rmw::contended_at(self.word(xid));
        // ORDERING: publish, as in `commit`.
        let before = self.word(xid).swap(status, Ordering::AcqRel);
        assert_eq!(before, from, "the status of {xid} is set once");
    }

    /// Moves the window's start up, over at most `most` xids below `next`, the first not handed out. Returns how many.
    /// `durable` was read before, as was `next`.
    pub(crate) fn slide(&self, next: Xid, durable: Csn, most: u64, readers: &Readers) -> u64 {
        let mut late = self.late.lock();
        let lo = self.lo().0;
        let (mut end, mut newest) = (lo, Csn::ZERO);
        while end < next.0.min(lo.saturating_add(most)) {
            let Some(csn) = self.past(Xid(end), durable) else { break };
            (end, newest) = (end + 1, newest.max(csn));
        }
        if end == lo {
            return 0;
        }
        let late_first = !mutant("status: late after the window moves");
        if late_first {
            self.pass(lo..end, newest, readers, &mut late);
        }
        if !mutant("status: words reset before the window moves") {
            // ORDERING: Release, pairs with `lo`.
            self.lo.store(end, Ordering::Release);
        }
        if !late_first {
            drop(late);
            self.pass(lo..end, newest, readers, &mut self.late.lock());
        }
        for xid in lo..end {
            // ORDERING: Release, after lo: a reader that finds the reset finds lo raised (rule 5). Pairs with `get`.
            self.word(Xid(xid)).store(0, Ordering::Release);
        }
        // ORDERING: as above; a no-op unless the line above was switched off.
        self.lo.store(end, Ordering::Release);
        // ORDERING: publish, pairs with `cleared`.
        self.cleared.store(end + self.words.len() as u64, Ordering::Release);
        end - lo
    }

    /// Notes for the readers which of the xids, all past, commits above their snapshots were, and forgets what no reader
    /// asks for any more. How many are noted is bounded by what ran, and what sessions had drawn, when the oldest snapshots were
    /// taken.
    fn pass(&self, xids: Range<u64>, newest: Csn, readers: &Readers, late: &mut BTreeMap<Xid, Csn>) {
        // The commit numbers were read before.
        let readers: Vec<Reader> = readers.all().collect();
        let asks = |xid, csn| readers.iter().any(|reader| reader.asks_for(xid, csn));
        late.retain(|&xid, &mut csn| asks(xid, csn));
        if readers.iter().all(|reader| reader.csn >= newest) {
            return;
        }
        for xid in xids.map(Xid) {
            // ORDERING: Relaxed, it was read before, and is final.
            let word = self.word(xid).load(Ordering::Relaxed);
            let csn = Csn(word >> 2);
            if word & 3 == COMMITTED && asks(xid, csn) {
                late.insert(xid, csn);
            }
        }
    }

    /// The commit number of an xid that was handed out and needs its word no longer, zero if it was rolled back.
    fn past(&self, xid: Xid, durable: Csn) -> Option<Csn> {
        // ORDERING: Acquire, pairs with `commit`: the slider's raise carries the commit on to readers of lo.
        let word = self.word(xid).load(Ordering::Acquire);
        match word & 3 {
            ABORTED => Some(Csn::ZERO),
            COMMITTED => Some(Csn(word >> 2)).filter(|&csn| csn <= durable),
            _ => None,
        }
    }

    /// Xids that the window has passed and whose commits are above `csn`, ascending, but for those that every reader with that
    /// snapshot knows by their size; and the start of the window: they are all below it that there are.
    pub(crate) fn late_for(&self, csn: Csn) -> (Xid, Vec<Xid>) {
        let late = self.late.lock();
        (self.lo(), late.iter().filter(|&(_, &number)| number > csn).map(|(&xid, _)| xid).collect())
    }

    /// The start of the window, and all late commits below it that some reader may ask for, ascending.
    pub(crate) fn late(&self) -> (Xid, Box<[(Xid, Csn)]>) {
        let late = self.late.lock();
        (self.lo(), late.iter().map(|(&xid, &csn)| (xid, csn)).collect())
    }

    fn word(&self, xid: Xid) -> &AtomicU64 {
        &self.words[xid.0 as usize & (self.words.len() - 1)]
    }
}

/// The order of the stores that come before a transaction has its xid.
fn spare_order() -> Ordering {
    // ORDERING: see its users.
    if mutant("status: relaxed spare xids") { Ordering::Relaxed } else { Ordering::Release }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
#[path = "status/tests.rs"]
mod tests;
