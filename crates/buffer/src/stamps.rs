//! Stamps: a lower bound of the LSN of each page's home, so that a page that the medium did not write is noticed.
//!
//! A lost write leaves an older state of the page in its place, with a right checksum. The **stamp** of a page is the
//! LSN of an image that is durable at home. It lies in a file of its own ([`crate::format`]). A page that is read with
//! a lower LSN is stale, and damaged like one with a wrong checksum.
//!
//! 1. *Note.* When the images of a round are synced, each LSN is noted in memory, with the first group that the page
//!    needed before the round. Only then the page may become clean, be evicted and be read again. Redo notes the LSN of
//!    a page that it finds clean and with the change.
//! 2. *Write.* A checkpoint that has determined its redo start `R` syncs the data file, writes the stamps of the images
//!    that were noted with a group before `R`, and syncs them. Then it writes its superblock. Other notes stay, up to
//!    a limit. Beyond that images are not noted.
//! 3. *Compare.* A miss compares the page with the larger of its stamp and its notes. A page in memory is not compared.
//!
//! A stamp is only a lower bound. So an older entry, one of zeros, a damaged one or a missing file only mean that less
//! is noticed. An error of the file is counted and skips the stamp; it is never the error of a page.
//!
//! # Proof
//!
//! **No false alarm:** on a medium that keeps what was synced, the home of `p` is never below its stamp or a note of it
//! when `p` is read.
//!
//! - An image is noted after its sync. What redo notes was read past the page cache, of a file that was synced.
//! - Later images of `p` have no smaller LSN: the LSN of a page only grows, even when its id is freed and used again,
//!   and behind a truncation too (docs/format.md). The doublewrite file restores no image below a sound home, and the
//!   image of a torn home is that of a later write.
//! - A page behind a truncated end reads as zeros later, or as what was there before. It is not read until a record has
//!   initialised it, with a greater LSN. Redo of that record takes any former content for a blank page.
//! - A page that redo makes anew, from a record that initialises it, may be home below its stamp until redo has
//!   repeated all of its records. Until then it is only compared with notes, whatever its home was
//!   ([`Stamps::note_rebuilt`]). If the start ends early, the next one takes the home for stale, which is a quarantine
//!   of LSN 0. So the same record initialises it once more. No redo start moves behind that record before: when redo
//!   has ended, all these pages are written home first.
//! - A quarantined page may be below its stamp. It is not compared, since no operation accepts it.
//! - A crash between two steps leaves stamps that no superblock covers. They are of durable images all the same.
//! - Stamps are of the superblock in use, or of the next one. A file with a larger number is of another moment than log
//!   and data, as when older copies of these were put in place. It is ignored as a whole, and made anew. A single stamp
//!   above the end of the log does not count. Older copies from exactly one superblock before are not told apart.
//!
//! **No stale page is accepted,** as far as no stamp was lost or skipped. Let `R` be the redo start of the superblock
//! in use. The stamp of `p` is at least the LSN of each record of `p` in a group before `R`. So a page that lacks a
//! change from before `R` is noticed when it is read, *before* redo applies a record to it. That must come first: a
//! record behind `R` would raise the LSN above the stamp, and the change before it would be missing. A page at its
//! stamp or above lacks only changes from `R` on, and redo applies them. By induction over superblocks, let `r` be a
//! record of `p` in a group before `R`:
//!
//! - *`r` was appended, or applied by redo, in this run.* `p` was dirty with a first group at most that of `r` until a
//!   round had copied it with `r` (`crates/recovery/src/restart.rs`). That round noted an LSN at or above `r` with that
//!   first group, before the checkpoint found `p` clean or with a later group. So it is among the stamps of this
//!   checkpoint, or of an earlier one.
//! - *`r` is of an earlier run, from the redo start of this one on.* Redo met `r`. It applied `r`, which is the case
//!   above, or found `p` dirty by an earlier record, which is the same, or noted `p` with at most the group of `r`.
//! - *`r` is before the redo start of this run.* Then the stamp was at least `r` when the run began. Stamps only grow.
//!
//! **A lost write that redo repeats raises no alarm** after a crash. Images with a group from `R` on are not among the
//! stamps of that superblock, since the image before them has all changes from before `R`. So the images of a page are
//! noted apart, and not merged.
//!
//! **What goes unnoticed:** a lost write whose stamp was lost too, or not written: for want of memory for the note, or
//! because of an error of the file. [`StampStats`] counts both.

mod notes;

use crate::format::stamps::{
    STAMPS_VERSION, StampBlock, block_of, block_offset, check_stamps_header, encode_stamps_header,
};
use crate::format::{HeaderFlaw, PageType, page_lsn, page_type};
use crate::guard::ExclusiveGuard;
use crate::stats::StampStats;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Lsn, PageId, Result, Uuid};
use foreshore_io::{AlignedBuf, File, Fs};
use foreshore_sync::{LockRank, Mutex, ShardedCounter};
use notes::{Note, Notes};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Frames for each block of stamps in memory. A block has the stamps of 256 pages. So those of 16 times the pool fit:
/// with more data a miss may read a block, too.
const FRAMES_A_BLOCK: usize = 16;
const MIN_BLOCKS: usize = 8;
/// Notes for each frame.
const NOTES_A_FRAME: usize = 2;
const MIN_NOTES: usize = 1024;
/// Notes that become stamps by one sync, at most.
const NOTES_A_SYNC: usize = 1 << 14;
/// Notes that are removed at once, at most.
const NOTES_AT_ONCE: usize = 1 << 10;
/// Blocks that are written at once, at most.
const RUN_BLOCKS: usize = 32;

/// The stamps of a data file. Without a file, which [`Stamps::open`] adds, no page is stale.
#[derive(Debug)]
pub struct Stamps {
    file: OnceLock<StampsFile>,
    notes: Mutex<Notes>,
    /// Block `n` is in slot `n mod len`, if it is there. The lock is held while it is read.
    blocks: Box<[Mutex<Option<Block>>]>,
    failures: ShardedCounter,
}

#[derive(Debug)]
struct StampsFile {
    file: Arc<dyn File>,
    uuid: Uuid,
    is_new: bool,
}

/// Adjacent blocks that are written at once.
struct Run {
    bytes: AlignedBuf,
    /// Number of the first one.
    first: u64,
    len: usize,
}

impl Run {
    fn new() -> Self {
        Self { bytes: AlignedBuf::new(RUN_BLOCKS * BLOCK), first: 0, len: 0 }
    }

    /// Adds a block behind the others. Returns false if it is not adjacent, or there is no room.
    fn add(&mut self, stamps: &StampBlock) -> bool {
        if self.len == 0 {
            self.first = stamps.number;
        }
        if self.len == RUN_BLOCKS || stamps.number != self.first + self.len as u64 {
            return false;
        }
        stamps.encode(&mut self.bytes[self.len * BLOCK..][..BLOCK]);
        self.len += 1;
        true
    }

    /// Writes the blocks with `write_at`, and forgets them. If that fails it writes each, since one may be damaged.
    fn write(&mut self, write_at: impl Fn(&[u8], u64) -> bool) {
        let blocks = &self.bytes[..std::mem::take(&mut self.len) * BLOCK];
        if !blocks.is_empty() && !write_at(blocks, block_offset(self.first)) && blocks.len() > BLOCK {
            for (block, number) in blocks.chunks(BLOCK).zip(self.first..) {
                write_at(block, block_offset(number));
            }
        }
    }
}

struct Block {
    stamps: StampBlock,
    /// Whether it could not be read: the stamps are not known.
    is_lost: bool,
}

/// What is in the place of a file of stamps.
#[derive(Debug)]
pub enum FoundStamps {
    /// A file with a sound header.
    Sound(Arc<dyn File>),
    /// None, a file with a damaged header or of another moment: it may be made anew.
    Lost,
    /// An entry that cannot be read.
    Unreadable,
}

impl Stamps {
    /// Returns stamps without a file, for a pool of so many frames.
    pub(crate) fn new(frames: usize) -> Self {
        let blocks = (frames / FRAMES_A_BLOCK).max(MIN_BLOCKS);
        Self {
            file: OnceLock::new(),
            notes: Mutex::new(LockRank::Leaf, Notes::new((NOTES_A_FRAME * frames).max(MIN_NOTES))),
            blocks: (0..blocks).map(|_| Mutex::new(LockRank::Stamps, None)).collect(),
            failures: ShardedCounter::new(),
        }
    }

    /// Looks for a file of stamps at `path`, and writes nothing. `seq` is that of the superblock in use.
    ///
    /// # Errors
    /// `Foreign` and `Newer` for a sound header of another database or of a newer format.
    pub fn find(fs: &dyn Fs, path: &Path, uuid: Uuid, seq: u64) -> Result<FoundStamps> {
        match fs.kind(path) {
            Ok(None) => return Ok(FoundStamps::Lost),
            Ok(Some(_)) => {}
            Err(_) => return Ok(FoundStamps::Unreadable),
        }
        let Ok(file) = fs.open(path) else { return Ok(FoundStamps::Unreadable) };
        let mut block = AlignedBuf::new(BLOCK);
        let Ok(len) = file.read_at(&mut block, 0) else { return Ok(FoundStamps::Unreadable) };
        match check_stamps_header(&block[..len], uuid) {
            Ok(of) if of <= seq + 1 => Ok(FoundStamps::Sound(file)),
            Ok(_) | Err(HeaderFlaw::Magic | HeaderFlaw::Checksum) => Ok(FoundStamps::Lost),
            Err(HeaderFlaw::Uuid) => {
                Err(Error::Foreign { path: path.to_owned(), why: "it belongs to another database" })
            }
            Err(HeaderFlaw::Newer(found)) => {
                Err(Error::Newer { path: path.to_owned(), found, supported: STAMPS_VERSION })
            }
        }
    }

    /// Uses what was found at `path`. Called once, before a page is read. If the file is lost and `creates` is true, it
    /// is made anew, without stamps. An error is counted, and there are no stamps then.
    pub fn open(&self, found: FoundStamps, fs: &dyn Fs, path: &Path, uuid: Uuid, creates: bool) {
        let opened = match found {
            FoundStamps::Sound(file) => Some(StampsFile { file, uuid, is_new: false }),
            FoundStamps::Lost if creates => {
                create(fs, path, uuid).ok().map(|file| StampsFile { file, uuid, is_new: true })
            }
            FoundStamps::Lost => return,
            FoundStamps::Unreadable => None,
        };
        match opened {
            Some(opened) => assert!(self.file.set(opened).is_ok(), "stamps have one file"),
            None => self.failures.add(1),
        }
    }

    /// Notes images that are durable at home: of each page its id, its LSN, and the first group that it needed before.
    pub(crate) fn note(&self, images: impl Iterator<Item = (PageId, Lsn, GroupNo)>) {
        if self.file.get().is_some() {
            let mut notes = self.notes.lock();
            images.for_each(|(pid, lsn, group)| notes.add(Note { pid, lsn, group }));
        }
    }

    /// Notes that redo has found `page` with the change of a record in `group`. A clean page is durable at home.
    pub fn note_found(&self, page: &ExclusiveGuard<'_>, group: GroupNo) {
        if !page.is_dirty() {
            self.note([(page.pid(), page.lsn(), group)].into_iter());
        }
    }

    /// Notes that redo has initialised a page by the record at `lsn`. If that is behind its stamp, the page may go home
    /// below the stamp, and be read again. Called under the latch of the page.
    pub fn note_rebuilt(&self, pid: PageId, lsn: Lsn) {
        let is_behind = self.with_block(pid, |block| block.is_lost || block.stamps.get(pid) > lsn);
        if is_behind == Some(true) {
            self.notes.lock().rebuilt.insert(pid);
        }
    }

    /// Whether redo has initialised pages behind their stamps. They have to be home before the redo start moves.
    #[must_use]
    pub fn has_rebuilt(&self) -> bool {
        !self.notes.lock().rebuilt.is_empty()
    }

    /// Ends redo: all pages that it has changed are home, at their stamps or above.
    pub fn end_redo(&self) {
        self.notes.lock().rebuilt.clear();
    }

    /// Returns the LSN that the home of a page has at least, as far as that is known. The log ends at `durable` or
    /// later.
    #[must_use]
    pub fn least(&self, pid: PageId, durable: Lsn) -> Lsn {
        // The note first: it is removed only when the block has it.
        let (noted, is_rebuilt) = {
            let notes = self.notes.lock();
            (notes.newest(pid), notes.rebuilt.contains(&pid))
        };
        if is_rebuilt {
            return noted;
        }
        let stamp = self.with_block(pid, |block| block.stamps.get(pid)).filter(|&stamp| stamp <= durable);
        noted.max(stamp.unwrap_or_default())
    }

    /// Returns whether a sound page as read from disk is stale: its home has had an LSN of at least `least`.
    #[must_use]
    pub fn is_stale(page: &[u8], least: Lsn) -> bool {
        page_lsn(page) < least && page_type(page) != Some(PageType::Quarantined)
    }

    /// Writes the stamps of the images that were noted with a group before `end`, and makes them durable, for the
    /// superblock `seq` that follows. One thread at a time does so. An error is counted, and these stamps are skipped.
    pub fn write(&self, end: GroupNo, seq: u64) {
        let Some(StampsFile { file, uuid, .. }) = self.file.get() else { return };
        let mut due = self.notes.lock().take();
        // By page, and behind them those that are not due.
        due.sort_unstable_by_key(|note| (note.group >= end, note.pid));
        let later = due.split_off(due.partition_point(|note| note.group < end));
        self.notes.lock().put_back(later);
        if due.is_empty() {
            return;
        }
        let mut header = AlignedBuf::new(BLOCK);
        encode_stamps_header(&mut header, *uuid, seq);
        self.count(file.write_at(&header, 0));
        let mut run = Run::new();
        for notes in due.chunks(NOTES_A_SYNC) {
            self.write_blocks(&**file, notes, &mut run);
            self.count(file.sync());
            notes.chunks(NOTES_AT_ONCE).for_each(|notes| self.notes.lock().remove(notes));
        }
    }

    /// Writes the blocks that `notes` raise, adjacent ones at once, and raises those in memory behind that. So one that
    /// is read meanwhile does not lack what is written.
    fn write_blocks(&self, file: &dyn File, notes: &[Note], run: &mut Run) {
        let by_block = || notes.chunk_by(|a, b| block_of(a.pid) == block_of(b.pid));
        let raise = |stamps: &mut StampBlock, notes: &[Note]| {
            let mut is_raised = false;
            for note in notes {
                is_raised |= stamps.raise(note.pid, note.lsn);
            }
            is_raised
        };
        for notes in by_block() {
            let mut stamps = self.with_block(notes[0].pid, |block| block.stamps.clone()).expect("there is a file");
            if raise(&mut stamps, notes) && !run.add(&stamps) {
                run.write(|bytes, offset| self.count(file.write_at(bytes, offset)).is_some());
                assert!(run.add(&stamps), "an empty run has room");
            }
        }
        run.write(|bytes, offset| self.count(file.write_at(bytes, offset)).is_some());
        for notes in by_block() {
            // One that is read later is read from the file.
            let number = block_of(notes[0].pid);
            if let Some(block) = self.slot(number).lock().as_mut().filter(|block| block.stamps.number == number) {
                raise(&mut block.stamps, notes);
            }
        }
    }

    fn slot(&self, number: u64) -> &Mutex<Option<Block>> {
        &self.blocks[(number % self.blocks.len() as u64) as usize]
    }

    /// Calls `work` with the block of a page, which is read if it is not in memory. A block that cannot be read counts
    /// as one without stamps, so that it is not read again at every miss, and the next write may mend it. `None`
    /// without a file.
    fn with_block<T>(&self, pid: PageId, work: impl FnOnce(&mut Block) -> T) -> Option<T> {
        let StampsFile { file, .. } = self.file.get()?;
        let number = block_of(pid);
        let mut slot = self.slot(number).lock();
        let mut block = match slot.take() {
            Some(block) if block.stamps.number == number => block,
            _ => {
                let mut bytes = AlignedBuf::new(BLOCK);
                let len = self.count(file.read_at(&mut bytes, block_offset(number)));
                Block { stamps: StampBlock::decode(number, &bytes[..len.unwrap_or(0)]), is_lost: len.is_none() }
            }
        };
        let done = work(&mut block);
        *slot = Some(block);
        Some(done)
    }

    fn count<T>(&self, result: Result<T>) -> Option<T> {
        result.inspect_err(|_| self.failures.add(1)).ok()
    }

    pub(crate) fn stats(&self) -> StampStats {
        StampStats {
            is_new: self.file.get().is_some_and(|file| file.is_new),
            dropped: self.notes.lock().dropped,
            failures: self.failures.sum(),
        }
    }
}

/// Creates a file without stamps in the place of whatever is at `path`, durably.
fn create(fs: &dyn Fs, path: &Path, uuid: Uuid) -> Result<Arc<dyn File>> {
    let prepared = path.with_extension("tmp");
    if fs.kind(&prepared)?.is_some() {
        fs.remove(&prepared)?;
    }
    let mut block = AlignedBuf::new(BLOCK);
    encode_stamps_header(&mut block, uuid, 0);
    let file = fs.create(&prepared)?;
    file.write_at(&block, 0)?;
    file.sync()?;
    fs.rename(&prepared, path)?;
    fs.sync_dir(path.parent().expect("a file has a directory"))?;
    fs.open(path)
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
