//! The spill file: full chunks are moved there when memory is spent.
//!
//! Chunks with old versions that only old readers need are moved first, then chunks of running transactions. A chunk is
//! moved whole and only once. Readers then read it from the file until none needs it (see [`crate::undo::fetch`]).
//!
//! The file is temporary. A restart does not read it, so it is never synced, and the checksums of its chunks stay in
//! memory.
//!
//! A transaction makes its full chunks spillable only while it can go back to no savepoint. From then on it only reads
//! them. A writer that prunes a version chain has the leaf latched exclusively, and has a pin. The thread that moves a
//! chunk announces the move first:
//!
//! | step | writer that prunes a chain | thread that moves a chunk |
//! |---|---|---|
//! | 1 | stores its pin | stores the place `LEAVING` |
//! | 2 | `SeqCst` fence | `SeqCst` fence |
//! | 3 | loads the place; changes the chunk only if it is `HOME` | waits until it has seen each session without a pin |
//! | 4 | clears its pin | copies and writes the chunk, stores its new place, releases the memory |
//!
//! **Invariant:** a chunk in the file, or on its way there, does not change. Either a change comes before the copy, or
//! the writer finds the chunk leaving and does not make the change.

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

/// The most chunks that are moved at once.
const BATCH: usize = if MODEL { 2 } else { 32 };
/// A chunk that is being moved.
struct Moved {
    chunk: usize,
    slot: u64,
    /// The state before the move.
    was: State,
}

/// A class of chunks that may be moved. It is considered only if the classes before it have no such chunk.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Chunks whose entries are all kept for old readers.
    Kept,
    /// Chunks that no later reader needs: their transactions ended with commits up to the floor.
    Old,
    /// Chunks of transactions that run or have just ended.
    Running,
}

impl Arena {
    /// Returns whether there is a spill file.
    pub(crate) const fn can_spill(&self) -> bool {
        self.spill.is_some()
    }

    /// Moves chunks to the file, if there is no space. Returns whether there is space now.
    ///
    /// First come the chunks that no later reader needs: their newest commit is at or below `floor`. `unpinned` waits
    /// until it has seen each session without a pin, and returns whether it has.
    ///
    /// # Errors
    /// `Io`, `DiskFull`. In both cases nothing has moved.
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
                // If the release fails, the memory stays in place and is used with the chunk later.
                let _ = self.memory.release_words(chunk * CHUNK, CHUNK_WORDS);
            }
        }
        self.end_move(&leaving, has_moved);
        written
    }

    /// Removes the chunks to be moved from the list of closed ones, and takes slots for them.
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

    /// Returns whether a closed chunk belongs to the class `turn`.
    fn may_leave(&self, chunk: usize, floor: Csn, turn: Turn) -> bool {
        // The sharers are read first: without any, the newest commit is final.
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

    /// Ends a move: lists the chunks as filed, or as closed again if they were not written.
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
            // Exact, because shares of a spillable chunk end under the mutex.
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

    /// Closes the donated chunks that are more than half full. Sessions that searched for space found too little in
    /// them.
    pub(in crate::undo) fn close_donated(&self) {
        let mut lists = self.lists.lock();
        let done: Vec<Open> = lists.donated.extract_if(.., |open| open.capacity() < CHUNK_WORDS / 2).collect();
        done.into_iter().for_each(|open| self.close_one(&mut lists, open));
    }

    /// Makes the full chunks of a running transaction spillable. These are the full chunks that it holds, which are
    /// closed now, and those that it donated and that were closed since. Returns whether there were any.
    ///
    /// The transaction changes nothing in them until [`end_spillable`](Self::end_spillable).
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

    /// Ends the shares of a transaction in its spillable chunks. `csn`: its commit number.
    pub(in crate::undo) fn end_spillable(&self, spillable: &mut HashMap<usize, u64>, csn: Csn) {
        if spillable.is_empty() {
            return;
        }
        let mut lists = self.lists.lock();
        for (chunk, count) in spillable.drain() {
            self.chunks.unshare_spillable(chunk, count, csn);
            // Every other share of a chunk in the file also ends under the mutex.
            if self.chunks.state(chunk) == State::FiledShared && self.chunks.shared(chunk) == 0 {
                self.list_filed(&mut lists, chunk);
            }
        }
    }

    /// Frees the slot of a chunk that is being freed. Returns whether the chunk was in the file.
    pub(super) fn free_slot(&self, lists: &mut Lists, chunk: usize) -> bool {
        let is_filed = self.chunks.state(chunk) == State::Filed;
        if is_filed {
            lists.slots.give_back(self.chunks.slot_and_sum(chunk).0);
            // The snapshots that needed the chunk have ended or been cancelled before.
            self.chunks.set_place(chunk, HOME);
        }
        is_filed
    }

    /// Returns the bytes in use in the file, and how many chunks were read from it.
    pub(crate) fn spilled(&self) -> (usize, u64) {
        let read = self.spill.as_ref().map_or(0, |spill| spill.read.sum());
        (self.lists.lock().slots.used() * CHUNK, read)
    }

    /// Returns whether the chunk of an entry is in the file or on its way there, so that the caller must not change it.
    /// The caller's session has a pin.
    pub(in crate::undo) fn is_leaving(&self, entry: UndoPtr) -> bool {
        self.spill.is_some() && self.place(entry) != HOME
    }

    /// Returns the place of an entry's chunk.
    pub(in crate::undo) fn place(&self, entry: UndoPtr) -> u64 {
        if self.words(entry).is_none() { HOME } else { self.chunks.place(entry.chunk()) }
    }
}
