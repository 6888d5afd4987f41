//! Undo in a file: where memory is spent, full chunks leave it.
//!
//! First go those with old versions that old readers need, then those of transactions that run. The file is temporary.
//! What lies in it means nothing to a restart, nothing of it is ever synced, and the checksums of what was written stay
//! in memory. A chunk goes there whole, and once: it is read from there until no reader needs it (see
//! [`crate::undo::fetch`]).
//!
//! What is there, or on its way there, does not change. A transaction that runs makes its full chunks spillable only
//! while it can go back to no savepoint, and from then on only reads them. A writer that has a leaf latched exclusively
//! and clears the way behind a row has a pin meanwhile. The thread that moves a chunk says so first:
//!
//! | the writer that clears the way | the thread that moves a chunk |
//! |---|---|
//! | stores its pin; `SeqCst` fence; looks where the chunk is, and touches it only if it stays | says that it leaves; `SeqCst` fence; waits until it has seen each session without a pin; copies, writes, says where it is, gives the memory back |
//!
//! So each change of the chunk comes before the copy, or is not made.

use super::{Arena, Lists};
use crate::undo::chunk::{HOME, LEAVING, Open, State};
use crate::undo::file::Spill;
use crate::undo::pointer::{CHUNK, CHUNK_WORDS, UndoPtr};
use foreshore_base::{Csn, Result, crc32c};
use foreshore_io::AlignedBuf;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Chunks that are moved at once.
const BATCH: usize = if MODEL { 2 } else { 32 };
/// A chunk that is moved.
struct Moved {
    chunk: usize,
    slot: u64,
    /// Its state before.
    was: State,
}

/// Which chunks leave, if those before do not do.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Those whose entries only old readers need, all of them.
    Kept,
    /// Those that no later reader needs, because their transactions have ended before.
    Old,
    /// Those of transactions that run or have just ended.
    Running,
}

impl Arena {
    /// Returns whether there is a file.
    pub(crate) const fn can_spill(&self) -> bool {
        self.spill.is_some()
    }

    /// Moves chunks to the file, if there is no space: first those that no later reader needs, for the commits that
    /// `floor` names are over. `unpinned` waits until it has seen each session without a pin, and tells whether it has.
    /// Returns whether there is space now.
    ///
    /// # Errors
    /// `Io`, `DiskFull`. Nothing has moved then.
    pub(crate) fn spill(&self, floor: Csn, unpinned: impl FnOnce() -> bool) -> Result<bool> {
        let Some(spill) = &self.spill else { return Ok(false) };
        // WAIT: park - behind the thread that writes some chunks.
        let mut moved = spill.moved.lock();
        if self.has_space(&self.lists.lock()) {
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
        for &Moved { chunk, .. } in &leaving {
            *moved += 1;
            self.chunks.set_place(chunk, if has_moved { 2 * *moved } else { HOME });
            if has_moved {
                // If the system does not take it, it is used again when the chunk is.
                let _ = self.memory.release_words(chunk * CHUNK, CHUNK_WORDS);
            }
        }
        self.end_move(&leaving, has_moved);
        written
    }

    /// Takes chunks off the list of closed ones, and slots for them.
    fn choose(&self, spill: &Spill, floor: Csn) -> Vec<Moved> {
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
                    let (slot, was) = (lists.slots.take(), self.chunks.set_state(chunk, State::Leaving));
                    leaving.push(Moved { chunk, slot, was });
                    self.chunks.set_place(chunk, LEAVING);
                } else {
                    lists.closed.push_back(chunk);
                }
            }
        }
        leaving
    }

    /// Returns whether a closed chunk may leave, if it is its turn.
    fn may_leave(&self, chunk: usize, floor: Csn, turn: Turn) -> bool {
        // The look at the sharers first: without any the newest commit is final.
        let is_old = self.chunks.shared(chunk) == 0 && self.chunks.newest(chunk) <= floor;
        match turn {
            Turn::Kept => is_old && self.chunks.state(chunk) == State::ClosedKept,
            Turn::Old => is_old,
            Turn::Running => self.chunks.is_spillable(chunk),
        }
    }

    /// Writes chunks to their slots.
    fn write(&self, spill: &Spill, leaving: &[Moved]) -> Result<()> {
        let mut bytes = AlignedBuf::new(leaving.len() * CHUNK);
        for (copy, &Moved { chunk, slot, .. }) in bytes.chunks_exact_mut(CHUNK).zip(leaving) {
            for (to, word) in copy.chunks_exact_mut(8).zip(self.memory.words(chunk * CHUNK, CHUNK_WORDS)) {
                // ORDERING: Relaxed, no thread changes it any more.
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            self.chunks.set_slot_and_sum(chunk, slot, u64::from(crc32c(copy)));
        }
        let parts = bytes.chunks_exact(CHUNK).zip(leaving).map(|(copy, moved)| (copy, moved.slot * CHUNK as u64));
        spill.made_file()?.write_many(&parts.collect::<Vec<_>>())
    }

    /// Puts chunks where they belong when they have moved, or have not.
    fn end_move(&self, leaving: &[Moved], has_moved: bool) {
        let mut lists = self.lists.lock();
        for &Moved { chunk, slot, was } in leaving {
            if !has_moved {
                self.chunks.set_state(chunk, was);
                lists.slots.give_back(slot);
                lists.closed.push_back(chunk);
                continue;
            }
            assert!(lists.used > 0, "chunk {chunk} leaves memory, in which none is used");
            lists.used -= 1;
            // Under the mutex, as the ends of the shares that let it go.
            if self.chunks.shared(chunk) == 0 {
                self.list_filed(&mut lists, chunk);
            } else {
                self.chunks.set_state(chunk, State::FiledShared);
            }
        }
        self.note_used(&lists);
    }

    fn list_filed(&self, lists: &mut Lists, chunk: usize) {
        self.chunks.set_state(chunk, State::Filed);
        lists.filed.push(Reverse((self.chunks.newest(chunk).0, chunk)));
    }

    /// Closes donated chunks with little capacity, in which no session that looked for space has found enough.
    pub(in crate::undo) fn close_donated(&self) {
        let mut lists = self.lists.lock();
        let done: Vec<Open> = lists.donated.extract_if(.., |open| open.capacity() < CHUNK_WORDS / 2).collect();
        done.into_iter().for_each(|open| self.close_one(&mut lists, open));
    }

    /// Lets the full chunks of a transaction that runs be moved: those that it holds, which are closed, and those that
    /// it has donated and that were closed since. The transaction changes nothing in them until
    /// [`end_spillable`](Self::end_spillable). Returns whether there were any.
    pub(in crate::undo) fn make_spillable(
        &self,
        full: &mut Vec<Open>,
        shared: &mut Vec<usize>,
        spillable: &mut HashMap<usize, u64>,
    ) -> bool {
        if full.is_empty() && shared.is_empty() {
            return false;
        }
        let mut is_any = false;
        let mut lists = self.lists.lock();
        for open in full.drain(..) {
            self.chunks.share(open.chunk);
            shared.push(open.chunk);
            self.close_one(&mut lists, open);
        }
        shared.retain(|&chunk| {
            let is_open = self.chunks.state(chunk).is_open();
            if !is_open {
                self.chunks.let_spill(chunk);
                *spillable.entry(chunk).or_default() += 1;
                is_any = true;
            }
            is_open
        });
        lists.turn_due |= is_any;
        is_any
    }

    /// Ends the shares of a transaction that has let chunks be moved, with its commit number.
    pub(in crate::undo) fn end_spillable(&self, spillable: &mut HashMap<usize, u64>, csn: Csn) {
        if spillable.is_empty() {
            return;
        }
        let mut lists = self.lists.lock();
        for (chunk, count) in spillable.drain() {
            self.chunks.unshare_spillable(chunk, count, csn);
            // Every other share of a chunk in the file ends under the mutex, too.
            if self.chunks.state(chunk) == State::FiledShared && self.chunks.shared(chunk) == 0 {
                self.list_filed(&mut lists, chunk);
            }
        }
    }

    /// Frees the slot of a chunk that is freed. Returns whether it was in the file.
    pub(super) fn free_slot(&self, lists: &mut Lists, chunk: usize) -> bool {
        let is_filed = self.chunks.state(chunk) == State::Filed;
        if is_filed {
            lists.slots.give_back(self.chunks.slot_and_sum(chunk).0);
            // The snapshots that needed it were cancelled before.
            self.chunks.set_place(chunk, HOME);
        }
        is_filed
    }

    /// Returns the bytes in the file, and how many chunks were read from there.
    pub(crate) fn spilled(&self) -> (usize, u64) {
        let read = self.spill.as_ref().map_or(0, |spill| spill.read.sum());
        (self.lists.lock().slots.used() * CHUNK, read)
    }

    /// Returns whether the chunk of an entry is in the file or about to leave, and is not to be touched. By a session
    /// with a pin.
    pub(in crate::undo) fn is_leaving(&self, entry: UndoPtr) -> bool {
        self.spill.is_some() && self.place(entry) != HOME
    }

    /// Returns where an entry lies.
    pub(in crate::undo) fn place(&self, entry: UndoPtr) -> u64 {
        if self.words(entry).is_none() { HOME } else { self.chunks.place(entry.chunk()) }
    }
}
