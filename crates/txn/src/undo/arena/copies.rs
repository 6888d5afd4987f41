//! Copies of chunks, from the file or from memory.

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

/// Chunks that are read from the file side by side, at most.
pub(in crate::undo) const BATCH: usize = if MODEL { 2 } else { 32 };
/// Neighbours in the file that are read as one: more in a row leave the device too little to do side by side.
const RUN: usize = BATCH / 4 + 1;

/// The copy of a chunk.
#[derive(Debug)]
pub(in crate::undo) struct Copied {
    chunk: usize,
    /// Its place when it was read from the file.
    pub(in crate::undo) place: u64,
    words: Box<[Word]>,
}

impl Copied {
    /// The entry at `pointer`, which leads into the chunk.
    pub(in crate::undo) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        Entry::of(self.words.get(pointer.bits() as usize % CHUNK_WORDS..)?)
    }
}

/// A chunk in the file. The place says whether slot and sum are still its own.
#[derive(Clone, Copy, Debug)]
pub(in crate::undo) struct Away {
    slot: u64,
    sum: u64,
    pub(in crate::undo) place: u64,
    chunk: usize,
}

/// What was read for a chunk.
struct Found {
    /// Where its bytes begin in the buffer.
    at: usize,
    /// How many were read; `None` if there was an error.
    read: Option<usize>,
}

/// Copies that are kept at once: the ways back lie in some chunks side by side.
const COPIES: usize = 8;

/// The copies that were used last, the last of them at the end.
#[derive(Debug, Default)]
pub(in crate::undo) struct Copies(Vec<Copied>);

impl Copies {
    /// The entry at `pointer`, if there is a copy of its chunk.
    pub(in crate::undo) fn entry(&self, pointer: UndoPtr) -> Option<Entry<'_>> {
        self.0.iter().rfind(|copied| copied.chunk == pointer.chunk())?.entry(pointer)
    }

    /// Returns how many there are.
    #[cfg(test)]
    pub(in crate::undo) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is a copy of a chunk. It is used now.
    fn has(&mut self, chunk: usize) -> bool {
        let at = self.0.iter().rposition(|copied| copied.chunk == chunk);
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
}

impl Arena {
    /// Copies a chunk in which the caller has entries, and has made spillable.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written.
    pub(in crate::undo) fn copy(&self, chunk: usize, copies: &mut Copies) -> Result<()> {
        while !copies.has(chunk) {
            let place = self.chunks.place(chunk);
            if place > LEAVING {
                // The place does not change before the caller has ended.
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
            // In memory it changes no more than in the file.
            let stays = self.chunks.is_still(chunk, |place| place <= LEAVING);
            if stays || early {
                copies.keep(Copied { chunk, place: HOME, words });
            }
        }
        Ok(())
    }

    /// Returns where an entry that was read was in the file, so that what was read means nothing; `None` if it was in
    /// memory.
    pub(in crate::undo) fn spot(&self, entry: UndoPtr) -> Option<Spot> {
        self.spill.as_ref()?;
        // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
        fence(Ordering::Acquire);
        let place = self.place(entry);
        (place > LEAVING).then_some(Spot { entry, place })
    }

    /// Returns where a chunk is that was found at a `place`.
    pub(in crate::undo) fn away(&self, chunk: usize, place: u64) -> Away {
        // A place outside is none in the file.
        let (slot, sum) = if place > LEAVING { self.chunks.slot_and_sum(chunk) } else { (0, 0) };
        Away { slot, sum, place, chunk }
    }

    /// Reads a chunk from the file; `None` if it has become free.
    fn read_back(&self, away: Away) -> Result<Option<Copied>> {
        let spill = self.spill.as_ref().expect("only then is a chunk in the file");
        spill.read.add(1);
        let mut bytes = AlignedBuf::new(CHUNK);
        let read = spill.file().read_at(&mut bytes, away.slot * CHUNK as u64);
        self.check(away, &bytes, read)
    }

    /// Reads chunks side by side into a buffer with space for them. Returns for each, in the order given, what
    /// [`read_back`](Self::read_back) would return, when the caller comes to it.
    pub(in crate::undo) fn read_side_by_side<'a>(
        &'a self,
        chunks: &'a [Away],
        buffer: &'a mut [u8],
    ) -> impl Iterator<Item = (Away, Result<Option<Copied>>)> + 'a {
        let spill = self.spill.as_ref().expect("only then is a chunk in the file");
        spill.read.add(chunks.len() as u64);
        // In the order of the file, by the place of each in the order given.
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
            // The error may be of another one of the run, or of one that is free: each is read alone then.
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

    /// The copy of a chunk, from the bytes that were read for it; `None` if it has become free.
    fn check(&self, away: Away, bytes: &[u8], read: Result<usize>) -> Result<Option<Copied>> {
        // ORDERING: SeqCst, the read comes before the look: a slot is written again after its chunk was free.
        fence(Ordering::SeqCst);
        if !self.chunks.is_still(away.chunk, |place| place == away.place) {
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
