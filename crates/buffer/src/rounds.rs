//! The two rounds of the cleaner, which take turns. Each has a buffer for a batch of pages and an area of the
//! doublewrite file.
//!
//! 1. A thread takes the round whose turn it is, and keeps it until its pages are durable at home. It waits for no
//!    latch meanwhile, so another thread may wait for the round while it holds a latch.
//! 2. It enters the pages as under way, and copies them. If there are any, their batch gets a sequence number.
//! 3. It passes the turn on when the images of its batch are durable, or at once if there will be none. Then the other
//!    round may begin.
//!
//! **Invariant:** no page is under way in both rounds, so two images of a page never overtake each other.
//!
//! **Invariant:** while images are written to one area, the other area has the durable images of the batch before. So a
//! round without pages keeps its turn, and a round with pages keeps it until its images are durable. Otherwise the
//! newest images would be overwritten, and after a power loss recovery would use the older ones.

use crate::format::{AREA_BYTES, AREA_PAGES, Entry, page_id, page_lsn, seal_page, verify_page};
use crate::frame::FrameNo;
use crate::guard::{ExclusiveGuard, LatchGuard, SharedGuard};
use crate::memory::Slot;
use crate::stats::PageWrites;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{GroupNo, Lsn};
use foreshore_io::AlignedBuf;
use foreshore_sync::model::mutant;
use foreshore_sync::{Condvar, LockRank, Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Rounds {
    /// By area: one block for the header of a doublewrite batch, then the copies.
    bufs: [Mutex<AlignedBuf>; 2],
    state: Mutex<State>,
    /// Notified when a round passes its turn on or ends.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Sequence number of the newest batch.
    sequence: u64,
    /// Rounds that have ended.
    ended: u64,
    /// The area whose turn it is.
    next: usize,
    /// Whether a thread has the round, by area.
    is_taken: [bool; 2],
    /// Pages under way, by area.
    frames: [Vec<FrameNo>; 2],
    /// How batches with later numbers are written.
    writes: PageWrites,
}

impl Rounds {
    /// Returns rounds that continue after the batch with that sequence number, first in area `next`.
    pub(crate) fn new(sequence: u64, next: usize, writes: PageWrites) -> Self {
        let frames = [Vec::new(), Vec::new()];
        let state = State { sequence, ended: 0, next, is_taken: [false; 2], frames, writes };
        Self {
            bufs: [0, 1].map(|_| Mutex::new(LockRank::Cleaner, AlignedBuf::new(AREA_BYTES))),
            state: Mutex::new(LockRank::Leaf, state),
            changed: Condvar::new(),
        }
    }

    /// Takes the round whose turn it is, if it is free.
    pub(crate) fn try_take(&self) -> Option<Round<'_>> {
        let state = self.state.lock();
        if state.is_taken[state.next] { None } else { Some(self.begin(state)) }
    }

    /// Takes the round whose turn it is; may wait for a batch to come home.
    pub(crate) fn take(&self) -> Round<'_> {
        let mut state = self.state.lock();
        while state.is_taken[state.next] {
            // WAIT: park - until that round passes its turn on, or the batch of its area is home.
            state = self.changed.wait(state);
        }
        self.begin(state)
    }

    fn begin(&self, mut state: MutexGuard<'_, State>) -> Round<'_> {
        let area = state.next;
        state.is_taken[area] = true;
        drop(state);
        // The thread that had the round has ended it, so the lock of the buffer is free at once.
        Round { rounds: self, area, buf: self.bufs[area].lock(), copies: Vec::with_capacity(AREA_PAGES) }
    }

    /// Returns whether a round is at work.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_taken.contains(&true)
    }

    /// Returns whether the next round has to wait, and none has ended since `ended` had.
    pub(crate) fn is_full_since(&self, ended: u64) -> bool {
        let state = self.state.lock();
        state.ended == ended && state.is_taken[state.next]
    }

    /// Returns the frames whose pages are under way, and how many rounds have ended.
    pub(crate) fn under_way(&self) -> (Vec<FrameNo>, u64) {
        let state = self.state.lock();
        (state.frames.concat(), state.ended)
    }

    /// Returns how batches with later numbers are written.
    pub(crate) fn writes(&self) -> PageWrites {
        self.state.lock().writes
    }

    /// Sets how batches with later numbers are written.
    pub(crate) fn set_writes(&self, writes: PageWrites) {
        self.state.lock().writes = writes;
    }

    /// Waits until a frame is not under way.
    pub(crate) fn wait_for(&self, no: FrameNo) {
        let mut state = self.state.lock();
        while state.frames.iter().any(|frames| frames.contains(&no)) {
            // WAIT: park - until the round that writes the page has ended.
            state = self.changed.wait(state);
        }
    }
}

/// A round that a thread has taken. It ends on drop.
pub(crate) struct Round<'a> {
    rounds: &'a Rounds,
    /// The number of the round, which is that of its doublewrite area.
    area: usize,
    buf: MutexGuard<'a, AlignedBuf>,
    copies: Vec<Copied>,
}

/// A copied page. The n-th one lies in the n-th page of the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) no: FrameNo,
    /// Version of the latch.
    pub(crate) version: u64,
    pub(crate) entry: Entry,
    /// The first group that the page needed before.
    pub(crate) group: GroupNo,
}

impl Round<'_> {
    /// Enters `frames` as under way in this round and returns them. Frames that are under way in the other round are
    /// added to `busy` instead.
    pub(crate) fn enter(&self, frames: &[FrameNo], busy: &mut Vec<FrameNo>) -> Vec<FrameNo> {
        let mut state = self.rounds.state.lock();
        let other = &state.frames[1 - self.area];
        let is_other = |no: &FrameNo| other.contains(no) && !mutant("cleaner: a page may be in two rounds");
        let (others, own): (Vec<_>, Vec<_>) = frames.iter().partition(|&no| is_other(no));
        busy.extend(others);
        state.frames[self.area].clone_from(&own);
        own
    }

    /// Assigns the batch its sequence number. Returns the number, and how the batch is written.
    pub(crate) fn number(&self) -> (u64, PageWrites) {
        let mut state = self.rounds.state.lock();
        state.sequence += 1;
        (state.sequence, state.writes)
    }

    /// Passes the turn on.
    pub(crate) fn pass_on(&self) {
        let mut state = self.rounds.state.lock();
        assert_eq!(state.next, self.area, "rounds take turns");
        state.next = 1 - self.area;
        drop(state);
        self.rounds.changed.notify_all();
    }

    pub(crate) fn area(&self) -> usize {
        self.area
    }

    pub(crate) fn copies(&self) -> &[Copied] {
        &self.copies
    }

    /// Returns the buffer: a block for the header, then the copies.
    pub(crate) fn buf(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    /// Copies the page of `guard` behind those already copied.
    pub(crate) fn copy(&mut self, guard: &SharedGuard<'_>) {
        self.copy_page(guard.slot(), guard, guard.version());
    }

    /// Copies a page that the caller keeps latched exclusively until the round has ended.
    pub(crate) fn copy_latched(&mut self, guard: &ExclusiveGuard<'_>) {
        // No other thread can change the page, so its version does not matter.
        self.copy_page(guard.slot(), guard, 0);
    }

    fn copy_page(&mut self, slot: Slot<'_>, bytes: &[u8], version: u64) {
        let at = BLOCK + self.copies.len() * PAGE_SIZE;
        let page = &mut self.buf[at..at + PAGE_SIZE];
        page.copy_from_slice(bytes);
        let pid = slot.frame().pid();
        assert_eq!(page_id(page), pid, "a page carries its own id");
        let entry = Entry { pid, lsn: page_lsn(page), crc: seal_page(page) };
        // A page that a read would refuse must not be written.
        debug_assert_eq!(verify_page(page, entry.pid, Lsn(u64::MAX)), Ok(()), "page {} as it is written", entry.pid);
        let group = slot.frame().rec_group().expect("a dirty page stays dirty until it is home");
        self.copies.push(Copied { no: slot.no(), version, entry, group });
    }

    /// Returns the copies and their offsets in the data file, each page alone.
    pub(crate) fn pages(&self) -> Vec<(&[u8], u64)> {
        let pages = self.buf[BLOCK..].chunks_exact(PAGE_SIZE);
        pages.zip(&self.copies).map(|(page, copied)| (page, copied.entry.pid.offset())).collect()
    }

    /// Returns the copies and their offsets in the data file, with adjacent pages in one piece.
    pub(crate) fn runs(&self) -> Vec<(&[u8], u64)> {
        let mut at = BLOCK;
        let is_next = |a: &Copied, b: &Copied| b.entry.pid.0 == a.entry.pid.0 + 1;
        let run = |copies: &[Copied]| {
            let begin = at;
            at += copies.len() * PAGE_SIZE;
            (&self.buf[begin..at], copies[0].entry.pid.offset())
        };
        self.copies.chunk_by(is_next).map(run).collect()
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut state = self.rounds.state.lock();
        state.frames[self.area].clear();
        state.is_taken[self.area] = false;
        state.ended += 1;
        drop(state);
        self.rounds.changed.notify_all();
    }
}
