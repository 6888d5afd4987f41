//! The undo arena: the memory of all undo entries, in chunks.
//!
//! **Life of a chunk** (its states are at [`State`]):
//!
//! 1. One session takes a chunk and fills it.
//! 2. A full chunk is **closed** when its transaction ends, or earlier if the transaction makes it spillable.
//! 3. The chunk is used again once none of its entries is needed. Then all transactions with entries in it have ended.
//!    Besides, every entry was dropped, or no snapshot is older than the newest of their commits.
//! 4. While memory is short, sessions keep no partly filled chunks between operations. They donate them, and other
//!    sessions fill the rest. So many more small transactions can run than there are chunks.
//! 5. Closed chunks may be moved to the spill file (see `spill`). Other chunks then use their memory.
//!
//! **Invariant:** memory of the arena is never unmapped while the arena lives. A reader that follows a stale pointer
//! reads meaningless words. Its validation then shows that the page which led there has changed.

mod copies;
mod queue;
mod spill;

pub(super) use copies::{Away, BATCH, Copied, Copies};
pub(super) use queue::Queued;

use super::chunk::{Chunks, Open, State};
use super::entry::Entry;
use super::file::{BOOKED, Slots, Spill, SpillFile};
use super::holder::Holder;
use super::pointer::{CHUNK, CHUNK_WORDS, UndoPtr};
use foreshore_base::{Csn, Error, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{ByteArena, EventCount, LockRank, Mutex, ShardedCounter, Word};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// A chunk with fewer free words is closed instead of donated.
pub(super) const WORTH_FILLING: usize = 64;
/// The closed chunks that are examined whenever a chunk is taken. Several, so that chunks are freed at least as fast as
/// they are taken.
const LOOKS: usize = 8;

/// The chunks that a session takes within an operation or two.
const PER_SESSION: usize = 2;

/// The chunks that no session holds, and the sessions that wait for one.
#[derive(Debug, Default)]
struct Lists {
    /// Unused chunks with memory.
    free: Vec<usize>,
    /// Unused chunks whose memory was released.
    absent: Vec<usize>,
    /// Chunks from this one on have never been used.
    fresh: usize,
    donated: Vec<Open>,
    closed: VecDeque<usize>,
    /// Chunks in the file that no transaction shares, by their newest commit.
    filed: BinaryHeap<Reverse<(u64, usize)>>,
    /// The number of used chunks in memory. Their sum with `free`, and with what the file's chunks keep in memory,
    /// never exceeds the limit.
    used: usize,
    slots: Slots,
    /// The holder of each session.
    sessions: Vec<Arc<Holder>>,
    /// The sessions that wait for memory, in the order of their arrival.
    queue: VecDeque<Arc<Holder>>,
    /// Set while the first session of the queue searches for memory.
    is_looking: bool,
    /// Set if memory may have become available and the first session of the queue has not searched since.
    turn_due: bool,
}

impl Lists {
    /// Returns how many chunks of memory are in use, with those that hold the data kept for chunks in the file.
    fn in_memory(&self) -> usize {
        self.used + self.slots.used() / BOOKED
    }
}

/// The arena. Pointers into it are numbers of words.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: ByteArena,
    chunks: Chunks,
    lists: Mutex<Lists>,
    spill: Option<Spill>,
    /// The chunks of memory in use. Written under the mutex.
    used: AtomicUsize,
    /// The number of sessions.
    sessions: AtomicUsize,
    limit: usize,
    /// The most chunks in memory and in the file together.
    total: usize,
    /// Entries that were pruned from version chains.
    pruned: ShardedCounter,
    /// Signals the threads that wait for memory.
    changed: Arc<EventCount>,
}

impl Arena {
    /// Returns an arena that takes at most `limit_bytes` of memory, but at least two chunks.
    pub(crate) fn new(limit_bytes: usize, spill: Option<SpillFile>) -> Result<Self> {
        let limit = (limit_bytes / CHUNK).max(2);
        let spill = spill.map(|to| Spill::new(to, limit));
        let total = limit + spill.as_ref().map_or(0, |spill| spill.chunks);
        let map = |source| Error::io("map memory for", "the undo arena", source);
        // Memory that is released chunk by chunk cannot be in large pages.
        let region = if spill.is_some() { ByteArena::new } else { ByteArena::in_large_pages };
        // The first chunk is never used, because zero is the null pointer.
        let lists = Lists { fresh: 1, ..Lists::default() };
        Ok(Self {
            memory: region((total + 1) * CHUNK).map_err(map)?,
            chunks: Chunks::new(total + 1).map_err(map)?,
            lists: Mutex::new(LockRank::Leaf, lists),
            spill,
            used: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            limit,
            total,
            pruned: ShardedCounter::new(),
            changed: Arc::new(EventCount::with_rare_waits()),
        })
    }

    /// Returns the bytes that may be used, in memory and in the file.
    pub(crate) const fn limit_bytes(&self) -> usize {
        self.total * CHUNK
    }

    /// Returns the bytes of the chunks in use.
    pub(crate) fn used_bytes(&self) -> usize {
        // ORDERING: hint, for statistics.
        self.used.load(Ordering::Relaxed) * CHUNK
    }

    /// Returns the bytes of the chunks whose newest commit is above `from` and at most `to`. The chunks are not read at
    /// one moment.
    pub(crate) fn bytes_between(&self, from: Csn, to: Csn) -> u64 {
        let fresh = self.lists.lock().fresh;
        let counts = |&chunk: &usize| {
            let newest = self.chunks.newest(chunk);
            from < newest && newest <= to
        };
        ((1..fresh).filter(counts).count() * CHUNK) as u64
    }

    /// Returns how many entries were pruned from version chains.
    pub(crate) fn pruned(&self) -> u64 {
        self.pruned.sum()
    }

    /// Returns whether sessions should donate chunks: there are fewer than [`PER_SESSION`] unused chunks for each
    /// session.
    pub(super) fn is_short(&self) -> bool {
        // ORDERING: hint; to be wrong costs a chunk for the time of one more operation.
        let used = self.used.load(Ordering::Relaxed);
        // ORDERING: as above.
        used + PER_SESSION * self.sessions.load(Ordering::Relaxed) > self.limit
    }

    /// Returns the words from `pointer` to the end of its chunk; `None` if it points outside.
    pub(super) fn words(&self, pointer: UndoPtr) -> Option<&[Word]> {
        let at = usize::try_from(pointer.bits()).ok()?;
        (CHUNK_WORDS..(self.total + 1) * CHUNK_WORDS)
            .contains(&at)
            .then(|| self.memory.words(at * 8, CHUNK_WORDS - pointer.word()))
    }

    /// Returns the entry at `pointer`; `None` if no entry can be there.
    pub(super) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        Entry::of(self.words(pointer)?)
    }

    /// Prefetches words that will be used soon. They may begin anywhere in a cache line.
    pub(super) fn prefetch_words(&self, from: UndoPtr, words: usize) {
        const LINE: usize = 64;
        let (from, end) = (from.bits() as usize * 8, (from.bits() as usize + words) * 8);
        (from / LINE * LINE..end).step_by(LINE).for_each(|at| self.memory.prefetch(at));
    }

    /// Takes a chunk with capacity for `words` for the session `me`. Returns `None` if memory is spent, or if other
    /// sessions in the queue come first.
    ///
    /// `horizon` returns a commit number: versions that were replaced by commits up to it are not needed. It is not
    /// called if memory is short and a donated chunk fits.
    pub(super) fn take(&self, words: usize, horizon: impl FnOnce() -> Csn, me: &Arc<Holder>) -> Option<Open> {
        // Under the mutex, see `Holder`: others that miss the chunk find that this session holds memory.
        let has = |lists: &mut Lists, open: Open| {
            me.set(!mutant("undo: a session with a chunk in hand does not hold it"));
            self.chunks.set_state(open.chunk, State::Held);
            lists.serve(me);
            open
        };
        let donated = |lists: &mut Lists| {
            let fits = lists.donated.iter().rposition(|open| open.capacity() >= words)?;
            Some(lists.donated.swap_remove(fits))
        };
        if self.is_short() {
            let mut lists = self.lists.lock();
            if let Some(open) = donated(&mut lists) {
                return Some(has(&mut lists, open));
            }
            if !lists.may_start(me) {
                return None;
            }
        }
        let horizon = horizon();
        let mut lists = self.lists.lock();
        if !lists.may_start(me) {
            return donated(&mut lists).map(|open| has(&mut lists, open));
        }
        self.recycle(&mut lists, LOOKS, horizon);
        if let Some(open) = self.start(&mut lists) {
            return Some(has(&mut lists, open));
        }
        self.recycle(&mut lists, usize::MAX, horizon);
        let over = |open: &mut Open| self.is_over(open.chunk, open.entries, open.newest, horizon);
        let over: Vec<Open> = lists.donated.extract_if(.., over).collect();
        over.iter().for_each(|open| self.free(&mut lists, open.chunk));
        let open = self.start(&mut lists).or_else(|| donated(&mut lists))?;
        Some(has(&mut lists, open))
    }

    /// Returns whether an unused chunk may be started.
    fn has_space(&self, lists: &Lists) -> bool {
        lists.in_memory() < self.limit
    }

    /// Starts an unused chunk, if one may be started.
    fn start(&self, lists: &mut Lists) -> Option<Open> {
        if !self.has_space(lists) {
            return None;
        }
        let chunk = lists.free.pop().or_else(|| lists.absent.pop()).or_else(|| {
            (lists.fresh <= self.total).then(|| {
                lists.fresh += 1;
                lists.fresh - 1
            })
        })?;
        assert!((1..=self.total).contains(&chunk), "chunk {chunk} of {} is started", self.total);
        lists.used += 1;
        self.note_used(lists);
        Some(Open::new(chunk))
    }

    fn note_used(&self, lists: &Lists) {
        // ORDERING: hint, see `is_short`; writers are kept apart by the mutex.
        self.used.store(lists.in_memory(), Ordering::Relaxed);
    }

    /// Frees a chunk none of whose entries is needed.
    fn free(&self, lists: &mut Lists, chunk: usize) {
        debug_assert!(!lists.free.contains(&chunk), "chunk {chunk} is freed twice");
        let was_filed = self.free_slot(lists, chunk);
        self.chunks.reset(chunk);
        if was_filed {
            lists.absent.push(chunk);
        } else {
            lists.free.push(chunk);
            lists.used -= 1;
        }
    }

    /// Frees the chunks that are not needed among the next `most` closed ones, and up to `most` in the file. After
    /// [`LOOKS`] chunks in the file it stops once there is space in memory.
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
            match lists.filed.peek() {
                _ if n >= LOOKS && self.has_space(lists) => return,
                Some(&Reverse((newest, chunk))) if newest <= horizon.0 => {
                    lists.filed.pop();
                    self.free(lists, chunk);
                }
                _ => return,
            }
        }
    }

    /// Returns whether none of the entries of a chunk that no session holds is needed. `entries` and `newest`: what its
    /// words do not include yet.
    fn is_over(&self, chunk: usize, entries: u64, newest: Csn, horizon: Csn) -> bool {
        let needed = self.chunks.needed_up_to(chunk, entries, newest);
        needed.is_some_and(|needed| needed <= horizon || mutant("undo: chunks are used again too early"))
    }

    /// Closes full chunks of a transaction that has ended.
    pub(super) fn close(&self, chunks: impl Iterator<Item = Open>) {
        let mut chunks = chunks.peekable();
        if chunks.peek().is_none() {
            return;
        }
        let mut lists = self.lists.lock();
        chunks.for_each(|open| self.close_one(&mut lists, open));
        self.note_used(&lists);
    }

    fn close_one(&self, lists: &mut Lists, open: Open) {
        self.chunks.note_newest(open.chunk, open.newest);
        self.chunks.add_left(open.chunk, open.entries);
        if self.is_over(open.chunk, 0, Csn(u64::MAX), Csn::ZERO) {
            self.free(lists, open.chunk);
        } else {
            self.chunks.set_state(open.chunk, if open.kept { State::ClosedKept } else { State::Closed });
            lists.closed.push_back(open.chunk);
        }
    }

    /// Donates chunks that a session stops filling: other sessions may fill the rest. A transaction with entries in a
    /// chunk then shares it, and later calls [`unshare`](Self::unshare) for it.
    pub(super) fn donate(&self, chunks: impl Iterator<Item = Open>) {
        let mut lists = self.lists.lock();
        for mut open in chunks {
            if std::mem::take(&mut open.mine) {
                self.chunks.share(open.chunk);
            }
            if self.is_over(open.chunk, open.entries, Csn(u64::MAX), Csn::ZERO) {
                self.free(&mut lists, open.chunk);
            } else if open.capacity() >= WORTH_FILLING {
                self.chunks.set_state(open.chunk, State::Donated);
                lists.donated.push(open);
            } else {
                self.close_one(&mut lists, open);
            }
        }
        self.note_used(&lists);
    }

    /// Ends the share of a chunk: the transaction has ended, or has no entries in the chunk any more.
    pub(super) fn unshare(&self, chunk: usize, csn: Csn) {
        self.chunks.unshare(chunk, csn);
    }

    /// Drops an entry to which no pointer leads any more.
    pub(super) fn drop_entry(&self, pointer: UndoPtr) {
        self.chunks.drop_entry(pointer.chunk());
    }

    /// Counts an entry that was pruned from a version chain.
    pub(super) fn count_pruned(&self) {
        self.pruned.add(1);
    }

    /// Returns how many words a transaction may have entered if its next entry is sure to fit in memory. Other
    /// transactions enter nothing meanwhile. `most`: the words of the largest entry that it asks for.
    ///
    /// When an entry is refused, all chunks are taken. A transaction passes over a chunk only if the chunk has fewer
    /// free words than it asks for, or too few to be donated. So each chunk without entries of others contains at least
    /// the words that are counted for it here.
    pub(super) fn sure_words(&self, most: usize) -> usize {
        let (booked, passed_over) = match &self.spill {
            Some(spill) => (spill.chunks.div_ceil(BOOKED), CHUNK_WORDS / 2),
            None => (0, WORTH_FILLING),
        };
        self.limit.saturating_sub(booked) * (CHUNK_WORDS - most.max(passed_over))
    }
}
