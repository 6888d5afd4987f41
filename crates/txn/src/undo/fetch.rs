//! Reading undo back from the file to which it was moved.
//!
//! A reader looks behind each entry that it has read whether the chunk was still there: memory that was given back reads as
//! zeros. What is in the file it notes, and reads when it has left the leaf, without a latch; then it looks at the leaf once more.
//! What it has found counts if the leaf leads to the same entry in the same place: the entry was linked all the time. Who clears the
//! way does not get behind an entry in the file, nor behind one of a transaction that runs, so nobody has touched what lies behind.
//! And it stays while the reader's snapshot does.
//!
//! A transaction that takes back what may be moved reads copies of the chunks, from memory or from the file.

use super::UndoPtr;
use super::arena::{Arena, CHUNK, CHUNK_WORDS, PLACE, SLOT, SUM};
use super::entry::Entry;
use super::spill::{HOME, LEAVING};
use super::versions::{Older, look};
use foreshore_base::{Csn, Error, Place, Result, crc32c};
use foreshore_io::AlignedBuf;
use foreshore_sync::Word;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::primitive::thread::yield_now;
use std::ops::ControlFlow;

/// An entry that is in the file, and where its chunk is. Never the same again once the entry is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    entry: UndoPtr,
    place: u64,
}

/// The copy of a chunk.
#[derive(Debug)]
struct Copied {
    chunk: usize,
    /// Its place when it was read from the file.
    place: u64,
    words: Box<[Word]>,
}

/// Copies that are kept at once: the ways back lie in some chunks side by side.
const COPIES: usize = 8;

/// The copies that were used last, the last of them at the end.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<Copied>);

impl Copies {
    /// The entry at `pointer`, if there is a copy of its chunk.
    pub(super) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        let copied = self.0.iter().rfind(|copied| copied.chunk == pointer.chunk())?;
        Entry::of(copied.words.get(pointer.bits() as usize % CHUNK_WORDS..)?)
    }

    /// Whether there is a copy of a chunk, read from that `place` if one is given. It is used now.
    fn has(&mut self, chunk: usize, place: Option<u64>) -> bool {
        let is_it = |copied: &Copied| copied.chunk == chunk && place.is_none_or(|place| copied.place == place);
        let at = self.0.iter().rposition(is_it);
        at.inspect(|&at| self.0[at..].rotate_left(1)).is_some()
    }

    /// Keeps a copy in place of another one of the chunk, or of the one that was used longest ago.
    fn keep(&mut self, copied: Copied) {
        self.0.retain(|other| other.chunk != copied.chunk);
        if self.0.len() == COPIES {
            self.0.remove(0);
        }
        self.0.push(copied);
    }

    /// Keeps the copy that was used last.
    fn keep_last(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(1));
    }
}

/// What a reader has found.
#[derive(Debug)]
struct Answer {
    /// From where on.
    from: Spot,
    found: Older,
    image: Vec<u8>,
    /// Whether the entry from which on it has looked is only the lock of its row.
    is_lock: bool,
}

/// What a reader has fetched from the file, for the rows of one leaf.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// By which snapshot it looks.
    at: Csn,
    /// From where on it has to look.
    wanted: Vec<Spot>,
    answers: Vec<Answer>,
    copies: Copies,
}

impl Fetched {
    /// What a snapshot at `at` sees from an entry on, if it has been fetched. Otherwise that is fetched next.
    pub(crate) fn answer(&mut self, from: Spot, at: Csn, image: &mut Vec<u8>) -> Older {
        let Some(answer) = self.find(from, at) else { return Older::Spilled(from) };
        image.clone_from(&answer.image);
        answer.found
    }

    /// Whether that entry is only the lock of its row, if it has been fetched. Otherwise it is fetched next.
    pub(crate) fn is_lock(&mut self, entry: Spot, at: Csn) -> Option<bool> {
        self.find(entry, at).map(|answer| answer.is_lock)
    }

    fn find(&mut self, from: Spot, at: Csn) -> Option<&Answer> {
        if self.at != at {
            self.forget();
            self.at = at;
        }
        let found = self.answers.iter().find(|answer| answer.from == from);
        if found.is_none() {
            self.wanted.push(from);
        }
        found
    }

    /// Nobody asks again. The next leaf's rows may begin in the chunk that was read last.
    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
        self.answers.clear();
        self.copies.keep_last();
    }
}

impl Arena {
    /// Where an entry that was read was in the file, so that what was read means nothing; `None` if it was in memory.
    pub(super) fn spot(&self, entry: UndoPtr) -> Option<Spot> {
        self.spill.as_ref()?;
        // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
        fence(Ordering::Acquire);
        let place = self.place(entry);
        (place > LEAVING).then_some(Spot { entry, place })
    }

    /// Looks for what [`Fetched::answer`] has missed. Reads the file, so no latch is held; the snapshot that asks is in use, and
    /// the page that led to the entries was validated. Some answers may still be missing if what led to them has changed since,
    /// or once `is_killed` says that the snapshot is not in use any more.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written.
    pub(crate) fn fetch(&self, fetched: &mut Fetched, is_killed: &dyn Fn() -> bool) -> Result<()> {
        for from in std::mem::take(&mut fetched.wanted) {
            let mut image = Vec::new();
            let mut is_lock = false;
            if let Some(found) = self.fetch_from(from, fetched, (&mut image, &mut is_lock), is_killed)? {
                fetched.answers.push(Answer { from, found, image, is_lock });
            }
        }
        Ok(())
    }

    fn fetch_from(
        &self,
        from: Spot,
        fetched: &mut Fetched,
        (image, is_lock): (&mut Vec<u8>, &mut bool),
        is_killed: &dyn Fn() -> bool,
    ) -> Result<Option<Older>> {
        let (mut next, at, copies) = (from.entry, fetched.at, &mut fetched.copies);
        if self.place(next) != from.place {
            return Ok(None);
        }
        // As in `older`. What a killed one is led through may be circles of what was written over.
        for _ in 0..self.limit_bytes() / 8 {
            if is_killed() {
                return Ok(None);
            }
            let place = self.place(next);
            let step = if place <= LEAVING {
                let step = look(Entry::at(self, next), at, image);
                if self.spot(next).is_some() {
                    continue;
                }
                step
            } else {
                if !copies.has(next.chunk(), Some(place)) {
                    let Some(copied) = self.read_back(next.chunk(), place)? else { return Ok(None) };
                    copies.keep(copied);
                }
                let entry = copies.entry(next);
                *is_lock |= next == from.entry && entry.is_some_and(|entry| entry.is_lock());
                look(entry, at, image)
            };
            match step {
                ControlFlow::Break(answer) => return Ok(Some(answer)),
                ControlFlow::Continue(behind) => next = behind,
            }
        }
        Ok(Some(Older::Lost))
    }

    /// Copies a chunk in which the caller has entries, and has agreed that it leaves.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub(super) fn copy(&self, chunk: usize, copies: &mut Copies) -> Result<()> {
        while !copies.has(chunk, None) {
            // ORDERING: Acquire, slot and sum are those of the place; pairs with `spill`.
            let place = self.state(chunk, PLACE).load(Ordering::Acquire);
            if place > LEAVING {
                // The place does not change before the caller has ended.
                self.read_back(chunk, place)?.into_iter().for_each(|copied| copies.keep(copied));
                continue;
            }
            let early = mutant("undo: no look behind the copy");
            early.then(yield_now);
            // ORDERING: Relaxed, validated below.
            let word = |word: &Word| Word::new(word.load(Ordering::Relaxed));
            let words = self.memory.words(chunk * CHUNK, CHUNK_WORDS).iter().map(word).collect();
            // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
            fence(Ordering::Acquire);
            // ORDERING: Relaxed, ordered by the fence. In memory it changes no more than in the file.
            let stays = self.state(chunk, PLACE).load(Ordering::Relaxed) <= LEAVING;
            if stays || early {
                copies.keep(Copied { chunk, place: HOME, words });
            }
        }
        Ok(())
    }

    /// Reads a chunk from the file; `None` if it has become free.
    fn read_back(&self, chunk: usize, place: u64) -> Result<Option<Copied>> {
        let spill = self.spill.as_ref().expect("only then is a chunk in the file");
        // ORDERING: Relaxed on both, they are those of the place, or it has changed.
        let (slot, sum) =
            (self.state(chunk, SLOT).load(Ordering::Relaxed), self.state(chunk, SUM).load(Ordering::Relaxed));
        spill.read.add(1);
        let mut bytes = AlignedBuf::new(CHUNK);
        let offset = slot * CHUNK as u64;
        let read = spill.file().read_at(&mut bytes, offset);
        // ORDERING: SeqCst, the read comes before the look: a slot is written again after its chunk was free.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed, ordered by the fence.
        if self.state(chunk, PLACE).load(Ordering::Relaxed) != place {
            return Ok(None);
        }
        if read? < CHUNK || u64::from(crc32c(&bytes)) != sum {
            let why = "old versions of rows are not what was written";
            return Err(Error::corrupted(spill.file().path(), Place::Offset(offset), why));
        }
        let words = bytes.chunks_exact(8).map(|word| Word::new(u64::from_le_bytes(word.try_into().expect("8 bytes"))));
        Ok(Some(Copied { chunk, place, words: words.collect() }))
    }
}
