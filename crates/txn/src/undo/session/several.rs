//! Undo space for several changes that one record logs.
//!
//! The entries are those of single changes, and lie in the chunk that is not full and in the spare one. Their space is
//! only requested if there is some. A transaction that would have to wait for it changes its rows one by one, and the
//! limits of a transaction are those for single entries.

use super::Undo;
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
    /// Adds an entry of `bytes`, whose compensation takes `undo_log` bytes of log. Returns false and adds nothing if
    /// one chunk has too little space for all entries.
    pub(crate) fn add_entry(&mut self, bytes: usize, undo_log: u64) -> bool {
        let words = entry::words(bytes);
        let fits = self.words + words <= CHUNK_WORDS;
        if fits {
            self.words += words;
            self.most = self.most.max(words);
            self.undo_log += undo_log;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_added_up_as_far_as_one_chunk_has_space() {
        let (mut several, mut words, mut undo_log) = (SeveralUndo::default(), 0, 0);
        for bytes in (120..).step_by(7) {
            words += entry::words(bytes);
            let before = several.undo_log();
            assert_eq!(before, undo_log);
            let fits = several.add_entry(bytes, bytes as u64 + 1);
            assert_eq!(fits, words <= CHUNK_WORDS, "{words} words");
            if !fits {
                assert_eq!((several.undo_log(), several.most), (before, entry::words(bytes - 7)));
                break;
            }
            undo_log += bytes as u64 + 1;
        }
        assert!(several.words > CHUNK_WORDS / 2 && several.words <= CHUNK_WORDS, "{} words", several.words);
    }
}
