//! The states of a chunk of undo memory, and the descriptor of each chunk.
//!
//! ```text
//!            start            donate
//!   Unused ---------> Held <---------> Donated
//!     ^ ^              | |   take         |
//!     | |              | +----+  +--------+
//!     | +--------------+      v  v
//!     +-------------------- Closed, ClosedKept <--> Leaving
//!     |                                              |   |
//!     +--------------------------- Filed <-----------+   |
//!                                    ^----- FiledShared <+
//! ```
//!
//! | state | holder | place |
//! |---|---|---|
//! | `Unused` | no session | memory, or none if its memory was given back |
//! | `Held` | one session, which fills it or keeps it between transactions | memory |
//! | `Donated` | any session may take it and fill the rest | memory |
//! | `Closed` | no session, and none fills it any more | memory |
//! | `ClosedKept` | as `Closed`; it has only versions that old snapshots may need | memory |
//! | `Leaving` | the thread that moves chunks to the spill file | memory, read only |
//! | `FiledShared` | running transactions have entries in it | the spill file |
//! | `Filed` | only old readers need it | the spill file |
//!
//! **Invariant:** the state changes only under the mutex of the arena's lists, and only as `State::leads_to` allows.
//! Debug builds check each change. A donated chunk may also become unused.

use super::pointer::CHUNK_WORDS;
use foreshore_base::Csn;
use foreshore_sync::LazyArray;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::io;

/// The state of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum State {
    Unused,
    Held,
    Donated,
    Closed,
    ClosedKept,
    Leaving,
    Filed,
    FiledShared,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Unused,
        Self::Held,
        Self::Donated,
        Self::Closed,
        Self::ClosedKept,
        Self::Leaving,
        Self::Filed,
        Self::FiledShared,
    ];

    /// Returns whether a chunk may go from this state to `to`. This is the transition table.
    const fn leads_to(self, to: Self) -> bool {
        use State::{Closed, ClosedKept, Donated, Filed, FiledShared, Held, Leaving, Unused};
        match self {
            Unused => matches!(to, Held),
            Held => matches!(to, Donated | Closed | ClosedKept | Unused),
            Donated => matches!(to, Held | Closed | ClosedKept | Unused),
            Closed | ClosedKept => matches!(to, Leaving | Unused),
            Leaving => matches!(to, Closed | ClosedKept | Filed | FiledShared),
            FiledShared => matches!(to, Filed),
            Filed => matches!(to, Unused),
        }
    }

    /// Returns whether a session may still enter changes in the chunk.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Held | Self::Donated)
    }
}

// The descriptor of a chunk: eight atomic words, in a cache line of their own.
//
//   state      see above
//   newest     the largest commit number of a transaction with entries in it
//   shared     the transactions that have entries in it, have not ended, and do not hold it
//   spillable  how many of the `shared` allow it to be spilled
//   left       the entries not yet dropped; until the chunk is closed, 0 minus the dropped ones, modulo 2^64
//   place      where readers find it:
//                HOME      in memory
//                LEAVING   in memory, and about to be moved: only read
//                2, 4 ..   in the file, at `slot` and with the checksum `sum`, which are stored before;
//                          each move stores a new even number
//
// 1. Only the holder of a chunk writes entries into it.
// 2. A closed chunk gets no more entries, so `shared` only falls. A spillable share ends only under the mutex.
// 3. A chunk that no session holds is freed when `shared` is zero, and `left` is zero or `newest` is old enough. While
//    `shared` is zero and no session holds the chunk, `newest` is final and `left` only falls.
// 4. place, HOME -> LEAVING -> 2n, or back to HOME if the write failed: by the thread that moves chunks. There is at
//    most one such thread at a time.
// 5. place, 2n -> HOME: when the chunk is freed. The snapshots that needed it have ended or been cancelled before.
const STATE: usize = 0;
const NEWEST: usize = 1;
const SHARED: usize = 2;
const SPILLABLE: usize = 3;
const LEFT: usize = 4;
const PLACE: usize = 5;
const SLOT: usize = 6;
const SUM: usize = 7;
const WORDS: usize = 8;

pub(super) const HOME: u64 = 0;
pub(super) const LEAVING: u64 = 1;

/// The descriptors of all chunks.
#[derive(Debug)]
pub(super) struct Chunks(LazyArray<AtomicU64>);

impl Chunks {
    /// Returns the descriptors of `count` chunks, all unused.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        LazyArray::new(count * WORDS).map(Self)
    }

    fn word(&self, chunk: usize, field: usize) -> &AtomicU64 {
        &self.0[chunk * WORDS + field]
    }

    fn load(&self, chunk: usize, field: usize) -> u64 {
        // ORDERING: Relaxed, under the mutex of the lists, or as the caller says.
        self.word(chunk, field).load(Ordering::Relaxed)
    }

    fn store(&self, chunk: usize, field: usize, value: u64) {
        // ORDERING: Relaxed, under the mutex of the lists, or as the caller says.
        self.word(chunk, field).store(value, Ordering::Relaxed);
    }

    /// Returns the state. Called under the mutex.
    pub(super) fn state(&self, chunk: usize) -> State {
        State::ALL[self.load(chunk, STATE) as usize]
    }

    /// Changes the state, and returns the state before. Called under the mutex.
    pub(super) fn set_state(&self, chunk: usize, to: State) -> State {
        let from = self.state(chunk);
        debug_assert!(from.leads_to(to), "chunk {chunk} goes from {from:?} to {to:?}");
        self.store(chunk, STATE, to as u64);
        from
    }

    /// Makes a chunk unused. Called under the mutex.
    pub(super) fn reset(&self, chunk: usize) {
        let shared = self.load(chunk, SHARED);
        assert_eq!(shared, 0, "{shared} transactions have entries in chunk {chunk}, which is freed");
        self.set_state(chunk, State::Unused);
        self.store(chunk, LEFT, 0);
        self.store(chunk, NEWEST, 0);
    }

    /// Counts a transaction that has entries in a chunk and stops holding it. Called under the mutex.
    pub(super) fn share(&self, chunk: usize) {
        // ORDERING: Relaxed, the mutex orders it before the load in `shared`.
        self.word(chunk, SHARED).fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a share: the transaction has ended with commit number `csn`, or has no entries in the chunk any more.
    pub(super) fn unshare(&self, chunk: usize, csn: Csn) {
        self.note_newest(chunk, csn);
        // ORDERING: Release, pairs with `shared`.
        let before = self.word(chunk, SHARED).fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a share of chunk {chunk} ends, and there is none");
    }

    /// Returns how many transactions share a chunk. If none does, the newest commit is final.
    pub(super) fn shared(&self, chunk: usize) -> u64 {
        // ORDERING: Acquire, pairs with `unshare`.
        self.word(chunk, SHARED).load(Ordering::Acquire)
    }

    /// Makes one share of a closed chunk spillable. Called under the mutex.
    pub(super) fn let_spill(&self, chunk: usize) {
        let (state, shared, spillable) = (self.state(chunk), self.shared(chunk), self.load(chunk, SPILLABLE));
        assert!(
            !state.is_open() && spillable < shared,
            "{spillable} of {shared} shares of a {state:?} chunk are spillable already"
        );
        self.store(chunk, SPILLABLE, spillable + 1);
    }

    /// Ends `count` spillable shares of one transaction. Called under the mutex.
    pub(super) fn unshare_spillable(&self, chunk: usize, count: u64, csn: Csn) {
        let spillable = self.load(chunk, SPILLABLE);
        assert!(count <= spillable, "{count} spillable shares of chunk {chunk} end, and there are {spillable}");
        self.store(chunk, SPILLABLE, spillable - count);
        (0..count).for_each(|_| self.unshare(chunk, csn));
    }

    /// Returns whether all shares of a chunk are spillable. Called under the mutex.
    pub(super) fn is_spillable(&self, chunk: usize) -> bool {
        self.load(chunk, SPILLABLE) == self.shared(chunk) || mutant("undo: a chunk leaves unasked")
    }

    /// Raises the newest commit with entries in a chunk. The end of the share, or the mutex, orders the access.
    pub(super) fn note_newest(&self, chunk: usize, csn: Csn) {
        // ORDERING: Relaxed, see above.
        self.word(chunk, NEWEST).fetch_max(csn.0, Ordering::Relaxed);
    }

    /// Returns the newest commit with entries in a chunk. The result is a hint while transactions share the chunk.
    pub(super) fn newest(&self, chunk: usize) -> Csn {
        Csn(self.load(chunk, NEWEST))
    }

    /// Counts the entries of a chunk that is being closed. Called under the mutex.
    pub(super) fn add_left(&self, chunk: usize, entries: u64) {
        // ORDERING: Relaxed, the mutex orders it before the load in `needed_up_to`.
        self.word(chunk, LEFT).fetch_add(entries, Ordering::Relaxed);
    }

    /// Drops an entry that no pointer leads to any more.
    pub(super) fn drop_entry(&self, chunk: usize) {
        // ORDERING: Release, pairs with `needed_up_to`.
        self.word(chunk, LEFT).fetch_sub(1, Ordering::Release);
    }

    /// Returns the commit up to which old readers need the entries of a chunk that gets no entry meanwhile. Returns
    /// zero if no entry is left, and `None` while transactions share the chunk. Called under the mutex.
    ///
    /// `entries` and `newest`: what the chunk's words do not include yet.
    pub(super) fn needed_up_to(&self, chunk: usize, entries: u64, newest: Csn) -> Option<Csn> {
        if self.shared(chunk) > 0 {
            return None;
        }
        // ORDERING: Acquire, pairs with `drop_entry`: the thread that dropped the last one has unlinked it.
        if self.word(chunk, LEFT).load(Ordering::Acquire).wrapping_add(entries) == 0 {
            return Some(Csn::ZERO);
        }
        Some(newest.max(self.newest(chunk)))
    }

    /// Returns the place of a chunk. The slot and the checksum of that place are visible to the caller afterwards.
    pub(super) fn place(&self, chunk: usize) -> u64 {
        // ORDERING: Acquire, pairs with `set_place`.
        self.word(chunk, PLACE).load(Ordering::Acquire)
    }

    /// Loads the place of a chunk again, after a fence of the caller. Returns whether `accepts` holds for it.
    pub(super) fn place_matches(&self, chunk: usize, accepts: impl FnOnce(u64) -> bool) -> bool {
        accepts(self.load(chunk, PLACE))
    }

    /// Stores the place of a chunk, and publishes all stores before it.
    pub(super) fn set_place(&self, chunk: usize, place: u64) {
        // ORDERING: publish, pairs with `place`.
        self.word(chunk, PLACE).store(place, Ordering::Release);
    }

    /// Returns the slot in the file, and the checksum of its bytes. If the place has not changed since the caller
    /// loaded it, they belong to that place.
    pub(super) fn slot_and_sum(&self, chunk: usize) -> (u64, u64) {
        (self.load(chunk, SLOT), self.load(chunk, SUM))
    }

    /// Stores the slot and the checksum of a chunk that is being moved. Called before the place is stored.
    pub(super) fn set_slot_and_sum(&self, chunk: usize, slot: u64, sum: u64) {
        self.store(chunk, SLOT, slot);
        self.store(chunk, SUM, sum);
    }
}

/// A chunk that a session fills or has donated.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) chunk: usize,
    /// The first free word.
    pub(super) at: usize,
    /// The number of entries written since it was last unused.
    pub(super) entries: u64,
    /// The newest commit of the transactions that ended while they held it.
    pub(super) newest: Csn,
    /// Whether the running transaction has entries in it.
    pub(super) mine: bool,
    /// Whether all entries are kept for old readers.
    pub(super) kept: bool,
}

impl Open {
    /// Returns an empty chunk.
    pub(super) const fn new(chunk: usize) -> Self {
        Self { chunk, at: 0, entries: 0, newest: Csn::ZERO, mine: false, kept: true }
    }

    /// Returns how many words are free.
    pub(super) const fn capacity(&self) -> usize {
        CHUNK_WORDS - self.at
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table_is_as_listed_here() {
        use State::{Closed, ClosedKept, Donated, Filed, FiledShared, Held, Leaving, Unused};
        let table: [(State, &[State]); 8] = [
            (Unused, &[Held]),
            (Held, &[Unused, Donated, Closed, ClosedKept]),
            (Donated, &[Unused, Held, Closed, ClosedKept]),
            (Closed, &[Unused, Leaving]),
            (ClosedKept, &[Unused, Leaving]),
            (Leaving, &[Closed, ClosedKept, Filed, FiledShared]),
            (Filed, &[Unused]),
            (FiledShared, &[Filed]),
        ];
        for (from, next) in table {
            let allowed: Vec<State> = State::ALL.into_iter().filter(|&to| from.leads_to(to)).collect();
            assert_eq!(allowed, next, "from {from:?}");
        }
        assert!(State::ALL.iter().enumerate().all(|(at, &state)| state as usize == at), "states are read by number");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "goes from Unused to Filed")]
    fn a_chunk_reaches_the_file_only_through_leaving() {
        Chunks::new(2).expect("memory").set_state(1, State::Filed);
    }

    #[test]
    fn a_chunk_is_needed_while_it_is_shared_and_then_up_to_its_newest_commit() {
        let chunks = Chunks::new(2).expect("memory");
        chunks.share(1);
        assert_eq!(chunks.needed_up_to(1, 3, Csn(7)), None);
        chunks.unshare(1, Csn(9));
        assert_eq!(chunks.needed_up_to(1, 3, Csn(7)), Some(Csn(9)));
        (0..3).for_each(|_| chunks.drop_entry(1));
        assert_eq!(chunks.needed_up_to(1, 3, Csn(7)), Some(Csn::ZERO), "all were dropped");
    }
}
