//! Pointers to undo entries.

use foreshore_sync::model::mutant;

/// Bytes of a chunk. No entry extends over two chunks.
pub(super) const CHUNK: usize = 8 << 10;
/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = CHUNK / 8;

/// Pointer to an undo entry: the number of a word in the arena, or null. A tuple header has 48 bits for it.
///
/// The same header has the xid of a transaction. The pointer has a meaning only for readers that do not see the changes
/// of that transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UndoPtr(u64);

impl UndoPtr {
    /// The null pointer, which points to no entry.
    pub const NULL: Self = Self(0);

    /// Stands for the entry of a row that its writer has loaded with many others: there was no row before. It is no
    /// place in the arena, so it is never read, pruned or dropped.
    pub const ABSENT: Self = Self((1 << 48) - 1);

    /// Decodes the pointer from 48 bits of a tuple header.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << 48) - 1))
    }

    /// Returns the 48 bits for a tuple header.
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

    /// Returns the number of its word in that chunk.
    pub(super) const fn word(self) -> usize {
        self.0 as usize % CHUNK_WORDS
    }
}

/// An entry in the spill file, and the place of its chunk there. Once an entry is dropped, no other entry ever has the
/// same pointer and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(super) entry: UndoPtr,
    pub(super) place: u64,
}

impl Spot {
    /// Returns the key of the fetched answer to a search that begins at this entry.
    pub(super) fn key(self) -> Self {
        if mutant("undo: an answer is for any place of its entry") { Self { place: 0, ..self } } else { self }
    }
}
