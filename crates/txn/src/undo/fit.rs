//! Whether a transaction fits into the undo memory alone: only one that does not is too large.

use super::Undo;
use super::arena::{Arena, CHUNK_WORDS, WORTH_FILLING};
use super::spill::BOOKED;

impl Arena {
    /// Words that the entries of one transaction may have for which one more entry is sure to fit in memory, if no other transaction
    /// enters anything. `most`: the largest room that it asks for.
    ///
    /// A refusal finds all chunks taken. A chunk is passed over by a transaction only where it has less room than was asked for, or
    /// too little to be left to others. So each chunk without entries of others has at least the words that are counted here.
    fn sure_words(&self, most: usize) -> usize {
        let (booked, passed_over) = match &self.spill {
            Some(spill) => (spill.chunks.div_ceil(BOOKED), CHUNK_WORDS / 2),
            None => (0, WORTH_FILLING),
        };
        self.limit.saturating_sub(booked) * (CHUNK_WORDS - most.max(passed_over))
    }
}

impl Undo {
    /// Whether the transaction, with the entry that it has just asked for, is sure to fit if no other enters anything.
    pub(crate) fn fits_alone(&self) -> bool {
        self.words <= self.arena.sure_words(self.most)
    }
}
