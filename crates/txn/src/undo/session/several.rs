//! Undo space for several changes that one record logs.
//!
//! The entries are those of single changes, and lie in the chunk that is not full and in the spare one. Their space is
//! only requested if there is some. A transaction that would have to wait for it changes its rows one by one, and the
//! limits of a transaction are those for single entries.

use super::Undo;
use crate::resource::compensation_cost;
use crate::undo::entry;
use crate::undo::holder::{SPARE, YOUNG};
use crate::undo::pointer::CHUNK_WORDS;
use foreshore_base::{Csn, Lsn};
use foreshore_sync::pause;

/// The undo space that several changes need.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeveralUndo {
    /// The words of all entries.
    words: usize,
    /// The words of the largest entry.
    most: usize,
    /// The log space of all compensations.
    undo_log: u64,
}

impl SeveralUndo {
    /// Adds a change whose entry has a body of `body` bytes, and `rest` more bytes of the value before. Returns false
    /// and adds nothing if one chunk has too little space for all entries.
    #[must_use]
    pub fn add(&mut self, body: usize, rest: usize) -> bool {
        let words = entry::words(body + rest);
        let fits = self.words + words <= CHUNK_WORDS;
        if fits {
            self.words += words;
            self.most = self.most.max(words);
            self.undo_log += compensation_cost(body);
        }
        fits
    }

    /// Returns the log space of all compensations.
    pub(crate) const fn undo_log(&self) -> u64 {
        self.undo_log
    }
}

impl Undo {
    /// Reserves space for several entries, and returns whether there is some. `horizon` is that of
    /// [`reserve`](Undo::reserve).
    pub(crate) fn try_reserve_several(&mut self, several: &SeveralUndo, horizon: impl FnOnce() -> Csn) -> bool {
        let &SeveralUndo { words, most, .. } = several;
        self.most = self.most.max(most);
        if !self.has_open() {
            self.take_from_shelf();
        }
        let fits = |place: usize| self.open[place].as_ref().is_some_and(|open| open.capacity() >= words);
        if !fits(SPARE) && !fits(YOUNG) {
            // A spare chunk with too little space is not full, and single entries still fit into it.
            if self.open[SPARE].is_some() {
                return false;
            }
            let Some(spare) = self.arena.take(words, horizon, &self.holder) else { return false };
            pause::point("undo: a chunk is in hand");
            self.open[SPARE] = Some(spare);
        }
        self.holder.set(true);
        true
    }

    /// Sets the LSNs of the newest `count` entries: that of the newest is `lsn`, and each other has the one before that
    /// of the next. Passes the length of each body to `stamped`.
    pub(crate) fn stamp_several(&mut self, count: u64, lsn: Lsn, mut stamped: impl FnMut(usize)) {
        let mut at = self.newest;
        for newer in 0..count {
            let entry = self.arena.entry(at).expect("an undoable change has an undo entry before it is logged");
            assert!(entry.lsn() == Lsn::ZERO, "an undo entry is stamped once");
            entry.set_lsn(Lsn(lsn.0 - newer));
            stamped(entry.body_len());
            at = entry.previous();
        }
    }
}
