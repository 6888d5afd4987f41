//! Copies of chunks, from the spill file or from memory.
//!
//! | reader | copies |
//! |---|---|
//! | a fetch of old versions ([`crate::undo::fetch`]) | batches of chunks, all from the file |
//! | a rollback | one spillable chunk at a time, from memory or from the file; the last [`COPIES`] are kept |
//!
//! **Protocol:** a chunk may be moved or freed during the copy, so each copy is validated.
//!
//! 1. Load the place of the chunk. In the file, the place also determines the slot and the checksum.
//! 2. Copy the words from memory, or read the slot.
//! 3. Fence, and load the place again. If the chunk was moved or freed, discard the copy.
//! 4. Compare the checksum of what was read from the file.
//!
//! **Invariant:** the checksum is compared only after the place was found unchanged. So a slot that was reused is never
//! reported as corrupted.

use super::Arena;
use crate::undo::chunk::{HOME, LEAVING};
use crate::undo::entry::Entry;
use crate::undo::pointer::{CHUNK, CHUNK_WORDS, Spot, UndoPtr};
use foreshore_base::{Error, Place, Result, crc32c};
use foreshore_io::AlignedBuf;
use foreshore_sync::Word;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::primitive::thread::yield_now;

/// The most chunks that are read from the file in parallel.
pub(in crate::undo) const BATCH: usize = if MODEL { 2 } else { 32 };
/// The most neighbouring slots that one read covers. Longer runs would leave the device too few reads in parallel.
const RUN: usize = BATCH / 4 + 1;

/// A copy of a chunk.
#[derive(Debug)]
pub(in crate::undo) struct Copied {
    chunk: usize,
    /// The place of the chunk when it was copied.
    pub(in crate::undo) place: u64,
    words: Box<[Word]>,
}

impl Copied {
    /// Returns the entry at `pointer`, which points into the chunk.
    pub(in crate::undo) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        Entry::of(self.words.get(pointer.bits() as usize % CHUNK_WORDS..)?)
    }
}

/// The address of a chunk in the file. `slot` and `sum` belong to the chunk only while it has this `place`.
#[derive(Clone, Copy, Debug)]
pub(in crate::undo) struct Away {
    slot: u64,
    sum: u64,
    pub(in crate::undo) place: u64,
    chunk: usize,
}

/// The result of reading one chunk of a batch.
struct Found {
    /// The offset of its bytes in the buffer.
    at: usize,
    /// The number of bytes read; `None` after an error.
    read: Option<usize>,
}

/// The most copies that are kept. A rollback goes through the entries of several chunks in turn.
const COPIES: usize = 8;

/// The copies that were used last, in the order of their use.
#[derive(Debug, Default)]
pub(in crate::undo) struct Copies(Vec<Copied>);

impl Copies {
    /// Returns the entry at `pointer`, if there is a copy of its chunk.
    pub(in crate::undo) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        self.0.iter().rfind(|copied| copied.chunk == pointer.chunk())?.entry(pointer)
    }

    /// Returns whether there is no copy.
    pub(in crate::undo) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of copies.
    #[cfg(test)]
    pub(in crate::undo) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is a copy of a chunk, and marks that copy as the one used last.
    fn has(&mut self, chunk: usize) -> bool {
        let at = self.0.iter().rposition(|copied| copied.chunk == chunk);
        at.inspect(|&at| self.0[at..].rotate_left(1)).is_some()
    }

    /// Keeps a copy. It replaces an older copy of the chunk, or the least recently used copy if there are [`COPIES`].
    fn keep(&mut self, copied: Copied) {
        self.0.retain(|other| other.chunk != copied.chunk);
        if self.0.len() == COPIES {
            self.0.remove(0);
        }
        self.0.push(copied);
    }
}

impl Arena {
    /// Copies a chunk that the caller's transaction has entries in and has made spillable.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written.
    pub(in crate::undo) fn copy(&self, chunk: usize, copies: &mut Copies) -> Result<()> {
        while !copies.has(chunk) {
            let place = self.chunks.place(chunk);
            if place > LEAVING {
                // The place stays the same until the caller ends its share of the chunk.
                self.read_back(self.away(chunk, place))?.into_iter().for_each(|copied| copies.keep(copied));
                continue;
            }
            let early = mutant("undo: no look behind the copy");
            early.then(yield_now);
            // ORDERING: Relaxed, validated below.
            let word = |word: &Word| Word::new(word.load(Ordering::Relaxed));
            let words = self.memory.words(chunk * CHUNK, CHUNK_WORDS).iter().map(word).collect();
            // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
            fence(Ordering::Acquire);
            // The words do not change: the chunk is spillable.
            let stays = self.chunks.place_matches(chunk, |place| place <= LEAVING);
            if stays || early {
                copies.keep(Copied { chunk, place: HOME, words });
            }
        }
        Ok(())
    }

    /// Returns the place of an entry that the caller has read, if the entry is in the file. Then the words read mean
    /// nothing. Returns `None` if the entry was in memory.
    pub(in crate::undo) fn spot(&self, entry: UndoPtr) -> Option<Spot> {
        self.spill.as_ref()?;
        // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
        fence(Ordering::Acquire);
        let place = self.place(entry);
        (place > LEAVING).then_some(Spot { entry, place })
    }

    /// Returns the address of a chunk whose `place` the caller has loaded.
    pub(in crate::undo) fn away(&self, chunk: usize, place: u64) -> Away {
        // A chunk in memory has no slot and no checksum.
        let (slot, sum) = if place > LEAVING { self.chunks.slot_and_sum(chunk) } else { (0, 0) };
        Away { slot, sum, place, chunk }
    }

    /// Reads a chunk from the file. Returns `None` if the chunk was freed meanwhile.
    fn read_back(&self, away: Away) -> Result<Option<Copied>> {
        let spill = self.spill.as_ref().expect("only then is a chunk in the file");
        spill.read.add(1);
        let mut bytes = AlignedBuf::new(CHUNK);
        let read = spill.file().read_at(&mut bytes, away.slot * CHUNK as u64);
        self.check(away, &bytes, read)
    }

    /// Reads chunks in parallel into a buffer with space for all of them. The iterator yields the chunks in the given
    /// order, each with the result that [`read_back`](Self::read_back) would return. It validates a chunk when the
    /// caller comes to it.
    pub(in crate::undo) fn read_side_by_side<'a>(
        &'a self,
        chunks: &'a [Away],
        buffer: &'a mut [u8],
    ) -> impl Iterator<Item = (Away, Result<Option<Copied>>)> + 'a {
        let spill = self.spill.as_ref().expect("only then is a chunk in the file");
        spill.read.add(chunks.len() as u64);
        // Numbers of the chunks, in the order of their slots.
        let slot = |&number: &usize| chunks[number].slot;
        let mut sorted: Vec<usize> = (0..chunks.len()).collect();
        sorted.sort_unstable_by_key(slot);
        let runs: Vec<_> =
            sorted.chunk_by(|one, next| slot(one) + 1 == slot(next)).flat_map(|run| run.chunks(RUN)).collect();
        let (mut parts, mut behind) = (Vec::new(), &mut buffer[..chunks.len() * CHUNK]);
        for run in &runs {
            let (part, rest) = behind.split_at_mut(run.len() * CHUNK);
            parts.push((part, slot(&run[0]) * CHUNK as u64));
            behind = rest;
        }
        let read = spill.file().read_many(&mut parts);
        let mut found: Vec<Option<Found>> = chunks.iter().map(|_| None).collect();
        let mut at = 0;
        for (run, read) in runs.iter().zip(read) {
            // The error may concern another chunk of the run, or a freed one. So each chunk of the run is read again,
            // alone.
            let read = read.ok();
            for (before, &number) in run.iter().enumerate() {
                let read = read.map(|bytes| bytes.saturating_sub(before * CHUNK).min(CHUNK));
                found[number] = Some(Found { at, read });
                at += CHUNK;
            }
        }
        let bytes = &*buffer;
        chunks.iter().zip(found).map(move |(&away, found)| {
            let Found { at, read } = found.expect("each chunk is in a run");
            let copied = match read {
                Some(read) => self.check(away, &bytes[at..at + CHUNK], Ok(read)),
                None => self.read_back(away),
            };
            (away, copied)
        })
    }

    /// Returns the copy of a chunk from the bytes that were read for it. Returns `None` if the chunk was freed
    /// meanwhile.
    fn check(&self, away: Away, bytes: &[u8], read: Result<usize>) -> Result<Option<Copied>> {
        // ORDERING: SeqCst, the read comes before the look: a slot is written again after its chunk was free.
        fence(Ordering::SeqCst);
        if !self.chunks.place_matches(away.chunk, |place| place == away.place) {
            return Ok(None);
        }
        if read? < CHUNK || u64::from(crc32c(bytes)) != away.sum {
            let why = "old versions of rows are not what was written";
            let spill = self.spill.as_ref().expect("only then is a chunk in the file");
            return Err(Error::corrupted(spill.file().path(), Place::Offset(away.slot * CHUNK as u64), why));
        }
        let words = bytes.chunks_exact(8).map(|word| Word::new(u64::from_le_bytes(word.try_into().expect("8 bytes"))));
        Ok(Some(Copied { chunk: away.chunk, place: away.place, words: words.collect() }))
    }
}
