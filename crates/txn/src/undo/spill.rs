//! Undo in a file: where memory is spent, full chunks make room.
//!
//! First go those with old versions that old readers need, then those of transactions that run. The file is temporary. What
//! lies in it means nothing to a restart, nothing of it is ever synced, and the checksums of what was written stay in memory. A
//! chunk goes there whole, and once: it is read from there until nobody needs it (see [`super::fetch`]).
//!
//! Nobody changes what is there or on its way there. A transaction that runs agrees to that only while it can go back
//! to no savepoint, and from then on only reads its full chunks. Others who have a leaf latched exclusively and clear the way behind a row have a
//! pin meanwhile, and who moves a chunk says so first:
//!
//! | who clears the way | who moves a chunk |
//! |---|---|
//! | stores its pin; `SeqCst` fence; looks where the chunk is, and touches it only if it stays | says that it leaves; `SeqCst` fence; waits until it has seen each session without a pin; copies, writes, says where it is, gives the memory back |
//!
//! So each change of the chunk comes before the copy, or is not made.

use super::UndoPtr;
use super::arena::{AGREED, Arena, CHUNK, CHUNK_WORDS, KIND, LENT, Lists, NEWEST, Open, PLACE, SLOT, SUM};
use foreshore_base::{Csn, Result, crc32c};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::{LockRank, Mutex, ShardedCounter};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

// The place of a chunk.
//
//   0           in memory
//   1           in memory, and about to leave: only read
//   2, 4, 6 ..  in the file, at `slot` and with the checksum `sum`, which are stored before; each time another number
//
// 1. 0 -> 1 -> 2n, or back to 0 if it could not be written: who moves chunks, one at a time, with the chunk off all lists.
// 2. 2n -> 0: when it is free, under the mutex of `Lists`. The snapshots that needed it have ended or been killed before.
pub(super) const HOME: u64 = 0;
pub(super) const LEAVING: u64 = 1;

// The kind of a chunk, written under the mutex of `Lists`, as `agreed` is: how many of those in `lent` let it go to the file.
//
//   open    not closed yet
//   mixed   closed, with anything in it
//   kept    closed, and all its entries were entered for old readers
//   parked  in the file, with entries of transactions that run, and on no list
//
// 1. open -> mixed, kept: when it is closed. mixed, kept -> parked: who has moved it. Any -> open: when it is free.
// 2. A closed chunk gets no more entries, so `lent` only falls, and where it equals `agreed` it does so under the mutex. Who makes
//    it zero for a parked chunk puts that on the list of those away.
pub(super) const OPEN: u64 = 0;
pub(super) const MIXED: u64 = 1;
pub(super) const KEPT: u64 = 2;
const PARKED: u64 = 3;

/// Chunks that are moved at once.
const BATCH: usize = if MODEL { 2 } else { 32 };
/// So many chunks in the file count as one in memory, for what is kept of them there.
pub(super) const BOOKED: usize = 64;
/// The file is so many times as large as memory at most: what is kept of it takes half of that then.
const MOST: usize = BOOKED / 2;

/// Makes the file for undo.
type MakeFile = dyn Fn() -> Result<Arc<dyn File>> + Send + Sync;

/// A file for undo.
#[derive(Clone)]
pub struct SpillFile {
    make: Arc<MakeFile>,
    limit_bytes: usize,
}

impl SpillFile {
    /// The file that `make` makes when undo is moved there for the first time, so that a start needs no space for it.
    /// The file is used by one arena alone, and what is in it is of no use afterwards. It grows by what is moved at
    /// once, uses free places again, and never shrinks. Of a `limit_bytes` of more than 32 times the memory for undo
    /// the rest is not used.
    pub fn new(make: impl Fn() -> Result<Arc<dyn File>> + Send + Sync + 'static, limit_bytes: usize) -> Self {
        Self { make: Arc::new(make), limit_bytes }
    }

    /// A file that is there.
    #[must_use]
    pub fn of(file: Arc<dyn File>, limit_bytes: usize) -> Self {
        Self::new(move || Ok(Arc::clone(&file)), limit_bytes)
    }
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillFile").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Spill {
    to: SpillFile,
    /// Once something was moved there. Written under `moved`.
    file: OnceLock<Arc<dyn File>>,
    /// How many chunks it may hold.
    pub(super) chunks: usize,
    /// How many chunks were moved, by who moves some.
    moved: Mutex<u64>,
    /// Chunks read back.
    pub(super) read: ShardedCounter,
}

/// Which chunks leave, if those before do not do.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Those whose entries only old readers need, all of them.
    Kept,
    /// Those that no reader needs who comes later, because their transactions have ended before.
    Old,
    /// Those of transactions that run or have just ended.
    Running,
}

/// The places in the file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: Vec<u64>,
    /// From here on none was ever used.
    fresh: u64,
}

impl Slots {
    pub(super) fn used(&self) -> usize {
        self.fresh as usize - self.free.len()
    }

    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

impl Spill {
    /// Beside so many chunks in memory.
    pub(super) fn new(to: SpillFile, limit: usize) -> Self {
        let chunks = (to.limit_bytes / CHUNK).min(MOST * limit);
        let moved = Mutex::new(LockRank::UndoSpill, 0);
        Self { to, file: OnceLock::new(), chunks, moved, read: ShardedCounter::new() }
    }

    /// The file, in which something lies.
    pub(super) fn file(&self) -> &dyn File {
        &**self.file.get().expect("a chunk was moved to the file")
    }

    /// The file, made if it is not there. By the thread that moves chunks.
    fn made_file(&self) -> Result<&dyn File> {
        if self.file.get().is_none() {
            let made = (self.to.make)()?;
            assert!(self.file.set(made).is_ok(), "one thread at a time moves chunks");
        }
        Ok(self.file())
    }
}

impl Arena {
    /// Whether there is a file.
    pub(crate) const fn can_spill(&self) -> bool {
        self.spill.is_some()
    }

    /// Moves chunks to the file, if there is no room: first those that nobody needs who comes later, for the commits that `floor`
    /// names are over. `unpinned` waits until it has seen each session without a pin, and tells whether it has. Returns whether
    /// there is room now.
    ///
    /// # Errors
    /// `Io`, `DiskFull`. Nothing has moved then.
    pub(crate) fn spill(&self, floor: Csn, unpinned: impl FnOnce() -> bool) -> Result<bool> {
        let Some(spill) = &self.spill else { return Ok(false) };
        // WAIT: park - behind who writes some chunks.
        let mut moved = spill.moved.lock();
        if self.has_room(&self.lists.lock()) {
            return Ok(true);
        }
        let leaving = self.choose(spill, floor);
        if leaving.is_empty() {
            return Ok(false);
        }
        // ORDERING: store, fence, look: see the table above.
        fence(Ordering::SeqCst);
        let is_free = mutant("undo: a chunk leaves under a pin") || unpinned();
        let written = if is_free { self.write(spill, &leaving).map(|()| true) } else { Ok(false) };
        pause::point("undo: written to the file");
        let has_moved = matches!(written, Ok(true));
        for &(chunk, slot) in &leaving {
            *moved += 1;
            // ORDERING: Relaxed, published by the place.
            self.state(chunk, SLOT).store(slot, Ordering::Relaxed);
            // ORDERING: publish, pairs with `place`.
            self.state(chunk, PLACE).store(if has_moved { 2 * *moved } else { HOME }, Ordering::Release);
            if has_moved {
                // If the system does not take it, it is used again when the chunk is.
                let _ = self.memory.release_words(chunk * CHUNK, CHUNK_WORDS);
            }
        }
        self.settle(&leaving, has_moved);
        written
    }

    /// Takes chunks off the list of closed ones, and slots for them.
    fn choose(&self, spill: &Spill, floor: Csn) -> Vec<(usize, u64)> {
        let mut lists = self.lists.lock();
        let most = BATCH.min(spill.chunks - lists.slots.used());
        let mut leaving = Vec::new();
        for turn in [Turn::Kept, Turn::Old, Turn::Running] {
            if !leaving.is_empty() {
                break;
            }
            for _ in 0..lists.closed.len() {
                if leaving.len() == most {
                    break;
                }
                let Some(chunk) = lists.closed.pop_front() else { break };
                if self.may_leave(chunk, floor, turn) {
                    leaving.push((chunk, lists.slots.take()));
                    // ORDERING: Relaxed, ordered by the caller's fence.
                    self.state(chunk, PLACE).store(LEAVING, Ordering::Relaxed);
                } else {
                    lists.closed.push_back(chunk);
                }
            }
        }
        leaving
    }

    /// Whether a closed chunk may leave, if it is its turn.
    fn may_leave(&self, chunk: usize, floor: Csn, turn: Turn) -> bool {
        // ORDERING: Acquire, pairs with `ended`: the newest commit is final if there are none.
        let lent = self.state(chunk, LENT).load(Ordering::Acquire);
        // ORDERING: Relaxed, ordered by LENT and by the mutex.
        let state = |field| self.state(chunk, field).load(Ordering::Relaxed);
        let is_old = lent == 0 && state(NEWEST) <= floor.0;
        match turn {
            Turn::Kept => is_old && state(KIND) == KEPT,
            Turn::Old => is_old,
            Turn::Running => state(AGREED) == lent || mutant("undo: a chunk leaves unasked"),
        }
    }

    /// Writes chunks to their slots.
    fn write(&self, spill: &Spill, leaving: &[(usize, u64)]) -> Result<()> {
        let mut bytes = AlignedBuf::new(leaving.len() * CHUNK);
        for (copy, &(chunk, _)) in bytes.chunks_exact_mut(CHUNK).zip(leaving) {
            for (to, word) in copy.chunks_exact_mut(8).zip(self.memory.words(chunk * CHUNK, CHUNK_WORDS)) {
                // ORDERING: Relaxed, nobody changes it any more.
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            // ORDERING: Relaxed, published by the place.
            self.state(chunk, SUM).store(u64::from(crc32c(copy)), Ordering::Relaxed);
        }
        let offset = |slot: u64| slot * CHUNK as u64;
        let parts: Vec<(&[u8], u64)> =
            bytes.chunks_exact(CHUNK).zip(leaving).map(|(copy, &(_, slot))| (copy, offset(slot))).collect();
        spill.made_file()?.write_many(&parts)
    }

    /// Puts chunks where they belong when they have moved, or have not.
    fn settle(&self, leaving: &[(usize, u64)], has_moved: bool) {
        let mut lists = self.lists.lock();
        for &(chunk, slot) in leaving {
            if !has_moved {
                lists.slots.free.push(slot);
                lists.closed.push_back(chunk);
                continue;
            }
            lists.used -= 1;
            // ORDERING: Relaxed, under the mutex, as the ends of those who have agreed.
            if self.state(chunk, LENT).load(Ordering::Relaxed) == 0 {
                self.list_away(&mut lists, chunk);
            } else {
                // ORDERING: as above.
                self.state(chunk, KIND).store(PARKED, Ordering::Relaxed);
            }
        }
        self.note_used(&lists);
    }

    fn list_away(&self, lists: &mut Lists, chunk: usize) {
        // ORDERING: Relaxed, under the mutex, and final.
        let newest = self.state(chunk, NEWEST).load(Ordering::Relaxed);
        lists.away.push(Reverse((newest, chunk)));
    }

    /// Closes chunks that were left with some room, in which nobody who looks for room has found enough.
    pub(super) fn close_partial(&self) {
        let mut lists = self.lists.lock();
        let done: Vec<Open> = lists.partial.extract_if(.., |open| open.room() < CHUNK_WORDS / 2).collect();
        done.into_iter().for_each(|open| self.close_one(&mut lists, open));
    }

    /// A transaction that runs agrees that its full chunks leave: those that it holds, which are closed, and those that it has left
    /// and that were closed since. It changes nothing in them until [`take_leave`](Self::take_leave), at its end.
    /// Returns whether there were any.
    pub(super) fn agree(&self, full: &mut Vec<Open>, left: &mut Vec<usize>, agreed: &mut HashMap<usize, u64>) -> bool {
        if full.is_empty() && left.is_empty() {
            return false;
        }
        let mut has_agreed = false;
        let mut lists = self.lists.lock();
        for open in full.drain(..) {
            // ORDERING: Relaxed, under the mutex.
            self.state(open.chunk, LENT).fetch_add(1, Ordering::Relaxed);
            left.push(open.chunk);
            self.close_one(&mut lists, open);
        }
        left.retain(|&chunk| {
            // ORDERING: Relaxed, under the mutex.
            let is_open = self.state(chunk, KIND).load(Ordering::Relaxed) == OPEN;
            if !is_open {
                // ORDERING: as above.
                self.state(chunk, AGREED).fetch_add(1, Ordering::Relaxed);
                *agreed.entry(chunk).or_default() += 1;
                has_agreed = true;
            }
            is_open
        });
        lists.turn_due |= has_agreed;
        has_agreed
    }

    /// The transaction that has agreed has ended.
    pub(super) fn take_leave(&self, agreed: &mut HashMap<usize, u64>, csn: Csn) {
        if agreed.is_empty() {
            return;
        }
        let mut lists = self.lists.lock();
        for (chunk, times) in agreed.drain() {
            // ORDERING: Relaxed, under the mutex.
            self.state(chunk, AGREED).fetch_sub(times, Ordering::Relaxed);
            (0..times).for_each(|_| self.ended(chunk, csn));
            // ORDERING: as above, and so does every other who has entries in a parked one.
            let is_last = self.state(chunk, LENT).load(Ordering::Relaxed) == 0;
            // ORDERING: as above.
            if is_last && self.state(chunk, KIND).load(Ordering::Relaxed) == PARKED {
                self.list_away(&mut lists, chunk);
            }
        }
    }

    /// A chunk is free: its slot is, too. Returns whether it was in the file.
    pub(super) fn bring_home(&self, lists: &mut Lists, chunk: usize) -> bool {
        // ORDERING: Relaxed, under the mutex.
        let is_away = self.state(chunk, PLACE).load(Ordering::Relaxed) != HOME;
        if is_away {
            // ORDERING: Relaxed, as above.
            lists.slots.free.push(self.state(chunk, SLOT).load(Ordering::Relaxed));
            // ORDERING: Release, the snapshots that needed it were killed before; pairs with `place`.
            self.state(chunk, PLACE).store(HOME, Ordering::Release);
        }
        is_away
    }

    /// Bytes in the file, and chunks read from there.
    pub(crate) fn spilled(&self) -> (usize, u64) {
        let read = self.spill.as_ref().map_or(0, |spill| spill.read.sum());
        (self.lists.lock().slots.used() * CHUNK, read)
    }

    /// Whether the chunk of an entry is in the file or about to leave, and is not to be touched. By who has a pin.
    pub(super) fn is_leaving(&self, entry: UndoPtr) -> bool {
        self.spill.is_some() && self.place(entry) != HOME
    }

    /// Where an entry lies.
    pub(super) fn place(&self, entry: UndoPtr) -> u64 {
        if self.words(entry).is_none() {
            return HOME;
        }
        // ORDERING: Acquire, slot and sum are those of the place; pairs with `spill` and `bring_home`.
        self.state(entry.chunk(), PLACE).load(Ordering::Acquire)
    }
}
