//! The slide of the status window: it passes, pins and unpins xids (rules 3 to 6 of the words).
//!
//! **Protocol** of a slide, under the lock of the late commits:
//!
//! 1. Find how far the start may move, and which pinned xids are over.
//! 2. Note the late commits for the readers that need them.
//! 3. Unpin what is over, and pin what still runs.
//! 4. Raise lo.
//! 5. Store "free" into the words passed, except those of pinned xids.
//! 6. Raise cleared.

use super::{ABORTED, COMMITTED, COMMITTING, FREE, LIVE, StatusWindow};
use crate::visibility::readers::{Reader, Readers};
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use std::collections::BTreeMap;

/// The result of the search for the end of a slide.
struct Reach {
    /// The first xid that the slide does not pass.
    end: u64,
    /// The largest number of a commit that it passes.
    newest: Csn,
    /// The xids to pin.
    pinned: Vec<Xid>,
    /// The xids that it passes whose words contain no final outcome of their own: those to pin, and void ones.
    /// Ascending.
    apart: Vec<u64>,
}

impl StatusWindow {
    /// Moves the start of the window up over at most `most` xids below `next`, the first xid not handed out. Unpins the
    /// xids whose transactions have ended. Returns how many xids it has passed.
    ///
    /// The caller has read `durable` and `next` before.
    pub(crate) fn slide(&self, next: Xid, durable: Csn, most: u64, readers: &Readers) -> u64 {
        let mut late = self.late.lock();
        let lo = self.lo().0;
        let over = self.pinned.all().filter_map(|xid| Some((xid, self.past(xid, durable)?)));
        let over: Vec<(Xid, Csn)> = over.collect();
        let reach = self.reach(lo, next.0, durable, most, self.pinned.capacity() + over.len());
        assert!(
            lo <= reach.end && reach.end <= next.0.max(lo),
            "the window moves from {lo} to {}, {next} is next",
            reach.end
        );
        if reach.end == lo && over.is_empty() {
            return 0;
        }
        let pass = |late: &mut _| self.pass(lo, &reach, &over, readers, late);
        let late_first = !mutant("status: late after the window moves");
        if late_first {
            pass(&mut late);
            let newest = late.last_key_value().map(|(&xid, _)| xid);
            debug_assert!(newest.is_none_or(|xid| xid.0 < reach.end), "{newest:?} is late, the window is not past it");
        }
        over.iter().for_each(|&(xid, _)| self.pinned.remove(xid));
        let pin_first = !mutant("status: the window moves before its xids are pinned");
        if pin_first {
            reach.pinned.iter().for_each(|&xid| self.pinned.add(xid));
        }
        if !mutant("status: words reset before the window moves") {
            // ORDERING: Release, pairs with `lo`.
            self.lo.store(reach.end, Ordering::Release);
        }
        if !pin_first {
            reach.pinned.iter().for_each(|&xid| self.pinned.add(xid));
        }
        if !late_first {
            drop(late);
            pass(&mut self.late.lock());
        }
        let kept = self.pinned_words();
        for xid in (lo..reach.end).map(Xid).filter(|&xid| kept.binary_search(&self.index(xid)).is_err()) {
            debug_assert!(
                // ORDERING: Relaxed, it was read before, and is final.
                matches!(self.word(xid).load(Ordering::Relaxed) & 3, ABORTED | COMMITTED),
                "the window passes {xid}, which has not ended"
            );
            // ORDERING: Release, after lo: a reader that finds the reset finds lo raised (rule 7). Pairs with `get`.
            self.word(xid).store(FREE, Ordering::Release);
        }
        // ORDERING: as above; a no-op unless the line above was switched off.
        self.lo.store(reach.end, Ordering::Release);
        let (before, cleared) = (self.cleared().0, reach.end + self.words.len() as u64);
        assert!(before <= cleared, "the end of the window goes back from {before} to {cleared}");
        // ORDERING: publish, pairs with `cleared`.
        self.cleared.store(cleared, Ordering::Release);
        reach.end - lo
    }

    /// Returns how far the start of the window may move from `lo`, if at most `may_pin` xids are pinned.
    fn reach(&self, lo: u64, next: u64, durable: Csn, most: u64, may_pin: usize) -> Reach {
        let kept = self.pinned_words();
        let mut reach = Reach { end: lo, newest: Csn::ZERO, pinned: Vec::new(), apart: Vec::new() };
        while reach.end < next.min(lo.saturating_add(most)) {
            let xid = Xid(reach.end);
            if kept.binary_search(&self.index(xid)).is_ok() {
                reach.apart.push(xid.0);
            } else if let Some(csn) = self.past(xid, durable) {
                reach.newest = reach.newest.max(csn);
            } else if next - xid.0 >= self.words.len() as u64 / 2
                && kept.len() + reach.pinned.len() < may_pin
                && self.is_running(xid)
            {
                reach.apart.push(xid.0);
                reach.pinned.push(xid);
            } else {
                break;
            }
            reach.end += 1;
        }
        reach
    }

    /// Returns the indices of the words that belong to pinned xids, ascending.
    fn pinned_words(&self) -> Vec<usize> {
        let mut words: Vec<usize> = self.pinned.all().map(|xid| self.index(xid)).collect();
        words.sort_unstable();
        words
    }

    /// Notes the late commits: commits above the snapshot of some reader, among the xids passed from `lo` on and among
    /// the pinned xids that are `over`. Removes those for which no reader asks any more.
    ///
    /// Their number is bounded. When the oldest snapshots were taken, each of them was running or had been drawn by a
    /// session.
    fn pass(&self, lo: u64, reach: &Reach, over: &[(Xid, Csn)], readers: &Readers, late: &mut BTreeMap<Xid, Csn>) {
        // The caller has read the commit numbers before it reads the slots.
        let readers: Vec<Reader> = readers.all().collect();
        let asks = |xid, csn| readers.iter().any(|reader| reader.needs_status_of(xid, csn));
        late.retain(|&xid, &mut csn| asks(xid, csn));
        if !mutant("status: unpinned without a note") {
            late.extend(over.iter().copied().filter(|&(xid, csn)| asks(xid, csn)));
        }
        if readers.iter().all(|reader| reader.csn >= reach.newest) {
            return;
        }
        let passed = (lo..reach.end).filter(|xid| reach.apart.binary_search(xid).is_err());
        for xid in passed.map(Xid) {
            // ORDERING: Relaxed, it was read before, and is final.
            let word = self.word(xid).load(Ordering::Relaxed);
            let csn = Csn(word >> 2);
            if word & 3 == COMMITTED && asks(xid, csn) {
                late.insert(xid, csn);
            }
        }
    }

    /// Returns the commit number of an xid that no longer needs its word, zero if it was rolled back. Returns `None` if
    /// it still needs the word.
    fn past(&self, xid: Xid, durable: Csn) -> Option<Csn> {
        // ORDERING: Acquire, pairs with `commit`: the slider's raise carries the commit on to readers of lo.
        let word = self.word(xid).load(Ordering::Acquire);
        match word & 3 {
            ABORTED => Some(Csn::ZERO),
            COMMITTED => Some(Csn(word >> 2)).filter(|&csn| csn <= durable),
            _ => None,
        }
    }

    /// Returns whether a transaction has the xid and has not ended.
    fn is_running(&self, xid: Xid) -> bool {
        // ORDERING: Relaxed, the transaction may end at any time.
        let word = self.word(xid).load(Ordering::Relaxed);
        word == LIVE || word & 3 == COMMITTING
    }
}
