//! Pointers to undo entries.

use foreshore_sync::model::mutant;

/// Bytes of a chunk. An entry lies in one chunk.
pub(super) const CHUNK: usize = 8 << 10;
/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = CHUNK / 8;

/// Where an entry lies, in the 48 bits that a tuple header has for it: a word of the arena, or null. It means something
/// only to those that cannot see what the transaction whose xid stands beside it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UndoPtr(u64);

impl UndoPtr {
    /// Leads nowhere.
    pub const NULL: Self = Self(0);

    /// A pointer from 48 bits of a tuple header.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << 48) - 1))
    }

    /// The 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the pointer to a word of a chunk.
    pub(super) const fn to(chunk: usize, word: usize) -> Self {
        Self((chunk * CHUNK_WORDS + word) as u64)
    }

    /// Returns the chunk that it points to.
    pub(super) const fn chunk(self) -> usize {
        self.0 as usize / CHUNK_WORDS
    }

    /// Returns the word in that chunk.
    pub(super) const fn word(self) -> usize {
        self.0 as usize % CHUNK_WORDS
    }
}

/// An entry that is in the file, and the place of its chunk. No entry has the same place and pointer again after it was
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(super) entry: UndoPtr,
    pub(super) place: u64,
}

impl Spot {
    /// How its answer is found.
    pub(super) fn key(self) -> Self {
        if mutant("undo: an answer is for any place of its entry") { Self { place: 0, ..self } } else { self }
    }
}
