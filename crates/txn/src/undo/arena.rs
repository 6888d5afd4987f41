//! The memory of all undo: chunks of one arena.
//!
//! A session fills chunks, each by itself. A chunk that is full is **closed** and stays until nobody needs an entry in it:
//! the transactions that have entries there have ended, and either every entry has been dropped or no snapshot is older
//! than the newest of their commits. Its memory is used again and never given back while the arena lives, so who follows
//! a stale pointer reads words, if nonsense, and finds out afterwards that what led there has changed.
//!
//! Where memory is short sessions do not sit on chunks between operations: they leave those that have room for others to
//! fill. So small transactions can be many times more than chunks.
//!
//! Closed chunks may be moved to a file (see [`super::spill`]), and their memory is then given to others.

use super::UndoPtr;
use super::queue::Holder;
use super::spill::{BOOKED, KEPT, MIXED, OPEN, Slots, Spill, SpillFile};
use foreshore_base::{Csn, Error, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{ByteArena, EventCount, LazyArray, LockRank, Mutex, ShardedCounter, Word, rmw};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// Bytes of a chunk. An entry lies in one chunk.
pub(super) const CHUNK: usize = 8 << 10;
/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = CHUNK / 8;
/// A chunk with fewer words left is not worth filling by others.
pub(super) const WORTH_FILLING: usize = 64;
/// Closed chunks that are looked at whenever a chunk is taken: more than one, so that the search for those that can be
/// used again keeps up.
const LOOKS: usize = 8;

// Words about a chunk, a cache line of its own.
//
//   newest  the largest commit number of a transaction with entries in it; raised by those who have lent it, and when it is closed
//   lent    transactions that have entries in it, have not ended, and do not hold it
//   kind    what is in it when it is full; see `spill`, as for `place`, `slot`, `sum` and `agreed`
//   left    entries that nobody has dropped; modulo 2^64 too small by the number of entries until the chunk is closed
//
// 1. Only the holder of a chunk writes entries into it. Chunks change hands under the mutex of `Lists`.
// 2. A chunk on the list of closed ones is used again when `lent` is zero, and `left` is zero or `newest` old enough: all
//    three are final for entries of transactions that have ended, but for `left`, which only falls.
pub(super) const NEWEST: usize = 0;
pub(super) const LENT: usize = 1;
pub(super) const LEFT: usize = 2;
pub(super) const KIND: usize = 3;
pub(super) const PLACE: usize = 4;
pub(super) const SLOT: usize = 5;
pub(super) const SUM: usize = 6;
pub(super) const AGREED: usize = 7;
const STATE_WORDS: usize = 8;

/// Chunks that a session takes within an operation or two.
const PER_SESSION: usize = 2;

/// A chunk that somebody fills.
#[derive(Debug)]
pub(crate) struct Open {
    pub(super) chunk: usize,
    /// The first free word.
    pub(super) at: usize,
    /// Entries that it got since it was used again.
    pub(super) entries: u64,
    /// The newest commit of a transaction that has ended holding it.
    pub(super) newest: Csn,
    /// Whether the transaction that runs has entries in it.
    pub(super) mine: bool,
    /// Whether all entries were entered for old readers.
    pub(super) kept: bool,
}

impl Open {
    pub(super) const fn room(&self) -> usize {
        CHUNK_WORDS - self.at
    }
}

#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Those that nobody uses.
    free: Vec<usize>,
    /// Those that nobody uses and whose memory others have.
    absent: Vec<usize>,
    /// Chunks from this one on have never been used.
    fresh: usize,
    /// Those that were left with room in them.
    pub(super) partial: Vec<Open>,
    pub(super) closed: VecDeque<usize>,
    /// Those in the file in which no transaction that runs has entries, by their newest commit.
    pub(super) away: BinaryHeap<Reverse<(u64, usize)>>,
    /// Those that are used and in memory. With those in `free`, and what is kept of those in the file, they are never more than
    /// the limit.
    pub(super) used: usize,
    pub(super) slots: Slots,
    /// One for each session.
    pub(super) sessions: Vec<Arc<Holder>>,
    /// Sessions that wait for memory.
    pub(super) queue: VecDeque<Arc<Holder>>,
    /// Whether the first of them looks for memory just now.
    pub(super) is_looking: bool,
    /// Whether something has changed that it may use and has not looked at.
    pub(super) turn_due: bool,
}

impl Lists {
    /// Chunks of memory in use, with those that hold what is kept of chunks in the file.
    pub(super) fn in_memory(&self) -> usize {
        self.used + self.slots.used() / BOOKED
    }
}

/// The arena. Pointers into it count words.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(super) memory: ByteArena,
    states: LazyArray<AtomicU64>,
    pub(super) lists: Mutex<Lists>,
    pub(super) spill: Option<Spill>,
    /// Chunks in use, written under the mutex.
    used: AtomicUsize,
    /// Sessions, each of which may sit on chunks.
    pub(super) sessions: AtomicUsize,
    pub(super) limit: usize,
    /// Chunks in memory and in the file.
    total: usize,
    /// Entries that the way behind a row was cleared of.
    pub(super) pruned: ShardedCounter,
    /// Where threads wait for memory.
    pub(super) changed: Arc<EventCount>,
}

impl Arena {
    /// An arena that takes at most `limit_bytes` of memory, but two chunks at least.
    pub(crate) fn new(limit_bytes: usize, spill: Option<SpillFile>) -> Result<Self> {
        let limit = (limit_bytes / CHUNK).max(2);
        let spill = spill.map(|to| Spill::new(to, limit));
        let total = limit + spill.as_ref().map_or(0, |spill| spill.chunks);
        let map = |source| Error::io("map memory for", "the undo arena", source);
        // What is given back chunk by chunk cannot lie in large pages.
        let region = if spill.is_some() { ByteArena::new } else { ByteArena::in_large_pages };
        // The first chunk is never used: a pointer of zero leads nowhere.
        let lists = Lists { fresh: 1, ..Lists::default() };
        Ok(Self {
            memory: region((total + 1) * CHUNK).map_err(map)?,
            states: LazyArray::new((total + 1) * STATE_WORDS).map_err(map)?,
            lists: Mutex::new(LockRank::Leaf, lists),
            spill,
            used: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            limit,
            total,
            pruned: ShardedCounter::new(),
            changed: Arc::default(),
        })
    }

    /// Bytes that may be used, in memory and in the file.
    pub(crate) const fn limit_bytes(&self) -> usize {
        self.total * CHUNK
    }

    /// Bytes of the chunks in use.
    pub(crate) fn used_bytes(&self) -> usize {
        // ORDERING: hint, for statistics.
        self.used.load(Ordering::Relaxed) * CHUNK
    }

    /// Bytes of the chunks that were closed with a newest commit above `from` and up to `to`. Not one moment.
    pub(crate) fn bytes_between(&self, from: Csn, to: Csn) -> u64 {
        let fresh = self.lists.lock().fresh;
        let counts = |&chunk: &usize| {
            // ORDERING: hint, for statistics.
            let newest = self.state(chunk, NEWEST).load(Ordering::Relaxed);
            (from.0 + 1..=to.0).contains(&newest)
        };
        ((1..fresh).filter(counts).count() * CHUNK) as u64
    }

    /// Entries that were taken out from between others.
    pub(crate) fn pruned(&self) -> u64 {
        self.pruned.sum()
    }

    /// Whether sessions should leave chunks to others: what is unused is no more than a few for each.
    pub(super) fn is_short(&self) -> bool {
        // ORDERING: hint; to be wrong costs a chunk for the time of one more operation.
        let used = self.used.load(Ordering::Relaxed);
        // ORDERING: as above.
        used + PER_SESSION * self.sessions.load(Ordering::Relaxed) > self.limit
    }

    /// The words from `pointer` to the end of its chunk; `None` if it points outside.
    pub(super) fn words(&self, pointer: UndoPtr) -> Option<&[Word]> {
        let at = usize::try_from(pointer.bits()).ok()?;
        (CHUNK_WORDS..(self.total + 1) * CHUNK_WORDS)
            .contains(&at)
            .then(|| self.memory.words(at * 8, CHUNK_WORDS - at % CHUNK_WORDS))
    }

    /// Takes a chunk with room for `words` for the session `me`, or `None` if memory is spent or the session has to wait for others to be
    /// served. `horizon`: entries that were made by a transaction with a commit number up to it are not needed. It is asked for
    /// only if a chunk that has been left does not do.
    pub(super) fn take(&self, words: usize, horizon: impl FnOnce() -> Csn, me: &Arc<Holder>) -> Option<Open> {
        // Under the mutex, see `super::queue`.
        let has = |lists: &mut Lists, open: Open| {
            me.set(!mutant("undo: a session with a chunk in hand does not hold it"));
            Self::serve(lists, me);
            open
        };
        let partial = |lists: &mut Lists| {
            let fits = lists.partial.iter().rposition(|open| open.room() >= words)?;
            Some(lists.partial.swap_remove(fits))
        };
        rmw::contended(2);
        if self.is_short() {
            let mut lists = self.lists.lock();
            if let Some(open) = partial(&mut lists) {
                return Some(has(&mut lists, open));
            }
            if !Self::may_start(&lists, me) {
                return None;
            }
        }
        let horizon = horizon();
        let mut lists = self.lists.lock();
        if !Self::may_start(&lists, me) {
            return partial(&mut lists).map(|open| has(&mut lists, open));
        }
        self.recycle(&mut lists, LOOKS, horizon);
        if let Some(chunk) = self.unused(&mut lists) {
            let open = self.start(&mut lists, chunk);
            return Some(has(&mut lists, open));
        }
        self.recycle(&mut lists, usize::MAX, horizon);
        let over = |open: &mut Open| self.is_over(open.chunk, open.entries, open.newest, horizon);
        let over: Vec<Open> = lists.partial.extract_if(.., over).collect();
        over.iter().for_each(|open| self.free(&mut lists, open.chunk));
        let unused = self.unused(&mut lists).map(|chunk| self.start(&mut lists, chunk));
        unused.or_else(|| partial(&mut lists)).map(|open| has(&mut lists, open))
    }

    /// Whether a chunk that nobody uses may be used.
    pub(super) fn has_room(&self, lists: &Lists) -> bool {
        lists.in_memory() < self.limit
    }

    fn unused(&self, lists: &mut Lists) -> Option<usize> {
        if !self.has_room(lists) {
            return None;
        }
        lists.free.pop().or_else(|| lists.absent.pop()).or_else(|| {
            (lists.fresh <= self.total).then(|| {
                lists.fresh += 1;
                lists.fresh - 1
            })
        })
    }

    fn start(&self, lists: &mut Lists, chunk: usize) -> Open {
        lists.used += 1;
        self.note_used(lists);
        Open { chunk, at: 0, entries: 0, newest: Csn::ZERO, mine: false, kept: true }
    }

    pub(super) fn note_used(&self, lists: &Lists) {
        // ORDERING: hint, see `is_short`; writers are kept apart by the mutex.
        self.used.store(lists.in_memory(), Ordering::Relaxed);
    }

    /// Nobody needs an entry of a chunk.
    fn free(&self, lists: &mut Lists, chunk: usize) {
        // ORDERING: Relaxed, the chunk is over: no transaction that could change it runs.
        assert_eq!(self.state(chunk, LENT).load(Ordering::Relaxed), 0, "transactions in chunk {chunk}, which is freed");
        debug_assert!(!lists.free.contains(&chunk), "chunk {chunk} is freed twice");
        // ORDERING: Relaxed, the mutex orders them before the next use.
        self.state(chunk, LEFT).store(0, Ordering::Relaxed);
        // ORDERING: as above.
        self.state(chunk, NEWEST).store(0, Ordering::Relaxed);
        // ORDERING: as above.
        self.state(chunk, KIND).store(OPEN, Ordering::Relaxed);
        if self.bring_home(lists, chunk) {
            lists.absent.push(chunk);
        } else {
            lists.free.push(chunk);
            lists.used -= 1;
        }
    }

    /// Makes free what nobody needs of `most` closed chunks, and of as many in the file, or as there have to be for one in memory.
    fn recycle(&self, lists: &mut Lists, most: usize, horizon: Csn) {
        for _ in 0..most.min(lists.closed.len()) {
            let Some(chunk) = lists.closed.pop_front() else { return };
            if self.is_over(chunk, 0, Csn::ZERO, horizon) {
                self.free(lists, chunk);
            } else {
                lists.closed.push_back(chunk);
            }
        }
        for n in 0..most {
            match lists.away.peek() {
                _ if n >= LOOKS && self.has_room(lists) => return,
                Some(&Reverse((newest, chunk))) if newest <= horizon.0 => {
                    lists.away.pop();
                    self.free(lists, chunk);
                }
                _ => return,
            }
        }
    }

    /// Whether nobody needs an entry of a chunk that nobody holds.
    fn is_over(&self, chunk: usize, entries: u64, newest: Csn, horizon: Csn) -> bool {
        let at = self.goes_at(chunk, entries, newest);
        at.is_some_and(|at| at <= horizon || mutant("undo: chunks are used again too early"))
    }

    /// From which horizon on nobody needs an entry of a chunk that nobody holds; `entries` and `newest` are what it does not know yet.
    /// `None` while a transaction with entries in it runs.
    pub(super) fn goes_at(&self, chunk: usize, entries: u64, newest: Csn) -> Option<Csn> {
        // ORDERING: Acquire, pairs with `ended`: the other two are final.
        if self.state(chunk, LENT).load(Ordering::Acquire) > 0 {
            return None;
        }
        // ORDERING: Acquire, pairs with `drop_entry`: whoever dropped the last one has unlinked it.
        if self.state(chunk, LEFT).load(Ordering::Acquire).wrapping_add(entries) == 0 {
            return Some(Csn::ZERO);
        }
        // ORDERING: Relaxed, ordered by LENT and by the mutex.
        Some(newest.max(Csn(self.state(chunk, NEWEST).load(Ordering::Relaxed))))
    }

    /// Takes back chunks that got full, in transactions that have ended.
    pub(super) fn close(&self, chunks: impl Iterator<Item = Open>) {
        let mut chunks = chunks.peekable();
        if chunks.peek().is_none() {
            return;
        }
        rmw::contended(2);
        let mut lists = self.lists.lock();
        chunks.for_each(|open| self.close_one(&mut lists, open));
        self.note_used(&lists);
    }

    pub(super) fn close_one(&self, lists: &mut Lists, open: Open) {
        self.note_newest(open.chunk, open.newest);
        // ORDERING: Relaxed, the mutex orders it before the look at it.
        self.state(open.chunk, LEFT).fetch_add(open.entries, Ordering::Relaxed);
        // ORDERING: as above.
        self.state(open.chunk, KIND).store(if open.kept { KEPT } else { MIXED }, Ordering::Relaxed);
        if self.is_over(open.chunk, 0, Csn(u64::MAX), Csn::ZERO) {
            self.free(lists, open.chunk);
        } else {
            lists.closed.push_back(open.chunk);
        }
    }

    /// Takes back chunks that may have room. A transaction that has entries in one calls [`ended`](Self::ended) for it later.
    pub(crate) fn leave(&self, chunks: impl Iterator<Item = Open>) {
        rmw::contended(2);
        let mut lists = self.lists.lock();
        for mut open in chunks {
            if std::mem::take(&mut open.mine) {
                // ORDERING: Relaxed, the mutex orders it before the look at it.
                self.state(open.chunk, LENT).fetch_add(1, Ordering::Relaxed);
            }
            if self.is_over(open.chunk, open.entries, Csn(u64::MAX), Csn::ZERO) {
                self.free(&mut lists, open.chunk);
            } else if open.room() >= WORTH_FILLING {
                lists.partial.push(open);
            } else {
                self.close_one(&mut lists, open);
            }
        }
        self.note_used(&lists);
    }

    /// A transaction that had left a chunk with entries of it has ended, or has none there any more.
    pub(super) fn ended(&self, chunk: usize, csn: Csn) {
        self.note_newest(chunk, csn);
        // ORDERING: Release, pairs with `is_over`.
        let before = self.state(chunk, LENT).fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a chunk comes back once");
    }

    pub(super) fn note_newest(&self, chunk: usize, csn: Csn) {
        // ORDERING: Relaxed, ordered by LENT or by the mutex.
        self.state(chunk, NEWEST).fetch_max(csn.0, Ordering::Relaxed);
    }

    /// An entry of a chunk is not reached any more.
    pub(super) fn drop_entry(&self, pointer: UndoPtr) {
        // ORDERING: Release, pairs with `is_over`.
        self.state(pointer.chunk(), LEFT).fetch_sub(1, Ordering::Release);
    }

    pub(super) fn state(&self, chunk: usize, field: usize) -> &AtomicU64 {
        &self.states[chunk * STATE_WORDS + field]
    }
}
