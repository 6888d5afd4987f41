//! The memory of all undo: chunks of one arena.
//!
//! A session fills chunks, each by itself. A chunk that is full is **closed** and stays until no entry in it is needed.
//! Then the transactions that have entries there have ended, and every entry has been dropped, or no snapshot is older
//! than the newest of their commits. Its memory is used again and never unmapped while the arena lives. So a reader
//! that follows a stale pointer reads words, if nonsense, and finds out afterwards that what led there has changed.
//!
//! Where memory is short sessions do not sit on chunks between operations: they donate those with some capacity, for
//! others to fill. So small transactions can be many times more than chunks.
//!
//! Closed chunks may be moved to a file (see `spill`), and their memory is then given to others.

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
use foreshore_sync::{ByteArena, EventCount, LockRank, Mutex, ShardedCounter, Word, rmw};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// A chunk with fewer words left is not worth filling by others.
pub(super) const WORTH_FILLING: usize = 64;
/// Closed chunks that are looked at whenever a chunk is taken: more than one, so that the search for those that can be
/// used again keeps up.
const LOOKS: usize = 8;

/// Chunks that a session takes within an operation or two.
const PER_SESSION: usize = 2;

/// Where the chunks are that no session holds, and the sessions that wait for some.
#[derive(Debug, Default)]
struct Lists {
    /// Unused ones.
    free: Vec<usize>,
    /// Unused ones whose memory was given back.
    absent: Vec<usize>,
    /// Chunks from this one on have never been used.
    fresh: usize,
    donated: Vec<Open>,
    closed: VecDeque<usize>,
    /// Those in the file that no transaction shares, by their newest commit.
    filed: BinaryHeap<Reverse<(u64, usize)>>,
    /// Those that are used and in memory. With those in `free`, and what is kept of those in the file, they are never
    /// more than the limit.
    used: usize,
    slots: Slots,
    /// One for each session.
    sessions: Vec<Arc<Holder>>,
    /// Sessions that wait for memory.
    queue: VecDeque<Arc<Holder>>,
    /// Whether the first of them looks for memory just now.
    is_looking: bool,
    /// Whether something has changed that it may use and has not looked at.
    turn_due: bool,
}

impl Lists {
    /// Chunks of memory in use, with those that hold what is kept of chunks in the file.
    fn in_memory(&self) -> usize {
        self.used + self.slots.used() / BOOKED
    }
}

/// The arena. Pointers into it count words.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: ByteArena,
    chunks: Chunks,
    lists: Mutex<Lists>,
    spill: Option<Spill>,
    /// Chunks in use, written under the mutex.
    used: AtomicUsize,
    /// Sessions, each of which may sit on chunks.
    sessions: AtomicUsize,
    limit: usize,
    /// Chunks in memory and in the file.
    total: usize,
    /// Entries that the way behind a row was cleared of.
    pruned: ShardedCounter,
    /// Where threads wait for memory.
    changed: Arc<EventCount>,
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
            chunks: Chunks::new(total + 1).map_err(map)?,
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
            let newest = self.chunks.newest(chunk);
            from < newest && newest <= to
        };
        ((1..fresh).filter(counts).count() * CHUNK) as u64
    }

    /// Entries that were taken out from between others.
    pub(crate) fn pruned(&self) -> u64 {
        self.pruned.sum()
    }

    /// Returns whether sessions should donate chunks: what is unused is no more than a few for each.
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

    /// Returns the entry at `pointer`; `None` if none can be there.
    pub(super) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        Entry::of(self.words(pointer)?)
    }

    /// Asks for some words that will be used soon, which begin anywhere in a cache line.
    pub(super) fn prefetch_words(&self, from: UndoPtr, words: usize) {
        const LINE: usize = 64;
        let (from, end) = (from.bits() as usize * 8, (from.bits() as usize + words) * 8);
        (from / LINE * LINE..end).step_by(LINE).for_each(|at| self.memory.prefetch(at));
    }

    /// Takes a chunk with capacity for `words` for the session `me`, or `None` if memory is spent or the session has to
    /// wait for others to be served. `horizon`: entries that were made by a transaction with a commit number up to it
    /// are not needed. It is asked for only if no donated chunk does.
    pub(super) fn take(&self, words: usize, horizon: impl FnOnce() -> Csn, me: &Arc<Holder>) -> Option<Open> {
        // Under the mutex, see `Holder`.
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
        rmw::contended(2);
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

    /// Returns whether an unused chunk may be used.
    fn has_space(&self, lists: &Lists) -> bool {
        lists.in_memory() < self.limit
    }

    /// Starts an unused chunk, if one may be used.
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

    /// Frees a chunk of which no entry is needed.
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

    /// Frees what is not needed of `most` closed chunks, and of as many in the file, or as there have to be for one in
    /// memory.
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

    /// Returns whether no entry is needed of a chunk that no session holds; `entries` and `newest` are what is not
    /// noted yet.
    fn is_over(&self, chunk: usize, entries: u64, newest: Csn, horizon: Csn) -> bool {
        let needed = self.chunks.needed_up_to(chunk, entries, newest);
        needed.is_some_and(|needed| needed <= horizon || mutant("undo: chunks are used again too early"))
    }

    /// Closes chunks that got full, in transactions that have ended.
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

    /// Takes chunks that a session does not fill any more: other sessions may fill the rest. A transaction that has
    /// entries in one shares it, and calls [`unshare`](Self::unshare) for it later.
    pub(super) fn donate(&self, chunks: impl Iterator<Item = Open>) {
        rmw::contended(2);
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

    /// Ends the share of a chunk: the transaction has ended, or has no entries there any more.
    pub(super) fn unshare(&self, chunk: usize, csn: Csn) {
        self.chunks.unshare(chunk, csn);
    }

    /// Drops an entry, which is not reached any more.
    pub(super) fn drop_entry(&self, pointer: UndoPtr) {
        self.chunks.drop_entry(pointer.chunk());
    }

    /// Counts an entry that was taken out from between others.
    pub(super) fn count_pruned(&self) {
        self.pruned.add(1);
    }

    /// Returns how many words the entries of one transaction may have for which one more entry is sure to fit in
    /// memory, if no other transaction enters anything. `most`: the largest capacity that it asks for.
    ///
    /// A refusal finds all chunks taken. A transaction passes over a chunk only where that has less capacity than it
    /// asks for, or too little to be donated. So each chunk without entries of others has at least the words that are
    /// counted here.
    pub(super) fn sure_words(&self, most: usize) -> usize {
        let (booked, passed_over) = match &self.spill {
            Some(spill) => (spill.chunks.div_ceil(BOOKED), CHUNK_WORDS / 2),
            None => (0, WORTH_FILLING),
        };
        self.limit.saturating_sub(booked) * (CHUNK_WORDS - most.max(passed_over))
    }
}
